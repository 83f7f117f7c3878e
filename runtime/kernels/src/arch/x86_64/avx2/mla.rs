//! Scores and mixtures of latent attention.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use super::dot::sums;
use super::serial::sums8;
use crate::arch::x86_64::pointers::{f32_bytes, row_starts};
use crate::generic::lanes::round_f32;
use crate::generic::mla::{
    check_mix_expanded, check_mix_latent, check_scores_expanded, check_scores_latent,
};

/// A mask of the first `count` of eight lanes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn first_lanes(count: usize) -> __m256i {
    let mask: [i32; 8] = std::array::from_fn(|lane| if lane < count { !0 } else { 0 });
    // SAFETY: the source is eight i32.
    unsafe { _mm256_loadu_si256(mask.as_ptr().cast()) }
}

/// A mask of the first `count` of four lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn first_lanes4(count: usize) -> __m128i {
    _mm256_castsi256_si128(first_lanes(count))
}

/// Positions per tile of the scores.
const TILE: usize = 8;

pub(crate) fn mla_scores_latent(
    qa: &[f32],
    q_rope: &[f32],
    cache: &[f32],
    scale: f32,
    scores: &mut [f32],
) {
    check_scores_latent(qa, q_rope, cache, scores);
    // SAFETY: only the AVX2 table leads here; its features were detected.
    unsafe { scores_latent(qa, q_rope, f32_bytes(cache), scale, scores) }
}

#[target_feature(enable = "avx2,fma")]
fn scores_latent(qa: &[f32], q_rope: &[f32], cache: &[u8], scale: f32, scores: &mut [f32]) {
    let (latent_bytes, rope_bytes) = (size_of_val(qa), size_of_val(q_rope));
    let stride = latent_bytes + rope_bytes;
    for (tile, scores) in scores.chunks_mut(TILE).enumerate() {
        let (first, count) = (tile * TILE, scores.len());
        let latents = row_starts::<TILE>(cache, stride, latent_bytes, first, count);
        let ropes = row_starts::<TILE>(&cache[latent_bytes..], stride, rope_bytes, first, count);
        // SAFETY: the pointers are good for the latent's and the rope's bytes,
        // and `qa` and `q_rope` hold as many values.
        let sums = unsafe {
            let mut start = [[0.0; TILE]];
            for (rows, start) in latents
                .as_chunks::<4>()
                .0
                .iter()
                .zip(start[0].chunks_mut(4))
            {
                let sums = sums::<4, 4, 1>(*rows, [qa.as_ptr()], qa.len());
                start.copy_from_slice(&sums.map(|[sum]| sum));
            }
            sums8::<4, 1>(ropes, [q_rope.as_ptr()], q_rope.len(), start)
        };
        for (score, &sum) in scores.iter_mut().zip(&sums[0]) {
            *score = round_f32(sum) * scale;
        }
    }
}

pub(crate) fn mla_scores_expanded(
    q_nope: &[f32],
    q_rope: &[f32],
    keys: &[f32],
    ropes: &[f32],
    scale: f32,
    scores: &mut [f32],
) {
    check_scores_expanded(q_nope, q_rope, keys, ropes, scores);
    // SAFETY: only the AVX2 table leads here; its features were detected.
    unsafe {
        scores_expanded(
            q_nope,
            q_rope,
            f32_bytes(keys),
            f32_bytes(ropes),
            scale,
            scores,
        )
    }
}

#[target_feature(enable = "avx2,fma")]
fn scores_expanded(
    q_nope: &[f32],
    q_rope: &[f32],
    keys: &[u8],
    ropes: &[u8],
    scale: f32,
    scores: &mut [f32],
) {
    let (nope_bytes, rope_bytes) = (size_of_val(q_nope), size_of_val(q_rope));
    for (tile, scores) in scores.chunks_mut(TILE).enumerate() {
        let (first, count) = (tile * TILE, scores.len());
        let keys = row_starts::<TILE>(keys, nope_bytes, nope_bytes, first, count);
        let ropes = row_starts::<TILE>(ropes, rope_bytes, rope_bytes, first, count);
        // SAFETY: the pointers are good for the bytes of nope and rope, and
        // `q_nope` and `q_rope` hold as many values.
        let sums = unsafe {
            let start = sums8::<4, 1>(keys, [q_nope.as_ptr()], q_nope.len(), [[0.0; TILE]]);
            sums8::<4, 1>(ropes, [q_rope.as_ptr()], q_rope.len(), start)
        };
        for (score, &sum) in scores.iter_mut().zip(&sums[0]) {
            *score = round_f32(sum) * scale;
        }
    }
}

pub(crate) fn mla_mix_latent(
    weights: &[f32],
    cache: &[f32],
    stride: usize,
    sums: &mut [f64],
    out: &mut [f32],
) {
    check_mix_latent(weights, cache, stride, sums, out);
    // SAFETY: only the AVX2 table leads here; its features were detected.
    unsafe { mix_latent(weights, cache, stride, sums, out) }
}

#[target_feature(enable = "avx2,fma")]
fn mix_latent(weights: &[f32], cache: &[f32], stride: usize, sums: &mut [f64], out: &mut [f32]) {
    const LANES: usize = 4;
    const WIDE: usize = 8;
    let mut first = 0;
    while out.len() - first >= WIDE * LANES {
        mix_latent_tile::<WIDE>(
            weights,
            cache,
            stride,
            sums,
            out,
            first,
            [first_lanes4(LANES); WIDE],
        );
        first += WIDE * LANES;
    }
    while first < out.len() {
        let count = (out.len() - first).min(LANES);
        let mask = [first_lanes4(count)];
        mix_latent_tile::<1>(weights, cache, stride, sums, out, first, mask);
        first += LANES;
    }
}

/// Latent channels from `first` on; the sums stay in f64 registers over all
/// positions. Products are exact, so they may be fused.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn mix_latent_tile<const N: usize>(
    weights: &[f32],
    cache: &[f32],
    stride: usize,
    totals: &mut [f64],
    out: &mut [f32],
    first: usize,
    masks: [__m128i; N],
) {
    let mut sums = [_mm256_setzero_pd(); N];
    for n in 0..N {
        // SAFETY: a mask has bits only for channels below `totals.len()`.
        sums[n] = unsafe {
            let at = totals.as_ptr().add(first + 4 * n);
            _mm256_maskload_pd(at, _mm256_cvtepi32_epi64(masks[n]))
        };
    }
    for (s, &weight) in weights.iter().enumerate() {
        let weight = _mm256_set1_pd(f64::from(weight));
        for n in 0..N {
            // SAFETY: the cache holds `weights.len()` rows of `stride` values,
            // and a mask has bits only for channels below `out.len() <= stride`.
            let value = unsafe {
                let at = cache.as_ptr().add(s * stride + first + 4 * n);
                _mm_maskload_ps(at, masks[n])
            };
            sums[n] = _mm256_fmadd_pd(weight, _mm256_cvtps_pd(value), sums[n]);
        }
    }
    for n in 0..N {
        // SAFETY: as above.
        unsafe {
            let at = totals.as_mut_ptr().add(first + 4 * n);
            _mm256_maskstore_pd(at, _mm256_cvtepi32_epi64(masks[n]), sums[n]);
            let at = out.as_mut_ptr().add(first + 4 * n);
            _mm_maskstore_ps(at, masks[n], _mm256_cvtpd_ps(sums[n]));
        }
    }
}

pub(crate) fn mla_mix_expanded(weights: &[f32], values: &[f32], out: &mut [f32]) {
    check_mix_expanded(weights, values, out);
    // SAFETY: only the AVX2 table leads here; its features were detected.
    unsafe { mix_expanded(weights, values, out) }
}

#[target_feature(enable = "avx2")]
fn mix_expanded(weights: &[f32], values: &[f32], out: &mut [f32]) {
    const LANES: usize = 8;
    const WIDE: usize = 8;
    let width = out.len();
    let mut first = 0;
    while width - first >= WIDE * LANES {
        mix_expanded_tile::<WIDE>(weights, values, out, first, [first_lanes(LANES); WIDE]);
        first += WIDE * LANES;
    }
    while first < width {
        let count = (width - first).min(LANES);
        mix_expanded_tile::<1>(weights, values, out, first, [first_lanes(count)]);
        first += LANES;
    }
}

/// Channels from `first` on; product and sum are rounded apart, in f32.
#[inline]
#[target_feature(enable = "avx2")]
fn mix_expanded_tile<const N: usize>(
    weights: &[f32],
    values: &[f32],
    out: &mut [f32],
    first: usize,
    masks: [__m256i; N],
) {
    let width = out.len();
    let mut sums = [_mm256_setzero_ps(); N];
    for n in 0..N {
        // SAFETY: a mask has bits only for channels below `width`.
        sums[n] = unsafe {
            let at = out.as_ptr().add(first + 8 * n);
            _mm256_maskload_ps(at, masks[n])
        };
    }
    for (s, &weight) in weights.iter().enumerate() {
        let weight = _mm256_set1_ps(weight);
        for n in 0..N {
            // SAFETY: the values are `weights.len()` rows of `width`, and a mask
            // has bits only for channels below `width`.
            let value = unsafe {
                let at = values.as_ptr().add(s * width + first + 8 * n);
                _mm256_maskload_ps(at, masks[n])
            };
            sums[n] = _mm256_add_ps(sums[n], _mm256_mul_ps(weight, value));
        }
    }
    for n in 0..N {
        // SAFETY: as above.
        unsafe {
            let at = out.as_mut_ptr().add(first + 8 * n);
            _mm256_maskstore_ps(at, masks[n], sums[n]);
        }
    }
}
