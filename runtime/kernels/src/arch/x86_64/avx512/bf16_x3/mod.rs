//! Packed bf16 rows: 64 weights at a time where bytes can be permuted and
//! expanded (VBMI, VBMI2), by the AVX2 decoder elsewhere.

mod decode;
mod tile;

use std::ops::Range;

use self::decode::{BF16, F32, SHIFTED, decode};
use self::tile::{SCALE, Shifted, eight_rows};
use super::batch::Avx512;
use super::serial::sums8;
use crate::arch::x86_64::avx2::Packed as Avx2Packed;
use crate::arch::x86_64::batch::walk;
use crate::arch::x86_64::bf16_x3::{
    Decoder, Panel, Part, Product, RowState, Tile, by_parts, decode_rows, row_block, serial_block,
};
use crate::arch::x86_64::has_avx512_expand;
use crate::arch::x86_64::pointers::next_tile;
use crate::generic::bf16_x3::{Bf16X3, GROUP, check_decode};

/// Decoder of 64 weights at a time.
struct Packed;

impl Decoder for Packed {
    type Tiles = Shifted;

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
    unsafe fn f32s(row: &mut RowState, columns: usize, out: *mut f32, ahead: usize) {
        // SAFETY: by the method's contract.
        unsafe { decode::<F32>(row, columns, out.cast(), ahead) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
    unsafe fn bf16s(row: &mut RowState, columns: usize, out: *mut u8, ahead: usize) {
        // SAFETY: by the method's contract.
        unsafe { decode::<BF16>(row, columns, out, ahead) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
    unsafe fn operands(row: &mut RowState, columns: usize, out: *mut f32, ahead: usize) {
        // SAFETY: by the method's contract.
        unsafe { decode::<SHIFTED>(row, columns, out.cast(), ahead) }
    }

    fn product(operand: f32, x: f32) -> f64 {
        let weight = f64::from_bits(u64::from(operand.to_bits()) << 32);
        weight * (f64::from(x) * SCALE)
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,fma,popcnt"
    )]
    unsafe fn add_panel<const R: usize, const P: usize>(
        panel: Panel,
        rows: &mut [RowState],
        decoded: &mut Part<R>,
        tile: &mut Tile<R, P>,
    ) {
        let mut done = 0;
        let sums = tile.sums.0.as_flattened_mut();
        if P == 1
            && let (Ok(rows), Ok(sums)) = ((&mut *rows).try_into(), sums.try_into())
        {
            done = panel.columns / GROUP * GROUP;
            // SAFETY: by the method's contract; these are whole groups.
            unsafe { eight_rows(panel, done / GROUP, rows, sums) };
        }
        // SAFETY: as above; the rows have moved on.
        unsafe { by_parts::<Self, R, P>(panel.skip::<P>(done), rows, decoded, tile) }
    }
}

/// The AVX2 decoder for these tiles.
struct Shuffled;

impl Decoder for Shuffled {
    type Tiles = Avx512;

    #[target_feature(enable = "avx2,bmi1,popcnt")]
    unsafe fn f32s(row: &mut RowState, columns: usize, out: *mut f32, ahead: usize) {
        // SAFETY: by the method's contract.
        unsafe { Avx2Packed::f32s(row, columns, out, ahead) }
    }

    #[target_feature(enable = "avx2,bmi1,popcnt")]
    unsafe fn bf16s(row: &mut RowState, columns: usize, out: *mut u8, ahead: usize) {
        // SAFETY: by the method's contract.
        unsafe { Avx2Packed::bf16s(row, columns, out, ahead) }
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
    // SAFETY: only the AVX-512 table leads here; its features were detected, and
    // those of the wider decoder are here.
    unsafe {
        if has_avx512_expand() {
            expanded::products(&product, out);
        } else {
            shuffled::products(&product, out);
        }
    }
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
    unsafe {
        if has_avx512_expand() {
            expanded::router(&product, out);
        } else {
            shuffled::router(&product, out);
        }
    }
}

pub(crate) fn decode_bf16_x3(weights: Bf16X3<'_>, rows: Range<usize>, out: &mut [u8]) {
    check_decode(weights, &rows, out);
    // SAFETY: as in `matmul_bf16_x3`.
    unsafe {
        if has_avx512_expand() {
            expanded::decode(weights, rows, out);
        } else {
            shuffled::decode(weights, rows, out);
        }
    }
}

/// The kernels with one decoder, compiled with `$features`.
macro_rules! kernels {
    ($module:ident, $decoder:ty, $features:literal) => {
        mod $module {
            use super::*;

            #[target_feature(enable = $features)]
            pub(super) fn products(product: &Product<'_>, out: &mut [f32]) {
                macro_rules! block {
                    ($rows:literal, $positions:literal, $at:ident) => {
                        row_block::<$decoder, $rows, $positions>(product, $at, out)
                    };
                }
                // SAFETY: this function runs only where its instruction set is.
                walk(product.rows.len(), product.positions, |at, count| unsafe {
                    match count {
                        1 => block!(8, 1, at),
                        2 => block!(6, 2, at),
                        3 => block!(4, 3, at),
                        4 => block!(3, 4, at),
                        5 => block!(4, 5, at),
                        6 => block!(4, 6, at),
                        7 => block!(3, 7, at),
                        _ => block!(3, 8, at),
                    }
                });
            }

            /// Eight rows at a time, each serial in its own lane.
            #[target_feature(enable = $features)]
            pub(super) fn router(product: &Product<'_>, out: &mut [f32]) {
                for row in (0..product.rows.len()).step_by(8) {
                    let mut position = 0;
                    while position < product.positions {
                        let at = (row, position);
                        let tile = next_tile(product.positions - position);
                        // SAFETY: this function runs only where its instruction
                        // set is, and `sums8` reads `cols` elements of every row
                        // and position.
                        unsafe {
                            match tile {
                                3 => serial_block::<$decoder, 3>(product, at, out, sums8::<4, 3>),
                                2 => serial_block::<$decoder, 2>(product, at, out, sums8::<4, 2>),
                                _ => serial_block::<$decoder, 1>(product, at, out, sums8::<4, 1>),
                            }
                        }
                        position += tile;
                    }
                }
            }

            #[target_feature(enable = $features)]
            pub(super) fn decode(weights: Bf16X3<'_>, rows: Range<usize>, out: &mut [u8]) {
                // SAFETY: this function runs only where its instruction set is.
                unsafe { decode_rows::<$decoder>(weights, rows, out) }
            }
        }
    };
}

kernels!(
    expanded,
    Packed,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,fma,bmi1,popcnt"
);
kernels!(
    shuffled,
    Shuffled,
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,popcnt"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64::has_avx512;
    use crate::generic::bf16_x3 as definition;

    /// Noise of `rows` x `cols` whose codes have all the escapes they ask for.
    fn noise(rows: usize, cols: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        let starts = (0_u32..).step_by(cols).take(rows + 1);
        let mut payload: Vec<u8> = starts.flat_map(u32::to_le_bytes).collect();
        for _ in 0..rows {
            payload.extend((0..7).map(|_| byte() % 255));
            payload.push(255);
        }
        let rest = rows * (11 * cols.div_ceil(8) + cols);
        payload.extend((0..rest).map(|_| byte() & 0x7F));
        payload.extend([0; definition::TAIL_BYTES]);
        payload
    }

    /// What processors without VBMI2 take, and those with it never do.
    #[test]
    fn the_shuffling_decoder_equals_the_definition() {
        if !has_avx512() {
            return;
        }
        for (rows, cols, positions) in [(1, 7, 1), (9, 64, 2), (17, 333, 1), (5, 2100, 9)] {
            let payload = noise(rows, cols);
            let weights = Bf16X3::new(&payload, rows, cols).expect("sound lengths");
            let mut x = vec![0.0; positions * cols];
            for (i, x) in (0_u16..).zip(&mut x) {
                *x = f32::from(i % 251) - 100.0;
            }
            let mut expected = vec![0.0; rows * positions];
            let mut found = vec![1.0; rows * positions];
            let product = Product::new(weights, 0..rows, &x, positions, &found);
            definition::matmul_bf16_x3(weights, 0..rows, &x, positions, &mut expected);
            // SAFETY: the instruction set was detected.
            unsafe { shuffled::products(&product, &mut found) };
            assert_eq!(expected, found, "{rows} x {cols}, {positions}");
            definition::router_bf16_x3(weights, 0..rows, &x, positions, &mut expected);
            // SAFETY: as above.
            unsafe { shuffled::router(&product, &mut found) };
            assert_eq!(expected, found, "{rows} x {cols}, {positions}");
            let (mut expected, mut found) = (vec![0; 2 * rows * cols], vec![1; 2 * rows * cols]);
            definition::decode_bf16_x3(weights, 0..rows, &mut expected);
            // SAFETY: as above.
            unsafe { shuffled::decode(weights, 0..rows, &mut found) };
            assert_eq!(expected, found, "{rows} x {cols}");
        }
    }
}
