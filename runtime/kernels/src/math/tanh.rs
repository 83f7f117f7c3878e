//! `tanh` in f32.

use super::exp::{ExpParts, exp_parts};
use super::round_to_f32;

/// Magnitudes above are lowered to this: tanh(10) is over 1 - 2^-27, which rounds to 1.
pub(crate) const TANH_MAX: f64 = 10.0;

/// The hyperbolic tangent, correctly rounded for every f32.
///
/// tanh(±0) = ±0 and tanh(±inf) = ±1; the result always has the sign of `x`. tanh(NaN) is a NaN
/// of unspecified payload.
///
/// (e - 1) / (e + 1) with e = e^(2|x|) in two parts, so that the subtraction costs nothing: for
/// small |x| the head is exactly 1 and the numerator is e^(2|x|) - 1 to full relative accuracy.
#[inline]
#[must_use]
pub fn tanh(x: f32) -> f32 {
    let mut magnitude = f64::from(x.abs());
    // A NaN passes the comparison unchanged, as in the vector bodies.
    if magnitude > TANH_MAX {
        magnitude = TANH_MAX;
    }
    let ExpParts { scale, head, tail } = exp_parts(magnitude + magnitude);
    let (head, tail) = (head * scale, tail * scale);
    let numerator = (head - 1.0) + tail;
    let denominator = (head + 1.0) + tail;
    let result = round_to_f32(numerator / denominator);
    // The quotient is not negative: x's sign goes in as a bit, also for zeros.
    f32::from_bits(result.to_bits() | (x.to_bits() & 0x8000_0000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_values() {
        assert_eq!(tanh(0.0).to_bits(), 0);
        assert_eq!(tanh(-0.0).to_bits(), 0x8000_0000);
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert_eq!(tanh(f32::NEG_INFINITY), -1.0);
        assert_eq!(tanh(f32::MAX), 1.0);
        assert!(tanh(f32::NAN).is_nan());
        assert_eq!(tanh(f32::from_bits(1)).to_bits(), 1);
        assert_eq!(tanh(f32::from_bits(0x8000_0001)).to_bits(), 0x8000_0001);
        assert_eq!(tanh(1.0).to_bits(), 0x3f42_f7d6);
    }

    #[test]
    fn is_odd() {
        for bits in (0..0x7f80_0000).step_by(65_537) {
            let x = f32::from_bits(bits);
            assert_eq!(tanh(-x).to_bits(), tanh(x).to_bits() | 0x8000_0000);
        }
    }
}
