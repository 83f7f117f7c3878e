//! Values of options that need more than `FromStr`.

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{
    PathBufValueParser, PossibleValue, RangedU64ValueParser, StringValueParser, TypedValueParser,
};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use k3_config::{Bytes, IsaChoice};
use k3_kernels::Isa;
use k3_models::kimi_k3::AttentionForm;

/// A count between `min` and `max`, both included.
pub(crate) fn count(min: u64, max: u64) -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(min..=max)
}

/// The instruction sets this processor runs, slowest first.
pub(crate) fn available_isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// The name of an instruction set that this processor runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IsaParser;

impl TypedValueParser for IsaParser {
    type Value = Isa;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Isa, clap::Error> {
        let text = value.to_string_lossy();
        let parsed = text.parse::<Isa>().ok().filter(|isa| isa.is_available());
        parsed.ok_or_else(|| {
            let names = available_isas().map(|isa| isa.name().to_owned()).collect();
            invalid(command, arg, &text, names)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Isa::ALL
                .into_iter()
                .map(|isa| PossibleValue::new(isa.name())),
        ))
    }
}

/// The same, or `auto`: the best of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IsaChoiceParser;

impl TypedValueParser for IsaChoiceParser {
    type Value = IsaChoice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<IsaChoice, clap::Error> {
        let text = value.to_string_lossy();
        let isa = text.parse::<Isa>().ok().filter(|isa| isa.is_available());
        match isa {
            Some(isa) => Ok(isa_choice(isa)),
            None if text == AUTO => Ok(IsaChoice::Auto),
            None => {
                let names = available_isas().map(Isa::name);
                let names = [AUTO].into_iter().chain(names).map(str::to_owned);
                Err(invalid(command, arg, &text, names.collect()))
            }
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = Isa::ALL.into_iter().map(Isa::name);
        Some(Box::new(
            [AUTO].into_iter().chain(names).map(PossibleValue::new),
        ))
    }
}

/// The best instruction set here.
const AUTO: &str = "auto";

fn isa_choice(isa: Isa) -> IsaChoice {
    match isa {
        Isa::Scalar => IsaChoice::Scalar,
        Isa::Avx2 => IsaChoice::Avx2,
        Isa::Avx512 => IsaChoice::Avx512,
    }
}

/// The name of a form of attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionParser;

impl AttentionParser {
    const ALL: [AttentionForm; 2] = [AttentionForm::Latent, AttentionForm::Expanded];
}

impl TypedValueParser for AttentionParser {
    type Value = AttentionForm;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<AttentionForm, clap::Error> {
        let text = value.to_string_lossy();
        text.parse().map_err(|_| {
            let names = Self::ALL.map(|form| form.name().to_owned()).to_vec();
            invalid(command, arg, &text, names)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Self::ALL
                .into_iter()
                .map(|form| PossibleValue::new(form.name())),
        ))
    }
}

/// One of `names`, which [`FromStr`] knows, so that shells can offer them.
pub(crate) fn named<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    Named {
        parser: StringValueParser::new().try_map(|text| text.parse::<T>()),
        names,
    }
}

/// A parser, and what may be offered.
#[derive(Debug, Clone)]
struct Named<P> {
    parser: P,
    names: &'static [&'static str],
}

impl<P: TypedValueParser> TypedValueParser for Named<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

/// clap's own "invalid value" error with the values that would do.
fn invalid(
    command: &clap::Command,
    arg: Option<&clap::Arg>,
    text: &str,
    valid: Vec<String>,
) -> clap::Error {
    let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
    let name = arg.map(ToString::to_string).unwrap_or_default();
    error.insert(ContextKind::InvalidArg, ContextValue::String(name));
    error.insert(
        ContextKind::InvalidValue,
        ContextValue::String(text.to_owned()),
    );
    error.insert(ContextKind::ValidValue, ContextValue::Strings(valid));
    error
}

/// A size of at least one byte.
pub(crate) fn positive_bytes(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(Bytes(0)) => Err("a size is at least one byte".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(k3_config::ParseBytesError::to_string(&error)),
    }
}

/// Least and largest file that is written to measure a disk: less than the
/// first fits into a drive's own cache, more than the second only wears it.
const SCRATCH_BYTES: std::ops::RangeInclusive<u64> = 64_000_000..=64_000_000_000;

/// The size of a file to measure a disk with.
pub(crate) fn scratch_bytes(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text
        .parse()
        .map_err(|error: k3_config::ParseBytesError| error.to_string())?;
    if SCRATCH_BYTES.contains(&bytes.0) {
        Ok(bytes)
    } else {
        Err("a size between 64M and 64G (2G is a good choice)".to_owned())
    }
}

/// A number that the type can tell from infinity and, unless it is 0, from 0:
/// neither may come from rounding.
pub(crate) fn decimal<N: FromStr + Copy + Into<f64>>(text: &str) -> Result<N, String> {
    let number: N = text.parse().map_err(|_| "not a number".to_owned())?;
    let wide: f64 = number.into();
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = !digits.contains(|digit| matches!(digit, '1'..='9'));
    if !wide.is_finite() {
        Err("not a finite number, or too large to be told from infinity".to_owned())
    } else if wide == 0.0 && !is_zero {
        Err("too small to be told from 0".to_owned())
    } else {
        Ok(number)
    }
}

/// The path of an output: a file, which `-` is not.
pub(crate) fn output_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if path == Path::new("-") {
            Err(
                "outputs are files: --json prints the report on standard output, and a file of \
                 that name is ./-",
            )
        } else {
            Ok(path)
        }
    })
}

/// A ratio to keep to.
pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(ratio) if (1e-3..=1e3).contains(&ratio) => Ok(ratio),
        _ => Err("a ratio is a number from 0.001 to 1000".to_owned()),
    }
}

/// Processor time of a token.
pub(crate) fn core_seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if (1e-9..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.000000001 to 1000000".to_owned()),
    }
}

/// A short time.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if (1e-3..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.001 to 60".to_owned()),
    }
}

/// A rate above zero, in 10^9 bytes per second.
pub(crate) fn gigabytes_per_second(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if (1e-6..=1e6).contains(&rate) => Ok(rate),
        _ => Err("a rate is a number from 0.000001 to 1000000, in GB per second".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_never_become_zero_or_infinite_by_rounding() {
        assert_eq!(decimal::<f32>("0.8"), Ok(0.8));
        for zero in ["0", "0.0", "0e5", ".0", "-0"] {
            assert_eq!(decimal::<f32>(zero), Ok(0.0), "{zero}");
        }
        assert_eq!(decimal::<f32>("1e-45"), Ok(f32::from_bits(1)));
        for small in ["1e-50", "0.0001e-46", "1e-400"] {
            assert!(decimal::<f32>(small).unwrap_err().contains("0"), "{small}");
        }
        for wrong in ["1e39", "inf", "-inf", "nan", "", "1,5", "x"] {
            assert!(decimal::<f32>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(decimal::<f64>("1e-50"), Ok(1e-50));
        assert!(decimal::<f64>("1e-400").is_err());
    }
}
