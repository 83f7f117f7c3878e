//! Sums in matmul order: 16 f64 lanes, eight of them at a time.
//!
//! Sixteen registers cannot hold 16 lanes of four rows beside their operands, so
//! a tile walks a chunk of columns twice: once for lanes 0..8 (the first half
//! of every 16-block), once for lanes 8..16. Each half reads its own bytes, and
//! the chunk is small enough for the second walk to hit the nearest cache.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use crate::arch::x86_64::transpose::load1;
use crate::generic::lanes::{LANES, tree16};

/// Bytes ahead of the current block that a row is prefetched.
const PREFETCH_BYTES: usize = 512;

/// Columns per chunk: 4 KiB of f32 per row at most.
const CHUNK: usize = 1024;

/// A quarter of the weights of a 16-block. bf16 pairs of a half are split into
/// even (quarters 0 and 2) and odd elements (1 and 3), which costs a shift or a
/// mask; f32 is taken in order. The order within a half does not matter until
/// [`lane_sums`] undoes it.
///
/// # Safety
/// `at` must be good for reading `16 * BYTES` bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn widen_quarter<const BYTES: usize>(at: *const u8, quarter: usize) -> __m256d {
    const { assert!(BYTES == 2 || BYTES == 4, "bf16 or f32") };
    if BYTES == 4 {
        // SAFETY: 64 bytes may be read by the function's contract.
        return _mm256_cvtps_pd(unsafe { _mm_loadu_ps(at.add(16 * quarter).cast()) });
    }
    // SAFETY: 32 bytes may be read by the function's contract.
    let pairs = unsafe { _mm_loadu_si128(at.add(16 * (quarter / 2)).cast()) };
    let quarter = if quarter.is_multiple_of(2) {
        _mm_slli_epi32::<16>(pairs)
    } else {
        _mm_and_si128(pairs, _mm_set1_epi32(!0xFFFF))
    };
    _mm256_cvtps_pd(_mm_castsi128_ps(quarter))
}

/// Eight activations in the lane order of [`widen_quarter`].
///
/// # Safety
/// `at` must be good for reading eight values.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn widen_activations<const BYTES: usize>(at: *const f32) -> [__m256d; 2] {
    // SAFETY: eight values may be read by the function's contract.
    let (low, high) = unsafe { (_mm_loadu_ps(at), _mm_loadu_ps(at.add(4))) };
    let (first, second) = if BYTES == 2 {
        (
            _mm_shuffle_ps::<0x88>(low, high),
            _mm_shuffle_ps::<0xDD>(low, high),
        )
    } else {
        (low, high)
    };
    [_mm256_cvtps_pd(first), _mm256_cvtps_pd(second)]
}

/// Eight lanes of one row, in their own order.
#[inline]
#[target_feature(enable = "avx2")]
fn lane_sums<const BYTES: usize>(sums: [__m256d; 2]) -> [f64; 8] {
    let mut quarters = [[0.0_f64; 4]; 2];
    for (quarter, sums) in quarters.iter_mut().zip(sums) {
        // SAFETY: the destination is four f64.
        unsafe { _mm256_storeu_pd(quarter.as_mut_ptr(), sums) };
    }
    std::array::from_fn(|lane| {
        if BYTES == 2 {
            quarters[lane % 2][lane / 2]
        } else {
            quarters[lane / 4][lane % 4]
        }
    })
}

/// Partial sums of `R` rows and `P` positions: half the lanes, two vectors.
type Half<const R: usize, const P: usize> = [[[__m256d; 2]; P]; R];

/// The f64 sums of `R` rows of weights with `P` positions of activations, in
/// matmul order. `BYTES` is 2 for bf16 weights and 4 for f32. Products of
/// widened f32 are exact, so the fused multiply-add rounds as the definition.
///
/// # Safety
/// Every row must be good for reading `cols * BYTES` bytes and every position
/// for reading `cols` values.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn sums<const BYTES: usize, const R: usize, const P: usize>(
    rows: [*const u8; R],
    xs: [*const f32; P],
    cols: usize,
) -> [[f64; P]; R] {
    let mut acc: [Half<R, P>; 2] = [[[[_mm256_setzero_pd(); 2]; P]; R]; 2];
    let full = cols - cols % LANES;
    for chunk in (0..full).step_by(CHUNK) {
        let end = (chunk + CHUNK).min(full);
        for half in 0..2 {
            // SAFETY: `end <= cols` is a multiple of 16 away from `chunk`.
            acc[half] =
                unsafe { half_chunk::<BYTES, R, P>(rows, xs, chunk + 8 * half, end, acc[half]) };
        }
    }
    let mut sums = [[0.0_f64; P]; R];
    for r in 0..R {
        for p in 0..P {
            let mut lanes = [0.0_f64; LANES];
            lanes[..8].copy_from_slice(&lane_sums::<BYTES>(acc[0][r][p]));
            lanes[8..].copy_from_slice(&lane_sums::<BYTES>(acc[1][r][p]));
            let mut sum = tree16(&lanes);
            for i in full..cols {
                // SAFETY: `i < cols`.
                let (w, x) = unsafe { (load1::<BYTES>(rows[r].add(i * BYTES)), *xs[p].add(i)) };
                sum += f64::from(w) * f64::from(x);
            }
            sums[r][p] = sum;
        }
    }
    sums
}

/// Adds the eight elements from `first`, `first + 16`, ... below `end` on.
///
/// # Safety
/// Every such group of eight must lie within every row and position.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn half_chunk<const BYTES: usize, const R: usize, const P: usize>(
    rows: [*const u8; R],
    xs: [*const f32; P],
    first: usize,
    end: usize,
    mut acc: Half<R, P>,
) -> Half<R, P> {
    for i in (first..end).step_by(LANES) {
        // SAFETY: by the function's contract.
        let x = xs.map(|x| unsafe { widen_activations::<BYTES>(x.add(i)) });
        for r in 0..R {
            if (i * BYTES).is_multiple_of(64) {
                // A prefetch may point anywhere: it never faults.
                let ahead = rows[r].wrapping_add(i * BYTES + PREFETCH_BYTES);
                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
            }
            // SAFETY: by the function's contract.
            let w = unsafe {
                let at = rows[r].add(i * BYTES);
                [widen_quarter::<BYTES>(at, 0), widen_quarter::<BYTES>(at, 1)]
            };
            for p in 0..P {
                for v in 0..2 {
                    acc[r][p][v] = _mm256_fmadd_pd(w[v], x[p][v], acc[r][p][v]);
                }
            }
        }
    }
    acc
}
