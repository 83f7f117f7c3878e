//! The arithmetic of `docs/numerics.md`, one plain loop per line of its table.
//!
//! Written from the definition and sharing no body with k3-kernels, except the
//! correctly rounded `exp` and `tanh`, which are proved on their own.

use k3_kernels::math;

/// Rounds to f32 once, the `f32(...)` of the definition.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the one rounding the definition asks for"
)]
pub(super) fn round_f32(value: f64) -> f32 {
    value as f32
}

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + math::exp(-x))
}

/// "Matmul order": 16 lanes over the full blocks, the tree, the remainder
/// added serially. `term(i)` is the exact product of element `i`.
pub(super) fn sum_in_lanes(count: usize, term: impl Fn(usize) -> f64) -> f64 {
    let full = count / 16 * 16;
    let mut lane = [0.0_f64; 16];
    for i in 0..full {
        lane[i % 16] += term(i);
    }
    let mut tree = [0.0_f64; 4];
    for (j, sum) in tree.iter_mut().enumerate() {
        *sum = (lane[j] + lane[j + 4]) + (lane[j + 8] + lane[j + 12]);
    }
    let mut acc = (tree[0] + tree[1]) + (tree[2] + tree[3]);
    for i in full..count {
        acc += term(i);
    }
    acc
}

pub(super) fn sum_serial(count: usize, term: impl Fn(usize) -> f64) -> f64 {
    let mut acc = 0.0_f64;
    for i in 0..count {
        acc += term(i);
    }
    acc
}

/// The exact product of two f32.
pub(super) fn product(a: f32, b: f32) -> f64 {
    f64::from(a) * f64::from(b)
}

/// 1 / sqrt(mean square + eps), rounded to f32.
pub(super) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let ss = sum_serial(x.len(), |i| product(x[i], x[i]));
    round_f32(1.0 / (ss / x.len() as f64 + f64::from(eps)).sqrt())
}

/// Which way round the three factors of a norm are multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NormOrder {
    /// (w * x) * inv, the definition.
    WeightFirst,
    /// w * (x * inv), equal but for rounding.
    WeightLast,
}

pub(super) fn rmsnorm(x: &[f32], weight: &[f32], eps: f32, order: NormOrder) -> Vec<f32> {
    assert_eq!(x.len(), weight.len(), "a norm weight of another width");
    let inv = inverse_rms(x, eps);
    let normed = |(x, w): (&f32, &f32)| match order {
        NormOrder::WeightFirst => (w * x) * inv,
        NormOrder::WeightLast => w * (x * inv),
    };
    x.iter().zip(weight).map(normed).collect()
}

pub(super) fn l2norm(v: &mut [f32]) {
    let ss = sum_serial(v.len(), |i| product(v[i], v[i]));
    let inv = round_f32(1.0 / (ss + f64::from(1e-6_f32)).sqrt());
    for value in v {
        *value *= inv;
    }
}

/// p = exp(s - m) / z over the scores, in place.
pub(super) fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut z = 0.0_f64;
    for score in scores.iter_mut() {
        *score = math::exp(*score - max);
        z += f64::from(*score);
    }
    for score in scores {
        *score = round_f32(f64::from(*score) / z);
    }
}

/// The residual mix: softmax over the sources' scores, weighted sum of the raw
/// sources.
pub(super) fn attn_res(sources: &[&[f32]], norm: &[f32], proj: &[f32], eps: f32) -> Vec<f32> {
    let fold: Vec<f32> = norm.iter().zip(proj).map(|(n, p)| n * p).collect();
    let mut weights: Vec<f32> = sources
        .iter()
        .map(|source| {
            let inv = inverse_rms(source, eps);
            round_f32(sum_serial(source.len(), |i| {
                product(source[i] * inv, fold[i])
            }))
        })
        .collect();
    softmax(&mut weights);
    let mut out = vec![0.0_f32; fold.len()];
    for (weight, source) in weights.iter().zip(sources) {
        for (out, value) in out.iter_mut().zip(*source) {
            *out += weight * value;
        }
    }
    out
}

/// Which sigmoid and which cap the gated activation uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    /// (b1*tanh(g/b1)) * sigmoid(g) * (b2*tanh(u/b2)).
    Situ,
    /// The same with the sigmoid of the capped gate: a mistake.
    SituOfCappedGate,
    /// g * sigmoid(g) * u, as in most other models: a mistake.
    Silu,
}

pub(super) fn gated(
    gate: &[f32],
    up: &[f32],
    beta: f32,
    linear_beta: f32,
    activation: Activation,
) -> Vec<f32> {
    let one = |(&g, &u): (&f32, &f32)| {
        if activation == Activation::Silu {
            return (g * sigmoid(g)) * u;
        }
        let capped = beta * math::tanh(g / beta);
        let inner = match activation {
            Activation::SituOfCappedGate => capped,
            _ => g,
        };
        let a = capped * sigmoid(inner);
        a * (linear_beta * math::tanh(u / linear_beta))
    };
    gate.iter().zip(up).map(one).collect()
}

/// acc += x, f32.
pub(super) fn add(acc: &mut [f32], x: &[f32]) {
    for (acc, x) in acc.iter_mut().zip(x) {
        *acc += x;
    }
}

/// acc += w * x, multiply then add, f32.
pub(super) fn add_scaled(acc: &mut [f32], weight: f32, x: &[f32]) {
    for (acc, x) in acc.iter_mut().zip(x) {
        *acc += weight * x;
    }
}
