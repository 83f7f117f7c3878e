//! 64 packed weights at a time, where bytes can be permuted and expanded (VBMI,
//! VBMI2).

use std::arch::x86_64::*;

use crate::arch::x86_64::bf16_x3::RowState;
use crate::generic::bf16_x3::GROUP;

/// What is decoded to.
pub(super) const BF16: u8 = 0;
pub(super) const F32: u8 = 1;
/// The upper half of an f64 that is the weight times 2^-896.
pub(super) const SHIFTED: u8 = 2;

/// Bytes of a decoded weight.
const fn bytes_of(form: u8) -> usize {
    if form == BF16 { 2 } else { 4 }
}

/// Places of a vector's bytes.
#[repr(C, align(64))]
struct Places([u8; 64]);

/// Three bytes of codes, of 8 columns, to each 8 bytes.
#[rustfmt::skip]
const SPREAD: Places = Places([
    0, 1, 2, 2, 2, 2, 2, 2, 3, 4, 5, 5, 5, 5, 5, 5,
    6, 7, 8, 8, 8, 8, 8, 8, 9, 10, 11, 11, 11, 11, 11, 11,
    12, 13, 14, 14, 14, 14, 14, 14, 15, 16, 17, 17, 17, 17, 17, 17,
    18, 19, 20, 20, 20, 20, 20, 20, 21, 22, 23, 23, 23, 23, 23, 23,
]);

/// Code `j` of 8 begins at bit `3 j`.
const BITS: i64 = i64::from_le_bytes([0, 3, 6, 9, 12, 15, 18, 21]);

/// The order of bytes from which unpacking makes words in order: the lower half
/// of each 16 bytes goes to the first vector.
#[rustfmt::skip]
const WORDS: Places = Places([
    0, 1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39,
    8, 9, 10, 11, 12, 13, 14, 15, 40, 41, 42, 43, 44, 45, 46, 47,
    16, 17, 18, 19, 20, 21, 22, 23, 48, 49, 50, 51, 52, 53, 54, 55,
    24, 25, 26, 27, 28, 29, 30, 31, 56, 57, 58, 59, 60, 61, 62, 63,
]);

/// The order of bytes from which unpacking makes pairs of words whose lower
/// halves are sixteen columns in order, and whose upper halves the next sixteen.
#[rustfmt::skip]
const PAIRS: Places = Places([
    0, 16, 1, 17, 2, 18, 3, 19, 32, 48, 33, 49, 34, 50, 35, 51,
    4, 20, 5, 21, 6, 22, 7, 23, 36, 52, 37, 53, 38, 54, 39, 55,
    8, 24, 9, 25, 10, 26, 11, 27, 40, 56, 41, 57, 42, 58, 43, 59,
    12, 28, 13, 29, 14, 30, 15, 31, 44, 60, 45, 61, 46, 62, 47, 63,
]);

/// The next `columns` of a row in one of the forms.
///
/// # Safety
/// As the methods of [`Decoder`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(super) unsafe fn decode<const FORM: u8>(
    row: &mut RowState,
    columns: usize,
    out: *mut u8,
    ahead: usize,
) {
    let dictionary = _mm512_set1_epi64(row.dictionary.cast_signed());
    let full = columns / GROUP;
    for group in 0..full {
        row.prefetch(ahead);
        // SAFETY: a group of 64 columns is there, and there is room for it.
        let next = unsafe {
            let out = out.add(group * GROUP * bytes_of(FORM));
            whole_group::<FORM>(row.group, dictionary, row.escapes, out)
        };
        row.escapes = next.min(row.escapes_end);
        row.group = row.group.wrapping_add(GROUP / 8 * 11);
    }
    row.prefetch_escapes();
    let left = columns % GROUP;
    if left > 0 {
        let eights = left.div_ceil(8);
        // SAFETY: a group of `left` columns is there, 64 bytes may be read beyond
        // it, and there is room for 64.
        let count = unsafe {
            let low = row.group.add(3 * eights);
            let valid = (1 << left) - 1;
            let (high, count) = exponents(row.group, dictionary, row.escapes, valid);
            put::<FORM>(low, high, out.add(full * GROUP * bytes_of(FORM)));
            count
        };
        row.take(count);
        row.group = row.group.wrapping_add(11 * eights);
    }
}

/// The 64 columns of the group at `group` in one of the forms. Returns the next
/// escape.
///
/// # Safety
/// The group must be there, with 64 escapes or what may be read instead, and
/// `out` good for writing the columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
unsafe fn whole_group<const FORM: u8>(
    group: *const u8,
    dictionary: __m512i,
    escapes: *const u8,
    out: *mut u8,
) -> *const u8 {
    // SAFETY: by the function's contract.
    unsafe {
        let (high, count) = exponents(group, dictionary, escapes, u64::MAX);
        put::<FORM>(group.add(GROUP / 8 * 3), high, out);
        escapes.wrapping_add(count)
    }
}

/// The exponents of a group, whose columns are in `valid`, and how many escapes
/// they took.
///
/// # Safety
/// The group must be there, and 64 bytes at `escapes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
unsafe fn exponents(
    group: *const u8,
    dictionary: __m512i,
    escapes: *const u8,
    valid: u64,
) -> (__m512i, usize) {
    // SAFETY: by the function's contract; 32 bytes lie within a full group, and
    // within the 64 bytes beyond any other.
    unsafe { with_escapes(known(group, dictionary), escapes, valid) }
}

/// What the dictionary says of a group's exponents: 255 where there is an escape.
///
/// # Safety
/// `group` must be good for reading 32 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(super) unsafe fn known(group: *const u8, dictionary: __m512i) -> __m512i {
    // SAFETY: by the function's contract; the constants are 64 bytes.
    unsafe {
        let codes = _mm512_castsi256_si512(_mm256_loadu_si256(group.cast()));
        let spread = _mm512_load_si512(SPREAD.0.as_ptr().cast());
        let codes = _mm512_permutexvar_epi8(spread, codes);
        let codes = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(BITS), codes);
        // The dictionary comes again every 8 places: higher bits do not matter.
        _mm512_permutexvar_epi8(codes, dictionary)
    }
}

/// The exponents of which [`known`] told what it could, in the columns that are in
/// `valid`, and how many escapes they took.
///
/// # Safety
/// `escapes` must be good for reading 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
pub(super) unsafe fn with_escapes(
    known: __m512i,
    escapes: *const u8,
    valid: u64,
) -> (__m512i, usize) {
    let mask = _mm512_cmpeq_epi8_mask(known, _mm512_set1_epi8(-1)) & valid;
    // SAFETY: by the function's contract.
    let escapes = unsafe { _mm512_loadu_si512(escapes.cast()) };
    let exponents = _mm512_mask_expand_epi8(known, mask, escapes);
    (exponents, mask.count_ones() as usize)
}

/// Puts 64 low bytes and exponents together and writes them in one of the forms.
///
/// # Safety
/// `low` must be good for reading 64 bytes, `out` for writing 64 weights.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
unsafe fn put<const FORM: u8>(low: *const u8, high: __m512i, out: *mut u8) {
    let places = if FORM == BF16 { &WORDS } else { &PAIRS };
    // SAFETY: by the function's contract.
    unsafe {
        for (half, words) in rotated(low, high, places).into_iter().enumerate() {
            let out = out.add(32 * half * bytes_of(FORM));
            let [lower, upper] = match FORM {
                BF16 => {
                    let words = _mm512_shrdi_epi16::<1>(words, words);
                    _mm512_storeu_si512(out.cast(), words);
                    continue;
                }
                F32 => {
                    let words = _mm512_shrdi_epi16::<1>(words, words);
                    let lower = _mm512_slli_epi32::<16>(words);
                    [lower, _mm512_and_si512(words, _mm512_set1_epi32(!0xFFFF))]
                }
                _ => shifted(words),
            };
            _mm512_storeu_si512(out.cast(), lower);
            _mm512_storeu_si512(out.add(64).cast(), upper);
        }
    }
}

/// 64 low bytes and exponents put together: weights of 16 bits, rotated left by
/// one, the first 32 columns and the others, each in the order that `places` make.
///
/// # Safety
/// `low` must be good for reading 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn rotated(low: *const u8, high: __m512i, places: &Places) -> [__m512i; 2] {
    // SAFETY: by the function's contract; the constants are 64 bytes.
    let (places, low) = unsafe {
        let places = _mm512_load_si512(places.0.as_ptr().cast());
        (places, _mm512_loadu_si512(low.cast()))
    };
    let low = _mm512_permutexvar_epi8(places, low);
    let high = _mm512_permutexvar_epi8(places, high);
    [
        _mm512_unpacklo_epi8(low, high),
        _mm512_unpackhi_epi8(low, high),
    ]
}

/// 64 low bytes and exponents put together as upper halves of f64: sixteen columns
/// in order after sixteen.
///
/// # Safety
/// `low` must be good for reading 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn upper_halves(low: *const u8, high: __m512i) -> [__m512i; 4] {
    // SAFETY: by the function's contract.
    let [first, second] = unsafe { rotated(low, high, &PAIRS) }.map(|words| shifted(words));
    [first[0], first[1], second[0], second[1]]
}

/// Pairs of rotated weights as upper halves of f64: the lower and the upper of
/// each pair. The exponent keeps its place among the eleven bits of an f64,
/// which makes the value that of the weight times 2^-896, zeros and subnormal
/// values included.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn shifted(words: __m512i) -> [__m512i; 2] {
    // From the first where the mask has a bit, else from the second.
    const SELECT: i32 = 0xCA;
    let mask = _mm512_set1_epi32(0x0FFF_E000);
    let lower = _mm512_slli_epi32::<12>(words);
    let lower_sign = _mm512_slli_epi32::<31>(words);
    let upper = _mm512_srli_epi32::<4>(words);
    // Also the lower weight's, where the mask has bits.
    let upper_sign = _mm512_slli_epi16::<15>(words);
    [
        _mm512_ternarylogic_epi32::<SELECT>(mask, lower, lower_sign),
        _mm512_ternarylogic_epi32::<SELECT>(mask, upper, upper_sign),
    ]
}
