//! Root-mean-square and L2 normalisation.

use super::lanes::{dot_serial, round_f32};

/// The constant under the root of [`l2norm`].
pub(crate) const L2_EPS: f32 = 1e-6;

/// The f64 sum of squares of `x`, serial, i ascending. Squares are exact;
/// the sum stays below `x.len() * 2^256`.
#[inline(always)]
pub(crate) fn sum_of_squares(x: &[f32]) -> f64 {
    dot_serial(0.0, x.len(), |i| f64::from(x[i]) * f64::from(x[i]))
}

/// `f32(1 / sqrt(ss / n + f64(eps)))`, the inverse root mean square of a vector
/// of `n` values whose sum of squares is `ss`.
#[inline(always)]
pub(crate) fn inverse_rms(ss: f64, n: usize, eps: f32) -> f32 {
    round_f32(1.0 / (ss / n as f64 + f64::from(eps)).sqrt())
}

/// `out[i] = (weight[i] * x[i]) * inv`, `inv` of [`inverse_rms`].
///
/// Shapes: all `[n]`. Order: the sum of squares is one f64 accumulator, i
/// ascending; the products are f32, in the order of the parentheses.
/// `weight * x` may overflow to an infinity in f32; nothing else can unless
/// the input is not finite.
#[inline(always)]
pub(crate) fn rmsnorm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), weight.len(), "one weight per value");
    assert_eq!(x.len(), out.len(), "one output per value");
    let inv = inverse_rms(sum_of_squares(x), x.len(), eps);
    for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
        *out = (weight * x) * inv;
    }
}

/// `v[i] *= f32(1 / sqrt(ss + f64(1e-6)))` with `ss` as in [`rmsnorm`], the
/// constant being the f32 nearest to 1e-6.
///
/// Order: the sum of squares is one f64 accumulator, i ascending.
#[inline(always)]
pub(crate) fn l2norm(v: &mut [f32]) {
    let inv = round_f32(1.0 / (sum_of_squares(v) + f64::from(L2_EPS)).sqrt());
    for value in v {
        *value *= inv;
    }
}
