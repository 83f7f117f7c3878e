//! The column product: one accumulator vector per lane of the matmul order.

use std::arch::x86_64::*;

use crate::generic::lanes::{LANES, dot16, round_f32};
use crate::generic::matmul::{bf16_at, check_columns};

/// Columns per tile: 16 of the 32 vector registers accumulate.
const TILE: usize = 8;

pub(crate) fn columns_bf16(weights: &[u8], x: &[f32], out: &mut [f32]) {
    check_columns(weights, x, out);
    // SAFETY: only the AVX-512 table leads here; its features were detected.
    unsafe { columns(weights, x, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn columns(weights: &[u8], x: &[f32], out: &mut [f32]) {
    let cols = out.len();
    let full = cols - cols % TILE;
    for column in (0..full).step_by(TILE) {
        let sums = tile(weights, x, cols, column);
        // SAFETY: `column + 8 <= cols = out.len()`.
        unsafe { _mm256_storeu_ps(out[column..][..TILE].as_mut_ptr(), _mm512_cvtpd_ps(sums)) };
    }
    for (j, out) in out.iter_mut().enumerate().skip(full) {
        *out = round_f32(dot16(x.len(), |i| {
            f64::from(x[i]) * f64::from(bf16_at(weights, i * cols + j))
        }));
    }
}

/// The f64 sums of eight columns from `column` on. The tree and the remainder
/// run vertically, so every column sees the definition's order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn tile(weights: &[u8], x: &[f32], cols: usize, column: usize) -> __m512d {
    let mut lanes = [_mm512_setzero_pd(); LANES];
    let full = x.len() - x.len() % LANES;
    for block in (0..full).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum = multiply_add(weights, x, cols, column, block + lane, *sum);
        }
    }
    let pair = |j: usize| {
        _mm512_add_pd(
            _mm512_add_pd(lanes[j], lanes[j + 4]),
            _mm512_add_pd(lanes[j + 8], lanes[j + 12]),
        )
    };
    let mut sum = _mm512_add_pd(
        _mm512_add_pd(pair(0), pair(1)),
        _mm512_add_pd(pair(2), pair(3)),
    );
    for i in full..x.len() {
        sum = multiply_add(weights, x, cols, column, i, sum);
    }
    sum
}

/// `sum + x[i] * weights[i][column..column + 8]`, exact products.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn multiply_add(
    weights: &[u8],
    x: &[f32],
    cols: usize,
    column: usize,
    i: usize,
    sum: __m512d,
) -> __m512d {
    debug_assert!(i < x.len() && column + TILE <= cols);
    // SAFETY: `check_columns` made `weights` hold `x.len()` rows of `cols` bf16;
    // row `i` and the eight columns from `column` on lie within.
    let half = unsafe { _mm_loadu_si128(weights.as_ptr().add((i * cols + column) * 2).cast()) };
    let w = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half)));
    _mm512_fmadd_pd(_mm512_cvtps_pd(w), _mm512_set1_pd(f64::from(x[i])), sum)
}
