//! Eight rows side by side: the building block of serial sums, where every
//! vector lane is one row that adds its products in order.

use std::arch::x86_64::*;

/// Eight consecutive weights of `BYTES` bytes each (2: bf16, 4: f32) as f32.
///
/// # Safety
/// `at` must be good for reading `8 * BYTES` bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn load8<const BYTES: usize>(at: *const u8) -> __m256 {
    const { assert!(BYTES == 2 || BYTES == 4, "bf16 or f32") };
    if BYTES == 2 {
        // SAFETY: 16 bytes may be read by the function's contract.
        let half = unsafe { _mm_loadu_si128(at.cast()) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half)))
    } else {
        // SAFETY: 32 bytes may be read by the function's contract.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

/// One weight of `BYTES` bytes (2: bf16, 4: f32) as f32.
///
/// # Safety
/// `at` must be good for reading `BYTES` bytes.
#[inline]
pub(crate) unsafe fn load1<const BYTES: usize>(at: *const u8) -> f32 {
    const { assert!(BYTES == 2 || BYTES == 4, "bf16 or f32") };
    if BYTES == 2 {
        // SAFETY: 2 bytes may be read by the function's contract.
        let bits = unsafe { at.cast::<u16>().read_unaligned() };
        f32::from_bits(u32::from(bits) << 16)
    } else {
        // SAFETY: 4 bytes may be read by the function's contract.
        unsafe { at.cast::<f32>().read_unaligned() }
    }
}

/// Eight columns of eight rows, transposed: element `c` of the result holds
/// column `column + c`, lane `r` of it row `r`.
///
/// # Safety
/// Every pointer must be good for reading `(column + 8) * BYTES` bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn columns8<const BYTES: usize>(
    rows: &[*const u8; 8],
    column: usize,
) -> [__m256; 8] {
    // SAFETY: the eight weights from `column` on lie within every row.
    let row = rows.map(|row| unsafe { load8::<BYTES>(row.add(column * BYTES)) });
    transpose8(row)
}

/// Transposes an 8 x 8 matrix of f32.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose8(r: [__m256; 8]) -> [__m256; 8] {
    // Pairs of rows interleaved: [r0c0 r1c0 r0c1 r1c1 | r0c4 r1c4 r0c5 r1c5].
    let low01 = _mm256_unpacklo_ps(r[0], r[1]);
    let high01 = _mm256_unpackhi_ps(r[0], r[1]);
    let low23 = _mm256_unpacklo_ps(r[2], r[3]);
    let high23 = _mm256_unpackhi_ps(r[2], r[3]);
    let low45 = _mm256_unpacklo_ps(r[4], r[5]);
    let high45 = _mm256_unpackhi_ps(r[4], r[5]);
    let low67 = _mm256_unpacklo_ps(r[6], r[7]);
    let high67 = _mm256_unpackhi_ps(r[6], r[7]);
    // Four rows of one column per 128-bit half: [c0 of r0..r3 | c4 of r0..r3].
    let c04_top = _mm256_shuffle_ps::<0x44>(low01, low23);
    let c15_top = _mm256_shuffle_ps::<0xEE>(low01, low23);
    let c26_top = _mm256_shuffle_ps::<0x44>(high01, high23);
    let c37_top = _mm256_shuffle_ps::<0xEE>(high01, high23);
    let c04_bottom = _mm256_shuffle_ps::<0x44>(low45, low67);
    let c15_bottom = _mm256_shuffle_ps::<0xEE>(low45, low67);
    let c26_bottom = _mm256_shuffle_ps::<0x44>(high45, high67);
    let c37_bottom = _mm256_shuffle_ps::<0xEE>(high45, high67);
    [
        _mm256_permute2f128_ps::<0x20>(c04_top, c04_bottom),
        _mm256_permute2f128_ps::<0x20>(c15_top, c15_bottom),
        _mm256_permute2f128_ps::<0x20>(c26_top, c26_bottom),
        _mm256_permute2f128_ps::<0x20>(c37_top, c37_bottom),
        _mm256_permute2f128_ps::<0x31>(c04_top, c04_bottom),
        _mm256_permute2f128_ps::<0x31>(c15_top, c15_bottom),
        _mm256_permute2f128_ps::<0x31>(c26_top, c26_bottom),
        _mm256_permute2f128_ps::<0x31>(c37_top, c37_bottom),
    ]
}
