//! Sums in matmul order: 16 f64 lanes in two vectors per row.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use crate::arch::x86_64::transpose::load1;
use crate::generic::lanes::{LANES, tree16};

/// Bytes ahead of the current block that a row is prefetched.
const PREFETCH_BYTES: usize = 512;

/// Half the weights of a 16-block. bf16 pairs are split into even (half 0) and
/// odd elements (half 1), which costs a shift or a mask; f32 is taken in order.
/// The order of the lanes does not matter until [`lane_sums`] undoes it.
///
/// # Safety
/// `at` must be good for reading `16 * BYTES` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn widen_half<const BYTES: usize, const HALF: usize>(at: *const u8) -> __m512d {
    const { assert!(BYTES == 2 || BYTES == 4, "bf16 or f32") };
    if BYTES == 4 {
        // SAFETY: 64 bytes may be read by the function's contract.
        return _mm512_cvtps_pd(unsafe { _mm256_loadu_ps(at.add(32 * HALF).cast()) });
    }
    // SAFETY: 32 bytes may be read by the function's contract.
    let pairs = unsafe { _mm256_loadu_si256(at.cast()) };
    let half = if HALF == 0 {
        _mm256_slli_epi32::<16>(pairs)
    } else {
        _mm256_and_si256(pairs, _mm256_set1_epi32(!0xFFFF))
    };
    _mm512_cvtps_pd(_mm256_castsi256_ps(half))
}

/// Sixteen activations in the lane order of [`widen_half`].
///
/// # Safety
/// `at` must be good for reading 16 values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn widen_activations<const BYTES: usize>(at: *const f32) -> [__m512d; 2] {
    // SAFETY: 16 values may be read by the function's contract.
    let mut block = unsafe { _mm512_loadu_ps(at) };
    if BYTES == 2 {
        let even_then_odd = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        block = _mm512_permutexvar_ps(even_then_odd, block);
    }
    [
        _mm512_cvtps_pd(_mm512_castps512_ps256(block)),
        _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(block)),
    ]
}

/// The 16 lanes of one row, in their own order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn lane_sums<const BYTES: usize>(sums: [__m512d; 2]) -> [f64; LANES] {
    let mut halves = [[0.0_f64; 8]; 2];
    for (half, sums) in halves.iter_mut().zip(sums) {
        // SAFETY: the destination is eight f64.
        unsafe { _mm512_storeu_pd(half.as_mut_ptr(), sums) };
    }
    std::array::from_fn(|lane| {
        if BYTES == 2 {
            halves[lane % 2][lane / 2]
        } else {
            halves[lane / 8][lane % 8]
        }
    })
}

/// The f64 sums of `R` rows of weights with `P` positions of activations, in
/// matmul order. `BYTES` is 2 for bf16 weights and 4 for f32. Products of
/// widened f32 are exact, so the fused multiply-add rounds as the definition.
///
/// # Safety
/// Every row must be good for reading `cols * BYTES` bytes and every position
/// for reading `cols` values.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn sums<const BYTES: usize, const R: usize, const P: usize>(
    rows: [*const u8; R],
    xs: [*const f32; P],
    cols: usize,
) -> [[f64; P]; R] {
    let mut acc = [[[_mm512_setzero_pd(); 2]; P]; R];
    let full = cols - cols % LANES;
    for i in (0..full).step_by(LANES) {
        // SAFETY: `i + 16 <= cols`, so the block lies within every position.
        let x = xs.map(|x| unsafe { widen_activations::<BYTES>(x.add(i)) });
        for r in 0..R {
            if (i * BYTES).is_multiple_of(64) {
                // A prefetch may point anywhere: it never faults.
                let ahead = rows[r].wrapping_add(i * BYTES + PREFETCH_BYTES);
                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
            }
            // SAFETY: `i + 16 <= cols`, so the block lies within every row.
            let w = unsafe {
                let at = rows[r].add(i * BYTES);
                [widen_half::<BYTES, 0>(at), widen_half::<BYTES, 1>(at)]
            };
            for p in 0..P {
                for half in 0..2 {
                    acc[r][p][half] = _mm512_fmadd_pd(w[half], x[p][half], acc[r][p][half]);
                }
            }
        }
    }
    let mut sums = [[0.0_f64; P]; R];
    for r in 0..R {
        for p in 0..P {
            // SAFETY: the row and the position hold `cols` elements.
            sums[r][p] = unsafe { finish_sum::<BYTES>(acc[r][p], rows[r], xs[p], cols) };
        }
    }
    sums
}

/// The tree over the lanes of one row and position, and the remainder.
///
/// # Safety
/// `row` must be good for reading `cols * BYTES` bytes and `x` for `cols`
/// values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn finish_sum<const BYTES: usize>(
    lanes: [__m512d; 2],
    row: *const u8,
    x: *const f32,
    cols: usize,
) -> f64 {
    let mut sum = tree16(&lane_sums::<BYTES>(lanes));
    for i in cols - cols % LANES..cols {
        // SAFETY: `i < cols`.
        let (w, x) = unsafe { (load1::<BYTES>(row.add(i * BYTES)), *x.add(i)) };
        sum += f64::from(w) * f64::from(x);
    }
    sum
}
