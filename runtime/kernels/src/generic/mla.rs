//! Scores and mixtures of multi-head latent attention, in both forms.

use super::lanes::{dot_serial, dot16, round_f32};
use super::vector::add_scaled;

/// Checks the slices of [`mla_scores_latent`] and returns the cache stride.
#[inline]
pub(crate) fn check_scores_latent(
    qa: &[f32],
    q_rope: &[f32],
    cache: &[f32],
    scores: &[f32],
) -> usize {
    let stride = qa.len() + q_rope.len();
    assert_eq!(
        Some(cache.len()),
        scores.len().checked_mul(stride),
        "cache is not [positions][latent + rope]"
    );
    stride
}

/// `scores[s] = f32(acc) * scale`, latent form, one head.
///
/// Shapes: `qa: [latent]`, `q_rope: [rope]`, `cache: [positions][latent +
/// rope]`, `scores: [positions]`. Order: `acc` = matmul order (16 f64 lanes,
/// tree, serial remainder) over the latent of `qa[j] * cache[s][j]`, then the
/// rope products added to it serially; rounded to f32; the scale multiplies in
/// f32. Products are exact; sums stay below `stride * 2^256`.
pub(crate) fn mla_scores_latent(
    qa: &[f32],
    q_rope: &[f32],
    cache: &[f32],
    scale: f32,
    scores: &mut [f32],
) {
    let stride = check_scores_latent(qa, q_rope, cache, scores);
    for (s, score) in scores.iter_mut().enumerate() {
        let (latent, rope) = cache[s * stride..][..stride].split_at(qa.len());
        let sum = dot16(qa.len(), |j| f64::from(qa[j]) * f64::from(latent[j]));
        let sum = dot_serial(sum, rope.len(), |i| {
            f64::from(q_rope[i]) * f64::from(rope[i])
        });
        *score = round_f32(sum) * scale;
    }
}

/// Checks the slices of [`mla_mix_latent`].
#[inline]
pub(crate) fn check_mix_latent(
    weights: &[f32],
    cache: &[f32],
    stride: usize,
    sums: &[f64],
    out: &[f32],
) {
    assert!(out.len() <= stride, "the latent is longer than the stride");
    assert_eq!(
        Some(cache.len()),
        weights.len().checked_mul(stride),
        "cache is not [positions][stride]"
    );
    assert_eq!(sums.len(), out.len(), "one sum per output");
}

/// `sums[j] += weights[s] * cache[s][j]` in f64, serially, s ascending; then
/// `out[j] = f32(sums[j])`.
///
/// Shapes: `weights: [positions]`, `cache: [positions][stride]`, `sums` and
/// `out`: `[latent]`, `latent <= stride`. Products are exact in f64; sums stay
/// below `positions * 2^256`. A past in parts is one past: given in order to
/// calls that share `sums`, which start at zero, the last `out` has the bits of
/// one call over all of it.
pub(crate) fn mla_mix_latent(
    weights: &[f32],
    cache: &[f32],
    stride: usize,
    sums: &mut [f64],
    out: &mut [f32],
) {
    check_mix_latent(weights, cache, stride, sums, out);
    for (s, &weight) in weights.iter().enumerate() {
        for (sum, &value) in sums.iter_mut().zip(&cache[s * stride..][..out.len()]) {
            *sum += f64::from(weight) * f64::from(value);
        }
    }
    for (out, &sum) in out.iter_mut().zip(&*sums) {
        *out = round_f32(sum);
    }
}

/// Checks the slices of [`mla_scores_expanded`].
#[inline]
pub(crate) fn check_scores_expanded(
    q_nope: &[f32],
    q_rope: &[f32],
    keys: &[f32],
    ropes: &[f32],
    scores: &[f32],
) {
    assert_eq!(
        Some(keys.len()),
        scores.len().checked_mul(q_nope.len()),
        "keys are not [positions][nope]"
    );
    assert_eq!(
        Some(ropes.len()),
        scores.len().checked_mul(q_rope.len()),
        "ropes are not [positions][rope]"
    );
}

/// `scores[s] = f32(acc) * scale`, expanded form, one head.
///
/// Shapes: `q_nope: [nope]`, `q_rope: [rope]`, `keys: [positions][nope]`,
/// `ropes: [positions][rope]`, `scores: [positions]`. Order: one f64
/// accumulator, serial over nope, then over rope; rounded to f32; the scale
/// multiplies in f32. Products are exact; sums stay below
/// `(nope + rope) * 2^256`.
pub(crate) fn mla_scores_expanded(
    q_nope: &[f32],
    q_rope: &[f32],
    keys: &[f32],
    ropes: &[f32],
    scale: f32,
    scores: &mut [f32],
) {
    check_scores_expanded(q_nope, q_rope, keys, ropes, scores);
    for (s, score) in scores.iter_mut().enumerate() {
        let key = &keys[s * q_nope.len()..][..q_nope.len()];
        let rope = &ropes[s * q_rope.len()..][..q_rope.len()];
        let sum = dot_serial(0.0, key.len(), |i| f64::from(q_nope[i]) * f64::from(key[i]));
        let sum = dot_serial(sum, rope.len(), |i| {
            f64::from(q_rope[i]) * f64::from(rope[i])
        });
        *score = round_f32(sum) * scale;
    }
}

/// Checks the slices of [`mla_mix_expanded`].
#[inline]
pub(crate) fn check_mix_expanded(weights: &[f32], values: &[f32], out: &[f32]) {
    assert_eq!(
        Some(values.len()),
        weights.len().checked_mul(out.len()),
        "values are not [positions][v]"
    );
}

/// `out[j] += weights[s] * values[s][j]` in f32, s ascending, multiply then add.
///
/// Shapes: `weights: [positions]`, `values: [positions][v]`, `out: [v]`, zeros
/// before the first position. A past in parts is one past, as in
/// [`mla_mix_latent`].
pub(crate) fn mla_mix_expanded(weights: &[f32], values: &[f32], out: &mut [f32]) {
    check_mix_expanded(weights, values, out);
    let width = out.len();
    for (s, &weight) in weights.iter().enumerate() {
        add_scaled(out, weight, &values[s * width..][..width]);
    }
}
