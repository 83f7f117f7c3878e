//! Row tiles of products with several positions.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use super::dot::{widen_activations, widen_half};
use crate::arch::x86_64::batch::{Body, Sums, row_block, walk};
use crate::generic::lanes::LANES;
use crate::generic::shape::MatmulShape;

/// Half the lanes of a tile at a time: up to 24 of the 32 registers accumulate.
pub(super) struct Avx512;

impl<const BYTES: usize> Body<BYTES> for Avx512 {
    const LANE_ORDER: [usize; LANES] = if BYTES == 2 {
        [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]
    } else {
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    };

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn widen(x: *const f32, blocks: usize, wide: *mut f64, stride: usize) {
        for block in 0..blocks {
            // SAFETY: by the method's contract.
            unsafe {
                let [first, second] = widen_activations::<BYTES>(x.add(block * LANES));
                let wide = wide.add(block * stride);
                _mm512_store_pd(wide, first);
                _mm512_store_pd(wide.add(8), second);
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn tile<const R: usize, const P: usize>(
        rows: [*const u8; R],
        x: *const f64,
        blocks: usize,
        lanes: &mut Sums<R, P>,
        prefetch: Option<usize>,
    ) {
        // SAFETY: by the method's contract.
        unsafe {
            if R * P <= 12 {
                halves::<BYTES, 0, 2, R, P>(rows, x, blocks, lanes, prefetch);
            } else {
                halves::<BYTES, 0, 1, R, P>(rows, x, blocks, lanes, prefetch);
                halves::<BYTES, 1, 1, R, P>(rows, x, blocks, lanes, prefetch);
            }
        }
    }
}

/// `N` halves of [`Body::tile`] from half `FIRST` on, under its contract.
/// Products of widened f32 are exact, so the fused multiply-add rounds as the
/// definition.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn halves<
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
    let mut sums = [[[_mm512_setzero_pd(); N]; P]; R];
    for r in 0..R {
        for p in 0..P {
            for n in 0..N {
                // SAFETY: the source is half of sixteen f64.
                sums[r][p][n] =
                    unsafe { _mm512_load_pd(lanes.0[r][p][8 * (FIRST + n)..].as_ptr()) };
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
                _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(at).wrapping_add(prefetch).cast());
            }
        }
        for n in 0..N {
            // SAFETY: by the function's contract.
            let w = rows.map(|row| unsafe {
                if FIRST + n == 0 {
                    widen_half::<BYTES, 0>(row.add(at))
                } else {
                    widen_half::<BYTES, 1>(row.add(at))
                }
            });
            for p in 0..P {
                // SAFETY: by the function's contract.
                let x = unsafe { _mm512_load_pd(x.add((block * P + p) * LANES + 8 * (FIRST + n))) };
                for r in 0..R {
                    sums[r][p][n] = _mm512_fmadd_pd(w[r], x, sums[r][p][n]);
                }
            }
        }
    }
    for r in 0..R {
        for p in 0..P {
            for n in 0..N {
                // SAFETY: as for the loads.
                unsafe {
                    let at = lanes.0[r][p][8 * (FIRST + n)..].as_mut_ptr();
                    _mm512_store_pd(at, sums[r][p][n]);
                }
            }
        }
    }
}

/// All rows and positions of a product.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) fn products<const BYTES: usize>(
    shape: MatmulShape,
    weights: &[u8],
    x: &[f32],
    positions: usize,
    out: &mut [f32],
) {
    macro_rules! block {
        ($rows:literal, $positions:literal, $at:ident) => {
            row_block::<Avx512, BYTES, $rows, $positions>(shape, weights, x, $at, positions, out)
        };
    }
    // SAFETY: this function runs only where its instruction set is.
    walk(shape.rows, positions, |at, count| unsafe {
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
