//! `exp` in f32, and the f64 reduction that `tanh` shares.

use super::round_to_f32;
use super::tables::{
    EXP_C2, EXP_C3, EXP_C4, EXP_C5, EXP_C6, EXP_C7, EXP_INVERSE_STEP, EXP_STEP_HEAD, EXP_STEP_TAIL,
    EXP_TABLE,
};

/// Arguments below are raised to this: exp(-104) is under 2^-150, which rounds to +0.
pub(crate) const EXP_MIN: f64 = -104.0;
/// Arguments above are lowered to this: exp(89) is over 2^128, which rounds to infinity.
pub(crate) const EXP_MAX: f64 = 89.0;
/// 1.5 * 2^52. Adding it rounds a small f64 to an integer and leaves that integer, in two's
/// complement, in the low bits of the sum's pattern.
pub(crate) const MAGIC: f64 = 6_755_399_441_055_744.0;

/// e^y as `scale * (head + tail)`.
pub(super) struct ExpParts {
    /// A power of two.
    pub(super) scale: f64,
    /// 2^(j/32), rounded: in `[1, 2)`.
    pub(super) head: f64,
    /// The rest: the table's tail and `head * (e^r - 1)`.
    pub(super) tail: f64,
}

/// Splits e^y for `y` that is an f32, or twice one, in `[EXP_MIN, EXP_MAX]`.
///
/// y = k * ln2/32 + r with |r| < 0.01084, k = 32 m + j, e^y = 2^m * 2^(j/32) * e^r. The error of
/// `head + tail`, before their sum is rounded, is below 2^-57. A NaN gives a NaN tail.
#[inline]
pub(super) fn exp_parts(y: f64) -> ExpParts {
    let shifted = y * EXP_INVERSE_STEP + MAGIC;
    let steps = shifted - MAGIC;
    let bits = shifted.to_bits();
    let [table_head, table_tail] = EXP_TABLE[table_index(bits)];
    // Low 12 bits of `bits >> 5` are m; the shift left drops everything above them.
    let scale = f64::from_bits(((bits >> 5) + 1023) << 52);

    // Exact: the head has 38 bits, and the difference is a multiple of 2^-43 below 2^-6.
    let r = (y - steps * EXP_STEP_HEAD) - steps * EXP_STEP_TAIL;
    let r2 = r * r;
    let high = (EXP_C4 + r * EXP_C5) + r2 * (EXP_C6 + r * EXP_C7);
    let q = (EXP_C2 + r * EXP_C3) + r2 * high;
    let p = r + r2 * q;
    ExpParts {
        scale,
        head: table_head,
        tail: table_tail + table_head * p,
    }
}

/// j of the reduction, from the pattern of the shifted argument.
#[allow(
    clippy::cast_possible_truncation,
    reason = "five bits are left after the mask"
)]
#[inline]
pub(crate) fn table_index(bits: u64) -> usize {
    (bits & 31) as usize
}

/// e^x, correctly rounded for every f32.
///
/// Overflow gives infinity, underflow is gradual and then +0. exp(±0) = 1, exp(-inf) = +0,
/// exp(+inf) = +inf, exp(NaN) is a NaN of unspecified payload.
#[inline]
#[must_use]
pub fn exp(x: f32) -> f32 {
    // A NaN stays one, as in the vector bodies.
    let y = f64::from(x).clamp(EXP_MIN, EXP_MAX);
    let ExpParts { scale, head, tail } = exp_parts(y);
    // The product is exact, so the conversion is the second and last rounding.
    round_to_f32((head + tail) * scale)
}

/// The logistic function 1 / (1 + e^-x), each step rounded to f32.
///
/// sigmoid(-inf) = 0, sigmoid(+inf) = 1, sigmoid(±0) = 0.5; NaN gives NaN. Below about -88.7
/// the exponential overflows and the result is 0.
#[inline]
#[must_use]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_values() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp(f32::MAX), f32::INFINITY);
        assert_eq!(exp(f32::MIN).to_bits(), 0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-f32::NAN).is_nan());
        assert_eq!(exp(f32::from_bits(1)), 1.0);
        assert_eq!(exp(1.0).to_bits(), 0x402d_f854);
    }

    #[test]
    fn overflow_and_underflow_thresholds() {
        // ln(2^128 - 2^103) = 88.72283905..., between these two neighbours.
        assert_eq!(exp(f32::from_bits(0x42b1_7217)).to_bits(), 0x7f7f_ff84);
        assert_eq!(exp(f32::from_bits(0x42b1_7218)), f32::INFINITY);
        // ln(2^-150) = -103.97207708..., between these two.
        assert_eq!(exp(f32::from_bits(0xc2cf_f1b4)).to_bits(), 1);
        assert_eq!(exp(f32::from_bits(0xc2cf_f1b5)).to_bits(), 0);
    }

    #[test]
    fn sigmoid_special_values() {
        assert_eq!(sigmoid(0.0), 0.5);
        assert_eq!(sigmoid(-0.0), 0.5);
        assert_eq!(sigmoid(f32::INFINITY), 1.0);
        assert_eq!(sigmoid(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(sigmoid(-89.0).to_bits(), 0);
        assert!(sigmoid(f32::NAN).is_nan());
    }
}
