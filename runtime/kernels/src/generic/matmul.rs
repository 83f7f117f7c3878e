//! Matrix products with bf16 and f32 weights, and the column product.

use super::lanes::{dot16, round_f32};
use super::shape::MatmulShape;

/// The bf16 element `index` of `bytes`, widened exactly.
#[inline(always)]
pub(crate) fn bf16_at(bytes: &[u8], index: usize) -> f32 {
    let low = bytes[2 * index];
    let high = bytes[2 * index + 1];
    f32::from_bits(u32::from(u16::from_le_bytes([low, high])) << 16)
}

/// The f32 element `index` of `bytes`.
#[inline(always)]
pub(crate) fn f32_at(bytes: &[u8], index: usize) -> f32 {
    let at = 4 * index;
    f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// `out[row][position] = f32(dot16 over i of weights[row][i] * x[position][i])`.
///
/// Shapes: `weights: [rows][cols]` bf16, `x: [positions][cols]`,
/// `out: [rows][positions]`. Order: 16 f64 lanes, lane = i mod 16, the tree of
/// `tree16`, the remainder serially, one rounding to f32. Products are exact.
/// Partial sums stay below `cols * 2^256`, far from overflow in f64; the last
/// rounding overflows to an infinity when the sum exceeds f32.
pub(crate) fn matmul_bf16(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]) {
    let shape = MatmulShape::with_weights(weights, 2, x, positions, out);
    matmul_with(shape, x, positions, out, |at| bf16_at(weights, at));
}

/// As [`matmul_bf16`] with f32 weights: the same order, the same bounds.
pub(crate) fn matmul_f32(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]) {
    let shape = MatmulShape::with_weights(weights, 4, x, positions, out);
    matmul_with(shape, x, positions, out, |at| f32_at(weights, at));
}

fn matmul_with(
    shape: MatmulShape,
    x: &[f32],
    positions: usize,
    out: &mut [f32],
    weight: impl Fn(usize) -> f32,
) {
    for row in 0..shape.rows {
        for position in 0..positions {
            let x = &x[position * shape.cols..][..shape.cols];
            let sum = dot16(shape.cols, |i| {
                f64::from(weight(row * shape.cols + i)) * f64::from(x[i])
            });
            out[row * positions + position] = round_f32(sum);
        }
    }
}

/// Checks `weights: [x.len()][out.len()]` bf16.
#[inline]
pub(crate) fn check_columns(weights: &[u8], x: &[f32], out: &[f32]) {
    assert_eq!(
        Some(weights.len()),
        x.len()
            .checked_mul(out.len())
            .and_then(|count| count.checked_mul(2)),
        "weight bytes do not match {} rows of {} columns",
        x.len(),
        out.len()
    );
}

/// `out[j] = f32(dot16 over i of x[i] * weights[i][j])`, one position.
///
/// Shapes: `weights: [n][cols]` bf16, `x: [n]`, `out: [cols]`. Order: as
/// [`matmul_bf16`] with `i` running over the rows: lane = i mod 16, tree,
/// remainder serially, one rounding. Exactness and bounds as there.
pub(crate) fn columns_bf16(weights: &[u8], x: &[f32], out: &mut [f32]) {
    check_columns(weights, x, out);
    let cols = out.len();
    for (j, out) in out.iter_mut().enumerate() {
        let sum = dot16(x.len(), |i| {
            f64::from(x[i]) * f64::from(bf16_at(weights, i * cols + j))
        });
        *out = round_f32(sum);
    }
}
