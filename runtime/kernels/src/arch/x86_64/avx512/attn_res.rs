//! Attention over residual snapshots: sources side by side.

use std::arch::x86_64::*;

use crate::arch::x86_64::pointers::source_starts;
use crate::arch::x86_64::transpose::{columns8, load1};
use crate::generic::attn_res::{MAX_SOURCES, check_attn_res, mix_sources};
use crate::generic::lanes::round_f32;
use crate::generic::norm::inverse_rms;

pub(crate) fn attn_res(sources: &[&[f32]], fold: &[f32], eps: f32, out: &mut [f32]) {
    check_attn_res(sources, fold, out);
    // SAFETY: only the AVX-512 table leads here; its features were detected.
    unsafe { body(sources, fold, eps, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn body(sources: &[&[f32]], fold: &[f32], eps: f32, out: &mut [f32]) {
    let mut scores = [0.0_f32; MAX_SOURCES];
    for (sources, scores) in sources.chunks(8).zip(scores.chunks_mut(8)) {
        let rows = source_starts(sources, fold.len());
        // SAFETY: every pointer is good for `fold.len()` values.
        let ss = unsafe { sums_of_squares(&rows, fold.len()) };
        let inv = ss.map(|ss| inverse_rms(ss, fold.len(), eps));
        // SAFETY: as above.
        let sums = unsafe { scaled_dots(&rows, &inv, fold) };
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = round_f32(sum);
        }
    }
    mix_sources(&mut scores[..sources.len()], sources, out);
}

/// The serial f64 sum of squares of each of eight sources.
///
/// # Safety
/// Every source must be good for reading `len` values.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn sums_of_squares(sources: &[*const u8; 8], len: usize) -> [f64; 8] {
    let mut acc = _mm512_setzero_pd();
    let full = len - len % 8;
    for i in (0..full).step_by(8) {
        // SAFETY: `i + 8 <= len`.
        for values in unsafe { columns8::<4>(sources, i) } {
            let values = _mm512_cvtps_pd(values);
            acc = _mm512_fmadd_pd(values, values, acc);
        }
    }
    let mut sums = lanes(acc);
    for (sum, source) in sums.iter_mut().zip(sources) {
        for i in full..len {
            // SAFETY: `i < len`.
            let value = f64::from(unsafe { load1::<4>(source.add(4 * i)) });
            *sum += value * value;
        }
    }
    sums
}

/// The serial f64 sum of `f32(v * inv) * fold` of each of eight sources.
///
/// # Safety
/// Every source must be good for reading `fold.len()` values.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn scaled_dots(sources: &[*const u8; 8], inv: &[f32; 8], fold: &[f32]) -> [f64; 8] {
    let mut acc = _mm512_setzero_pd();
    let full = fold.len() - fold.len() % 8;
    // SAFETY: the source of the load is eight f32.
    let inverses = unsafe { _mm256_loadu_ps(inv.as_ptr()) };
    for i in (0..full).step_by(8) {
        // SAFETY: `i + 8 <= fold.len()`.
        let columns = unsafe { columns8::<4>(sources, i) };
        for (values, &fold) in columns.into_iter().zip(&fold[i..]) {
            let scaled = _mm512_cvtps_pd(_mm256_mul_ps(values, inverses));
            acc = _mm512_fmadd_pd(scaled, _mm512_set1_pd(f64::from(fold)), acc);
        }
    }
    let mut sums = lanes(acc);
    for ((sum, source), inv) in sums.iter_mut().zip(sources).zip(inv) {
        for (i, &fold) in fold.iter().enumerate().skip(full) {
            // SAFETY: `i < fold.len()`.
            let value = unsafe { load1::<4>(source.add(4 * i)) };
            *sum += f64::from(value * inv) * f64::from(fold);
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn lanes(vector: __m512d) -> [f64; 8] {
    let mut lanes = [0.0_f64; 8];
    // SAFETY: the destination is eight f64.
    unsafe { _mm512_storeu_pd(lanes.as_mut_ptr(), vector) };
    lanes
}
