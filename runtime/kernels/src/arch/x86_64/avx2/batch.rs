//! Row tiles of products.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use super::dot::{widen_activations, widen_quarter};
use crate::arch::x86_64::batch::{Body, Sums, row_block, walk};
use crate::generic::lanes::LANES;
use crate::generic::shape::MatmulShape;

/// As many quarters of a tile's lanes at a time as fit: up to 12 of the 16
/// registers accumulate.
pub(in crate::arch::x86_64) struct Avx2;

impl<const BYTES: usize> Body<BYTES> for Avx2 {
    const LANE_ORDER: [usize; LANES] = if BYTES == 2 {
        [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
    } else {
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    };

    #[target_feature(enable = "avx2,fma")]
    unsafe fn widen(x: *const f32, blocks: usize, wide: *mut f64, stride: usize) {
        for block in 0..blocks {
            for half in 0..2 {
                // SAFETY: by the method's contract.
                unsafe {
                    let [first, second] =
                        widen_activations::<BYTES>(x.add(block * LANES + 8 * half));
                    let wide = wide.add(block * stride + 8 * half);
                    _mm256_store_pd(wide, first);
                    _mm256_store_pd(wide.add(4), second);
                }
            }
        }
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn tile<const R: usize, const P: usize>(
        rows: [*const u8; R],
        x: *const f64,
        blocks: usize,
        lanes: &mut Sums<R, P>,
        prefetch: Option<usize>,
    ) {
        // SAFETY: by the method's contract.
        unsafe {
            if BYTES == 2 && P == 1 {
                staged::<R, P>(rows, x, blocks, lanes, prefetch);
            } else if R * P <= 3 {
                quarters::<BYTES, 0, 4, R, P>(rows, x, blocks, lanes, prefetch);
            } else if R * P <= 6 {
                quarters::<BYTES, 0, 2, R, P>(rows, x, blocks, lanes, prefetch);
                quarters::<BYTES, 2, 2, R, P>(rows, x, blocks, lanes, prefetch);
            } else {
                quarters::<BYTES, 0, 1, R, P>(rows, x, blocks, lanes, prefetch);
                quarters::<BYTES, 1, 1, R, P>(rows, x, blocks, lanes, prefetch);
                quarters::<BYTES, 2, 1, R, P>(rows, x, blocks, lanes, prefetch);
                quarters::<BYTES, 3, 1, R, P>(rows, x, blocks, lanes, prefetch);
            }
        }
    }
}

/// [`Body::tile`] for f32 rows of which 32 columns each are interlaced: of every
/// quarter the first block's columns, then the second's. Under its contract,
/// where the last 32 are whole.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn interlaced_tile<const R: usize, const P: usize>(
    rows: [*const u8; R],
    x: *const f64,
    blocks: usize,
    lanes: &mut Sums<R, P>,
) {
    // SAFETY: by the function's contract.
    unsafe {
        if R * P <= 3 {
            quarters::<INTERLACED, 0, 4, R, P>(rows, x, blocks, lanes, None);
        } else if R * P <= 6 {
            quarters::<INTERLACED, 0, 2, R, P>(rows, x, blocks, lanes, None);
            quarters::<INTERLACED, 2, 2, R, P>(rows, x, blocks, lanes, None);
        } else {
            quarters::<INTERLACED, 0, 1, R, P>(rows, x, blocks, lanes, None);
            quarters::<INTERLACED, 1, 1, R, P>(rows, x, blocks, lanes, None);
            quarters::<INTERLACED, 2, 1, R, P>(rows, x, blocks, lanes, None);
            quarters::<INTERLACED, 3, 1, R, P>(rows, x, blocks, lanes, None);
        }
    }
}

/// In the place of the bytes of a weight: f32, interlaced.
const INTERLACED: usize = 0;

/// Quarter `quarter` of block `block` of a row, widened.
///
/// # Safety
/// The row must have that block.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn block_quarter<const BYTES: usize>(
    row: *const u8,
    block: usize,
    quarter: usize,
) -> __m256d {
    // SAFETY: by the function's contract.
    unsafe {
        if BYTES == INTERLACED {
            let place = block / 2 * 128 + 32 * quarter + block % 2 * 16;
            _mm256_cvtps_pd(_mm_loadu_ps(row.add(place).cast()))
        } else if BYTES == 2 {
            widen_quarter::<2>(row.add(block * LANES * 2), quarter)
        } else {
            widen_quarter::<4>(row.add(block * LANES * 4), quarter)
        }
    }
}

/// `N` quarters of [`Body::tile`] from quarter `FIRST` on, under its contract.
/// Products of widened f32 are exact, so the fused multiply-add rounds as the
/// definition.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn quarters<
    const BYTES: usize,
    const FIRST: usize,
    const N: usize,
    const R: usize,
    const P: usize,
>(
    rows: [*const u8; R],
    x: *const f64,
    blocks: usize,
    lanes: &mut Sums<R, P>,
    prefetch: Option<usize>,
) {
    let mut sums = [[[_mm256_setzero_pd(); N]; P]; R];
    for r in 0..R {
        for p in 0..P {
            for n in 0..N {
                // SAFETY: the source is a quarter of sixteen f64.
                sums[r][p][n] =
                    unsafe { _mm256_load_pd(lanes.0[r][p][4 * (FIRST + n)..].as_ptr()) };
            }
        }
    }
    for block in 0..blocks {
        let at = block * LANES * BYTES;
        if let Some(prefetch) = prefetch
            && FIRST == 0
            && at.is_multiple_of(64)
        {
            for row in rows {
                // A prefetch may point anywhere: it never faults.
                _mm_prefetch::<_MM_HINT_T1>(row.wrapping_add(at).wrapping_add(prefetch).cast());
            }
        }
        for n in 0..N {
            // SAFETY: by the function's contract.
            let w = rows.map(|row| unsafe { block_quarter::<BYTES>(row, block, FIRST + n) });
            for p in 0..P {
                // SAFETY: by the function's contract.
                let x = unsafe { _mm256_load_pd(x.add((block * P + p) * LANES + 4 * (FIRST + n))) };
                for r in 0..R {
                    sums[r][p][n] = _mm256_fmadd_pd(w[r], x, sums[r][p][n]);
                }
            }
        }
    }
    for r in 0..R {
        for p in 0..P {
            for n in 0..N {
                // SAFETY: as for the loads.
                unsafe {
                    let at = lanes.0[r][p][4 * (FIRST + n)..].as_mut_ptr();
                    _mm256_store_pd(at, sums[r][p][n]);
                }
            }
        }
    }
}

/// [`Body::tile`] for bf16 and one position, under its contract.
///
/// A conversion to f64 that reads memory needs one execution slot, one that
/// reads a register two. With one position conversions are the bound, so
/// weights pass through the nearest cache as f32.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn staged<const R: usize, const P: usize>(
    rows: [*const u8; R],
    x: *const f64,
    blocks: usize,
    lanes: &mut Sums<R, P>,
    prefetch: Option<usize>,
) {
    assert_eq!(P, 1, "a staged weight is used once");
    let mut sums = [[_mm256_setzero_pd(); 4]; R];
    for r in 0..R {
        for n in 0..4 {
            // SAFETY: the source is a quarter of sixteen f64.
            sums[r][n] = unsafe { _mm256_load_pd(lanes.0[r][0][4 * n..].as_ptr()) };
        }
    }
    let odd = _mm256_set1_epi32(!0xFFFF);
    let mut stage = [[_mm256_setzero_ps(); 2]; R];
    for block in 0..blocks {
        let at = block * LANES * 2;
        if let Some(prefetch) = prefetch
            && at.is_multiple_of(64)
        {
            for row in rows {
                // A prefetch may point anywhere: it never faults.
                _mm_prefetch::<_MM_HINT_T1>(row.wrapping_add(at).wrapping_add(prefetch).cast());
            }
        }
        for (stage, row) in stage.iter_mut().zip(rows) {
            // SAFETY: by the function's contract.
            let pairs = unsafe { _mm256_loadu_si256(row.add(at).cast()) };
            *stage = [
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)),
                _mm256_castsi256_ps(_mm256_and_si256(pairs, odd)),
            ];
        }
        // Hidden from the optimiser, which would keep them in registers.
        let stage = std::hint::black_box(&stage);
        for n in 0..4 {
            // SAFETY: by the function's contract.
            let x = unsafe { _mm256_load_pd(x.add(block * LANES + 4 * n)) };
            for r in 0..R {
                // SAFETY: half of the eight f32 of a vector.
                let half = unsafe {
                    let vector = (&raw const stage[r][n % 2]).cast::<f32>();
                    _mm_load_ps(vector.add(4 * (n / 2)))
                };
                sums[r][n] = _mm256_fmadd_pd(_mm256_cvtps_pd(half), x, sums[r][n]);
            }
        }
    }
    for r in 0..R {
        for n in 0..4 {
            // SAFETY: as for the loads.
            unsafe { _mm256_store_pd(lanes.0[r][0][4 * n..].as_mut_ptr(), sums[r][n]) };
        }
    }
}

/// All rows and positions of a product.
#[target_feature(enable = "avx2,fma")]
pub(super) fn products<const BYTES: usize>(
    shape: MatmulShape,
    weights: &[u8],
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) {
    macro_rules! block {
        ($rows:literal, $positions:literal, $at:ident) => {
            row_block::<Avx2, BYTES, $rows, $positions>(shape, weights, x, $at, positions, out)
        };
    }
    // SAFETY: this function runs only where its instruction set is.
    walk(shape.rows, positions, |at, count| unsafe {
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
