//! MXFP4 products: eight rows side by side, one table permutation per element.

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

const ROWS: usize = 8;

pub(crate) fn matmul_mxfp4(
    packed: &[u8],
    scales: &[u8],
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) -> u64 {
    let shape = check_mxfp4(packed, scales, x, positions, out);
    // SAFETY: only the AVX-512 table leads here; its features were detected.
    unsafe { matmul(shape, packed, scales, x, positions, out) }
    count_nan_scales(scales)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
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

/// Eight rows: each `packed` pointer is good for `groups * 16` bytes, each
/// `scales` pointer for `groups` bytes.
struct Rows {
    packed: [*const u8; ROWS],
    scales: [*const u8; ROWS],
    groups: usize,
}

/// `P` positions of one row tile, `out: [rows of the tile][positions]`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
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

/// The f64 sums of eight rows for each of `P` positions; lane = row, so the
/// eight accumulators of a group are the definition's eight lanes.
///
/// # Safety
/// The pointers of `rows` must be good for what [`Rows`] says, and every
/// position for `groups * 32` values.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn sums<const P: usize>(rows: &Rows, xs: [*const f32; P]) -> [[f64; ROWS]; P] {
    // SAFETY: the table is sixteen f64.
    let table = unsafe {
        [
            _mm512_loadu_pd(E2M1.as_ptr()),
            _mm512_loadu_pd(E2M1[8..].as_ptr()),
        ]
    };
    let mut acc = [_mm512_setzero_pd(); P];
    let mut x = [[0.0_f64; MXFP4_GROUP]; P];
    for group in 0..rows.groups {
        // SAFETY: `group < groups`, so its 16 bytes lie within every row.
        let nibbles = unsafe { interleave(&rows.packed, group * GROUP_BYTES) };
        for p in 0..P {
            // SAFETY: the group's 32 values lie within every position.
            unsafe { widen_group(xs[p].add(group * MXFP4_GROUP), &mut x[p]) };
        }
        // Hidden from the optimiser, which would otherwise keep the values in
        // registers and broadcast them with shuffles: memory operands are free.
        let x = std::hint::black_box(&x);
        let mut lanes = [[_mm512_setzero_pd(); 8]; P];
        for (half, mut nibbles) in nibbles.into_iter().enumerate() {
            for i in 0..16 {
                // The permutation looks at the lowest four bits of each index.
                let w = _mm512_permutex2var_pd(table[0], nibbles, table[1]);
                nibbles = _mm512_srli_epi64::<4>(nibbles);
                for p in 0..P {
                    let x = _mm512_set1_pd(x[p][half * 16 + i]);
                    lanes[p][i % 8] = _mm512_fmadd_pd(w, x, lanes[p][i % 8]);
                }
            }
        }
        // SAFETY: `group < groups`.
        let bytes = rows.scales.map(|row| unsafe { *row.add(group) });
        let (scale, valid) = scale_values(bytes);
        for p in 0..P {
            // The product of a sum and a power of two is exact, so the fused
            // form rounds as the definition; NaN scales leave acc as it is.
            acc[p] = _mm512_mask3_fmadd_pd(tree(&lanes[p]), scale, acc[p], valid);
        }
    }
    let mut sums = [[0.0_f64; ROWS]; P];
    for p in 0..P {
        // SAFETY: the destination is eight f64.
        unsafe { _mm512_storeu_pd(sums[p].as_mut_ptr(), acc[p]) };
    }
    sums
}

/// The 16 bytes of every row at `offset`: bytes 0..8 of row `r` in lane `r` of
/// the first vector, bytes 8..16 in the second.
///
/// # Safety
/// Every pointer must be good for reading `offset + 16` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn interleave(rows: &[*const u8; ROWS], offset: usize) -> [__m512i; 2] {
    // SAFETY: by the function's contract.
    let row = rows.map(|row| unsafe { _mm_loadu_si128(row.add(offset).cast()) });
    let join = |a, b, c, d| {
        let joined = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
        _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(joined, c), d)
    };
    let even = join(row[0], row[2], row[4], row[6]);
    let odd = join(row[1], row[3], row[5], row[7]);
    [
        _mm512_unpacklo_epi64(even, odd),
        _mm512_unpackhi_epi64(even, odd),
    ]
}

/// The 32 activations of a group in f64.
///
/// # Safety
/// `x` must be good for reading 32 values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn widen_group(x: *const f32, wide: &mut [f64; MXFP4_GROUP]) {
    for (i, wide) in wide.chunks_exact_mut(8).enumerate() {
        // SAFETY: 32 values are readable; the destination is eight f64.
        unsafe {
            _mm512_storeu_pd(
                wide.as_mut_ptr(),
                _mm512_cvtps_pd(_mm256_loadu_ps(x.add(8 * i))),
            )
        };
    }
}

/// `2^(byte - 127)` of eight scale bytes, and which of them are not NaN.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn scale_values(bytes: [u8; ROWS]) -> (__m512d, __mmask8) {
    let wide = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(i64::from_le_bytes(bytes)));
    let valid = _mm512_cmpneq_epi64_mask(wide, _mm512_set1_epi64(i64::from(NAN_SCALE)));
    let biased = _mm512_add_epi64(wide, _mm512_set1_epi64(1023 - 127));
    (_mm512_castsi512_pd(_mm512_slli_epi64::<52>(biased)), valid)
}

/// `(s0 + s1) + (s2 + s3)` with `s_j = lane[j] + lane[j+4]`, for eight rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn tree(lanes: &[__m512d; 8]) -> __m512d {
    let s = |j: usize| _mm512_add_pd(lanes[j], lanes[j + 4]);
    _mm512_add_pd(_mm512_add_pd(s(0), s(1)), _mm512_add_pd(s(2), s(3)))
}
