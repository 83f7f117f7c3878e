//! MXFP4 products: byte tables give the upper 16 bits of each weight in f64,
//! four rows side by side.

use std::arch::x86_64::*;

use crate::arch::x86_64::batch::walk;
use crate::arch::x86_64::mxfp4::{Body, RowSums, Weights, row_block};
use crate::generic::mxfp4::{
    E2M1, GROUP_BYTES, MXFP4_GROUP, NAN_SCALE, check_chosen, check_mxfp4, count_nan_scales,
};
use crate::generic::mxfp4_prepared::Mxfp4Group;

const ROWS: usize = 4;

/// Byte `byte` (7 = the highest) of the sixteen E2M1 values in f64. Bytes 6 and
/// 7 are all there is: the others are zero.
const fn table(byte: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    let mut nibble = 0;
    while nibble < 16 {
        let value = E2M1[nibble].to_le_bytes();
        let mut low = 0;
        while low < 6 {
            assert!(value[low] == 0, "an E2M1 value needs two bytes of f64");
            low += 1;
        }
        bytes[nibble] = value[byte];
        nibble += 1;
    }
    bytes
}

const TABLE_6: [u8; 16] = table(6);
const TABLE_7: [u8; 16] = table(7);

pub(crate) fn matmul_mxfp4(
    packed: &[u8],
    scales: &[u8],
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) -> u64 {
    let shape = check_mxfp4(packed, scales, x, positions, out);
    let weights = Weights {
        shape,
        packed,
        scales,
    };
    // SAFETY: only the AVX2 table leads here; its features were detected.
    unsafe { products(weights, x, positions, |position| position, out) }
    count_nan_scales(scales)
}

/// Without byte products the prepared integers are of no use.
pub(crate) fn matmul_mxfp4_prepared(
    packed: &[u8],
    scales: &[u8],
    x: &[f32],
    prepared: &[Mxfp4Group],
    chosen: &[usize],
    out: &mut [f32],
) -> u64 {
    let shape = check_chosen(packed, scales, x, prepared, chosen, out);
    let weights = Weights {
        shape,
        packed,
        scales,
    };
    // SAFETY: as in `matmul_mxfp4`.
    unsafe { products(weights, x, chosen.len(), |index| chosen[index], out) }
    count_nan_scales(scales)
}

/// All rows of `positions` columns of the output, column `i` with position
/// `place(i)` of `x`.
#[target_feature(enable = "avx2,fma")]
fn products(
    weights: Weights<'_>,
    x: &[f32],
    positions: usize,
    place: impl Fn(usize) -> usize,
    out: &mut [f32],
) {
    let shape = weights.shape;
    macro_rules! block {
        ($positions:literal, $at:ident) => {{
            let xs = std::array::from_fn(|p| &x[place($at.1 + p) * shape.cols..][..shape.cols]);
            row_block::<Avx2, ROWS, $positions>(weights, xs, $at, positions, out)
        }};
    }
    // SAFETY: this function runs only where its instruction set is.
    walk(shape.rows, positions, |at, count| unsafe {
        match count {
            1 => block!(1, at),
            2 => block!(2, at),
            3 => block!(3, at),
            4 => block!(4, at),
            5 => block!(5, at),
            6 => block!(6, at),
            7 => block!(7, at),
            _ => block!(8, at),
        }
    });
}

/// The body.
struct Avx2;

impl Body<ROWS> for Avx2 {
    #[target_feature(enable = "avx2,fma")]
    unsafe fn widen(x: *const f32, count: usize, wide: *mut f64, stride: usize) {
        for i in (0..count).step_by(4) {
            // SAFETY: by the method's contract.
            unsafe {
                let values = _mm256_cvtps_pd(_mm_loadu_ps(x.add(i)));
                // As `place` says.
                let values = _mm256_permute4x64_pd::<0b11_01_10_00>(values);
                let group = i / MXFP4_GROUP;
                _mm256_store_pd(wide.add(group * stride + i % MXFP4_GROUP), values);
            }
        }
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn tile<const P: usize>(
        rows: [*const u8; ROWS],
        scales: &[[u8; ROWS]],
        x: *const f64,
        sums: &mut RowSums<ROWS, P>,
        ahead: usize,
    ) {
        for (group, &bytes) in scales.iter().enumerate() {
            let offset = group * GROUP_BYTES;
            if offset.is_multiple_of(64) {
                for row in rows {
                    // A prefetch may point anywhere: it never faults.
                    let line = row.wrapping_add(offset).wrapping_add(ahead);
                    _mm_prefetch::<_MM_HINT_T0>(line.cast());
                }
            }
            // SAFETY: by the method's contract.
            let sub = unsafe {
                let x = x.add(group * P * MXFP4_GROUP);
                if P == 1 {
                    [single_sums(&rows, offset, x); P]
                } else {
                    group_sums::<P>(decode(&rows, offset), x)
                }
            };
            let (scale, skip) = scale_values(bytes);
            for (sums, sub) in sums.0.iter_mut().zip(sub) {
                // SAFETY: four f64. The product of a sum and a power of two is
                // exact, so the fused form rounds as the definition. Where the
                // scale is NaN, nothing times 2^128 leaves the sum as it is.
                unsafe {
                    let acc = _mm256_loadu_pd(sums.as_ptr());
                    let acc = _mm256_fmadd_pd(_mm256_andnot_pd(skip, sub), scale, acc);
                    _mm256_storeu_pd(sums.as_mut_ptr(), acc);
                }
            }
        }
    }
}

/// Place of element `i` among a group's widened activations: of four, the even
/// ones come first, as [`single_sums`] takes them.
const fn place(i: usize) -> usize {
    i / 4 * 4 + i % 2 * 2 + i / 2 % 2
}

/// The sums of one group of four rows with one position, in the order of
/// [`group_sums`]. Every weight is used once, so what counts is to place it with
/// few steps: a vector holds two elements of two rows, as tables and unpacking
/// leave them, and only the sums are put in the order of rows.
///
/// # Safety
/// Every row must be good for reading `offset + 16` bytes, `x` for 32 values.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn single_sums(rows: &[*const u8; ROWS], offset: usize, x: *const f64) -> __m256d {
    let tables = tables();
    let mask = _mm256_set1_epi8(15);
    // Of eight bytes those with even numbers first: then `spread` puts neighbours
    // of a parity side by side.
    let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15,
    ));
    // `(s0 + s1, s2 + s3)` of row `first` and of row `first + 2`.
    let pair = |first: usize| {
        // SAFETY: by the function's contract.
        let pair = unsafe { load_rows(rows[first], rows[first + 2], offset) };
        let pair = _mm256_shuffle_epi8(pair, order);
        let mut sums = [[_mm256_setzero_pd(); 2]; 2];
        for (parity, sums) in sums.iter_mut().enumerate() {
            let shifted = _mm256_srli_epi16::<4>(pair);
            let nibbles = _mm256_and_si256(if parity == 0 { pair } else { shifted }, mask);
            for (half, words) in tops(tables, nibbles).into_iter().enumerate() {
                for (quarter, w) in spread(words).into_iter().enumerate() {
                    let at = 16 * half + 4 * quarter + 2 * parity;
                    // SAFETY: by the function's contract.
                    let x = unsafe { _mm256_broadcast_pd(&*x.add(at).cast()) };
                    sums[quarter % 2] = _mm256_fmadd_pd(w, x, sums[quarter % 2]);
                }
            }
        }
        let [even, odd] = sums.map(|[low, high]| _mm256_add_pd(low, high));
        _mm256_add_pd(even, odd)
    };
    _mm256_hadd_pd(pair(0), pair(1))
}

/// The sums of one group of four rows with `P` positions: `(s0 + s1) + (s2 +
/// s3)` with `s_j = lane[j] + lane[j + 4]`. The weights are [`decode`]d.
///
/// # Safety
/// `x` must be good for reading 32 values for each position.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn group_sums<const P: usize>(quads: [[__m256i; 4]; 2], x: *const f64) -> [__m256d; P] {
    let mut w = [_mm256_setzero_pd(); MXFP4_GROUP];
    for (parity, quads) in quads.into_iter().enumerate() {
        for (step, quad) in quads.into_iter().enumerate() {
            for (i, wide) in spread(quad).into_iter().enumerate() {
                w[8 * step + parity + 2 * i] = wide;
            }
        }
    }
    // Hidden from the optimiser: 32 vectors are more than there are registers.
    let w = std::hint::black_box(&w);
    // SAFETY: by the function's contract.
    tree(|i| unsafe { lane::<P>(w, x, i) })
}

/// The tree over the eight lanes of a group.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tree<const P: usize>(lane: impl Fn(usize) -> [__m256d; P]) -> [__m256d; P] {
    let s = |j: usize| add(lane(j), lane(j + 4));
    let s01 = add(s(0), s(1));
    add(s01, add(s(2), s(3)))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn add<const P: usize>(a: [__m256d; P], b: [__m256d; P]) -> [__m256d; P] {
    let mut sums = a;
    for (sum, b) in sums.iter_mut().zip(b) {
        *sum = _mm256_add_pd(*sum, b);
    }
    sums
}

/// One lane of a group: elements `lane`, `lane + 8`, `+ 16` and `+ 24` of `w`.
///
/// # Safety
/// As for [`group_sums`].
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn lane<const P: usize>(
    w: &[__m256d; MXFP4_GROUP],
    x: *const f64,
    lane: usize,
) -> [__m256d; P] {
    let mut sums = [_mm256_setzero_pd(); P];
    for i in [lane, lane + 8, lane + 16, lane + 24] {
        for (p, sum) in sums.iter_mut().enumerate() {
            // SAFETY: by the function's contract.
            let x = _mm256_set1_pd(unsafe { *x.add(p * MXFP4_GROUP + place(i)) });
            *sum = _mm256_fmadd_pd(w[i], x, *sum);
        }
    }
    sums
}

/// The upper 16 bits of a group's weights in f64, row `r` in 64-bit lane `r`:
/// entry `[parity][step]` holds elements `8 step + parity`, `+2`, `+4`, `+6`.
///
/// # Safety
/// Every pointer must be good for reading `offset + 16` bytes.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn decode(rows: &[*const u8; ROWS], offset: usize) -> [[__m256i; 4]; 2] {
    let tables = tables();
    // Rows 0 and 2, rows 1 and 3: what interleaves to the order of rows.
    // SAFETY: by the function's contract.
    let pairs = unsafe {
        [
            load_rows(rows[0], rows[2], offset),
            load_rows(rows[1], rows[3], offset),
        ]
    };
    let mask = _mm256_set1_epi8(15);
    let mut quads = [[_mm256_setzero_si256(); 4]; 2];
    for (parity, quads) in quads.iter_mut().enumerate() {
        // Elements 0..16 and 16..32 of this parity, of rows 0 and 2, 1 and 3.
        let values = pairs.map(|pair| {
            let shifted = _mm256_srli_epi16::<4>(pair);
            tops(
                tables,
                _mm256_and_si256(if parity == 0 { pair } else { shifted }, mask),
            )
        });
        let [low, high] = [0, 1].map(|half| (values[0][half], values[1][half]));
        *quads = [
            _mm256_unpacklo_epi64(low.0, low.1),
            _mm256_unpackhi_epi64(low.0, low.1),
            _mm256_unpacklo_epi64(high.0, high.1),
            _mm256_unpackhi_epi64(high.0, high.1),
        ];
    }
    quads
}

/// The two tables, in both halves of a vector.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tables() -> [__m256i; 2] {
    [TABLE_6, TABLE_7].map(|table| {
        // SAFETY: a table is sixteen bytes.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
    })
}

/// 16 bytes at `offset` of two rows, one to a half.
///
/// # Safety
/// Both must be good for reading `offset + 16` bytes.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn load_rows(low: *const u8, high: *const u8, offset: usize) -> __m256i {
    // SAFETY: by the function's contract.
    unsafe { _mm256_loadu2_m128i(high.add(offset).cast(), low.add(offset).cast()) }
}

/// The upper 16 bits in f64 of sixteen `nibbles` in each half: of the first eight
/// and of the others.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn tops([byte_6, byte_7]: [__m256i; 2], nibbles: __m256i) -> [__m256i; 2] {
    let low = _mm256_shuffle_epi8(byte_6, nibbles);
    let high = _mm256_shuffle_epi8(byte_7, nibbles);
    [
        _mm256_unpacklo_epi8(low, high),
        _mm256_unpackhi_epi8(low, high),
    ]
}

/// The four 16-bit values of every 64-bit lane, each on top of its own vector
/// with zeros below.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn spread(quad: __m256i) -> [__m256d; 4] {
    // Negative selectors give zero bytes.
    #[rustfmt::skip]
    let second = _mm256_setr_epi8(
        -1, -1, -1, -1, -1, -1, 2, 3, -1, -1, -1, -1, -1, -1, 10, 11,
        -1, -1, -1, -1, -1, -1, 2, 3, -1, -1, -1, -1, -1, -1, 10, 11,
    );
    #[rustfmt::skip]
    let third = _mm256_setr_epi8(
        -1, -1, -1, -1, -1, -1, 4, 5, -1, -1, -1, -1, -1, -1, 12, 13,
        -1, -1, -1, -1, -1, -1, 4, 5, -1, -1, -1, -1, -1, -1, 12, 13,
    );
    let fourth = _mm256_set1_epi64x(!0 << 48);
    [
        _mm256_castsi256_pd(_mm256_slli_epi64::<48>(quad)),
        _mm256_castsi256_pd(_mm256_shuffle_epi8(quad, second)),
        _mm256_castsi256_pd(_mm256_shuffle_epi8(quad, third)),
        _mm256_castsi256_pd(_mm256_and_si256(quad, fourth)),
    ]
}

/// `2^(byte - 127)` of four scale bytes, and all ones where a byte is NaN.
#[inline]
#[target_feature(enable = "avx2")]
fn scale_values(bytes: [u8; ROWS]) -> (__m256d, __m256d) {
    let wide = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(i32::from_le_bytes(bytes)));
    let skip = _mm256_cmpeq_epi64(wide, _mm256_set1_epi64x(i64::from(NAN_SCALE)));
    let biased = _mm256_add_epi64(wide, _mm256_set1_epi64x(1023 - 127));
    (
        _mm256_castsi256_pd(_mm256_slli_epi64::<52>(biased)),
        _mm256_castsi256_pd(skip),
    )
}
