//! MXFP4 products: byte tables give the upper 16 bits of each weight in f64.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use crate::arch::x86_64::pointers::{position_starts, row_starts};
use crate::generic::lanes::round_f32;
use crate::generic::mxfp4::{
    E2M1, GROUP_BYTES, MXFP4_GROUP, NAN_SCALE, check_mxfp4, count_nan_scales,
};
use crate::generic::shape::MatmulShape;

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
    // SAFETY: only the AVX2 table leads here; its features were detected.
    unsafe { matmul(shape, packed, scales, x, positions, out) }
    count_nan_scales(scales)
}

#[target_feature(enable = "avx2,fma")]
fn matmul(
    shape: MatmulShape,
    packed: &[u8],
    scales: &[u8],
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) {
    let groups = shape.cols / MXFP4_GROUP;
    for row in (0..shape.rows).step_by(ROWS) {
        let count = (shape.rows - row).min(ROWS);
        let row_bytes = groups * GROUP_BYTES;
        let rows = Rows {
            packed: row_starts(packed, row_bytes, row_bytes, row, count),
            scales: row_starts(scales, groups, groups, row, count),
            groups,
        };
        let out = &mut out[row * positions..][..count * positions];
        let pairs = positions - positions % 2;
        for position in (0..pairs).step_by(2) {
            store::<2>(&rows, x, shape.cols, position, positions, out);
        }
        if pairs < positions {
            store::<1>(&rows, x, shape.cols, pairs, positions, out);
        }
    }
}

/// Four rows: each `packed` pointer is good for `groups * 16` bytes, each
/// `scales` pointer for `groups` bytes.
struct Rows {
    packed: [*const u8; ROWS],
    scales: [*const u8; ROWS],
    groups: usize,
}

/// `P` positions of one row tile, `out: [rows of the tile][positions]`.
#[target_feature(enable = "avx2,fma")]
fn store<const P: usize>(
    rows: &Rows,
    x: &[f32],
    cols: usize,
    position: usize,
    positions: usize,
    out: &mut [f32],
) {
    let xs = position_starts::<P>(x, cols, position);
    // SAFETY: `Rows` states what its pointers are good for, and every position
    // holds `cols = groups * 32` values.
    let sums = unsafe { sums::<P>(rows, xs) };
    for (r, out) in out.chunks_exact_mut(positions).enumerate() {
        for p in 0..P {
            out[position + p] = round_f32(sums[p][r]);
        }
    }
}

/// The f64 sums of four rows for each of `P` positions.
///
/// # Safety
/// The pointers of `rows` must be good for what [`Rows`] says, and every
/// position for `groups * 32` values.
#[target_feature(enable = "avx2,fma")]
unsafe fn sums<const P: usize>(rows: &Rows, xs: [*const f32; P]) -> [[f64; ROWS]; P] {
    let mut acc = [_mm256_setzero_pd(); P];
    let mut x = [[[0.0_f64; 4]; 8]; P];
    for group in 0..rows.groups {
        for p in 0..P {
            // SAFETY: the group's 32 values lie within every position.
            unsafe { widen_group(xs[p].add(group * MXFP4_GROUP), &mut x[p]) };
        }
        let mut halves = [[_mm_setzero_pd(); P]; ROWS];
        let mut bytes = [0_u8; ROWS];
        for r in 0..ROWS {
            // SAFETY: `group < groups`, so its 16 bytes and its scale lie within
            // every row.
            unsafe {
                halves[r] = group_sums::<P>(rows.packed[r].add(group * GROUP_BYTES), &x);
                bytes[r] = *rows.scales[r].add(group);
            }
        }
        let (scale, skip) = scale_values(bytes);
        for p in 0..P {
            // sub = (s0 + s1) + (s2 + s3), row by row.
            let low = _mm_hadd_pd(halves[0][p], halves[1][p]);
            let high = _mm_hadd_pd(halves[2][p], halves[3][p]);
            let sub = _mm256_set_m128d(high, low);
            // The product of a sum and a power of two is exact, so the fused
            // form rounds as the definition; NaN scales leave acc as it is.
            let next = _mm256_fmadd_pd(sub, scale, acc[p]);
            acc[p] = _mm256_blendv_pd(next, acc[p], skip);
        }
    }
    let mut sums = [[0.0_f64; ROWS]; P];
    for p in 0..P {
        // SAFETY: the destination is four f64.
        unsafe { _mm256_storeu_pd(sums[p].as_mut_ptr(), acc[p]) };
    }
    sums
}

/// `[s0 + s1, s2 + s3]` of one row's group at `packed`, for each position.
///
/// The lanes are kept as evens (0, 2, 4, 6: low nibbles) and odds (1, 3, 5, 7:
/// high nibbles), which is how [`widen_group`] lays out the activations.
///
/// # Safety
/// `packed` must be good for reading 16 bytes.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn group_sums<const P: usize>(packed: *const u8, x: &[[[f64; 4]; 8]; P]) -> [__m128d; P] {
    // SAFETY: by the function's contract.
    let bytes = unsafe { _mm_loadu_si128(packed.cast()) };
    let mask = _mm_set1_epi8(15);
    let weights = [
        decode(_mm_and_si128(bytes, mask)),
        decode(_mm_and_si128(_mm_srli_epi16::<4>(bytes), mask)),
    ];
    let mut lanes = [[_mm256_setzero_pd(); 2]; P];
    for quad in 0..4 {
        for parity in 0..2 {
            let w = weights[parity][quad];
            for p in 0..P {
                // SAFETY: the source is four f64.
                let x = unsafe { _mm256_loadu_pd(x[p][2 * quad + parity].as_ptr()) };
                lanes[p][parity] = _mm256_fmadd_pd(w, x, lanes[p][parity]);
            }
        }
    }
    let mut halves = [_mm_setzero_pd(); P];
    for p in 0..P {
        // (lane 0 + lane 4, lane 2 + lane 6) and (lane 1 + lane 5, lane 3 + lane 7).
        halves[p] = _mm_add_pd(fold(lanes[p][0]), fold(lanes[p][1]));
    }
    halves
}

/// The lower plus the upper half.
#[inline]
#[target_feature(enable = "avx2")]
fn fold(v: __m256d) -> __m128d {
    _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd::<1>(v))
}

/// Sixteen nibbles as f64, four to a vector, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn decode(nibbles: __m128i) -> [__m256d; 4] {
    // SAFETY: each table is sixteen bytes.
    let (byte_6, byte_7) = unsafe {
        (
            _mm_loadu_si128(TABLE_6.as_ptr().cast()),
            _mm_loadu_si128(TABLE_7.as_ptr().cast()),
        )
    };
    let low = _mm_shuffle_epi8(byte_6, nibbles);
    let high = _mm_shuffle_epi8(byte_7, nibbles);
    let pairs = [_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high)];
    // Places 16-bit values 0, 1 | 2, 3 (or 4, 5 | 6, 7) at the top of the four
    // 64-bit lanes; negative selectors give zero bytes.
    #[rustfmt::skip]
    let first = _mm256_setr_epi8(
        -1, -1, -1, -1, -1, -1, 0, 1, -1, -1, -1, -1, -1, -1, 2, 3,
        -1, -1, -1, -1, -1, -1, 4, 5, -1, -1, -1, -1, -1, -1, 6, 7,
    );
    #[rustfmt::skip]
    let second = _mm256_setr_epi8(
        -1, -1, -1, -1, -1, -1, 8, 9, -1, -1, -1, -1, -1, -1, 10, 11,
        -1, -1, -1, -1, -1, -1, 12, 13, -1, -1, -1, -1, -1, -1, 14, 15,
    );
    let spread = |pairs, selector| {
        let both = _mm256_broadcastsi128_si256(pairs);
        _mm256_castsi256_pd(_mm256_shuffle_epi8(both, selector))
    };
    [
        spread(pairs[0], first),
        spread(pairs[0], second),
        spread(pairs[1], first),
        spread(pairs[1], second),
    ]
}

/// The 32 activations of a group in f64: entry `2 q + parity` holds elements
/// `8 q + parity`, `+2`, `+4` and `+6`.
///
/// # Safety
/// `x` must be good for reading 32 values.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn widen_group(x: *const f32, wide: &mut [[f64; 4]; 8]) {
    for quad in 0..4 {
        // SAFETY: 32 values are readable by the function's contract.
        let (low, high) = unsafe {
            (
                _mm_loadu_ps(x.add(8 * quad)),
                _mm_loadu_ps(x.add(8 * quad + 4)),
            )
        };
        let even = _mm256_cvtps_pd(_mm_shuffle_ps::<0x88>(low, high));
        let odd = _mm256_cvtps_pd(_mm_shuffle_ps::<0xDD>(low, high));
        // SAFETY: the destinations are four f64 each.
        unsafe {
            _mm256_storeu_pd(wide[2 * quad].as_mut_ptr(), even);
            _mm256_storeu_pd(wide[2 * quad + 1].as_mut_ptr(), odd);
        }
    }
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
