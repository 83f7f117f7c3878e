//! The rates of the two kernels that weights pass through.
//!
//! Every byte of the trunk is multiplied by one of them, every byte of an
//! expert by the other, so bytes over rate is what a token's matrices take
//! when all is in memory. Attention over a long context comes on top.

use std::time::Instant;

use k3_io::{HugeArena, PagePolicy, SlotArena};
use k3_kernels::{KernelSet, MXFP4_GROUP};
use k3_models::Workers;
use k3_models::parallel::split_units;
use k3_runtime::{Cancel, ComputePool};
use serde::Serialize;

use crate::error::CliError;

/// Weights of one pass: more than caches hold, so that they come from memory
/// as in a run.
const PASS_BYTES: usize = 128 << 20;
/// Columns of a matrix: a multiple of everything that kernels block by.
const COLUMNS: usize = 4096;
/// Longest time for one kernel.
const SECONDS: f64 = 0.4;
/// Passes at least, of which the first is not counted.
const PASSES_MIN: usize = 3;

/// What the processor gives to weights that stream through it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Arithmetic {
    pub(super) threads: usize,
    /// Bytes of bf16 weights per second, one position at a time.
    pub(super) bf16_bytes_per_second: f64,
    /// The same for MXFP4 weights, scales counted.
    pub(super) mxfp4_bytes_per_second: f64,
}

impl Arithmetic {
    /// Measures both with the threads of `pool`, as a sweep uses them.
    ///
    /// # Errors
    ///
    /// Memory that cannot be had.
    pub(super) fn measure(pool: &ComputePool, cancel: &Cancel) -> Result<Self, CliError> {
        let _entered = pool.enter();
        let (arena, _) = HugeArena::reserve(PASS_BYTES, PagePolicy::Transparent)?;
        let slots = SlotArena::new(&arena, 0..PASS_BYTES, PASS_BYTES)?;
        let mut weights = slots.acquire(0).expect("the only slot is free");
        fill(pool, &mut weights);
        let weights: &[u8] = &weights;
        let kernels = KernelSet::detect();
        let x: Vec<f32> = (0..COLUMNS)
            .map(|i| if i % 3 == 0 { -0.5 } else { 0.75 })
            .collect();

        let row_bytes = 2 * COLUMNS;
        let bf16 = |out: &mut [f32]| {
            split_units(pool, out, 1, |first, part| {
                let rows = &weights[first * row_bytes..][..part.len() * row_bytes];
                (kernels.matmul_bf16)(rows, &x, 1, part);
            });
        };
        let mut out = vec![0.0; PASS_BYTES / row_bytes];
        let bf16_rate = rate(PASS_BYTES, cancel, || bf16(&mut out));

        let (packed_bytes, scale_bytes) = (COLUMNS / 2, COLUMNS / MXFP4_GROUP);
        let row_count = PASS_BYTES / (packed_bytes + scale_bytes);
        let (packed, scales) = weights.split_at(row_count * packed_bytes);
        let mxfp4 = |out: &mut [f32]| {
            split_units(pool, out, 1, |first, part| {
                let rows = &packed[first * packed_bytes..][..part.len() * packed_bytes];
                let scales = &scales[first * scale_bytes..][..part.len() * scale_bytes];
                (kernels.matmul_mxfp4)(rows, scales, &x, 1, part);
            });
        };
        let mut out = vec![0.0; row_count];
        let pass_bytes = row_count * (packed_bytes + scale_bytes);
        Ok(Self {
            threads: pool.count(),
            bf16_bytes_per_second: bf16_rate,
            mxfp4_bytes_per_second: rate(pass_bytes, cancel, || mxfp4(&mut out)),
        })
    }

    /// Seconds for one token's matrices.
    #[allow(clippy::cast_precision_loss, reason = "a time for people to read")]
    pub(super) fn seconds(&self, trunk_bytes: u64, expert_bytes: u64) -> f64 {
        trunk_bytes as f64 / self.bf16_bytes_per_second
            + expert_bytes as f64 / self.mxfp4_bytes_per_second
    }
}

/// Fills with ordinary numbers, whether read as bf16, as E2M1 or as a scale:
/// none is infinite, NaN or so small that it takes a slow path.
fn fill(pool: &dyn Workers, weights: &mut [u8]) {
    split_units(pool, weights, 2, |first, part| {
        for (index, pair) in part.chunks_exact_mut(2).enumerate() {
            let mixed = (first + index).wrapping_mul(0x9e37_79b9) >> 7;
            let [low, high, ..] = mixed.to_le_bytes();
            // bf16 from 0.003 to 0.25; as scales, 2^-68 to 2^-1.
            pair[0] = 0x72 | (low & 0x0c);
            pair[1] = 0x3b + (high & 3);
        }
    });
}

/// Bytes per second, by the median pass.
#[allow(clippy::cast_precision_loss, reason = "a rate for people to read")]
fn rate(pass_bytes: usize, cancel: &Cancel, mut pass: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut seconds = Vec::new();
    while !cancel.is_requested()
        && (seconds.len() < PASSES_MIN || start.elapsed().as_secs_f64() < SECONDS)
    {
        let before = Instant::now();
        pass();
        seconds.push(before.elapsed().as_secs_f64());
    }
    // The first pass finds nothing where it will be later.
    let counted = seconds.get_mut(1..).unwrap_or_default();
    counted.sort_by(f64::total_cmp);
    let median = counted.get(counted.len() / 2).copied().unwrap_or(f64::NAN);
    pass_bytes as f64 / median.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_ordinary_numbers_in_every_reading() {
        let pool = ComputePool::new(1).unwrap();
        let mut weights = vec![0; 1 << 16];
        fill(&pool, &mut weights);
        for pair in weights.chunks_exact(2) {
            let value = f32::from_bits(u32::from(pair[0]) << 16 | u32::from(pair[1]) << 24);
            assert!(value.is_normal() && value.abs() < 2.0, "{value}");
        }
        let kernels = KernelSet::detect();
        let mut out = [0.0; 8];
        let x = vec![0.5; COLUMNS];
        let (packed, scales) = weights[..8 * (COLUMNS / 2 + COLUMNS / 32)].split_at(4 * COLUMNS);
        assert_eq!(
            (kernels.matmul_mxfp4)(packed, scales, &x, 1, &mut out),
            0,
            "no scale is NaN"
        );
        assert!(out.iter().all(|value| value.is_finite()), "{out:?}");
    }

    #[test]
    fn a_token_s_matrices_take_bytes_over_rate() {
        let arithmetic = Arithmetic {
            threads: 1,
            bf16_bytes_per_second: 10.0,
            mxfp4_bytes_per_second: 5.0,
        };
        assert_eq!(arithmetic.seconds(100, 20), 14.0);
    }

    #[test]
    fn an_interrupted_measurement_ends_at_once() {
        let cancel = Cancel::default();
        cancel.request();
        rate(1, &cancel, || panic!("nothing is computed"));
    }
}
