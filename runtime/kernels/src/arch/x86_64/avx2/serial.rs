//! Serial sums: eight rows side by side, each adding its products in order.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use crate::arch::x86_64::transpose::{columns8, load1};

/// Eight f32 in f64, in order.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn widen8(values: __m256) -> [__m256d; 2] {
    [
        _mm256_cvtps_pd(_mm256_castps256_ps128(values)),
        _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(values)),
    ]
}

/// Two vectors as eight f64, in order.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn lanes8(vectors: [__m256d; 2]) -> [f64; 8] {
    let mut lanes = [0.0_f64; 8];
    for (lanes, vector) in lanes.chunks_exact_mut(4).zip(vectors) {
        // SAFETY: the destination is four f64.
        unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), vector) };
    }
    lanes
}

/// For each of `P` positions, the f64 sums of eight rows with its activations,
/// serially onto `start`. `BYTES` is 2 for bf16 rows and 4 for f32.
///
/// # Safety
/// Every row must be good for reading `cols * BYTES` bytes and every position
/// for reading `cols` values.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn sums8<const BYTES: usize, const P: usize>(
    rows: [*const u8; 8],
    xs: [*const f32; P],
    cols: usize,
    start: [[f64; 8]; P],
) -> [[f64; 8]; P] {
    let mut acc: [[__m256d; 2]; P] = std::array::from_fn(|p| {
        // SAFETY: each source is four f64.
        unsafe {
            [
                _mm256_loadu_pd(start[p].as_ptr()),
                _mm256_loadu_pd(start[p][4..].as_ptr()),
            ]
        }
    });
    let mut x = [[0.0_f64; 8]; P];
    let full = cols - cols % 8;
    for column in (0..full).step_by(8) {
        // SAFETY: `column + 8 <= cols`, so the block lies within every row.
        let block = unsafe { columns8::<BYTES>(&rows, column) };
        for p in 0..P {
            // SAFETY: `column + 8 <= cols`.
            x[p] = lanes8(widen8(unsafe { _mm256_loadu_ps(xs[p].add(column)) }));
        }
        // Hidden from the optimiser, so that values are broadcast from memory.
        let x = std::hint::black_box(&x);
        for (c, weights) in block.into_iter().enumerate() {
            let weights = widen8(weights);
            for p in 0..P {
                let x = _mm256_set1_pd(x[p][c]);
                for half in 0..2 {
                    acc[p][half] = _mm256_fmadd_pd(weights[half], x, acc[p][half]);
                }
            }
        }
    }
    let mut sums = acc.map(|acc| lanes8(acc));
    for p in 0..P {
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
