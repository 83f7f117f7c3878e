//! Byte counts that print in both unit systems and parse from either.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
///
/// `G` is 10^9 and `Gi` is 2^30; both are printed, because drives are sold in
/// one and memory limits are set in the other.
///
/// ```
/// use k3_config::Bytes;
/// let budget: Bytes = "1.5Gi".parse().unwrap();
/// assert_eq!(budget, Bytes(1_610_612_736));
/// assert_eq!(budget.to_string(), "1.61 GB (1.50 GiB)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Why a text is not a byte count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a size: {reason} (write for example 8G, 1.5GiB, 512MiB or 1000000)")]
pub struct ParseBytesError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

const UNITS: [(&str, u64); 8] = [
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("KI", 1 << 10),
    ("MI", 1 << 20),
    ("GI", 1 << 30),
    ("TI", 1 << 40),
];

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |reason| ParseBytesError {
            text: text.to_owned(),
            reason,
        };
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim().to_ascii_uppercase();
        let unit = unit.strip_suffix('B').unwrap_or(&unit);
        if let Some(reason) = no_number(number, unit) {
            return Err(fail(reason));
        }
        let scale = match unit {
            "" => 1,
            other => UNITS
                .iter()
                .find(|(name, _)| *name == other)
                .map(|(_, scale)| *scale)
                .ok_or_else(|| fail("the unit is not one of K M G T Ki Mi Gi Ti"))?,
        };
        parse_scaled(number, scale)
            .map(Bytes)
            .ok_or_else(|| fail("the number is malformed or beyond 64 bits"))
    }
}

/// What is wrong with the number itself, whatever unit follows it.
fn no_number(number: &str, rest: &str) -> Option<&'static str> {
    let is_signed = |sign| number.is_empty() && rest.starts_with(sign);
    let exponent = rest.strip_prefix('E').unwrap_or_default();
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if is_signed('-') {
        Some("it is below 0")
    } else if is_signed('+') {
        Some("a number has no sign")
    } else if number.is_empty() {
        Some("it does not begin with a number")
    } else if exponent.starts_with(|c: char| c.is_ascii_digit()) {
        Some("powers of ten are written as a unit or in full")
    } else {
        None
    }
}

/// Decimal `number` times `scale`, rounded down, in integers throughout: a
/// float would lose the last bytes of large budgets.
pub(crate) fn parse_scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits_ok = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !digits_ok(whole) || !digits_ok(fraction) || fraction.len() > 12 {
        return None;
    }
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut total = whole.checked_mul(u128::from(scale))?;
    if !fraction.is_empty() {
        let digits = u32::try_from(fraction.len()).ok()?;
        let value: u128 = fraction.parse().ok()?;
        total += value * u128::from(scale) / 10u128.pow(digits);
    }
    u64::try_from(total).ok()
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        if bytes < 1_000 {
            return write!(f, "{bytes} B");
        }
        let decimal = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
        let binary = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let pick = |units: [(u64, &'static str); 3]| {
            let (scale, name) = units
                .into_iter()
                .find(|(scale, _)| bytes >= *scale)
                .unwrap_or(units[2]);
            // Two decimals, rounded to nearest, without leaving integers.
            let hundredths = (u128::from(bytes) * 100 + u128::from(scale) / 2) / u128::from(scale);
            (hundredths / 100, hundredths % 100, name)
        };
        let (dw, df, dn) = pick(decimal);
        let (bw, bf, bn) = pick(binary);
        write!(f, "{dw}.{df:02} {dn} ({bw}.{bf:02} {bn})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: Option<u64>) {
        assert_eq!(text.parse::<Bytes>().ok().map(|b| b.0), want, "{text}");
    }

    #[test]
    fn parses_both_unit_systems() {
        check("0", Some(0));
        check("1000000", Some(1_000_000));
        check("8G", Some(8_000_000_000));
        check("8 GB", Some(8_000_000_000));
        check("1.5GiB", Some(1_610_612_736));
        check("1.5gi", Some(1_610_612_736));
        check(".5K", Some(500));
        check("0.3T", Some(300_000_000_000));
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in [
            "",
            "G",
            ".",
            "-1",
            "1e9",
            "8X",
            "1.2.3",
            "99999999999T",
            "1 G B",
        ] {
            check(text, None);
        }
        let error = "8X".parse::<Bytes>().unwrap_err().to_string();
        assert!(error.contains("8X") && error.contains("1.5GiB"), "{error}");
    }

    #[test]
    fn says_what_is_wrong() {
        let check = |text: &str, what: &str| {
            let error = text.parse::<Bytes>().unwrap_err();
            assert!(error.reason.contains(what), "{text}: {error}");
        };
        for below in ["-1", "-8G", " -1"] {
            check(below, "below 0");
        }
        check("+8G", "sign");
        for none in ["", "G", "nan", "inf", "x8"] {
            check(none, "does not begin with a number");
        }
        for power in ["1e9", "1.5E+3", "2e-1G"] {
            check(power, "powers of ten");
        }
        for unit in ["8X", "1 G B", "8EB", "1G9"] {
            check(unit, "unit is not one of");
        }
        for number in [".", "1.2.3", "99999999999T"] {
            check(number, "malformed or beyond");
        }
    }

    #[test]
    fn prints_both_units_rounded() {
        assert_eq!(Bytes(999).to_string(), "999 B");
        assert_eq!(Bytes(1_000).to_string(), "1.00 kB (0.98 KiB)");
        assert_eq!(Bytes(17_547_264).to_string(), "17.55 MB (16.73 MiB)");
    }
}
