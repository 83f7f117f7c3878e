//! Activations of an MXFP4 product as integers, where they allow exact sums.
//!
//! # Why integers may replace f64 sums
//!
//! Let the 32 activations of a group be `x_i = n_i * 2^q` with integers `|n_i| <
//! 2^38`, and the weights `w_i = W_i / 2` with integers `|W_i| <= 12`. Every
//! partial sum of products, in any order, is an integer times `2^(q-1)`, below
//! `32 * 12 * 2^38 < 2^47` in magnitude. f64 holds integers to `2^53`, and
//! `q - 1 >= -150`, so every f64 addition of the definition is exact, and any
//! other exact way of summing gives the same value. Its sign when it is zero
//! does not matter: it is added to an accumulator that starts at +0.0 and so
//! never is -0.0.
//!
//! An f32 is `m * 2^(e-150)` with `m < 2^24` and `1 <= e <= 254` (subnormals
//! have `e = 1`). With `q` the least `e - 150` of the group's values other than
//! zero, `n_i < 2^24 * 2^(e_i - e_min)`: a group qualifies if its exponents
//! differ by at most 14. Infinities and NaNs never qualify.
//!
//! # Digits
//!
//! `n_i` is written as five digits of base 256 in `-128..=127`: each is the
//! value modulo 256 as a signed byte, and what remains is divided by 256. The
//! last digit is at most `(2^38 + 128 * (2^32 - 1) / 255) / 2^32 < 65` in
//! magnitude, and nothing remains after it. A body multiplies digits by `W + 12`
//! (0..=24, an unsigned byte) and starts its sum at `-12 * sum of digits`. For
//! each digit all partial sums of `(W_i + 12) * d_i` are at most `24 * 128 * 32
//! = 98,304` in magnitude, the start 49,152, and the result `sum of W_i * d_i`
//! at most 49,152 (24,960 for the last digit).

use super::mxfp4::MXFP4_GROUP;

/// Digits of an activation.
pub(crate) const DIGITS: usize = 5;

/// Largest difference of exponents that a group may have.
const EXPONENT_SPAN: u32 = 14;

/// One group of 32 activations, prepared for products with MXFP4 weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Mxfp4Group {
    /// By digit, lowest first. Byte `8 k + t` belongs to element `8 k + 2 t` for
    /// `t < 4` and to `8 k + 2 (t - 4) + 1` above: the order of nibbles in
    /// 32-bit words of packed weights, even elements first.
    pub(crate) digits: [[i8; MXFP4_GROUP]; DIGITS],
    /// `-12 * sum of digits`, by digit.
    pub(crate) starts: [i32; DIGITS],
    /// What to add to a scale byte for the exponent field of `2^(q - 1 + scale -
    /// 127)` in f64; zero if the group does not qualify. Between 746 and 999, so
    /// that the field lies between 746 and 1,253: normal values.
    pub(crate) exponent: i64,
}

/// Checks `x` against its prepared groups.
#[inline]
pub(crate) fn check_prepared(x: &[f32], prepared: &[Mxfp4Group]) {
    assert_eq!(
        Some(x.len()),
        prepared.len().checked_mul(MXFP4_GROUP),
        "{} values do not match {} prepared groups of 32",
        x.len(),
        prepared.len()
    );
}

/// Prepares `x: [groups][32]`.
///
/// # Panics
/// If the lengths disagree.
#[inline(always)]
pub(crate) fn mxfp4_prepare(x: &[f32], prepared: &mut [Mxfp4Group]) {
    check_prepared(x, prepared);
    for (x, group) in x.as_chunks().0.iter().zip(prepared) {
        prepare_group(x, group);
    }
}

/// Exponent, at least 1, and significand of an f32 that is finite.
#[inline(always)]
fn parts(x: f32) -> (u32, u32) {
    let bits = x.to_bits();
    let field = bits >> 23 & 255;
    let implicit = u32::from(field != 0) << 23;
    (field.max(1), bits & 0x007F_FFFF | implicit)
}

#[inline(always)]
fn prepare_group(x: &[f32; MXFP4_GROUP], group: &mut Mxfp4Group) {
    // A zero has any exponent; 255 means infinity or NaN.
    let mut least = u32::MAX;
    let mut largest = 0;
    for &x in x {
        let (exponent, significand) = parts(x);
        let zero = significand == 0;
        least = least.min(if zero { u32::MAX } else { exponent });
        largest = largest.max(if zero { 0 } else { exponent });
    }
    if largest == 255 || largest > least.saturating_add(EXPONENT_SPAN) {
        group.exponent = 0;
        return;
    }
    let mut rest = [0_i64; MXFP4_GROUP];
    for (rest, &x) in rest.iter_mut().zip(x) {
        let (exponent, significand) = parts(x);
        // A zero may have a smaller exponent than the least.
        let n = i64::from(significand) << exponent.saturating_sub(least);
        *rest = if x.is_sign_negative() { -n } else { n };
    }
    for (digits, start) in group.digits.iter_mut().zip(&mut group.starts) {
        let mut sum = 0;
        for (i, rest) in rest.iter_mut().enumerate() {
            let [low, ..] = rest.to_le_bytes();
            let digit = i8::from_le_bytes([low]);
            *rest = (*rest - i64::from(digit)) >> 8;
            digits[i / 8 * 8 + i % 8 / 2 + 4 * (i % 2)] = digit;
            sum += i32::from(digit);
        }
        *start = -12 * sum;
    }
    debug_assert_eq!(rest, [0; MXFP4_GROUP], "five digits suffice");
    // q - 1 = least - 151, the biases are -127 of the scale and 1023 of f64.
    // A group of zeros may have any exponent.
    let least = if largest == 0 { 1 } else { least };
    group.exponent = i64::from(least) - 151 - 127 + 1023;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The activations as the digits have them, times `2^(150 - least)`.
    fn values(group: &Mxfp4Group) -> [i64; MXFP4_GROUP] {
        std::array::from_fn(|i| {
            let at = i / 8 * 8 + i % 8 / 2 + 4 * (i % 2);
            let digit = |d: usize| i64::from(group.digits[d][at]) << (8 * d);
            (0..DIGITS).map(digit).sum()
        })
    }

    fn prepared(x: [f32; MXFP4_GROUP]) -> Mxfp4Group {
        let mut group = [Mxfp4Group::default()];
        mxfp4_prepare(&x, &mut group);
        group[0]
    }

    #[test]
    fn digits_are_the_activations() {
        // Exponents 14 apart with full significands, subnormals, both zeros.
        let largest = f32::from_bits(128 << 23) - 1.0_f32 / 8_388_608.0;
        for scale in [1.0_f32, f32::MIN_POSITIVE, 2.0_f32.powi(100)] {
            let mut x = [0.0_f32; MXFP4_GROUP];
            for (i, x) in (0_u8..).zip(&mut x) {
                *x = scale * f32::from(i + 1) * 0.123 * if i % 3 == 0 { -1.0 } else { 1.0 };
            }
            x[5] = -0.0;
            x[6] = largest * scale;
            let group = prepared(x);
            assert_ne!(group.exponent, 0);
            // 2^(q - 1), from the exponent with a scale byte of 127.
            let unit = f64::from_bits((group.exponent.unsigned_abs() + 127) << 52);
            for (x, n) in x.iter().zip(values(&group)) {
                assert!(n.abs() < 1 << 38);
                #[allow(clippy::cast_precision_loss, reason = "below 2^38")]
                let value = n as f64 * 2.0 * unit;
                assert_eq!(value, f64::from(*x));
            }
            for (digits, start) in group.digits.iter().zip(group.starts) {
                let sum: i32 = digits.iter().map(|&digit| i32::from(digit)).sum();
                assert_eq!(start, -12 * sum);
            }
        }
    }

    #[test]
    fn a_group_qualifies_up_to_a_span_of_fourteen() {
        let with = |value: f32| {
            let mut x = [1.0_f32; MXFP4_GROUP];
            x[31] = value;
            prepared(x).exponent != 0
        };
        assert!(with(2.0_f32.powi(14)) && with(2.0_f32.powi(-14)));
        assert!(with(32_767.998) && with(0.0) && with(-0.0));
        assert!(!with(2.0_f32.powi(15)) && !with(2.0_f32.powi(-15)));
        assert!(!with(f32::INFINITY) && !with(f32::NAN));
    }

    #[test]
    fn the_extremes_of_five_digits_fit() {
        for significand in [0x00FF_FFFF_u32, 0x0080_0000, 0x00FF_7F7F, 0x0080_8080] {
            for exponent in [15_u32, 114, 254] {
                for sign in [0, 1 << 31] {
                    let at = |exponent: u32| {
                        f32::from_bits(sign | exponent << 23 | significand & 0x007F_FFFF)
                    };
                    let mut x = [at(exponent); MXFP4_GROUP];
                    x[0] = at(exponent - 14);
                    let group = prepared(x);
                    assert_ne!(group.exponent, 0);
                    assert!(group.digits[4].iter().all(|digit| digit.abs() <= 64));
                    let n = i64::from(significand) << 14;
                    let n = if sign == 0 { n } else { -n };
                    assert!(values(&group)[1..].iter().all(|&value| value == n));
                }
            }
        }
    }

    #[test]
    fn zeros_alone_qualify() {
        let group = prepared([0.0; MXFP4_GROUP]);
        assert_ne!(group.exponent, 0);
        assert_eq!(values(&group), [0; MXFP4_GROUP]);
    }
}
