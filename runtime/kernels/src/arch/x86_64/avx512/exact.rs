//! MXFP4 products in integers, where `generic::mxfp4_prepared` shows that their
//! sums have the same value as the definition's: sixteen rows side by side, four
//! elements to a 32-bit lane, bytes times bytes.

use std::arch::x86_64::*;

use super::mxfp4::{group_sums, interleave};
use crate::arch::x86_64::mxfp4::{Weights, gather_scales};
use crate::arch::x86_64::pointers::row_starts;
use crate::generic::lanes::round_f32;
use crate::generic::mxfp4::{E2M1, GROUP_BYTES, MXFP4_GROUP, NAN_SCALE};
use crate::generic::mxfp4_prepared::{DIGITS, Mxfp4Group};

const ROWS: usize = 16;

/// Positions that share decoded weights.
const POSITIONS_MAX: usize = 8;

/// Groups whose scales are gathered at a time.
const PANEL_GROUPS: usize = 64;

/// `2 w + 12` of the sixteen E2M1 values, four times: byte permutations look at
/// six bits of an index, of which the upper two are somebody else's.
const TABLE: [u8; 64] = {
    let mut table = [0; 64];
    let mut at = 0;
    while at < 64 {
        let mut code = 0;
        while 2.0 * E2M1[at % 16] + 12.0 != code as f64 {
            code += 1;
        }
        table[at] = code;
        at += 1;
    }
    table
};

/// Sums of sixteen rows: the lower and the upper eight.
type RowSums = [__m512d; 2];

/// All rows for the positions `chosen` of `x`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
pub(super) fn products(
    weights: Weights<'_>,
    x: &[f32],
    prepared: &[Mxfp4Group],
    chosen: &[usize],
    out: &mut [f32],
) {
    let groups = weights.shape.cols / MXFP4_GROUP;
    for (tile, out) in out.chunks_mut(ROWS * chosen.len()).enumerate() {
        let rows = (tile * ROWS, out.len() / chosen.len());
        if let [position] = *chosen {
            let x = &x[position * groups * MXFP4_GROUP..][..groups * MXFP4_GROUP];
            let prepared = &prepared[position * groups..][..groups];
            store(&single_sums(weights, rows, x, prepared), 0, 1, out);
            continue;
        }
        for (part, positions) in chosen.chunks(POSITIONS_MAX).enumerate() {
            let sums = tile_sums(weights, rows, x, prepared, positions);
            for (p, sums) in sums[..positions.len()].iter().enumerate() {
                store(sums, part * POSITIONS_MAX + p, chosen.len(), out);
            }
        }
    }
}

/// Rounds the sums of a tile to column `position` of `out: [rows][positions]`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
fn store([low, high]: &RowSums, position: usize, positions: usize, out: &mut [f32]) {
    let mut values = [0.0_f64; ROWS];
    // SAFETY: the destinations are eight f64 each.
    unsafe {
        _mm512_storeu_pd(values.as_mut_ptr(), *low);
        _mm512_storeu_pd(values[8..].as_mut_ptr(), *high);
    }
    for (out, value) in out.chunks_exact_mut(positions).zip(values) {
        out[position] = round_f32(value);
    }
}

/// Sixteen rows, walked group by group.
struct Tile<'a> {
    weights: Weights<'a>,
    /// The first row, and the rows from it on.
    place: (usize, usize),
    rows: [*const u8; ROWS],
    row_bytes: usize,
    groups: usize,
    scales: [[u8; ROWS]; PANEL_GROUPS],
}

impl<'a> Tile<'a> {
    fn new(weights: Weights<'a>, place: (usize, usize)) -> Self {
        let groups = weights.shape.cols / MXFP4_GROUP;
        let row_bytes = groups * GROUP_BYTES;
        Self {
            weights,
            place,
            rows: row_starts(weights.packed, row_bytes, row_bytes, place.0, place.1),
            row_bytes,
            groups,
            scales: [[0; ROWS]; PANEL_GROUPS],
        }
    }

    /// Gathers scales when `group` starts a panel, and fetches the next tile's
    /// weights ahead. Returns the scales of the group.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
    fn enter(&mut self, group: usize) -> Scales {
        let in_panel = group % PANEL_GROUPS;
        if in_panel == 0 {
            let scales = &mut self.scales[..(self.groups - group).min(PANEL_GROUPS)];
            gather_scales(
                &self.weights.scales[group..],
                self.groups,
                self.place,
                scales,
            );
        }
        let offset = group * GROUP_BYTES;
        if offset.is_multiple_of(64) {
            for row in self.rows {
                // A prefetch never faults.
                let line = row.wrapping_add(offset + ROWS * self.row_bytes);
                _mm_prefetch::<_MM_HINT_T0>(line.cast());
            }
        }
        Scales::new(self.scales[in_panel])
    }
}

/// The sums of a tile at the one position that `x` and `prepared` hold. They
/// stay in registers, whose masked updates cost nothing; in memory each would
/// wait for the one before to be stored.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
fn single_sums(
    weights: Weights<'_>,
    place: (usize, usize),
    x: &[f32],
    prepared: &[Mxfp4Group],
) -> RowSums {
    let mut tile = Tile::new(weights, place);
    let mut sums = [_mm512_setzero_pd(); 2];
    for (group, prepared) in prepared.iter().enumerate() {
        let scales = tile.enter(group);
        let offset = group * GROUP_BYTES;
        if prepared.exponent == 0 {
            let x = &x[group * MXFP4_GROUP..][..MXFP4_GROUP];
            // SAFETY: every row holds `groups` groups of 16 bytes.
            let subs = unsafe { definition(&tile.rows, offset, x) };
            sums = scales.add_definition(subs, sums);
        } else {
            // SAFETY: as above.
            let w = unsafe { decode(&tile.rows, offset) };
            sums = scales.add_integers(integers(&w, prepared), prepared.exponent, sums);
        }
    }
    sums
}

/// The sums of a tile at up to eight positions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
fn tile_sums(
    weights: Weights<'_>,
    place: (usize, usize),
    x: &[f32],
    prepared: &[Mxfp4Group],
    positions: &[usize],
) -> [RowSums; POSITIONS_MAX] {
    let mut tile = Tile::new(weights, place);
    let mut sums = [[_mm512_setzero_pd(); 2]; POSITIONS_MAX];
    for group in 0..tile.groups {
        let scales = tile.enter(group);
        let offset = group * GROUP_BYTES;
        // SAFETY: every row holds `groups` groups of 16 bytes.
        let w = unsafe { decode(&tile.rows, offset) };
        for (&position, sums) in positions.iter().zip(&mut sums) {
            let group = position * tile.groups + group;
            let prepared = &prepared[group];
            *sums = if prepared.exponent == 0 {
                let x = &x[group * MXFP4_GROUP..][..MXFP4_GROUP];
                // SAFETY: as above.
                let subs = unsafe { definition(&tile.rows, offset, x) };
                scales.add_definition(subs, *sums)
            } else {
                scales.add_integers(integers(&w, prepared), prepared.exponent, *sums)
            };
        }
    }
    sums
}

/// Scale bytes of sixteen rows as 64-bit integers, and which are not NaN.
struct Scales {
    bytes: [__m512i; 2],
    valid: [__mmask8; 2],
}

impl Scales {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
    fn new(bytes: [u8; ROWS]) -> Self {
        // SAFETY: the source is sixteen bytes.
        let all = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        let bytes = [all, _mm_srli_si128::<8>(all)].map(|half| _mm512_cvtepu8_epi64(half));
        let nan = _mm512_set1_epi64(i64::from(NAN_SCALE));
        let valid = bytes.map(|half| _mm512_cmpneq_epi64_mask(half, nan));
        Self { bytes, valid }
    }

    /// `sums + subs * f64 with exponent field bytes + bias`, except where a scale
    /// is NaN: there the factor is zero, which adds nothing because integers are
    /// finite. Scaling by a power of two is exact, so the fused form rounds as
    /// the definition.
    ///
    /// A mask on the sums instead would become a masked store where they are in
    /// memory, for which the next load of them has to wait.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
    fn add_integers(&self, subs: RowSums, bias: i64, sums: RowSums) -> RowSums {
        let add = |half: usize| {
            let biased = _mm512_add_epi64(self.bytes[half], _mm512_set1_epi64(bias));
            let factor = _mm512_maskz_slli_epi64::<52>(self.valid[half], biased);
            _mm512_fmadd_pd(subs[half], _mm512_castsi512_pd(factor), sums[half])
        };
        [add(0), add(1)]
    }

    /// As [`Self::add_integers`] for sums of the definition, which may be
    /// infinite, with its bias.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
    fn add_definition(&self, subs: RowSums, sums: RowSums) -> RowSums {
        let add = |half: usize| {
            let biased = _mm512_add_epi64(self.bytes[half], _mm512_set1_epi64(1023 - 127));
            let factor = _mm512_castsi512_pd(_mm512_slli_epi64::<52>(biased));
            _mm512_mask3_fmadd_pd(subs[half], factor, sums[half], self.valid[half])
        };
        [add(0), add(1)]
    }
}

/// `W + 12` of a group of sixteen rows: vector `2 k + parity` holds, for each
/// row, the elements `8 k + parity`, `+2`, `+4` and `+6`.
///
/// # Safety
/// Every row must be good for reading `offset + 16` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
unsafe fn decode(rows: &[*const u8; ROWS], offset: usize) -> [__m512i; 8] {
    // Rows `r`, `r + 4`, `r + 8` and `r + 12`, one to a 128-bit part.
    let quad = |r: usize| {
        // SAFETY: by the function's contract.
        let part = |r: usize| unsafe { _mm_loadu_si128(rows[r].add(offset).cast()) };
        let joined = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(part(r)), part(r + 4));
        let joined = _mm512_inserti32x4::<2>(joined, part(r + 8));
        _mm512_inserti32x4::<3>(joined, part(r + 12))
    };
    let quads = [quad(0), quad(1), quad(2), quad(3)];
    let low = [
        _mm512_unpacklo_epi32(quads[0], quads[1]),
        _mm512_unpacklo_epi32(quads[2], quads[3]),
    ];
    let high = [
        _mm512_unpackhi_epi32(quads[0], quads[1]),
        _mm512_unpackhi_epi32(quads[2], quads[3]),
    ];
    // Word `k` of every row, in the order of rows.
    let words = [
        _mm512_unpacklo_epi64(low[0], low[1]),
        _mm512_unpackhi_epi64(low[0], low[1]),
        _mm512_unpacklo_epi64(high[0], high[1]),
        _mm512_unpackhi_epi64(high[0], high[1]),
    ];
    // SAFETY: the table is 64 bytes.
    let table = unsafe { _mm512_loadu_si512(TABLE.as_ptr().cast()) };
    std::array::from_fn(|i| {
        let word = words[i / 2];
        if i % 2 == 0 {
            _mm512_permutexvar_epi8(word, table)
        } else {
            _mm512_permutexvar_epi8(_mm512_srli_epi32::<4>(word), table)
        }
    })
}

/// The sum over a group of `W_i * n_i` for each of sixteen rows, exactly.
///
/// With the bounds of `generic::mxfp4_prepared`: `|s_d| <= 49,152` for each of
/// the lower four digits and `24,960` for the last, so that `|s_0 + 256 s_1| <
/// 2^24` and `|s_2 + 256 s_3 + 65,536 s_4| <= 49,152 * 257 + 24,960 * 65,536 <
/// 2^31`. The whole is below `2^47`, so the last step is exact in f64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
fn integers(w: &[__m512i; 8], prepared: &Mxfp4Group) -> RowSums {
    // Two chains for each digit: a sum of byte products takes five cycles.
    let mut chains = [[_mm512_setzero_si512(); DIGITS]; 2];
    for (acc, &start) in chains[0].iter_mut().zip(&prepared.starts) {
        *acc = _mm512_set1_epi32(start);
    }
    for (i, &w) in w.iter().enumerate() {
        for (acc, digits) in chains[i % 2].iter_mut().zip(&prepared.digits) {
            // SAFETY: 32 digits are eight words.
            let word = unsafe { digits.as_ptr().cast::<i32>().add(i).read_unaligned() };
            *acc = _mm512_dpbusd_epi32(*acc, w, _mm512_set1_epi32(word));
        }
    }
    let mut acc = chains[0];
    for (acc, &other) in acc.iter_mut().zip(&chains[1]) {
        *acc = _mm512_add_epi32(*acc, other);
    }
    let low = _mm512_add_epi32(acc[0], _mm512_slli_epi32::<8>(acc[1]));
    let high = _mm512_add_epi32(acc[2], _mm512_slli_epi32::<8>(acc[3]));
    let high = _mm512_add_epi32(high, _mm512_slli_epi32::<16>(acc[4]));
    let halves = |v| {
        [
            _mm512_cvtepi32_pd(_mm512_castsi512_si256(v)),
            _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64::<1>(v)),
        ]
    };
    let (low, high) = (halves(low), halves(high));
    let weight = _mm512_set1_pd(65_536.0);
    [0, 1].map(|half| _mm512_fmadd_pd(high[half], weight, low[half]))
}

/// The group's sums as the definition has them, for activations that do not
/// qualify.
///
/// # Safety
/// Every row must be good for reading `offset + 16` bytes.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma")]
unsafe fn definition(rows: &[*const u8; ROWS], offset: usize, x: &[f32]) -> RowSums {
    let mut wide = [0.0_f64; MXFP4_GROUP];
    for (wide, &x) in wide.iter_mut().zip(x) {
        *wide = f64::from(x);
    }
    let (low, high) = rows.split_at(8);
    [low, high].map(|rows| {
        let rows = std::array::from_fn(|r| rows[r]);
        // SAFETY: by the function's contract; 32 values were widened.
        let [sums] = unsafe { group_sums::<1>(interleave(&rows, offset), wide.as_ptr()) };
        sums
    })
}
