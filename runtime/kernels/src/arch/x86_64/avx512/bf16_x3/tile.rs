//! Tiles of weights that are upper halves of f64.

#![allow(
    clippy::needless_range_loop,
    reason = "parallel arrays of registers are indexed together"
)]

use std::arch::asm;
use std::arch::x86_64::*;

use super::decode::{known, upper_halves, with_escapes};
use crate::arch::x86_64::avx512::dot::widen_activations;
use crate::arch::x86_64::batch::{Body, Sums};
use crate::arch::x86_64::bf16_x3::{Panel, RowState, prefetch_pair};
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

/// What [`load_sums`] loads.
#[inline]
#[target_feature(enable = "avx512f")]
fn store_sums(lanes: [__m512d; 2], sums: &mut [f64; LANES]) {
    // SAFETY: the destinations are eight f64 each.
    unsafe {
        _mm512_storeu_pd(sums.as_mut_ptr(), lanes[0]);
        _mm512_storeu_pd(sums[8..].as_mut_ptr(), lanes[1]);
    }
}

/// Bytes of a whole group.
const GROUP_BYTES: usize = GROUP / 8 * 11;

/// Adds the products of `groups` groups of eight rows with one position, each row's
/// in the order of its columns.
///
/// A weight goes through some fifty cycles of steps that wait for each other, more
/// than a processor sees ahead of itself. So the steps are shared out: while the
/// products of two rows are added, the escapes of the next two are filled in and the
/// codes of the two after those looked up.
///
/// # Safety
/// As [`by_parts`], of one position: `groups` whole groups lie within `panel`.
///
/// [`by_parts`]: crate::arch::x86_64::bf16_x3::by_parts
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,fma,popcnt"
)]
pub(super) unsafe fn eight_rows(
    panel: Panel,
    groups: usize,
    rows: &mut [RowState; 8],
    sums: &mut [[f64; LANES]; 8],
) {
    if groups == 0 {
        return;
    }
    let mut lanes: [[__m512d; 2]; 8] = std::array::from_fn(|r| load_sums(&sums[r]));
    let mut escapes: [*const u8; 8] = std::array::from_fn(|r| rows[r].escapes);
    let escapes_end = rows[0].escapes_end;
    let at = |row: usize, group: usize| rows[row].group.wrapping_add(group * GROUP_BYTES);
    // Of `row` and the one after it.
    let look_up = |row: usize, group: usize| {
        [row, row + 1].map(|row| {
            let dictionary = _mm512_set1_epi64(rows[row].dictionary.cast_signed());
            // SAFETY: the group is there, or begins where the row ends: 64 bytes
            // beyond may be read.
            unsafe { known(at(row, group), dictionary) }
        })
    };
    // SAFETY: escapes never pass their end, beyond which 64 bytes may be read.
    let (mut high, ends) = unsafe { fill_in(look_up(0, 0), [escapes[0], escapes[1]], escapes_end) };
    [escapes[0], escapes[1]] = ends;
    let mut known_next = look_up(2, 0);
    for group in 0..groups {
        let ahead = panel.ahead(group * GROUP);
        let x = panel.x.wrapping_add(group * GROUP);
        macro_rules! step {
            ($row:literal, $next:literal, $after:literal, $group_after:expr) => {{
                prefetch_pair(at($row, group).wrapping_add(ahead));
                prefetch_pair(at($row + 1, group).wrapping_add(ahead));
                let known_after = look_up($after, $group_after);
                let ends = [escapes[$next], escapes[$next + 1]];
                // SAFETY: as above.
                let (high_next, ends) = unsafe { fill_in(known_next, ends, escapes_end) };
                // Beyond the last group, the codes mean nothing.
                if $next > 0 || group + 1 < groups {
                    [escapes[$next], escapes[$next + 1]] = ends;
                }
                let ([high_next, known_after], at) = in_this_order(
                    [high_next, known_after],
                    [at($row, group), at($row + 1, group)],
                );
                // SAFETY: the group is there, and four blocks of `x`.
                unsafe {
                    add_group(&mut lanes[$row], at[0], high[0], x);
                    add_group(&mut lanes[$row + 1], at[1], high[1], x);
                }
                (high, known_next) = (high_next, known_after);
            }};
        }
        step!(0, 2, 4, group);
        step!(2, 4, 6, group);
        step!(4, 6, 0, group + 1);
        step!(6, 0, 2, group + 1);
    }
    for (row, escapes) in rows.iter_mut().zip(escapes) {
        row.escapes = escapes;
        row.group = row.group.wrapping_add(groups * GROUP_BYTES);
        row.prefetch_escapes();
    }
    for (lanes, sums) in lanes.into_iter().zip(sums) {
        store_sums(lanes, sums);
    }
}

/// The exponents of two rows, and where their next escapes are: at most at `end`.
///
/// # Safety
/// At each of the escapes, 64 bytes must be good for reading.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
unsafe fn fill_in(
    known: [__m512i; 2],
    escapes: [*const u8; 2],
    end: *const u8,
) -> ([__m512i; 2], [*const u8; 2]) {
    let [first, second] = [0, 1].map(|n| {
        // SAFETY: by the function's contract.
        let (high, count) = unsafe { with_escapes(known[n], escapes[n], u64::MAX) };
        (high, escapes[n].wrapping_add(count).min(end))
    });
    ([first.0, second.0], [first.1, second.1])
}

/// The same values, of which the compiler knows that they are there before whatever
/// is read from these places is: it would put the steps together again that
/// [`eight_rows`] takes apart.
#[inline]
#[target_feature(enable = "avx512f")]
fn in_this_order(
    values: [[__m512i; 2]; 2],
    places: [*const u8; 2],
) -> ([[__m512i; 2]; 2], [*const u8; 2]) {
    let ([[mut a, mut b], [mut c, mut d]], [mut p, mut q]) = (values, places);
    // SAFETY: a comment, which changes nothing.
    unsafe {
        asm!(
            "/* {0} {1} {2} {3} {4} {5} */",
            inout(zmm_reg) a,
            inout(zmm_reg) b,
            inout(zmm_reg) c,
            inout(zmm_reg) d,
            inout(reg) p,
            inout(reg) q,
            options(nostack, preserves_flags)
        );
    }
    ([[a, b], [c, d]], [p, q])
}

/// Adds the products of the whole group at `group`, of the exponents `high`, with
/// four blocks of widened activations to a row's sums.
///
/// # Safety
/// The group must be there, and 64 f64 at `x`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn add_group(sums: &mut [__m512d; 2], group: *const u8, high: __m512i, x: *const f64) {
    // SAFETY: by the function's contract; the low bytes follow the codes.
    unsafe {
        let blocks = upper_halves(group.add(GROUP / 8 * 3), high);
        for (block, pairs) in blocks.into_iter().enumerate() {
            let x = x.add(block * LANES);
            let even = _mm512_castsi512_pd(_mm512_slli_epi64::<32>(pairs));
            sums[0] = _mm512_fmadd_pd(even, _mm512_load_pd(x), sums[0]);
            let odd = _mm512_castsi512_pd(_mm512_maskz_mov_epi32(0xAAAA, pairs));
            sums[1] = _mm512_fmadd_pd(odd, _mm512_load_pd(x.add(8)), sums[1]);
        }
    }
}
