//! MXFP4 products in f64: the walk over a matrix, written once.
//!
//! As in `batch`, rows are taken in blocks and columns in panels whose widened
//! activations stay in the nearest cache. The rows of a tile lie side by side in
//! the lanes of vectors, so that a group's eight lanes are eight vectors and its
//! tree needs no shuffles.

use std::arch::x86_64::*;

use super::pointers::row_starts;
use crate::generic::lanes::round_f32;
use crate::generic::mxfp4::{GROUP_BYTES, MXFP4_GROUP};
use crate::generic::shape::MatmulShape;

/// Widened activations of a panel: 16 KiB.
const PANEL_VALUES: usize = 2048;

/// Groups of a panel with one position.
const PANEL_GROUPS: usize = PANEL_VALUES / MXFP4_GROUP;

/// Row tiles in a block of rows.
const TILES: usize = 16;

/// Weights and scales of a product, checked against their shape.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    pub(super) shape: MatmulShape,
    pub(super) packed: &'a [u8],
    pub(super) scales: &'a [u8],
}

/// Sums of a tile by position and row.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct RowSums<const R: usize, const P: usize>(pub(super) [[f64; R]; P]);

/// The steps of the walk that need an instruction set, for tiles of `R` rows.
pub(super) trait Body<const R: usize> {
    /// Widens `count` (a multiple of 32) values of `x`; consecutive groups go
    /// `stride` values apart.
    ///
    /// # Safety
    /// The instruction set must be there, `x` good for reading `count` values,
    /// and `wide`, aligned to 64 bytes, for writing 32 values at every multiple
    /// of `stride` (itself a multiple of 32) below `count / 32 * stride`.
    unsafe fn widen(x: *const f32, count: usize, wide: *mut f64, stride: usize);

    /// Adds as many groups as there are `scales` (by group and row) to the sums
    /// of `R` rows and `P` positions. `x` holds 32 values for each group and
    /// position. Lines that lie `ahead` bytes further are prefetched.
    ///
    /// # Safety
    /// The instruction set must be there, every row good for reading 16 bytes
    /// for each group, and `x` for `32 * P` values for each.
    unsafe fn tile<const P: usize>(
        rows: [*const u8; R],
        scales: &[[u8; R]],
        x: *const f64,
        sums: &mut RowSums<R, P>,
        ahead: usize,
    );
}

/// What stays in the nearest caches during a block of rows.
#[repr(C, align(64))]
struct Scratch<const R: usize, const P: usize> {
    x: [f64; PANEL_VALUES],
    sums: [RowSums<R, P>; TILES],
    scales: [[u8; R]; PANEL_GROUPS],
}

/// Positions `xs`, for the block of rows from `row` on: `R * TILES` rows or what
/// is left of the matrix. `out` is `[rows][positions]` from `position` on.
/// Returns how many rows.
///
/// # Safety
/// The instruction set of `B` must be there.
#[inline]
pub(super) unsafe fn row_block<B: Body<R>, const R: usize, const P: usize>(
    weights: Weights<'_>,
    xs: [&[f32]; P],
    (row, position): (usize, usize),
    positions: usize,
    out: &mut [f32],
) -> usize {
    let shape = weights.shape;
    let count = (shape.rows - row).min(R * TILES);
    let groups = shape.cols / MXFP4_GROUP;
    let row_bytes = groups * GROUP_BYTES;
    let mut scratch = Scratch::<R, P> {
        x: [0.0; PANEL_VALUES],
        sums: [RowSums([[0.0; R]; P]); TILES],
        scales: [[0; R]; PANEL_GROUPS],
    };
    let panel_groups = PANEL_GROUPS / P;
    for panel in (0..groups).step_by(panel_groups) {
        let used = (groups - panel).min(panel_groups);
        for (p, x) in xs.iter().enumerate() {
            let x = &x[panel * MXFP4_GROUP..][..used * MXFP4_GROUP];
            // SAFETY: the groups of position `p` fill their places among `P *
            // used <= PANEL_GROUPS`.
            unsafe {
                let wide = scratch.x.as_mut_ptr().add(p * MXFP4_GROUP);
                B::widen(x.as_ptr(), x.len(), wide, P * MXFP4_GROUP);
            }
        }
        for (tile, sums) in scratch.sums[..count.div_ceil(R)].iter_mut().enumerate() {
            let (first, left) = (row + tile * R, count - tile * R);
            let packed = &weights.packed[panel * GROUP_BYTES..];
            let rows = row_starts(packed, row_bytes, used * GROUP_BYTES, first, left);
            let scales = &mut scratch.scales[..used];
            gather_scales(&weights.scales[panel..], groups, (first, left), scales);
            // SAFETY: the rows are good for `used` groups, and `x` was filled.
            unsafe { B::tile::<P>(rows, scales, scratch.x.as_ptr(), sums, R * row_bytes) };
        }
    }
    for r in 0..count {
        for p in 0..P {
            let sum = scratch.sums[r / R].0[p][r % R];
            out[(row + r) * positions + position + p] = round_f32(sum);
        }
    }
    count
}

/// The scale bytes of `R` rows (a multiple of 4) from `first` on, group by group.
/// Rows beyond the last of `left` repeat it, as in `row_starts`.
#[inline]
pub(super) fn gather_scales<const R: usize>(
    scales: &[u8],
    stride: usize,
    (first, left): (usize, usize),
    out: &mut [[u8; R]],
) {
    let rows: [&[u8]; R] =
        std::array::from_fn(|r| &scales[(first + r.min(left - 1)) * stride..][..out.len()]);
    for (part, rows) in rows.chunks(8).enumerate() {
        for (block, out) in out.chunks_mut(8).enumerate() {
            let mut bytes = [[0; 8]; 8];
            for (bytes, row) in bytes.iter_mut().zip(rows) {
                let row = &row[8 * block..];
                match row.first_chunk() {
                    Some(full) => *bytes = *full,
                    None => bytes[..row.len()].copy_from_slice(row),
                }
            }
            // SAFETY: SSE2 is part of x86-64.
            let groups = unsafe { transpose_bytes(bytes) };
            for (out, bytes) in out.iter_mut().zip(groups) {
                out[8 * part..][..rows.len()].copy_from_slice(&bytes[..rows.len()]);
            }
        }
    }
}

/// Transposes an 8 x 8 matrix of bytes.
#[inline]
#[target_feature(enable = "sse2")]
fn transpose_bytes(rows: [[u8; 8]; 8]) -> [[u8; 8]; 8] {
    let row = |r: usize| _mm_cvtsi64_si128(i64::from_le_bytes(rows[r]));
    let pair = |r: usize| _mm_unpacklo_epi8(row(r), row(r + 1));
    let (r01, r23, r45, r67) = (pair(0), pair(2), pair(4), pair(6));
    // Columns 0..4 and 4..8 of four rows.
    let top = [_mm_unpacklo_epi16(r01, r23), _mm_unpackhi_epi16(r01, r23)];
    let bottom = [_mm_unpacklo_epi16(r45, r67), _mm_unpackhi_epi16(r45, r67)];
    let mut columns = [[0; 8]; 8];
    for (half, columns) in columns.chunks_exact_mut(4).enumerate() {
        let low = _mm_unpacklo_epi32(top[half], bottom[half]);
        let high = _mm_unpackhi_epi32(top[half], bottom[half]);
        let column = |v, upper| {
            let v = if upper { _mm_unpackhi_epi64(v, v) } else { v };
            _mm_cvtsi128_si64(v).to_le_bytes()
        };
        columns[0] = column(low, false);
        columns[1] = column(low, true);
        columns[2] = column(high, false);
        columns[3] = column(high, true);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_gathered_by_group_and_row() {
        for (groups, left) in [(1, 1), (7, 3), (8, 8), (9, 5), (17, 40)] {
            let stride = groups + 2;
            let scales: Vec<u8> = (0..=250).cycle().take(45 * stride).collect();
            let first = 2;
            let mut out = vec![[0; 16]; groups];
            gather_scales(&scales[1..], stride, (first, left), &mut out);
            for (group, out) in out.iter().enumerate() {
                for (r, &byte) in out.iter().enumerate() {
                    let row = first + r.min(left - 1);
                    assert_eq!(byte, scales[1 + row * stride + group]);
                }
            }
            let mut few = vec![[0; 4]; groups];
            gather_scales(&scales[1..], stride, (first, left), &mut few);
            assert!(few.iter().zip(&out).all(|(few, out)| few[..] == out[..4]));
        }
    }
}
