//! Matrix products with MXFP4 weights: E2M1 nibbles in groups of 32 with one
//! E8M0 scale byte per group.

use super::lanes::{round_f32, tree8};
use super::mxfp4_prepared::{Mxfp4Group, check_prepared};
use super::shape::MatmulShape;

/// Elements that share one scale byte.
pub const MXFP4_GROUP: usize = 32;

/// Packed bytes of one group.
pub(crate) const GROUP_BYTES: usize = MXFP4_GROUP / 2;

/// The scale byte that means NaN in the format: its group is skipped and
/// counted.
pub(crate) const NAN_SCALE: u8 = 255;

/// The sixteen E2M1 values, by nibble.
pub(crate) const E2M1: [f64; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// The value of an E2M1 `nibble` (0..16), before the scale.
///
/// # Panics
/// If `nibble` is above 15.
#[must_use]
pub fn e2m1_value(nibble: u8) -> f64 {
    E2M1[usize::from(nibble)]
}

/// The value `2^(byte - 127)` of an E8M0 scale byte; `None` for 255, which
/// means NaN in the format.
#[must_use]
pub fn e8m0_scale(byte: u8) -> Option<f64> {
    (byte != NAN_SCALE).then(|| scale_value(byte))
}

/// `2^(byte - 127)`, a normal f64 for every byte: the exponent field is
/// `byte - 127 + 1023`.
#[inline(always)]
pub(crate) fn scale_value(byte: u8) -> f64 {
    f64::from_bits((u64::from(byte) + 896) << 52)
}

/// Checks the slices of an MXFP4 product and returns its shape.
///
/// # Panics
/// If the width is not a multiple of 32 or the slices disagree about the shape.
#[inline]
pub(crate) fn check_mxfp4(
    packed: &[u8],
    scales: &[u8],
    x: &[f32],
    positions: usize,
    out: &[f32],
) -> MatmulShape {
    let shape = MatmulShape::new(x.len(), positions, out.len());
    check_weights(packed, scales, shape);
    shape
}

/// Checks the weights of an MXFP4 product against its shape.
fn check_weights(packed: &[u8], scales: &[u8], shape: MatmulShape) {
    assert_eq!(
        shape.cols % MXFP4_GROUP,
        0,
        "an MXFP4 width must be a multiple of 32, found {}",
        shape.cols
    );
    let groups = shape.rows.checked_mul(shape.cols / MXFP4_GROUP);
    assert_eq!(
        Some(scales.len()),
        groups,
        "scale bytes do not match {} rows of {} columns",
        shape.rows,
        shape.cols
    );
    assert_eq!(
        Some(packed.len()),
        groups.and_then(|groups| groups.checked_mul(GROUP_BYTES)),
        "packed bytes do not match {} rows of {} columns",
        shape.rows,
        shape.cols
    );
}

/// `out[row][position] = f32(sum over groups of sub * 2^(scale - 127))`.
///
/// Shapes: `packed: [rows][cols / 2]`, low nibble = even column;
/// `scales: [rows][cols / 32]`; `x: [positions][cols]`;
/// `out: [rows][positions]`. Order: per group 8 f64 lanes, lane = i mod 8,
/// reduced by `tree8` to `sub`; `acc += sub * 2^(scale - 127)`, groups
/// ascending; one rounding to f32. Every product is exact (`sub` is a multiple
/// of 2^-150 and the scale at least 2^-127, so nothing is subnormal in f64);
/// `|acc| < cols * 6 * 2^255`, far from overflow.
///
/// A group whose scale byte is 255 adds nothing. Returns the number of such
/// groups, counted once per row whatever the number of positions.
pub(crate) fn matmul_mxfp4(
    packed: &[u8],
    scales: &[u8],
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) -> u64 {
    let shape = check_mxfp4(packed, scales, x, positions, out);
    let groups = shape.cols / MXFP4_GROUP;
    for row in 0..shape.rows {
        let packed = &packed[row * groups * GROUP_BYTES..][..groups * GROUP_BYTES];
        let scales = &scales[row * groups..][..groups];
        for position in 0..positions {
            let x = &x[position * shape.cols..][..shape.cols];
            out[row * positions + position] = round_f32(row_sum(packed, scales, x));
        }
    }
    count_nan_scales(scales)
}

/// As [`matmul_mxfp4`], for the positions `chosen` of `x: [any][cols]`;
/// `out: [rows][chosen]`. `prepared: [any][cols / 32]` is `x` as
/// `mxfp4_prepare` wrote it, which a body may use for the same sums.
pub(crate) fn matmul_mxfp4_prepared(
    packed: &[u8],
    scales: &[u8],
    x: &[f32],
    prepared: &[Mxfp4Group],
    chosen: &[usize],
    out: &mut [f32],
) -> u64 {
    let shape = check_chosen(packed, scales, x, prepared, chosen, out);
    let groups = shape.cols / MXFP4_GROUP;
    for (row, out) in out.chunks_exact_mut(chosen.len()).enumerate() {
        let packed = &packed[row * groups * GROUP_BYTES..][..groups * GROUP_BYTES];
        let scales = &scales[row * groups..][..groups];
        for (&position, out) in chosen.iter().zip(out) {
            let x = &x[position * shape.cols..][..shape.cols];
            *out = round_f32(row_sum(packed, scales, x));
        }
    }
    count_nan_scales(scales)
}

/// Checks the slices of a product with chosen positions and returns its shape.
///
/// # Panics
/// As [`check_mxfp4`], if a chosen position is not in `x`, or if `prepared` does
/// not match `x`.
#[inline]
pub(crate) fn check_chosen(
    packed: &[u8],
    scales: &[u8],
    x: &[f32],
    prepared: &[Mxfp4Group],
    chosen: &[usize],
    out: &[f32],
) -> MatmulShape {
    check_prepared(x, prepared);
    assert!(!chosen.is_empty(), "a product needs at least one position");
    assert_eq!(out.len() % chosen.len(), 0, "out is not [rows][chosen]");
    let rows = out.len() / chosen.len();
    // The packed bytes give the width: two elements a byte.
    let cols = (2 * packed.len()).checked_div(rows).unwrap_or(0);
    let shape = MatmulShape { rows, cols };
    check_weights(packed, scales, shape);
    let positions = x.len().checked_div(cols).unwrap_or(usize::MAX);
    assert!(
        chosen.iter().all(|&position| position < positions),
        "a chosen position is beyond the {positions} of x"
    );
    shape
}

/// The f64 sum of one row.
fn row_sum(packed: &[u8], scales: &[u8], x: &[f32]) -> f64 {
    let mut sum = 0.0_f64;
    for (group, &scale) in scales.iter().enumerate() {
        if scale == NAN_SCALE {
            continue;
        }
        let mut lanes = [0.0_f64; 8];
        for i in 0..MXFP4_GROUP {
            let byte = packed[group * GROUP_BYTES + i / 2];
            let nibble = if i % 2 == 0 { byte & 15 } else { byte >> 4 };
            lanes[i % 8] += E2M1[usize::from(nibble)] * f64::from(x[group * MXFP4_GROUP + i]);
        }
        sum += tree8(&lanes) * scale_value(scale);
    }
    sum
}

/// The number of groups that a product with these scales skips.
#[inline]
pub(crate) fn count_nan_scales(scales: &[u8]) -> u64 {
    // Bytes count bytes, so that a vector counts as many as it holds: for one
    // position this walk would else be felt beside the product.
    let pieces = scales.chunks(usize::from(u8::MAX));
    let counts = pieces.map(|piece| {
        let nans = piece.iter().map(|&scale| u8::from(scale == NAN_SCALE));
        u64::from(nans.sum::<u8>())
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::{NAN_SCALE, count_nan_scales};

    #[test]
    fn nan_scales_are_counted_however_many_there_are() {
        for len in [0, 1, 254, 255, 256, 257, 511, 70_000] {
            assert_eq!(count_nan_scales(&vec![NAN_SCALE; len]), len as u64);
            let mixed: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
            let expected = mixed.iter().filter(|&&scale| scale == NAN_SCALE).count();
            assert_eq!(count_nan_scales(&mixed), expected as u64, "{len}");
        }
    }
}
