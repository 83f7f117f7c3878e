//! Packed bf16 rows: codes to exponents by shuffles, escapes one by one.

use std::arch::x86_64::*;
use std::ops::Range;

use super::batch::{Avx2, interlaced_tile};
use super::serial::sums8;
use crate::arch::x86_64::batch::{Body, Sums, walk};
use crate::arch::x86_64::bf16_x3::{
    Decoder, PART, Panel, Part, Product, RowState, Tile, add_part, decode_rows, row_block,
    serial_block,
};
use crate::arch::x86_64::pointers::next_tile;
use crate::generic::bf16_x3::{Bf16X3, GROUP, check_decode};
use crate::generic::lanes::LANES;

/// Escapes that are put in their places whether or not a group has as many.
const ESCAPES: usize = 4;

/// Exponents of the columns of a part, and room for what is written beyond the
/// last. They are read as vectors well after all were written: what was just
/// written byte by byte would have to be waited for.
#[repr(C, align(32))]
struct Exponents([u8; PART + 32]);

/// Decoder of 32 weights at a time.
pub(in crate::arch::x86_64) struct Packed;

impl Decoder for Packed {
    type Tiles = Interlaced;

    #[target_feature(enable = "avx2,bmi1,popcnt")]
    unsafe fn f32s(row: &mut RowState, columns: usize, out: *mut f32, ahead: usize) {
        // SAFETY: by the method's contract.
        unsafe { decode::<F32>(row, columns, out.cast(), ahead) }
    }

    #[target_feature(enable = "avx2,bmi1,popcnt")]
    unsafe fn bf16s(row: &mut RowState, columns: usize, out: *mut u8, ahead: usize) {
        // SAFETY: by the method's contract.
        unsafe { decode::<BF16>(row, columns, out, ahead) }
    }

    #[target_feature(enable = "avx2,bmi1,popcnt")]
    unsafe fn operands(row: &mut RowState, columns: usize, out: *mut f32, ahead: usize) {
        // SAFETY: by the method's contract.
        unsafe { decode::<INTERLACED>(row, columns, out.cast(), ahead) }
    }

    fn place(column: usize) -> usize {
        interlaced_place(column)
    }

    #[target_feature(enable = "avx2,fma,bmi1,popcnt")]
    unsafe fn add_panel<const R: usize, const P: usize>(
        panel: Panel,
        rows: &mut [RowState],
        decoded: &mut Part<R>,
        tile: &mut Tile<R, P>,
    ) {
        let mut exponents = [const { Exponents([0; PART + 32]) }; R];
        for part in (0..panel.columns).step_by(PART) {
            let width = (panel.columns - part).min(PART);
            let mut starts = [std::ptr::null(); R];
            for (r, row) in rows.iter_mut().enumerate() {
                starts[r] = row.group;
                // SAFETY: the part lies within the row, and starts at a group;
                // there is room for its exponents.
                *row = unsafe { put_exponents(*row, width, &mut exponents[r], panel.ahead(part)) };
            }
            for r in 0..rows.len() {
                let out = decoded.0[r].as_mut_ptr().cast();
                // SAFETY: the exponents of this part were written, and there is
                // room for its operands.
                unsafe { put_groups::<INTERLACED>(starts[r], width, &exponents[r], out) };
            }
            // SAFETY: by the method's contract.
            unsafe {
                let x = panel.x.add(part * P);
                add_part::<Self, R, P>(x, width, rows.len(), decoded, tile);
            }
        }
    }
}

/// What is decoded to.
const BF16: u8 = 0;
const F32: u8 = 1;
/// As [`F32`], in the order in which vectors come: see [`interlaced_place`].
const INTERLACED: u8 = 2;

/// Bytes of a decoded weight.
const fn bytes_of(form: u8) -> usize {
    if form == BF16 { 2 } else { 4 }
}

/// Place of a column: of 32, the first four and those sixteen columns later come
/// first, then the next four and those sixteen columns after them.
const fn interlaced_place(column: usize) -> usize {
    let (of_32, half, quarter) = (column % 32, column % 32 / 16, column % 16 / 4);
    column - of_32 + 8 * quarter + 4 * half + column % 4
}

/// The next `columns` of a row in one of the forms.
///
/// # Safety
/// As the methods of [`Decoder`].
#[inline]
#[target_feature(enable = "avx2,bmi1,popcnt")]
unsafe fn decode<const FORM: u8>(row: &mut RowState, columns: usize, out: *mut u8, ahead: usize) {
    let mut exponents = Exponents([0; PART + 32]);
    for part in (0..columns).step_by(PART) {
        let width = (columns - part).min(PART);
        let start = row.group;
        // SAFETY: by the function's contract; the exponents are written first.
        unsafe {
            *row = put_exponents(*row, width, &mut exponents, ahead);
            put_groups::<FORM>(start, width, &exponents, out.add(part * bytes_of(FORM)));
        }
    }
}

/// Writes the exponents of the next `columns`, at most [`PART`]. Returns the row
/// behind them.
///
/// # Safety
/// The row must have as many columns left, and good pointers.
#[inline]
#[target_feature(enable = "avx2,bmi1,popcnt")]
unsafe fn put_exponents(
    mut row: RowState,
    columns: usize,
    exponents: &mut Exponents,
    ahead: usize,
) -> RowState {
    // Both halves of both lanes hold the dictionary: bit 3 of a code may be
    // anything.
    let dictionary = _mm256_set1_epi64x(row.dictionary.cast_signed());
    let out = exponents.0.as_mut_ptr();
    let full = columns / GROUP;
    for group in 0..full {
        row.prefetch(ahead);
        // SAFETY: the group is there, and room for its exponents.
        let count = unsafe {
            group_exponents(
                row.group,
                dictionary,
                row.escapes,
                u64::MAX,
                out.add(group * GROUP),
            )
        };
        row.take(count);
        row.group = row.group.wrapping_add(GROUP / 8 * 11);
    }
    row.prefetch_escapes();
    let left = columns % GROUP;
    if left > 0 {
        // SAFETY: as above.
        let count = unsafe {
            let valid = (1 << left) - 1;
            group_exponents(
                row.group,
                dictionary,
                row.escapes,
                valid,
                out.add(full * GROUP),
            )
        };
        row.take(count);
        row.group = row.group.wrapping_add(left.div_ceil(8) * 11);
    }
    row
}

/// Puts `columns` of low bytes, whose groups begin at `start`, and exponents
/// together; whole groups are written.
///
/// # Safety
/// The groups must be there with 64 bytes more, and `out` good for writing whole
/// groups of `FORM`.
#[inline]
#[target_feature(enable = "avx2,bmi1,popcnt")]
unsafe fn put_groups<const FORM: u8>(
    start: *const u8,
    columns: usize,
    exponents: &Exponents,
    out: *mut u8,
) {
    for group in (0..columns).step_by(GROUP) {
        // Only the last group can be smaller: 11 bytes for 8 columns.
        let eights = (columns - group).min(GROUP).div_ceil(8);
        // SAFETY: the low bytes follow 3 bytes of codes for 8 columns; 64 may be
        // read from any group, and exponents have whole groups.
        unsafe {
            let low = start.add(group / 8 * 11 + 3 * eights);
            for half in [0, 32] {
                let low = _mm256_loadu_si256(low.add(half).cast());
                let high = exponents.0.as_ptr().add(group + half);
                let high = _mm256_load_si256(high.cast());
                put::<FORM>(low, high, out.add((group + half) * bytes_of(FORM)));
            }
        }
    }
}

/// The exponents of the columns of a group that are in `valid`, those of others
/// and a byte beyond. Returns how many escapes there were.
///
/// # Safety
/// The group must be there, 64 bytes at `escapes`, and `out`, aligned to 32 bytes,
/// good for writing 65.
#[inline]
#[target_feature(enable = "avx2,bmi1,popcnt")]
unsafe fn group_exponents(
    group: *const u8,
    dictionary: __m256i,
    escapes: *const u8,
    valid: u64,
    out: *mut u8,
) -> usize {
    let marker = _mm256_set1_epi8(-1);
    let mut masks = [0_u32; 2];
    for (half, mask) in masks.iter_mut().enumerate() {
        // SAFETY: the bytes that are read lie within a full group, and within the
        // 64 bytes beyond any other; 32 bytes of the first 64 are written.
        unsafe {
            let exponents = _mm256_shuffle_epi8(dictionary, spread(group.add(12 * half)));
            _mm256_store_si256(out.add(32 * half).cast(), exponents);
            *mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(exponents, marker)).cast_unsigned();
        }
    }
    let mut mask = (u64::from(masks[0]) | u64::from(masks[1]) << 32) & valid;
    let count = mask.count_ones() as usize;
    for place in 0..ESCAPES {
        // SAFETY: 64 escapes may be read. Without one more escape the place is
        // 64, which the next group's exponents overwrite.
        unsafe { *out.add(mask.trailing_zeros() as usize) = *escapes.add(place) };
        mask &= mask.wrapping_sub(1);
    }
    let mut place = ESCAPES;
    while mask != 0 {
        // SAFETY: as above; there are at most 64 bits.
        unsafe { *out.add(mask.trailing_zeros() as usize) = *escapes.add(place) };
        mask &= mask.wrapping_sub(1);
        place += 1;
    }
    count
}

/// 32 codes of three bits as the low three bits of as many bytes; bit 3 of some
/// is anything, bit 7 is zero.
///
/// # Safety
/// `codes` must be good for reading 22 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn spread(codes: *const u8) -> __m256i {
    // SAFETY: by the function's contract.
    let codes = unsafe {
        let (low, high) = (
            _mm_loadu_si128(codes.cast()),
            _mm_loadu_si128(codes.add(6).cast()),
        );
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
    };
    // A pair of codes has six bits, at bit 0, 6, 4 or 2 of two bytes.
    let places = _mm_setr_epi8(0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6);
    let pairs = _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(places));
    // To the top, by a product: what was above is gone.
    let to_top = _mm256_set1_epi64x(1 << 10 | 1 << (16 + 4) | 1 << (32 + 6) | 1 << (48 + 8));
    let top = _mm256_mullo_epi16(pairs, to_top);
    let first = _mm256_srli_epi16::<10>(top);
    let second = _mm256_and_si256(_mm256_srli_epi16::<5>(top), _mm256_set1_epi16(0x0700));
    _mm256_or_si256(first, second)
}

/// Puts 32 low bytes and exponents together and writes them in one of the forms.
///
/// # Safety
/// `out` must be good for writing 32 weights.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn put<const FORM: u8>(low: __m256i, high: __m256i, out: *mut u8) {
    // Eights 0 and 2 of the columns, 1 and 3.
    let words = [
        _mm256_unpacklo_epi8(low, high),
        _mm256_unpackhi_epi8(low, high),
    ];
    let zero = _mm256_setzero_si256();
    for (eight, words) in words.into_iter().enumerate() {
        let rotated = _mm256_or_si256(
            _mm256_srli_epi16::<1>(words),
            _mm256_slli_epi16::<15>(words),
        );
        let quarters = [
            _mm256_unpacklo_epi16(zero, rotated),
            _mm256_unpackhi_epi16(zero, rotated),
        ];
        // SAFETY: the eights from this one and from the one after the next lie
        // within the 32.
        unsafe {
            match FORM {
                BF16 => halves(rotated, out.add(16 * eight), 32),
                F32 => {
                    halves(quarters[0], out.add(32 * eight), 64);
                    halves(quarters[1], out.add(32 * eight + 16), 64);
                }
                _ => {
                    let out = out.add(64 * eight);
                    _mm256_storeu_si256(out.cast(), quarters[0]);
                    _mm256_storeu_si256(out.add(32).cast(), quarters[1]);
                }
            }
        }
    }
}

/// Stores the halves of a vector `apart` bytes from each other.
///
/// # Safety
/// `out` must be good for writing 16 bytes at both places.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn halves(vector: __m256i, out: *mut u8, apart: usize) {
    // SAFETY: by the function's contract.
    unsafe {
        _mm_storeu_si128(out.cast(), _mm256_castsi256_si128(vector));
        _mm_storeu_si128(out.add(apart).cast(), _mm256_extracti128_si256::<1>(vector));
    }
}

/// Tiles of f32 in the order of [`interlaced_place`].
pub(in crate::arch::x86_64) struct Interlaced;

impl Body<4> for Interlaced {
    const LANE_ORDER: [usize; LANES] = <Avx2 as Body<4>>::LANE_ORDER;

    #[target_feature(enable = "avx2,fma")]
    unsafe fn widen(x: *const f32, blocks: usize, wide: *mut f64, stride: usize) {
        // SAFETY: by the method's contract.
        unsafe { <Avx2 as Body<4>>::widen(x, blocks, wide, stride) }
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn tile<const R: usize, const P: usize>(
        rows: [*const u8; R],
        x: *const f64,
        blocks: usize,
        lanes: &mut Sums<R, P>,
        _prefetch: Option<usize>,
    ) {
        // SAFETY: by the method's contract.
        unsafe { interlaced_tile::<R, P>(rows, x, blocks, lanes) }
    }
}

pub(crate) fn matmul_bf16_x3(
    weights: Bf16X3<'_>,
    rows: Range<usize>,
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) {
    let product = Product::new(weights, rows, x, positions, out);
    // SAFETY: only the AVX2 table leads here; its features were detected.
    unsafe { products(&product, out) }
}

#[target_feature(enable = "avx2,fma,bmi1,popcnt")]
fn products(product: &Product<'_>, out: &mut [f32]) {
    macro_rules! block {
        ($rows:literal, $positions:literal, $at:ident) => {
            row_block::<Packed, $rows, $positions>(product, $at, out)
        };
    }
    // SAFETY: this function runs only where its instruction set is.
    walk(product.rows.len(), product.positions, |at, count| unsafe {
        match count {
            1 => block!(3, 1, at),
            2 => block!(3, 2, at),
            3 => block!(2, 3, at),
            4 => block!(3, 4, at),
            5 => block!(2, 5, at),
            6 => block!(2, 6, at),
            7 => block!(1, 7, at),
            _ => block!(1, 8, at),
        }
    });
}

pub(crate) fn router_bf16_x3(
    weights: Bf16X3<'_>,
    rows: Range<usize>,
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) {
    let product = Product::new(weights, rows, x, positions, out);
    // SAFETY: as in `matmul_bf16_x3`.
    unsafe { router(&product, out) }
}

/// Eight rows at a time, each serial in its own lane.
#[target_feature(enable = "avx2,fma,bmi1,popcnt")]
fn router(product: &Product<'_>, out: &mut [f32]) {
    for row in (0..product.rows.len()).step_by(8) {
        let mut position = 0;
        while position < product.positions {
            let at = (row, position);
            let tile = next_tile(product.positions - position);
            // SAFETY: this function runs only where its instruction set is, and
            // `sums8` reads `cols` elements of every row and position.
            unsafe {
                match tile {
                    3 => serial_block::<Packed, 3>(product, at, out, sums8::<4, 3>),
                    2 => serial_block::<Packed, 2>(product, at, out, sums8::<4, 2>),
                    _ => serial_block::<Packed, 1>(product, at, out, sums8::<4, 1>),
                }
            }
            position += tile;
        }
    }
}

pub(crate) fn decode_bf16_x3(weights: Bf16X3<'_>, rows: Range<usize>, out: &mut [u8]) {
    check_decode(weights, &rows, out);
    // SAFETY: as in `matmul_bf16_x3`.
    unsafe { decode_all(weights, rows, out) }
}

#[target_feature(enable = "avx2,fma,bmi1,popcnt")]
fn decode_all(weights: Bf16X3<'_>, rows: Range<usize>, out: &mut [u8]) {
    // SAFETY: this function runs only where its instruction set is.
    unsafe { decode_rows::<Packed>(weights, rows, out) }
}
