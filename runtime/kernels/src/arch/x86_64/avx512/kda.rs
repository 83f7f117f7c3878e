//! The KDA step, vectorised over value channels.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use crate::generic::kda::KdaStep;

/// Values of one vector.
const LANES: usize = 16;

/// Vectors per wide tile: prediction and readout stay in registers.
const WIDE: usize = 4;

pub(crate) fn kda_step(mut step: KdaStep<'_>) {
    let width = step.check();
    // SAFETY: only the AVX-512 table leads here; its features were detected.
    unsafe { tiles(&mut step, width) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn tiles(step: &mut KdaStep<'_>, width: usize) {
    let mut first = 0;
    while width - first >= WIDE * LANES {
        tile::<WIDE>(step, width, first, [!0; WIDE]);
        first += WIDE * LANES;
    }
    while first < width {
        let count = (width - first).min(LANES);
        tile::<1>(step, width, first, [!0 >> (LANES - count)]);
        first += LANES;
    }
}

/// Value channels `first..first + 16 N` as far as the masks have bits. Channels
/// are independent, so each sees the definition's order over keys; the product
/// and the sum are rounded apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn tile<const N: usize>(step: &mut KdaStep<'_>, width: usize, first: usize, masks: [__mmask16; N]) {
    let state = step.state.as_mut_ptr();
    let each = |n: usize| first + n * LANES;
    // SAFETY: here and in every access below, `check` made the state `width` rows of
    // `width` values and the vectors `width` values; row < width, and a mask
    // has bits only for channels below `width`.
    let load = |row: usize, n: usize| unsafe {
        _mm512_maskz_loadu_ps(masks[n], state.add(row * width + each(n)))
    };
    // SAFETY: as in `load`.
    let store = |row: usize, n: usize, value| unsafe {
        _mm512_mask_storeu_ps(state.add(row * width + each(n)), masks[n], value);
    };
    let mut delta = [_mm512_setzero_ps(); N];
    for (row, (&alpha, &k)) in step.alpha.iter().zip(step.k).enumerate() {
        for n in 0..N {
            let value = _mm512_mul_ps(load(row, n), _mm512_set1_ps(alpha));
            store(row, n, value);
            if k != 0.0 {
                delta[n] = _mm512_add_ps(delta[n], _mm512_mul_ps(_mm512_set1_ps(k), value));
            }
        }
    }
    for n in 0..N {
        // SAFETY: as in `load`.
        let v = unsafe { _mm512_maskz_loadu_ps(masks[n], step.v.as_ptr().add(each(n))) };
        delta[n] = _mm512_sub_ps(v, delta[n]);
    }
    let mut out = [_mm512_setzero_ps(); N];
    for (row, (&q, &k)) in step.q.iter().zip(step.k).enumerate() {
        let strength = _mm512_set1_ps(k * step.beta);
        for n in 0..N {
            let mut value = load(row, n);
            if k != 0.0 {
                value = _mm512_add_ps(value, _mm512_mul_ps(strength, delta[n]));
                store(row, n, value);
            }
            if q != 0.0 {
                out[n] = _mm512_add_ps(out[n], _mm512_mul_ps(_mm512_set1_ps(q), value));
            }
        }
    }
    for n in 0..N {
        // SAFETY: as in `load`.
        unsafe { _mm512_mask_storeu_ps(step.out.as_mut_ptr().add(each(n)), masks[n], out[n]) };
    }
}
