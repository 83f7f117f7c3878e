//! Attention over residual snapshots.

use super::lanes::{dot_serial, round_f32};
use super::norm::{inverse_rms, sum_of_squares};
use super::vector::add_scaled;
use crate::math;

/// The most sources one call takes, so that the scores need no allocation.
pub const MAX_SOURCES: usize = 64;

/// Checks the sources against `fold` and `out`.
///
/// # Panics
/// If there is no source, more than [`MAX_SOURCES`], or a length differs.
#[inline]
pub(crate) fn check_attn_res(sources: &[&[f32]], fold: &[f32], out: &[f32]) {
    assert!(
        (1..=MAX_SOURCES).contains(&sources.len()),
        "between 1 and {MAX_SOURCES} sources, found {}",
        sources.len()
    );
    assert_eq!(fold.len(), out.len(), "one fold value per output");
    for source in sources {
        assert_eq!(source.len(), out.len(), "every source is as long as out");
    }
}

/// A softmax-weighted sum of `sources`.
///
/// Shapes: `sources: [count][n]`, `fold: [n]` (norm * projection, rounded to
/// f32), `out: [n]`. Per source: the sum of squares is one f64 accumulator, i
/// ascending; `inv` as in rmsnorm; `score = f32(serial f64 sum over i of
/// f64(f32(v[i] * inv)) * f64(fold[i]))`. The scores go through
/// [`mix_sources`]. Products in f64 are exact; sums stay below `n * 2^256`.
#[inline(always)]
pub(crate) fn attn_res(sources: &[&[f32]], fold: &[f32], eps: f32, out: &mut [f32]) {
    check_attn_res(sources, fold, out);
    let mut scores = [0.0_f32; MAX_SOURCES];
    for (score, source) in scores.iter_mut().zip(sources) {
        let inv = inverse_rms(sum_of_squares(source), source.len(), eps);
        *score = round_f32(dot_serial(0.0, source.len(), |i| {
            f64::from(source[i] * inv) * f64::from(fold[i])
        }));
    }
    mix_sources(&mut scores[..sources.len()], sources, out);
}

/// `out` = 0, then `out += f32(f64(e[s]) / z) * sources[s]` in f32 for s
/// ascending, with `e[s] = exp(scores[s] - max)` and `z` their f64 serial sum.
#[inline(always)]
pub(crate) fn mix_sources(scores: &mut [f32], sources: &[&[f32]], out: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut z = 0.0_f64;
    for score in scores.iter_mut() {
        *score = math::exp(*score - max);
        z += f64::from(*score);
    }
    out.fill(0.0);
    for (&e, source) in scores.iter().zip(sources) {
        add_scaled(out, round_f32(f64::from(e) / z), source);
    }
}
