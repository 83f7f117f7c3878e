//! Tiles of weights that are upper halves of f64.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::x86_64::*;

use super::decode::{SHIFTED, whole_group};
use crate::arch::x86_64::avx512::dot::widen_activations;
use crate::arch::x86_64::batch::{Body, Sums};
use crate::arch::x86_64::bf16_x3::{PART, Panel, Part, RowState, prefetch_pair};
use crate::generic::bf16_x3::GROUP;
use crate::generic::lanes::LANES;

/// Tiles of weights that are upper halves of f64, which takes fewer steps than
/// conversions from f32 do. Activations are multiplied by 2^896, which is
/// exact and cannot overflow, so that products are what they are.
pub(super) struct Shifted;

/// 2^896.
pub(super) const SCALE: f64 = f64::from_bits((896 + 1023) << 52);

impl Body<4> for Shifted {
    const LANE_ORDER: [usize; LANES] = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15];

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn widen(x: *const f32, blocks: usize, wide: *mut f64, stride: usize) {
        let scale = _mm512_set1_pd(SCALE);
        for block in 0..blocks {
            // SAFETY: by the method's contract.
            unsafe {
                // Even columns, then odd ones.
                let [even, odd] = widen_activations::<2>(x.add(block * LANES));
                let wide = wide.add(block * stride);
                _mm512_store_pd(wide, _mm512_mul_pd(even, scale));
                _mm512_store_pd(wide.add(8), _mm512_mul_pd(odd, scale));
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn tile<const R: usize, const P: usize>(
        rows: [*const u8; R],
        x: *const f64,
        blocks: usize,
        lanes: &mut Sums<R, P>,
        _prefetch: Option<usize>,
    ) {
        // SAFETY: by the method's contract.
        unsafe {
            if R * P <= 12 {
                halves::<0, 2, R, P>(rows, x, blocks, lanes);
            } else {
                halves::<0, 1, R, P>(rows, x, blocks, lanes);
                halves::<1, 1, R, P>(rows, x, blocks, lanes);
            }
        }
    }
}

/// Eight of sixteen weights, the even columns (half 0) or the odd ones: the lower
/// or the upper halves of eight words of 64 bits. Loading the upper halves alone
/// takes no step of arithmetic.
///
/// # Safety
/// `at` must be good for reading sixteen upper halves of f64.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_half(at: *const u8, half: usize) -> __m512d {
    // SAFETY: by the function's contract.
    let bits = unsafe {
        if half == 0 {
            _mm512_slli_epi64::<32>(_mm512_loadu_si512(at.cast()))
        } else {
            _mm512_maskz_loadu_epi32(0xAAAA, at.cast())
        }
    };
    _mm512_castsi512_pd(bits)
}

/// `N` halves of [`Body::tile`] from half `FIRST` on, under its contract. A
/// function of its own: beside the decoder's, its registers would not do.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn halves<const FIRST: usize, const N: usize, const R: usize, const P: usize>(
    rows: [*const u8; R],
    x: *const f64,
    blocks: usize,
    lanes: &mut Sums<R, P>,
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
        for n in 0..N {
            // SAFETY: by the function's contract.
            let w = rows.map(|row| unsafe { load_half(row.add(4 * LANES * block), FIRST + n) });
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

/// Sixteen sums in two vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_sums(sums: &[f64; LANES]) -> [__m512d; 2] {
    // SAFETY: the sources are eight f64 each.
    unsafe {
        [
            _mm512_loadu_pd(sums.as_ptr()),
            _mm512_loadu_pd(sums[8..].as_ptr()),
        ]
    }
}

/// Adds the products of `groups` groups of eight rows with one position. While a
/// group of each row is decoded, the products of the group before are added: the
/// one is bound by shuffles, the other by loads.
///
/// # Safety
/// As [`by_parts`]: `R` is 8 and `P` is 1, there are `R` rows, and `groups` whole
/// groups lie within `panel`.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,fma,popcnt"
)]
pub(super) unsafe fn interleaved<const R: usize, const P: usize>(
    panel: Panel,
    groups: usize,
    rows: &mut [RowState],
    decoded: &mut Part<R>,
    sums: &mut Sums<R, P>,
) {
    assert!(
        R == 8 && P == 1 && rows.len() == R,
        "eight rows, one position"
    );
    const { assert!(PART >= 2 * GROUP, "room for two groups of a row") };
    if groups == 0 {
        return;
    }
    let mut lanes: [[__m512d; 2]; R] = std::array::from_fn(|r| load_sums(&sums.0[r][0]));
    let starts: [*mut f32; R] = std::array::from_fn(|r| decoded.0[r].as_mut_ptr());
    let mut escapes: [*const u8; R] = std::array::from_fn(|r| rows[r].escapes);
    let escapes_end = rows[0].escapes_end;
    for group in 0..=groups {
        let (this, before) = (group % 2 * GROUP, (group + 1) % 2 * GROUP);
        let ahead = panel.ahead(group * GROUP);
        for pair in 0..R / 2 {
            for half in 0..2 {
                if group < groups {
                    let r = 2 * pair + half;
                    let at = rows[r].group.wrapping_add(group * (GROUP / 8 * 11));
                    prefetch_pair(at.wrapping_add(ahead));
                    let dictionary = _mm512_set1_epi64(rows[r].dictionary.cast_signed());
                    // SAFETY: a group of 64 columns is there, and room for it.
                    let next = unsafe {
                        let out = starts[r].add(this).cast();
                        whole_group::<SHIFTED>(at, dictionary, escapes[r], out)
                    };
                    escapes[r] = next.min(escapes_end);
                }
                if group > 0 {
                    let block = 4 * (group - 1) + pair;
                    // SAFETY: the group before was decoded and widened: four
                    // blocks.
                    unsafe {
                        let x = _mm512_load_pd(panel.x.add(block * LANES + 8 * half));
                        for (lanes, start) in lanes.iter_mut().zip(starts) {
                            let w = load_half(start.add(before + pair * LANES).cast(), half);
                            lanes[half] = _mm512_fmadd_pd(w, x, lanes[half]);
                        }
                    }
                }
            }
        }
    }
    for (row, escapes) in rows.iter_mut().zip(escapes) {
        row.escapes = escapes;
        row.group = row.group.wrapping_add(groups * (GROUP / 8 * 11));
        row.prefetch_escapes();
    }
    for (lanes, sums) in lanes.into_iter().zip(&mut sums.0) {
        // SAFETY: the destination is sixteen f64.
        unsafe {
            _mm512_store_pd(sums[0].as_mut_ptr(), lanes[0]);
            _mm512_store_pd(sums[0][8..].as_mut_ptr(), lanes[1]);
        }
    }
}
