//! Router logits: the only products that are summed serially.

use super::lanes::{dot_serial, round_f32};
use super::matmul::{bf16_at, f32_at};
use super::shape::MatmulShape;

/// `out[row][position] = f32(serial sum over i of weights[row][i] * x[position][i])`.
///
/// Shapes: `weights: [rows][cols]` bf16, `x: [positions][cols]`,
/// `out: [rows][positions]`. Order: one f64 accumulator, i ascending, no lanes;
/// one rounding to f32. Products are exact; partial sums stay below
/// `cols * 2^256`.
pub(crate) fn router_bf16(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]) {
    let shape = MatmulShape::with_weights(weights, 2, x, positions, out);
    router_with(shape, x, positions, out, |at| bf16_at(weights, at));
}

/// As [`router_bf16`] with f32 weights.
pub(crate) fn router_f32(weights: &[u8], x: &[f32], positions: usize, out: &mut [f32]) {
    let shape = MatmulShape::with_weights(weights, 4, x, positions, out);
    router_with(shape, x, positions, out, |at| f32_at(weights, at));
}

fn router_with(
    shape: MatmulShape,
    x: &[f32],
    positions: usize,
    out: &mut [f32],
    weight: impl Fn(usize) -> f32,
) {
    for row in 0..shape.rows {
        for position in 0..positions {
            let x = &x[position * shape.cols..][..shape.cols];
            let sum = dot_serial(0.0, shape.cols, |i| {
                f64::from(weight(row * shape.cols + i)) * f64::from(x[i])
            });
            out[row * positions + position] = round_f32(sum);
        }
    }
}
