//! MXFP4 products: eight rows side by side, one table permutation per element.

use std::arch::x86_64::*;

use super::exact;
use crate::arch::x86_64::batch::walk;
use crate::arch::x86_64::has_avx512_bytes;
use crate::arch::x86_64::mxfp4::{Body, RowSums, Weights, row_block};
use crate::generic::mxfp4::{
    E2M1, GROUP_BYTES, MXFP4_GROUP, NAN_SCALE, check_chosen, check_mxfp4, count_nan_scales,
};
use crate::generic::mxfp4_prepared::Mxfp4Group;

const ROWS: usize = 8;

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
    // SAFETY: only the AVX-512 table leads here; its features were detected.
    unsafe { products(weights, x, positions, |position| position, out) }
    count_nan_scales(scales)
}

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
    if has_avx512_bytes() {
        // SAFETY: the features were detected, those of the table besides.
        unsafe { exact::products(weights, x, prepared, chosen, out) }
    } else {
        // SAFETY: as in `matmul_mxfp4`.
        unsafe { products(weights, x, chosen.len(), |index| chosen[index], out) }
    }
    count_nan_scales(scales)
}

/// All rows of `positions` columns of the output, column `i` with position
/// `place(i)` of `x`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
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
            row_block::<Avx512, ROWS, $positions>(weights, xs, $at, positions, out)
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

/// The f64 body.
struct Avx512;

impl Body<ROWS> for Avx512 {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn widen(x: *const f32, count: usize, wide: *mut f64, stride: usize) {
        for i in (0..count).step_by(8) {
            // SAFETY: by the method's contract.
            unsafe {
                let values = _mm512_cvtps_pd(_mm256_loadu_ps(x.add(i)));
                let group = i / MXFP4_GROUP;
                _mm512_store_pd(wide.add(group * stride + i % MXFP4_GROUP), values);
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn tile<const P: usize>(
        rows: [*const u8; ROWS],
        scales: &[[u8; ROWS]],
        x: *const f64,
        sums: &mut RowSums<ROWS, P>,
        ahead: usize,
    ) {
        // SAFETY: each source is eight f64.
        let mut acc =
            std::array::from_fn::<_, P, _>(|p| unsafe { _mm512_load_pd(sums.0[p].as_ptr()) });
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
                group_sums::<P>(interleave(&rows, offset), x)
            };
            let (scale, valid) = scale_values(bytes, 1023 - 127);
            for (acc, sub) in acc.iter_mut().zip(sub) {
                // The product of a sum and a power of two is exact, so the fused
                // form rounds as the definition; NaN scales leave acc as it is.
                *acc = _mm512_mask3_fmadd_pd(sub, scale, *acc, valid);
            }
        }
        for (sums, acc) in sums.0.iter_mut().zip(acc) {
            // SAFETY: the destination is eight f64.
            unsafe { _mm512_store_pd(sums.as_mut_ptr(), acc) };
        }
    }
}

/// The sums of one group of eight rows (as [`interleave`] lays them out) with
/// `P` positions: `(s0 + s1) + (s2 + s3)` with `s_j = lane[j] + lane[j + 4]`.
///
/// # Safety
/// `x` must be good for reading 32 values for each position.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn group_sums<const P: usize>(
    nibbles: [__m512i; 2],
    x: *const f64,
) -> [__m512d; P] {
    let add = |a: [__m512d; P], b: [__m512d; P]| {
        std::array::from_fn::<_, P, _>(|p| _mm512_add_pd(a[p], b[p]))
    };
    if P == 1 {
        // SAFETY: by the function's contract.
        return [unsafe { single_sums(nibbles, x) }; P];
    }
    // SAFETY: by the function's contract. A lane's shifts are 4 times its number
    // and that plus 8.
    unsafe {
        let s0 = add(
            lane::<0, 0, 32, P>(nibbles, x),
            lane::<4, 16, 48, P>(nibbles, x),
        );
        let s1 = add(
            lane::<1, 4, 36, P>(nibbles, x),
            lane::<5, 20, 52, P>(nibbles, x),
        );
        let s01 = add(s0, s1);
        let s2 = add(
            lane::<2, 8, 40, P>(nibbles, x),
            lane::<6, 24, 56, P>(nibbles, x),
        );
        let s3 = add(
            lane::<3, 12, 44, P>(nibbles, x),
            lane::<7, 28, 60, P>(nibbles, x),
        );
        add(s01, add(s2, s3))
    }
}

/// The upper 16 bits of the sixteen E2M1 values in f64, which are all there is,
/// twice: word permutations look at five bits of an index.
const TOPS: [u16; 32] = {
    let mut tops = [0; 32];
    let mut at = 0;
    while at < 32 {
        let [zero @ .., low, high] = E2M1[at % 16].to_le_bytes();
        let mut i = 0;
        while i < zero.len() {
            assert!(zero[i] == 0, "an E2M1 value needs two bytes of f64");
            i += 1;
        }
        tops[at] = u16::from_le_bytes([low, high]);
        at += 1;
    }
    tops
};

/// [`group_sums`] of one position. Every weight is used once, so what counts is
/// to decode with few steps: a word permutation looks up four elements of every
/// row at a time, and one more step puts each on top of a vector of its own. All
/// lanes are summed side by side, since nothing else hides how long a sum takes.
///
/// # Safety
/// `x` must be good for reading 32 values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn single_sums(nibbles: [__m512i; 2], x: *const f64) -> __m512d {
    // SAFETY: the table is 64 bytes.
    let tops = unsafe { _mm512_loadu_si512(TOPS.as_ptr().cast()) };
    let mut lanes = [_mm512_setzero_pd(); 8];
    for (half, mut nibbles) in nibbles.into_iter().enumerate() {
        for n in 0..4 {
            // Word k of a row: element 4 k + n of this half.
            let quad = _mm512_permutexvar_epi16(nibbles, tops);
            nibbles = _mm512_srli_epi16::<4>(nibbles);
            for (k, w) in spread(quad).into_iter().enumerate() {
                let i = 4 * k + n;
                // SAFETY: by the function's contract.
                let x = _mm512_set1_pd(unsafe { *x.add(half * 16 + i) });
                lanes[i % 8] = _mm512_fmadd_pd(w, x, lanes[i % 8]);
            }
        }
    }
    let s = |j: usize| _mm512_add_pd(lanes[j], lanes[j + 4]);
    _mm512_add_pd(_mm512_add_pd(s(0), s(1)), _mm512_add_pd(s(2), s(3)))
}

/// The four 16-bit values of every 64-bit lane, each on top of its own vector
/// with zeros below.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn spread(quad: __m512i) -> [__m512d; 4] {
    // Negative selectors give zero bytes.
    #[rustfmt::skip]
    let second = _mm_setr_epi8(
        -1, -1, -1, -1, -1, -1, 2, 3, -1, -1, -1, -1, -1, -1, 10, 11,
    );
    #[rustfmt::skip]
    let third = _mm_setr_epi8(
        -1, -1, -1, -1, -1, -1, 4, 5, -1, -1, -1, -1, -1, -1, 12, 13,
    );
    let fourth = _mm512_set1_epi64(!0 << 48);
    [
        _mm512_castsi512_pd(_mm512_slli_epi64::<48>(quad)),
        _mm512_castsi512_pd(_mm512_shuffle_epi8(quad, _mm512_broadcast_i32x4(second))),
        _mm512_castsi512_pd(_mm512_shuffle_epi8(quad, _mm512_broadcast_i32x4(third))),
        _mm512_castsi512_pd(_mm512_and_si512(quad, fourth)),
    ]
}

/// Lane `LANE` of a group: elements `LANE`, `LANE + 8`, `+ 16` and `+ 24`, of
/// which the first and third lie `LOW` bits up in their half, the others `HIGH`.
///
/// # Safety
/// As for [`group_sums`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn lane<const LANE: usize, const LOW: u32, const HIGH: u32, const P: usize>(
    nibbles: [__m512i; 2],
    x: *const f64,
) -> [__m512d; P] {
    // SAFETY: the table is sixteen f64.
    let table = unsafe {
        [
            _mm512_loadu_pd(E2M1.as_ptr()),
            _mm512_loadu_pd(E2M1[8..].as_ptr()),
        ]
    };
    let mut sums = [_mm512_setzero_pd(); P];
    for (half, nibbles) in nibbles.into_iter().enumerate() {
        let pair = [
            _mm512_srli_epi64::<LOW>(nibbles),
            _mm512_srli_epi64::<HIGH>(nibbles),
        ];
        for (place, nibbles) in pair.into_iter().enumerate() {
            // The permutation looks at the lowest four bits of each index.
            let w = _mm512_permutex2var_pd(table[0], nibbles, table[1]);
            for (p, sum) in sums.iter_mut().enumerate() {
                let i = LANE + 16 * half + 8 * place;
                // SAFETY: by the function's contract.
                let x = _mm512_set1_pd(unsafe { *x.add(p * MXFP4_GROUP + i) });
                *sum = _mm512_fmadd_pd(w, x, *sum);
            }
        }
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
pub(super) unsafe fn interleave(rows: &[*const u8; ROWS], offset: usize) -> [__m512i; 2] {
    // Each row goes from memory into its vector: through an array, the compiler
    // stores narrow and loads wide, which waits for the stores.
    // SAFETY: by the function's contract.
    let part = |r: usize| unsafe { _mm_loadu_si128(rows[r].add(offset).cast()) };
    let quad = |r: usize| {
        let joined = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(part(r)), part(r + 2));
        let joined = _mm512_inserti32x4::<2>(joined, part(r + 4));
        _mm512_inserti32x4::<3>(joined, part(r + 6))
    };
    let (even, odd) = (quad(0), quad(1));
    [
        _mm512_unpacklo_epi64(even, odd),
        _mm512_unpackhi_epi64(even, odd),
    ]
}

/// The f64 with exponent field `byte + bias` for eight scale bytes, and which of
/// them are not NaN. A bias of `1023 - 127` gives `2^(byte - 127)`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) fn scale_values(bytes: [u8; ROWS], bias: i64) -> (__m512d, __mmask8) {
    let wide = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(i64::from_le_bytes(bytes)));
    let valid = _mm512_cmpneq_epi64_mask(wide, _mm512_set1_epi64(i64::from(NAN_SCALE)));
    let biased = _mm512_add_epi64(wide, _mm512_set1_epi64(bias));
    (_mm512_castsi512_pd(_mm512_slli_epi64::<52>(biased)), valid)
}
