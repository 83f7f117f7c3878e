//! Serial sums: eight rows side by side, each adding its products in order.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use crate::arch::x86_64::transpose::{columns8, load1};

/// For each of `P` positions, the f64 sums of eight rows with its activations,
/// serially onto `start`. `BYTES` is 2 for bf16 rows and 4 for f32.
///
/// # Safety
/// Every row must be good for reading `cols * BYTES` bytes and every position
/// for reading `cols` values.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn sums8<const BYTES: usize, const P: usize>(
    rows: [*const u8; 8],
    xs: [*const f32; P],
    cols: usize,
    start: [[f64; 8]; P],
) -> [[f64; 8]; P] {
    // SAFETY: each source is eight f64.
    let mut acc: [_; P] = std::array::from_fn(|p| unsafe { _mm512_loadu_pd(start[p].as_ptr()) });
    let mut x = [[0.0_f64; 8]; P];
    let full = cols - cols % 8;
    for column in (0..full).step_by(8) {
        // SAFETY: `column + 8 <= cols`, so the block lies within every row.
        let block = unsafe { columns8::<BYTES>(&rows, column) };
        for p in 0..P {
            // SAFETY: `column + 8 <= cols`; the destination is eight f64.
            unsafe {
                let values = _mm512_cvtps_pd(_mm256_loadu_ps(xs[p].add(column)));
                _mm512_storeu_pd(x[p].as_mut_ptr(), values);
            }
        }
        // Hidden from the optimiser, so that values are broadcast from memory.
        let x = std::hint::black_box(&x);
        for (c, weights) in block.into_iter().enumerate() {
            let weights = _mm512_cvtps_pd(weights);
            for p in 0..P {
                acc[p] = _mm512_fmadd_pd(weights, _mm512_set1_pd(x[p][c]), acc[p]);
            }
        }
    }
    let mut sums = [[0.0_f64; 8]; P];
    for p in 0..P {
        // SAFETY: the destination is eight f64.
        unsafe { _mm512_storeu_pd(sums[p].as_mut_ptr(), acc[p]) };
        for (r, sum) in sums[p].iter_mut().enumerate() {
            for i in full..cols {
                // SAFETY: `i < cols`.
                let (w, x) = unsafe { (load1::<BYTES>(rows[r].add(i * BYTES)), *xs[p].add(i)) };
                *sum += f64::from(w) * f64::from(x);
            }
        }
    }
    sums
}
