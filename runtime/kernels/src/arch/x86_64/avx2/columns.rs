//! The column product: accumulators per lane of the matmul order, four lanes
//! of eight columns at a time.

use std::arch::x86_64::*;

use super::serial::widen8;
use crate::arch::x86_64::transpose::load8;
use crate::generic::lanes::{LANES, dot16, round_f32};
use crate::generic::matmul::{bf16_at, check_columns};

/// Columns per tile, two vectors.
const TILE: usize = 8;

/// Eight columns in f64.
type Columns = [__m256d; 2];

pub(crate) fn columns_bf16(weights: &[u8], x: &[f32], out: &mut [f32]) {
    check_columns(weights, x, out);
    // SAFETY: only the AVX2 table leads here; its features were detected.
    unsafe { columns(weights, x, out) }
}

#[target_feature(enable = "avx2,fma")]
fn columns(weights: &[u8], x: &[f32], out: &mut [f32]) {
    let cols = out.len();
    let full = cols - cols % TILE;
    for column in (0..full).step_by(TILE) {
        let [low, high] = tile(weights, x, cols, column);
        let rounded = _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
        // SAFETY: the checked slice holds eight values.
        unsafe { _mm256_storeu_ps(out[column..][..TILE].as_mut_ptr(), rounded) };
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
#[target_feature(enable = "avx2,fma")]
fn tile(weights: &[u8], x: &[f32], cols: usize, column: usize) -> Columns {
    let full = x.len() - x.len() % LANES;
    let mut quarters = [[_mm256_setzero_pd(); 2]; 4];
    for (j, quarter) in quarters.iter_mut().enumerate() {
        // Lanes j, j + 4, j + 8 and j + 12: those that b_j adds up.
        let mut lanes = [[_mm256_setzero_pd(); 2]; 4];
        for block in (j..full).step_by(LANES) {
            for (step, sum) in lanes.iter_mut().enumerate() {
                *sum = multiply_add(weights, x, cols, column, block + 4 * step, *sum);
            }
        }
        *quarter = add(add(lanes[0], lanes[1]), add(lanes[2], lanes[3]));
    }
    let mut sum = add(add(quarters[0], quarters[1]), add(quarters[2], quarters[3]));
    for i in full..x.len() {
        sum = multiply_add(weights, x, cols, column, i, sum);
    }
    sum
}

#[inline]
#[target_feature(enable = "avx2")]
fn add(a: Columns, b: Columns) -> Columns {
    [_mm256_add_pd(a[0], b[0]), _mm256_add_pd(a[1], b[1])]
}

/// `sum + x[i] * weights[i][column..column + 8]`, exact products.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply_add(
    weights: &[u8],
    x: &[f32],
    cols: usize,
    column: usize,
    i: usize,
    sum: Columns,
) -> Columns {
    debug_assert!(i < x.len() && column + TILE <= cols);
    // SAFETY: `check_columns` made `weights` hold `x.len()` rows of `cols` bf16;
    // row `i` and the eight columns from `column` on lie within.
    let w = unsafe { load8::<2>(weights.as_ptr().add((i * cols + column) * 2)) };
    let [low, high] = widen8(w);
    let x = _mm256_set1_pd(f64::from(x[i]));
    [
        _mm256_fmadd_pd(low, x, sum[0]),
        _mm256_fmadd_pd(high, x, sum[1]),
    ]
}
