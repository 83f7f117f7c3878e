//! Norms and attention over snapshots.

use crate::assert_order;
use crate::orders::{self, Random, round};

const EPS: f32 = 1e-5;

/// A sum of products in some order.
type Order = fn(&[f64]) -> f64;

fn squares(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x) * f64::from(x)).collect()
}

/// The steps of a norm from the sum of squares to the factor.
fn rms(ss: f64, n: usize) -> f32 {
    round(1.0 / (ss / n as f64 + f64::from(EPS)).sqrt())
}

fn l2(ss: f64, _: usize) -> f32 {
    round(1.0 / (ss + f64::from(1e-6_f32)).sqrt())
}

/// A vector on which the factor of the serial sum differs from that of another
/// order.
///
/// Sums of squares differ by a few units in the last place of an f64, the factor
/// is an f32: only a sum next to a rounding boundary shows the order. So random
/// vectors are completed, by ever smaller values, to just below a boundary.
fn boundary_vector(n: usize, factor: fn(f64, usize) -> f32, other: Order) -> Vec<f32> {
    for seed in 0..2000 {
        let random = &mut Random(seed);
        let mut x: Vec<f32> = (0..n).map(|_| random.value(-2, 2)).collect();
        let tail = n - 6;
        x[tail..].fill(0.0);
        let start = orders::serial(&squares(&x));
        // The largest sum with the same factor, by bisection over the bits: the
        // factor falls as the sum grows.
        let (mut low, mut high) = (start.to_bits(), (start * 1.01).to_bits());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if factor(f64::from_bits(middle), n) == factor(start, n) {
                low = middle;
            } else {
                high = middle;
            }
        }
        for place in tail..n {
            let missing = f64::from_bits(low) - orders::serial(&squares(&x));
            if missing > 0.0 {
                x[place] = round(missing.sqrt());
            }
        }
        let squares = squares(&x);
        if factor(orders::serial(&squares), n) != factor(other(&squares), n) {
            return x;
        }
    }
    panic!("no vector tells the orders apart");
}

fn scaled(x: &[f32], inv: f32) -> Vec<f32> {
    x.iter().map(|x| x * inv).collect()
}

#[test]
fn rmsnorm_sums_squares_serially() {
    let orders: [(&str, Order); 3] = [
        ("matmul order", orders::matmul),
        ("8 lanes", orders::eight_lanes),
        ("descending", orders::descending),
    ];
    for (name, other) in orders {
        let n = 300;
        let x = boundary_vector(n, rms, other);
        let squares = squares(&x);
        assert_order(
            |set| {
                let mut out = vec![0.0; n];
                (set.rmsnorm)(&x, &vec![1.0; n], EPS, &mut out);
                out
            },
            &scaled(&x, rms(orders::serial(&squares), n)),
            &[(name, scaled(&x, rms(other(&squares), n)))],
            n / 4,
        );
    }
}

#[test]
fn l2norm_sums_squares_serially() {
    let n = 128;
    let x = boundary_vector(n, l2, orders::matmul);
    let squares = squares(&x);
    assert_order(
        |set| {
            let mut out = x.clone();
            (set.l2norm)(&mut out);
            out
        },
        &scaled(&x, l2(orders::serial(&squares), n)),
        &[("matmul order", scaled(&x, l2(orders::matmul(&squares), n)))],
        n / 4,
    );
}

#[test]
fn rmsnorm_multiplies_by_the_weight_first_and_rounds_each_step() {
    let random = &mut Random(20);
    let n = 200;
    let x: Vec<f32> = (0..n).map(|_| random.value(-9, -5)).collect();
    let w: Vec<f32> = (0..n).map(|_| random.value(-2, 2)).collect();
    let ss = orders::serial(&squares(&x));
    let inv = rms(ss, n);
    let each = |f: &dyn Fn(f32, f32) -> f32| -> Vec<f32> {
        x.iter().zip(&w).map(|(&x, &w)| f(x, w)).collect()
    };
    let mean = ss / n as f64;
    let root_in_f32 = 1.0 / (round(mean) + EPS).sqrt();
    let eps_ignored = round(1.0 / mean.sqrt());
    assert_order(
        |set| {
            let mut out = vec![0.0; n];
            (set.rmsnorm)(&x, &w, EPS, &mut out);
            out
        },
        &each(&|x, w| (w * x) * inv),
        &[
            ("w * (x * inv)", each(&|x, w| w * (x * inv))),
            ("(w * inv) * x", each(&|x, w| (w * inv) * x)),
            (
                "one rounding",
                each(&|x, w| round(f64::from(w) * f64::from(x) * f64::from(inv))),
            ),
            ("root in f32", each(&|x, w| (w * x) * root_in_f32)),
            ("no eps", each(&|x, w| (w * x) * eps_ignored)),
        ],
        10,
    );
}

#[test]
fn l2norm_adds_the_f32_constant_under_the_root() {
    let n = 128;
    let random = &mut Random(21);
    let x: Vec<f32> = (0..n).map(|_| random.value(-14, -10)).collect();
    let ss = orders::serial(&squares(&x));
    let inv = |eps: f64| round(1.0 / (ss + eps).sqrt());
    assert_order(
        |set| {
            let mut out = x.clone();
            (set.l2norm)(&mut out);
            out
        },
        &scaled(&x, inv(f64::from(1e-6_f32))),
        &[
            ("none", scaled(&x, inv(0.0))),
            ("on the mean", scaled(&x, inv(1e-6 * n as f64))),
            (
                "added to the root",
                scaled(&x, round(1.0 / (ss.sqrt() + 1e-6))),
            ),
        ],
        n / 4,
    );
}

/// Plain softmax weights: f64 serial normaliser, one rounding each.
fn softmax(scores: &[f32]) -> Vec<f32> {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let e: Vec<f32> = scores
        .iter()
        .map(|s| k3_kernels::math::exp(s - max))
        .collect();
    let z = orders::serial(&e.iter().map(|&e| f64::from(e)).collect::<Vec<_>>());
    e.iter().map(|&e| round(f64::from(e) / z)).collect()
}

/// Adds the sources in f32, ascending, by `weights`.
fn mix(weights: &[f32], sources: &[Vec<f32>]) -> Vec<f32> {
    let mut out = vec![0.0; sources[0].len()];
    for (weight, source) in weights.iter().zip(sources) {
        for (out, value) in out.iter_mut().zip(source) {
            *out += weight * value;
        }
    }
    out
}

/// Nine sources and a fold. With `cancelling`, large parts of every score
/// cancel, so that it keeps only what its order of additions left over.
fn snapshots(cancelling: bool) -> (Vec<Vec<f32>>, Vec<f32>) {
    let n = 96;
    let random = &mut Random(27);
    let mut fold: Vec<f32> = (0..n).map(|_| random.value(-6, -3)).collect();
    let mut sources: Vec<Vec<f32>> = (0..9)
        .map(|_| (0..n).map(|_| random.value(-6, -2)).collect())
        .collect();
    if cancelling {
        for i in (0..n / 2).step_by(2) {
            fold[i] = random.value(24, 30);
            fold[i + 1] = -fold[i];
            for source in &mut sources {
                source[i] = random.value(0, 4);
                source[i + 1] = source[i];
            }
        }
    }
    (sources, fold)
}

/// The scores in one order, of values rounded after the norm or not.
fn snapshot_scores(sources: &[Vec<f32>], fold: &[f32], rounded: bool, order: Order) -> Vec<f32> {
    let score = |v: &Vec<f32>| {
        let inv = rms(orders::serial(&squares(v)), v.len());
        let normalised = v.iter().map(|&v| {
            if rounded {
                f64::from(v * inv)
            } else {
                f64::from(v) * f64::from(inv)
            }
        });
        let products: Vec<f64> = normalised
            .zip(fold)
            .map(|(v, &f)| v * f64::from(f))
            .collect();
        round(order(&products))
    };
    sources.iter().map(score).collect()
}

#[test]
fn snapshots_are_scored_normalised_and_mixed_raw() {
    for cancelling in [false, true] {
        let (sources, fold) = snapshots(cancelling);
        let n = fold.len();
        let mixed = |rounded, order| {
            mix(
                &softmax(&snapshot_scores(&sources, &fold, rounded, order)),
                &sources,
            )
        };
        let weights = softmax(&snapshot_scores(&sources, &fold, true, orders::serial));
        let normalised: Vec<Vec<f32>> = sources
            .iter()
            .map(|v| scaled(v, rms(orders::serial(&squares(v)), n)))
            .collect();
        let backwards: (Vec<f32>, Vec<Vec<f32>>) = (
            weights.iter().rev().copied().collect(),
            sources.iter().rev().cloned().collect(),
        );
        let wrong = [
            ("normalised values mixed", mix(&weights, &normalised)),
            ("sources descending", mix(&backwards.0, &backwards.1)),
            if cancelling {
                ("score in matmul order", mixed(true, orders::matmul))
            } else {
                ("score of unrounded values", mixed(false, orders::serial))
            },
        ];
        let slices: Vec<&[f32]> = sources.iter().map(Vec::as_slice).collect();
        assert_order(
            |set| {
                let mut out = vec![f32::NAN; n];
                (set.attn_res)(&slices, &fold, EPS, &mut out);
                out
            },
            &mix(&weights, &sources),
            &wrong,
            5,
        );
    }
}
