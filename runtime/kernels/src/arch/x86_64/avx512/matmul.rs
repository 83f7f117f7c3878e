//! Products of bf16 and f32 matrices: row tiles that share their activations.

use super::batch::products;
use super::dot::sums;
use super::serial::sums8;
use crate::arch::x86_64::pointers::{next_tile, position_starts, row_starts};
use crate::generic::lanes::round_f32;
use crate::generic::shape::MatmulShape;

/// Rows per tile with one position: 16 of the 32 vector registers accumulate.
const ROWS: usize = 8;

pub(crate) fn matmul_bf16(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]) {
    let shape = MatmulShape::with_weights(weights, 2, x, positions, out);
    // SAFETY: only the AVX-512 table leads here; its features were detected.
    unsafe { matmul::<2>(shape, weights, x, positions, out) }
}

pub(crate) fn matmul_f32(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]) {
    let shape = MatmulShape::with_weights(weights, 4, x, positions, out);
    // SAFETY: as in `matmul_bf16`.
    unsafe { matmul::<4>(shape, weights, x, positions, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn matmul<const BYTES: usize>(
    shape: MatmulShape,
    weights: &[u8],
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) {
    if positions > 1 {
        return products::<BYTES>(shape, weights, x, positions, out);
    }
    let mut row = 0;
    while row < shape.rows {
        row += if shape.rows - row >= ROWS {
            tile::<BYTES, ROWS>(shape, weights, x, row, out)
        } else {
            tile::<BYTES, 1>(shape, weights, x, row, out)
        };
    }
}

/// `R` rows of one position, from `row` on. Returns `R`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn tile<const BYTES: usize, const R: usize>(
    shape: MatmulShape,
    weights: &[u8],
    x: &[f32],
    row: usize,
    out: &mut [f32],
) -> usize {
    let row_bytes = shape.cols * BYTES;
    let rows = row_starts::<R>(weights, row_bytes, row_bytes, row, R);
    // SAFETY: the rows hold `cols * BYTES` bytes, the one position `cols` values.
    let sums = unsafe { sums::<BYTES, R, 1>(rows, [x.as_ptr()], shape.cols) };
    for (out, [sum]) in out[row..].iter_mut().zip(sums) {
        *out = round_f32(sum);
    }
    R
}

pub(crate) fn router_bf16(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]) {
    let shape = MatmulShape::with_weights(weights, 2, x, positions, out);
    // SAFETY: as in `matmul_bf16`.
    unsafe { router::<2>(shape, weights, x, positions, out) }
}

pub(crate) fn router_f32(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]) {
    let shape = MatmulShape::with_weights(weights, 4, x, positions, out);
    // SAFETY: as in `matmul_bf16`.
    unsafe { router::<4>(shape, weights, x, positions, out) }
}

/// Eight rows at a time, each serial in its own lane.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn router<const BYTES: usize>(
    shape: MatmulShape,
    weights: &[u8],
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) {
    for row in (0..shape.rows).step_by(8) {
        let count = (shape.rows - row).min(8);
        let mut position = 0;
        while position < positions {
            let at = (row, position);
            let tile = next_tile(positions - position);
            match tile {
                3 => router_tile::<BYTES, 3>(shape, weights, x, at, count, positions, out),
                2 => router_tile::<BYTES, 2>(shape, weights, x, at, count, positions, out),
                _ => router_tile::<BYTES, 1>(shape, weights, x, at, count, positions, out),
            }
            position += tile;
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn router_tile<const BYTES: usize, const P: usize>(
    shape: MatmulShape,
    weights: &[u8],
    x: &[f32],
    (row, position): (usize, usize),
    count: usize,
    positions: usize,
    out: &mut [f32],
) {
    let row_bytes = shape.cols * BYTES;
    let rows = row_starts::<8>(weights, row_bytes, row_bytes, row, count);
    let xs = position_starts::<P>(x, shape.cols, position);
    // SAFETY: the pointers are good for `cols * BYTES` bytes and `cols` values.
    let sums = unsafe { sums8::<BYTES, P>(rows, xs, shape.cols, [[0.0; 8]; P]) };
    for (p, sums) in sums.iter().enumerate() {
        for (r, &sum) in sums[..count].iter().enumerate() {
            out[(row + r) * positions + position + p] = round_f32(sum);
        }
    }
}
