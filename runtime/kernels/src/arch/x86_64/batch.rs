//! Products that share what they widen: the walk over a matrix, written once.
//!
//! Rows are taken in blocks, columns in panels. The activations of a panel are
//! widened once for a block of rows and stay in the nearest cache; a tile of
//! rows walks the panel with its lanes in registers, which rest in memory
//! between panels. Every lane still sees its elements in ascending order.

use super::pointers::{position_starts, row_starts};
use super::transpose::load1;
use crate::generic::lanes::{LANES, round_f32, tree16};
use crate::generic::shape::MatmulShape;

/// Widened activations of a panel: 16 KiB.
const PANEL_VALUES: usize = 2048;

/// Row tiles in a block of rows.
const TILES: usize = 8;

/// Bytes ahead of the current block that a row is prefetched while there is one
/// position; with several, the panel after the current one is.
const PREFETCH_BYTES: usize = 2048;

/// The steps of the walk that need an instruction set.
///
/// The sixteen lanes lie in memory in an order of the body's choosing, the same
/// for activations and sums, until [`Body::LANE_ORDER`] undoes it.
pub(super) trait Body<const BYTES: usize> {
    /// Place of each lane among the sixteen.
    const LANE_ORDER: [usize; LANES];

    /// Widens `blocks` 16-blocks of `x`; consecutive blocks go `stride` values
    /// apart.
    ///
    /// # Safety
    /// The instruction set must be there, `x` good for reading `16 * blocks`
    /// values, and `wide`, aligned to 64 bytes, good for writing 16 values at
    /// every multiple of `stride` (itself a multiple of 16) below `blocks *
    /// stride`.
    unsafe fn widen(x: *const f32, blocks: usize, wide: *mut f64, stride: usize);

    /// Adds the products of `blocks` 16-blocks to the lanes of `R` rows and `P`
    /// positions. `x` holds 16 values for each block and position. Rows are
    /// prefetched as many bytes ahead, or not at all.
    ///
    /// # Safety
    /// The instruction set must be there, every row good for reading `blocks`
    /// 16-blocks of `BYTES`-byte weights, and `x`, aligned to 64 bytes, for
    /// `16 * P * blocks` values.
    unsafe fn tile<const R: usize, const P: usize>(
        rows: [*const u8; R],
        x: *const f64,
        blocks: usize,
        lanes: &mut Sums<R, P>,
        prefetch: Option<usize>,
    );
}

/// The lanes of a tile.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Sums<const R: usize, const P: usize>(pub(super) [[[f64; LANES]; P]; R]);

/// What stays in the nearest caches during a block of rows.
#[repr(C, align(64))]
struct Scratch<const R: usize, const P: usize> {
    x: [f64; PANEL_VALUES],
    sums: [Sums<R, P>; TILES],
}

/// `P` positions from `position` on, for the block of rows from `row` on: `R *
/// TILES` rows or what is left of the matrix. Returns how many.
///
/// # Safety
/// The instruction set of `B` must be there.
#[inline]
pub(super) unsafe fn row_block<
    B: Body<BYTES>,
    const BYTES: usize,
    const R: usize,
    const P: usize,
>(
    shape: MatmulShape,
    weights: &[u8],
    x: &[f32],
    (row, position): (usize, usize),
    positions: usize,
    out: &mut [f32],
) -> usize {
    let count = (shape.rows - row).min(R * TILES);
    let row_bytes = shape.cols * BYTES;
    let tiles: [[*const u8; R]; TILES] = std::array::from_fn(|tile| {
        let first = (tile * R).min(count - 1);
        row_starts(weights, row_bytes, row_bytes, row + first, count - first)
    });
    let xs = position_starts::<P>(x, shape.cols, position);
    let mut scratch = Scratch::<R, P> {
        x: [0.0; PANEL_VALUES],
        sums: [Sums([[[0.0; LANES]; P]; R]); TILES],
    };
    let full = shape.cols - shape.cols % LANES;
    let panel_blocks = PANEL_VALUES / (LANES * P);
    for panel in (0..full).step_by(panel_blocks * LANES) {
        let blocks = ((full - panel) / LANES).min(panel_blocks);
        for (p, x) in xs.iter().enumerate() {
            // SAFETY: the panel's blocks end at or before `cols`; they fill the
            // places of position `p` among `P * blocks <= PANEL_VALUES / 16`.
            unsafe {
                let wide = scratch.x.as_mut_ptr().add(p * LANES);
                B::widen(x.add(panel), blocks, wide, P * LANES);
            }
        }
        let ahead = if P <= 2 {
            PREFETCH_BYTES
        } else if panel + panel_blocks * LANES < full {
            panel_blocks * LANES * BYTES
        } else {
            // The same tile of the next block of rows.
            (R * TILES * row_bytes).wrapping_sub(panel * BYTES)
        };
        for (rows, sums) in tiles[..count.div_ceil(R)].iter().zip(&mut scratch.sums) {
            let rows = rows.map(|row| row.wrapping_add(panel * BYTES));
            // SAFETY: the panel's blocks lie within every row, and the widened
            // ones at the start of `x`.
            unsafe { B::tile::<R, P>(rows, scratch.x.as_ptr(), blocks, sums, Some(ahead)) };
        }
    }
    for r in 0..count {
        for (p, x) in xs.iter().enumerate() {
            let lanes = &scratch.sums[r / R].0[r % R][p];
            let mut sum = tree16(&B::LANE_ORDER.map(|place| lanes[place]));
            for i in full..shape.cols {
                // SAFETY: `i < cols`.
                let (w, x) = unsafe {
                    (
                        load1::<BYTES>(tiles[r / R][r % R].add(i * BYTES)),
                        *x.add(i),
                    )
                };
                sum += f64::from(w) * f64::from(x);
            }
            out[(row + r) * positions + position + p] = round_f32(sum);
        }
    }
    count
}

/// Calls `block(row, position, count)` for every block of rows and every group
/// of at most eight positions; it returns the rows it computed, the same for
/// every group.
#[inline]
pub(super) fn walk(
    rows: usize,
    positions: usize,
    mut block: impl FnMut((usize, usize), usize) -> usize,
) {
    const GROUP: usize = 8;
    let groups = positions.div_ceil(GROUP);
    for group in 0..groups {
        let first = positions * group / groups;
        let count = positions * (group + 1) / groups - first;
        let mut row = 0;
        while row < rows {
            row += block((row, first), count);
        }
    }
}
