//! The natural logarithm of an f64.

use super::tables::{
    LN_C3, LN_C4, LN_C5, LN_C6, LN_C7, LN_C8, LN_C9, LN_TABLE, LN2_HEAD, LN2_TAIL,
};

/// Mantissas are reduced to `[0.6875, 1.375)`: the pattern of 0.6875.
const OFFSET: u64 = 0x3fe6_0000_0000_0000;
/// 2^54, which makes every subnormal normal.
const SUBNORMAL_SCALE: f64 = 18_014_398_509_481_984.0;
/// Clears the low 27 bits: what is left times a table reciprocal (10 bits) is exact.
const HEAD_MASK: u64 = !((1 << 27) - 1);

/// The natural logarithm, within 0.52 ulp for every positive finite `x`, subnormals included.
///
/// ln64(1) = +0 and ln64(+inf) = +inf. ln64(±0) = -inf; a negative `x` or a NaN gives a NaN of
/// unspecified payload. The bits are the same on every machine: a fixed sequence of f64
/// operations, none fused.
///
/// x = 2^k * m; the table has a short reciprocal c of m's interval and -ln(c) in two parts;
/// ln x = k ln2 - ln c + ln(1 + r), r = m c - 1 in two parts, |r| < 2^-7.
#[must_use]
pub fn ln64(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == f64::INFINITY {
        return f64::INFINITY;
    }
    let (normal, scaled_by) = if x < f64::MIN_POSITIVE {
        (x * SUBNORMAL_SCALE, 54.0)
    } else {
        (x, 0.0)
    };
    let above = normal.to_bits().wrapping_sub(OFFSET);
    let mantissa = normal.to_bits().wrapping_sub(above & (0xfff << 52));
    let k = exponent(above) - scaled_by;
    let [reciprocal, ln_head, ln_tail] = LN_TABLE[interval(above)];

    // r = r_head + r_tail without error: both products and the difference are exact, and the
    // sum is a fast two-sum (its first operand is a multiple of the second's last place).
    let m_head = f64::from_bits(mantissa & HEAD_MASK);
    let m_tail = f64::from_bits(mantissa) - m_head;
    let r_coarse = m_head * reciprocal - 1.0;
    let r_fine = m_tail * reciprocal;
    let r_head = r_coarse + r_fine;
    let r_tail = (r_coarse - r_head) + r_fine;

    // Exact: multiples of 2^-42 below 2^10. That unit is above r_head's last place, so the
    // next two lines are a fast two-sum as well.
    let base = k * LN2_HEAD + ln_head;
    let sum_head = base + r_head;
    let sum_tail = (base - sum_head) + r_head;

    let r2 = r_head * r_head;
    let r4 = r2 * r2;
    let low = (LN_C3 + r_head * LN_C4) + r2 * (LN_C5 + r_head * LN_C6);
    let high = (LN_C7 + r_head * LN_C8) + r2 * LN_C9;
    let series = r_head * r2 * (low + r4 * high) - 0.5 * r2;
    let rest = (k * LN2_TAIL + ln_tail) + (r_tail + series);
    sum_head + (sum_tail + rest)
}

/// The power of two in `above`, the distance of a normal number's pattern from `OFFSET`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "reads the pattern as signed; an arithmetic shift by 52 leaves 12 bits"
)]
fn exponent(above: u64) -> f64 {
    f64::from(((above as i64) >> 52) as i32)
}

/// The table interval: the top seven bits of the mantissa field.
#[allow(
    clippy::cast_possible_truncation,
    reason = "seven bits are left after the mask"
)]
fn interval(above: u64) -> usize {
    ((above >> 45) & 127) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_values() {
        assert_eq!(ln64(1.0).to_bits(), 0);
        assert_eq!(ln64(0.0), f64::NEG_INFINITY);
        assert_eq!(ln64(-0.0), f64::NEG_INFINITY);
        assert_eq!(ln64(f64::INFINITY), f64::INFINITY);
        assert!(ln64(-1.0).is_nan());
        assert!(ln64(f64::NEG_INFINITY).is_nan());
        assert!(ln64(f64::NAN).is_nan());
    }

    #[test]
    fn powers_of_two_round_k_ln2() {
        assert_eq!(ln64(2.0).to_bits(), std::f64::consts::LN_2.to_bits());
        assert_eq!(ln64(0.5), -std::f64::consts::LN_2);
        // 2^-1074 and the largest finite number, from 120-digit arithmetic.
        assert_eq!(ln64(f64::from_bits(1)).to_bits(), 0xc087_4385_446d_71c3);
        assert_eq!(ln64(f64::MAX).to_bits(), 0x4086_2e42_fefa_39ef);
    }
}
