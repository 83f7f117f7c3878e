//! What the ratios have to keep, on any machine.

use k3_kernels::Isa;
use serde::Serialize;

use super::matrix::{PACKED, PREPARED};
use super::report::Row;
use crate::fork_join::ForkJoin;

/// A bound on one figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// What is bounded.
    pub what: String,
    /// The median that was found.
    pub found: f64,
    /// The bound.
    pub bound: f64,
    /// Whether the bound is the most there may be, instead of the least.
    pub is_most: bool,
    /// Whether it is kept.
    pub kept: bool,
}

/// Least bytes of a product with one position, to reading: kernel, set, ratio.
const OF_READ: [(&str, Isa, f64); 4] = [
    ("bf16", Isa::Avx512, 0.78),
    ("bf16", Isa::Avx2, 0.60),
    ("mxfp4", Isa::Avx512, 0.25),
    ("mxfp4", Isa::Avx2, 0.20),
];

/// The same for the product from prepared activations, where the processor adds
/// products of bytes in one instruction.
const PREPARED_OF_READ: f64 = 0.38;

/// Least bytes of a product from packed rows with one position, to the product
/// from rows as they are.
const OF_UNPACKED: [(Isa, f64); 2] = [(Isa::Avx512, 0.82), (Isa::Avx2, 0.45)];

/// Least bytes of that product, to reading: beside a slow one, anything is fast.
const UNPACKED_OF_READ: f64 = 0.6;

/// Least operations with eight positions, to one.
const OF_ONE_POSITION: [(&str, Isa, f64); 4] = [
    ("bf16", Isa::Avx512, 2.7),
    ("bf16", Isa::Avx2, 1.8),
    ("mxfp4", Isa::Avx512, 1.8),
    ("mxfp4", Isa::Avx2, 1.4),
];

/// Least operations per CPU second on several threads, to one thread.
const OF_ONE_THREAD: f64 = 0.9;

/// Most seconds of an empty job over a pool that is in use.
const FORK_JOIN_SECONDS: f64 = 20e-6;

/// The limits of what was measured; what was not has none.
#[must_use]
pub fn of(rows: &[Row], fork_join: &[ForkJoin]) -> Vec<Limit> {
    let mut limits = Vec::new();
    for (kernel, isa, bound) in OF_READ {
        let row = find(rows, kernel, isa, 1, 1);
        let found = row.and_then(|row| row.of_read);
        let what = format!("{kernel} T=1 to reading, {isa}");
        limits.extend(found.map(|ratio| least(what, ratio.median, bound)));
    }
    if has_byte_products() {
        let row = find(rows, PREPARED, Isa::Avx512, 1, 1);
        let found = row.and_then(|row| row.of_read);
        let what = format!("{PREPARED} T=1 to reading, {}", Isa::Avx512);
        limits.extend(found.map(|ratio| least(what, ratio.median, PREPARED_OF_READ)));
    }
    for (isa, bound) in OF_UNPACKED {
        let Some(row) = find(rows, PACKED, isa, 1, 1) else {
            continue;
        };
        let what = format!("{PACKED} T=1 to bf16, {isa}");
        limits.extend(
            row.of_unpacked
                .map(|found| least(what, found.median, bound)),
        );
        let what = format!("bf16 beside {PACKED} T=1 to reading, {isa}");
        let found = row.unpacked_of_read;
        limits.extend(found.map(|found| least(what, found.median, UNPACKED_OF_READ)));
    }
    for (kernel, isa, bound) in OF_ONE_POSITION {
        let row = find(rows, kernel, isa, 8, 1);
        let found = row.and_then(|row| row.of_one_position);
        let what = format!("{kernel} T=8 to T=1, {isa}");
        limits.extend(found.map(|ratio| least(what, ratio.median, bound)));
    }
    for row in rows {
        let is_bounded = row.isa != Isa::Scalar && matches!(row.positions, Some(1 | 8));
        let found = row.of_one_thread.filter(|_| is_bounded);
        limits.extend(found.map(|ratio| {
            let (kernel, isa, threads) = (row.kernel, row.isa, row.threads);
            let positions = row.positions.unwrap_or(1);
            let what = format!("{kernel} T={positions} on {threads} threads to 1, {isa}");
            least(what, ratio.median, OF_ONE_THREAD)
        }));
    }
    for pool in fork_join {
        let found = pool.busy_seconds.median;
        limits.push(Limit {
            what: format!("seconds of an empty job, {} threads", pool.threads),
            found,
            bound: FORK_JOIN_SECONDS,
            is_most: true,
            kept: found <= FORK_JOIN_SECONDS,
        });
    }
    limits
}

/// Whether this is a processor whose AVX-512 has VNNI.
#[cfg(target_arch = "x86_64")]
fn has_byte_products() -> bool {
    std::arch::is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_byte_products() -> bool {
    false
}

fn find<'r>(
    rows: &'r [Row],
    kernel: &str,
    isa: Isa,
    positions: usize,
    threads: usize,
) -> Option<&'r Row> {
    rows.iter().find(|row| {
        row.kernel == kernel
            && row.isa == isa
            && row.positions == Some(positions)
            && row.threads == threads
    })
}

fn least(what: String, found: f64, bound: f64) -> Limit {
    Limit {
        what,
        found,
        bound,
        is_most: false,
        kept: found >= bound,
    }
}

#[cfg(test)]
mod tests {
    use k3_runtime::statistics::Spread;

    use super::*;
    use crate::kernels::matrix::{bf16_spec, bf16_x3_spec};
    use crate::rounds::Compared;

    /// `share` is the part of reading.
    fn row(isa: Isa, threads: usize, positions: usize, share: f64) -> Row {
        let (rates, compared) = (vec![1e9], Compared::default());
        let spec = bf16_spec(positions);
        Row::new(&spec, isa, threads, &[share], rates, &[1.0], compared)
    }

    fn spread(value: f64) -> Spread {
        Spread::of(&[value]).unwrap()
    }

    #[test]
    fn each_limit_is_kept_at_its_bound_and_missed_below() {
        let verdicts = |share, batch, threads, seconds| {
            let mut rows = vec![row(Isa::Avx512, 1, 1, share), row(Isa::Avx512, 1, 8, 0.3)];
            rows[1].of_one_position = Some(spread(batch));
            rows.push(row(Isa::Avx512, 2, 1, share));
            rows[2].of_one_thread = Some(spread(threads));
            let pool = ForkJoin {
                threads: 2,
                busy_seconds: spread(seconds),
                idle_seconds: spread(1.0),
            };
            let limits = of(&rows, &[pool]);
            limits.iter().map(|limit| limit.kept).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(0.78, 2.7, 0.9, 20e-6), [true; 4]);
        assert_eq!(verdicts(0.77, 2.6, 0.89, 21e-6), [false; 4]);
    }

    #[test]
    fn packed_products_are_bounded_by_those_beside_them() {
        let verdicts = |isa, packed: f64, unpacked: f64| {
            let row = Row::new(
                &bf16_x3_spec(1),
                isa,
                1,
                &[packed],
                vec![1.0],
                &[1.0],
                Compared::default(),
            );
            let limits = of(&[row.beside(&[unpacked])], &[]);
            limits.iter().map(|limit| limit.kept).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(Isa::Avx512, 0.82, 1.0), [true, true]);
        assert_eq!(verdicts(Isa::Avx512, 0.81, 1.0), [false, true]);
        assert_eq!(verdicts(Isa::Avx512, 0.5, 0.5), [true, false]);
        assert_eq!(verdicts(Isa::Avx2, 0.45, 1.0), [true, true]);
        assert_eq!(verdicts(Isa::Avx2, 0.44, 1.0), [false, true]);
        assert!(verdicts(Isa::Scalar, 0.01, 1.0).is_empty());
    }

    #[test]
    fn what_was_not_measured_has_no_limit() {
        assert!(of(&[], &[]).is_empty());
        assert!(of(&[row(Isa::Scalar, 1, 1, 0.1)], &[]).is_empty());
        assert!(of(&[row(Isa::Avx2, 1, 2, 0.1)], &[]).is_empty());
    }
}
