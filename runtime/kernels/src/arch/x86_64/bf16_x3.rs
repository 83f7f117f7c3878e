//! Products with packed rows: the walk over a matrix, written once.
//!
//! A few rows are decoded at a time, a part of their columns, to f32 in the
//! nearest cache, where the tiles for f32 weights take them: a conversion to f64
//! that reads memory is as cheap as there is. Every lane still sees its elements
//! in ascending order.

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::ops::Range;

use super::batch::{Body, Sums};
use super::pointers::position_starts;
use crate::generic::bf16_x3::{Bf16X3, GROUP, TAIL_BYTES, check_product};
use crate::generic::lanes::{LANES, round_f32, tree16};

/// Widened activations of a panel: 16 KiB.
const PANEL_VALUES: usize = 2048;
/// Row tiles in a block of rows.
const TILES: usize = 8;
/// Columns of a row that are decoded at a time.
pub(super) const PART: usize = 256;
/// Bytes ahead of the current group that a row is prefetched.
const PREFETCH_BYTES: usize = 2048;

/// Where a row is being decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowState {
    /// The next group: good for reading to its end and 64 bytes beyond.
    pub(super) group: *const u8,
    /// The dictionary, its first entry lowest.
    pub(super) dictionary: u64,
    /// The next escape, at most `escapes_end`: good for reading 64 bytes,
    /// whatever the codes said.
    pub(super) escapes: *const u8,
    /// The end of the block's escapes.
    pub(super) escapes_end: *const u8,
}

impl RowState {
    /// The row's beginning. Its pointers are good while the payload is borrowed.
    pub(super) fn of(weights: Bf16X3<'_>, row: usize) -> Self {
        let row = weights.row(row);
        let escapes_len = row.escapes.len() - TAIL_BYTES;
        Self {
            group: row.groups.as_ptr(),
            dictionary: u64::from_le_bytes(row.dictionary),
            escapes: row.escapes.as_ptr(),
            escapes_end: row.escapes[escapes_len..].as_ptr(),
        }
    }

    /// Takes `count` escapes, at most 64, or as many as are left in the block.
    #[inline(always)]
    pub(super) fn take(&mut self, count: usize) {
        self.escapes = self.escapes.wrapping_add(count).min(self.escapes_end);
    }

    /// Asks for what is read of the row `ahead` bytes later. It never faults.
    #[inline(always)]
    pub(super) fn prefetch(&self, ahead: usize) {
        prefetch_pair(self.group.wrapping_add(ahead));
    }

    /// As [`RowState::prefetch`], for the escapes after the next 64.
    #[inline(always)]
    pub(super) fn prefetch_escapes(&self) {
        prefetch(self.escapes.wrapping_add(64));
    }
}

/// Asks for the two lines that a group may lie in. It never faults.
#[inline(always)]
pub(super) fn prefetch_pair(at: *const u8) {
    prefetch(at);
    prefetch(at.wrapping_add(64));
}

#[inline(always)]
fn prefetch(at: *const u8) {
    // SAFETY: every x86-64 processor has the instruction, and it may point
    // anywhere.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
}

/// What an instruction set decodes rows with.
pub(super) trait Decoder {
    /// What takes decoded rows as [`Decoder::operands`] writes them.
    type Tiles: Body<4>;

    /// Writes the next `columns` of a row, widened to f32, and moves on. Fewer
    /// than a multiple of 64 may be written only at the row's end; of the last
    /// group, 64 values are written all the same.
    ///
    /// # Safety
    /// The instruction set must be there, the row must have as many columns left,
    /// its pointers must be good, and `out`, aligned to 64 bytes, must be good for
    /// writing `columns` f32, rounded up to a multiple of 64.
    unsafe fn f32s(row: &mut RowState, columns: usize, out: *mut f32, ahead: usize);

    /// As [`Decoder::f32s`], as bf16 of two bytes each; `out` need not be aligned.
    ///
    /// # Safety
    /// As [`Decoder::f32s`].
    unsafe fn bf16s(row: &mut RowState, columns: usize, out: *mut u8, ahead: usize);

    /// As [`Decoder::f32s`], in the form that [`Decoder::Tiles`] take.
    ///
    /// # Safety
    /// As [`Decoder::f32s`].
    unsafe fn operands(row: &mut RowState, columns: usize, out: *mut f32, ahead: usize) {
        // SAFETY: by the method's contract.
        unsafe { Self::f32s(row, columns, out, ahead) }
    }

    /// Where the operand of a column lies among those of its row.
    fn place(column: usize) -> usize {
        column
    }

    /// The product of a weight in that form with an activation, exact.
    fn product(operand: f32, x: f32) -> f64 {
        f64::from(operand) * f64::from(x)
    }

    /// Adds the products of the next `columns` of at most `R` rows with `P`
    /// positions to `tile`, as [`by_parts`] does.
    ///
    /// # Safety
    /// As [`by_parts`].
    #[inline]
    unsafe fn add_panel<const R: usize, const P: usize>(
        panel: Panel,
        rows: &mut [RowState],
        decoded: &mut Part<R>,
        tile: &mut Tile<R, P>,
    ) where
        Self: Sized,
    {
        // SAFETY: by the method's contract.
        unsafe { by_parts::<Self, R, P>(panel, rows, decoded, tile) }
    }
}

/// Decoded weights of `R` rows.
#[repr(C, align(64))]
pub(super) struct Part<const R: usize>(pub(super) [[f32; PART]; R]);

/// What comes of `R` rows.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Tile<const R: usize, const P: usize> {
    pub(super) sums: Sums<R, P>,
    /// What is left of each row after its full 16-blocks, as operands.
    rests: [[f32; LANES]; R],
}

/// Columns with their widened activations.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) columns: usize,
    /// `P` positions of each full block of 16 columns.
    pub(super) x: *const f64,
    /// Bytes of the rows from the first column to their end.
    pub(super) left: usize,
    /// Bytes from the end of a row to the beginning of the row in the same place
    /// of the next block.
    pub(super) next_block: usize,
}

impl Panel {
    /// The columns from `columns`, a multiple of 64, on.
    pub(super) fn skip<const P: usize>(self, columns: usize) -> Self {
        Self {
            columns: self.columns - columns,
            x: self.x.wrapping_add(columns * P),
            left: self.left - columns / 8 * 11,
            next_block: self.next_block,
        }
    }

    /// How far ahead of `columns` rows are prefetched.
    #[inline(always)]
    pub(super) fn ahead(self, columns: usize) -> usize {
        if self.left > PREFETCH_BYTES + columns / 8 * 11 {
            PREFETCH_BYTES
        } else {
            PREFETCH_BYTES + self.next_block
        }
    }
}

/// Decodes a part of every row, then adds its products, part by part.
///
/// # Safety
/// The instruction set of `D` must be there. There must be one row at least and
/// `R` at most; each must have `panel.columns` left and good pointers, and
/// `panel.x` must be good for `16 * P` values for each full block of 16.
#[inline]
pub(super) unsafe fn by_parts<D: Decoder, const R: usize, const P: usize>(
    panel: Panel,
    rows: &mut [RowState],
    decoded: &mut Part<R>,
    tile: &mut Tile<R, P>,
) {
    for part in (0..panel.columns).step_by(PART) {
        let width = (panel.columns - part).min(PART);
        for (row, out) in rows.iter_mut().zip(&mut decoded.0) {
            // SAFETY: the part lies within the row, and starts at a group; `PART`
            // operands may be written.
            unsafe { D::operands(row, width, out.as_mut_ptr(), panel.ahead(part)) };
        }
        // SAFETY: the rows were decoded, and the part's activations lie from `P`
        // times its place on.
        unsafe { add_part::<D, R, P>(panel.x.add(part * P), width, rows.len(), decoded, tile) };
    }
}

/// Adds the products of `count` decoded rows of `width` columns.
///
/// # Safety
/// The instruction set of `D` must be there, `width` be `PART` at most, and `x`
/// be good for `16 * P` values for each full block of 16.
#[inline]
pub(super) unsafe fn add_part<D: Decoder, const R: usize, const P: usize>(
    x: *const f64,
    width: usize,
    count: usize,
    decoded: &Part<R>,
    tile: &mut Tile<R, P>,
) {
    // Surplus rows repeat the last.
    let starts = std::array::from_fn(|r| decoded.0[r.min(count - 1)].as_ptr().cast());
    // SAFETY: the full blocks lie in the decoded rows; else by the function's
    // contract.
    unsafe { D::Tiles::tile::<R, P>(starts, x, width / LANES, &mut tile.sums, None) };
    let rest = width - width % LANES..width;
    for (weights, out) in decoded.0.iter().zip(&mut tile.rests) {
        for (out, column) in out.iter_mut().zip(rest.clone()) {
            *out = weights[D::place(column)];
        }
    }
}

/// What stays in the nearest caches during a block of rows.
#[repr(C, align(64))]
struct Scratch<const R: usize, const P: usize> {
    x: [f64; PANEL_VALUES],
    decoded: Part<R>,
    tiles: [Tile<R, P>; TILES],
}

/// What a walk goes over, checked.
pub(super) struct Product<'p> {
    weights: Bf16X3<'p>,
    pub(super) rows: Range<usize>,
    x: &'p [f32],
    pub(super) positions: usize,
}

impl<'p> Product<'p> {
    /// Of the rows `rows` with `x: [positions][cols]`, into `out:
    /// [rows.len()][positions]`.
    ///
    /// # Panics
    /// If the shapes differ or if there are no such rows.
    pub(super) fn new(
        weights: Bf16X3<'p>,
        rows: Range<usize>,
        x: &'p [f32],
        positions: usize,
        out: &[f32],
    ) -> Self {
        check_product(weights, &rows, x, positions, out);
        Self {
            weights,
            rows,
            x,
            positions,
        }
    }
}

/// `P` positions from `position` on, for the block of rows from `row` of the
/// range on: `R * TILES` rows or what is left. Returns how many. `out:
/// [rows][positions]`.
///
/// # Safety
/// The instruction set of `D` must be there.
#[inline]
pub(super) unsafe fn row_block<D: Decoder, const R: usize, const P: usize>(
    product: &Product<'_>,
    (row, position): (usize, usize),
    out: &mut [f32],
) -> usize {
    let Product { weights, rows, .. } = product;
    let cols = weights.cols();
    let count = (rows.len() - row).min(R * TILES);
    let mut states: [[RowState; R]; TILES] = std::array::from_fn(|tile| {
        std::array::from_fn(|r| {
            RowState::of(*weights, rows.start + row + (tile * R + r).min(count - 1))
        })
    });
    for row in &states[0] {
        prefetch_pair(row.escapes);
    }
    let xs = position_starts::<P>(product.x, cols, position);
    let mut scratch = Scratch::<R, P> {
        x: [0.0; PANEL_VALUES],
        decoded: Part([[0.0; PART]; R]),
        tiles: [Tile {
            sums: Sums([[[0.0; LANES]; P]; R]),
            rests: [[0.0; LANES]; R],
        }; TILES],
    };
    let panel_columns = PANEL_VALUES / P / GROUP * GROUP;
    for first in (0..cols).step_by(panel_columns) {
        let columns = (cols - first).min(panel_columns);
        for (p, x) in xs.iter().enumerate() {
            // SAFETY: the panel's full blocks end at or before `cols`; they fill
            // the places of position `p` among `P * blocks <= PANEL_VALUES / 16`.
            unsafe {
                let wide = scratch.x.as_mut_ptr().add(p * LANES);
                D::Tiles::widen(x.add(first), columns / LANES, wide, P * LANES);
            }
        }
        let panel = Panel {
            columns,
            x: scratch.x.as_ptr(),
            left: weights.row_bytes() - first / 8 * 11,
            next_block: (R * TILES - 1) * weights.row_bytes(),
        };
        let used = count.div_ceil(R);
        for (index, tile) in scratch.tiles[..used].iter_mut().enumerate() {
            for row in &states[(index + 1) % used] {
                prefetch_pair(row.escapes);
            }
            let states = &mut states[index][..(count - index * R).min(R)];
            // SAFETY: these rows have the panel's columns left, and its full
            // blocks were widened.
            unsafe { D::add_panel::<R, P>(panel, states, &mut scratch.decoded, tile) };
        }
    }
    for r in 0..count {
        let tile = &scratch.tiles[r / R];
        for (p, x) in xs.iter().enumerate() {
            let lanes = &tile.sums.0[r % R][p];
            let mut sum = tree16(&D::Tiles::LANE_ORDER.map(|place| lanes[place]));
            for i in cols - cols % LANES..cols {
                // SAFETY: `i < cols`.
                sum += D::product(tile.rests[r % R][i % LANES], unsafe { *x.add(i) });
            }
            out[(row + r) * product.positions + position + p] = round_f32(sum);
        }
    }
    count
}

/// Sums of eight rows, one after the other onto `start`, over columns of decoded
/// weights: `rows` f32, `P` positions.
type Serial<const P: usize> =
    unsafe fn([*const u8; 8], [*const f32; P], usize, [[f64; 8]; P]) -> [[f64; 8]; P];

/// `P` positions from `position` on, for eight rows from `row` of the range on,
/// or what is left, each added up serially by `sums8`.
///
/// # Safety
/// The instruction set of `D` must be there, and that of `sums8`, which must
/// need no more of its pointers than 4 bytes a column for every row and a value a
/// column for every position.
#[inline]
pub(super) unsafe fn serial_block<D: Decoder, const P: usize>(
    product: &Product<'_>,
    (row, position): (usize, usize),
    out: &mut [f32],
    sums8: Serial<P>,
) {
    let Product { weights, rows, .. } = product;
    let cols = weights.cols();
    let count = (rows.len() - row).min(8);
    let mut states: [RowState; 8] =
        std::array::from_fn(|r| RowState::of(*weights, rows.start + row + r.min(count - 1)));
    let xs = position_starts::<P>(product.x, cols, position);
    let mut decoded = Part::<8>([[0.0; PART]; 8]);
    let mut sums = [[0.0; 8]; P];
    for part in (0..cols).step_by(PART) {
        let width = (cols - part).min(PART);
        for (state, out) in states[..count].iter_mut().zip(&mut decoded.0) {
            // SAFETY: the part lies within the row and starts at a group; `PART`
            // f32 may be written.
            unsafe { D::f32s(state, width, out.as_mut_ptr(), PREFETCH_BYTES) };
        }
        let starts = std::array::from_fn(|r| decoded.0[r.min(count - 1)].as_ptr().cast());
        // SAFETY: the decoded rows and the positions have `width` columns.
        sums = unsafe { sums8(starts, xs.map(|x| x.add(part)), width, sums) };
    }
    for (p, sums) in sums.iter().enumerate() {
        for (r, &sum) in sums[..count].iter().enumerate() {
            out[(row + r) * product.positions + position + p] = round_f32(sum);
        }
    }
}

/// Writes rows as bf16.
///
/// # Safety
/// The instruction set of `D` must be there.
#[inline]
pub(super) unsafe fn decode_rows<D: Decoder>(
    weights: Bf16X3<'_>,
    rows: Range<usize>,
    out: &mut [u8],
) {
    let cols = weights.cols();
    let full = cols - cols % GROUP;
    let mut last = [0_u8; 2 * GROUP];
    for (row, out) in rows.zip(out.chunks_exact_mut((2 * cols).max(1))) {
        let mut state = RowState::of(weights, row);
        let (groups, rest) = out.split_at_mut(2 * full);
        // SAFETY: the row has these columns; whole groups fill `groups`, and one
        // fits `last`.
        unsafe {
            D::bf16s(&mut state, full, groups.as_mut_ptr(), PREFETCH_BYTES);
            D::bf16s(&mut state, cols - full, last.as_mut_ptr(), PREFETCH_BYTES);
        }
        rest.copy_from_slice(&last[..rest.len()]);
    }
}
