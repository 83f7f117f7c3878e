//! Elementwise f32 arithmetic without transcendental functions.

/// `acc[i] += x[i]` in f32, one rounding each.
#[inline(always)]
pub(crate) fn add(acc: &mut [f32], x: &[f32]) {
    assert_eq!(acc.len(), x.len(), "one addend per value");
    for (acc, &x) in acc.iter_mut().zip(x) {
        *acc += x;
    }
}

/// `acc[i] += weight * x[i]` in f32: the product is rounded, then the sum;
/// never fused.
#[inline(always)]
pub(crate) fn add_scaled(acc: &mut [f32], weight: f32, x: &[f32]) {
    assert_eq!(acc.len(), x.len(), "one addend per value");
    for (acc, &x) in acc.iter_mut().zip(x) {
        *acc += weight * x;
    }
}

/// `out[i] *= x[i]` in f32.
#[inline(always)]
pub(crate) fn multiply(out: &mut [f32], x: &[f32]) {
    assert_eq!(out.len(), x.len(), "one factor per value");
    for (out, &x) in out.iter_mut().zip(x) {
        *out *= x;
    }
}

/// `out[i]` = the bf16 element `i` of `bytes`, widened exactly by a 16-bit
/// shift (NaN payloads included).
#[inline(always)]
pub(crate) fn widen_bf16(bytes: &[u8], out: &mut [f32]) {
    assert_eq!(
        Some(bytes.len()),
        out.len().checked_mul(2),
        "two bytes per value"
    );
    for (out, &pair) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *out = f32::from_bits(u32::from(u16::from_le_bytes(pair)) << 16);
    }
}
