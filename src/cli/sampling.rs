//! Options that shape what is drawn and where it ends.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments here are help texts, brackets included"
)]

use std::fmt;

use clap::Args;

use super::values;

/// Most alternatives that are told of a token.
pub(crate) const LOGPROBS_MAX: u64 = 20;

/// What is drawn beside temperature and filters, and where it ends.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Generation")]
pub(crate) struct ShapingArgs {
    /// Damp ids in prompt or output by R [default: 1]
    ///
    /// A logit above 0 is divided by R, another one multiplied with it: above 1
    /// repetition becomes less likely, below 1 more.
    #[arg(long, value_name = "R", value_parser = values::decimal::<f32>, allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,

    /// Take F off per time an id is in the output [default: 0]
    ///
    /// Counts what has been generated, not the prompt; below 0 it adds.
    #[arg(long, value_name = "F", value_parser = values::decimal::<f32>, allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,

    /// Take P off ids that are in the output [default: 0]
    ///
    /// Once, however often they are there; below 0 it adds.
    #[arg(long, value_name = "P", value_parser = values::decimal::<f32>, allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,

    /// Add VALUE to the logit of ID (repeatable)
    ///
    /// Several with commas between, as in 42=-1.5,7=2. The value -inf bans an
    /// id: it is never drawn. Comes after the penalties and, as they do, before
    /// the temperature.
    #[arg(
        long,
        value_name = "ID=VALUE",
        value_parser = bias,
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub logit_bias: Vec<Bias>,

    /// End before TEXT (repeatable)
    ///
    /// Looked for in the generated text alone, across tokens, before it is
    /// shown; neither TEXT nor what follows is. Of several the one that ends
    /// first counts. \n, \t and \\ stand for a line end, a tab and a backslash.
    /// Needs a vocabulary.
    #[arg(long, value_name = "TEXT", value_parser = stop_string, allow_hyphen_values = true)]
    pub stop: Vec<String>,

    /// End after the token ID (repeatable)
    ///
    /// Beside those that end a message, and also with --ignore-eos. Several with
    /// commas between.
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    pub stop_id: Vec<u32>,

    /// Report each token's logprob and N alternatives
    ///
    /// Natural logarithms of the model's own probabilities, before penalties,
    /// bias, temperature and filters: of the token, and of the N likeliest, at
    /// most 20. They are in the report of --json and --out; with k3 batch in the
    /// line of the answer.
    #[arg(long, value_name = "N", value_parser = values::count(0, LOGPROBS_MAX), allow_negative_numbers = true)]
    pub logprobs: Option<u64>,
}

/// What is added to the logit of an id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bias {
    /// The id.
    pub id: u32,
    /// What is added; minus infinity bans the id.
    pub value: f32,
}

impl fmt::Display for Bias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.id, self.value)
    }
}

fn bias(text: &str) -> Result<Bias, String> {
    let (id, value) = text
        .split_once('=')
        .ok_or("not ID=VALUE, as in 42=-1.5; -inf bans the id")?;
    let id = id.trim().parse();
    let id = id.map_err(|_| "before the = stands a token id, a whole number from 0 up")?;
    let value = match value.trim() {
        "-inf" => f32::NEG_INFINITY,
        value => values::decimal(value)?,
    };
    Ok(Bias { id, value })
}

/// The text that a stop string stands for.
fn stop_string(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("an empty text ends everything before it begins".to_owned());
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        plain.push(match next {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('\\') => '\\',
                _ => return Err(r"a backslash begins one of \n, \t and \\".to_owned()),
            },
            plain => plain,
        });
    }
    Ok(plain)
}

/// How a stop string is written so that [`stop_string`] gives it back.
pub(crate) fn escaped_stop_string(plain: &str) -> String {
    plain.replace('\\', r"\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_is_an_id_and_a_number() {
        for (text, id, value) in [
            ("42=-1.5", 42, -1.5),
            (" 0 = 2e3 ", 0, 2000.0),
            ("7=-inf", 7, f32::NEG_INFINITY),
        ] {
            assert_eq!(bias(text), Ok(Bias { id, value }), "{text}");
        }
        let said = Bias {
            id: 7,
            value: f32::NEG_INFINITY,
        };
        assert_eq!(bias(&said.to_string()), Ok(said));
        for wrong in ["", "42", "=1", "x=1", "-1=1", "4294967296=1", "1=", "1=x"] {
            assert!(bias(wrong).is_err(), "{wrong}");
        }
        for wrong in ["1=inf", "1=nan", "1=-nan", "1=1e39", "1=2=3", "1=-Infinity"] {
            assert!(bias(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn escapes_of_a_stop_string() {
        for (text, plain) in [
            ("a", "a"),
            (r"\n\nUser:", "\n\nUser:"),
            (r"a\tb\\n", "a\tb\\n"),
            ("あ", "あ"),
            ("real\nline", "real\nline"),
        ] {
            assert_eq!(stop_string(text).as_deref(), Ok(plain), "{text}");
            let again = stop_string(&escaped_stop_string(plain));
            assert_eq!(again.as_deref(), Ok(plain), "{text}");
        }
        for wrong in ["", r"\", r"a\", r"\x41", r"\\\"] {
            assert!(stop_string(wrong).is_err(), "{wrong}");
        }
    }
}
