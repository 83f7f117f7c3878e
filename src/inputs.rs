//! What the user gives to work on: text, ids, and where they come from.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use k3_config::Bytes;

use crate::error::CliError;

/// Most that is read of what is not a regular file, whose end nobody knows.
const STREAM_LIMIT: Bytes = Bytes(256 << 20);

/// Characters of a faulty id that a message quotes.
const QUOTED_CHARS: usize = 24;

/// Why a list is not a list of token ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdsError {
    /// Not a whole number.
    #[error(
        "{origin}: entry {index}, `{text}`, is not a token id: ids are whole numbers from 0 up, \
         separated by commas or blanks"
    )]
    NotANumber {
        /// Option or file.
        origin: String,
        /// Place in the list, from 1.
        index: usize,
        /// The entry.
        text: String,
    },
    /// Two commas without an id between them, or one at an end.
    #[error(
        "{origin}: entry {index} is empty: a comma stands between two ids, so one may be missing"
    )]
    Empty {
        /// Option or file.
        origin: String,
        /// Place in the list, from 1.
        index: usize,
    },
    /// A number that no model has an embedding row for.
    #[error(
        "{origin}: entry {index} is {id}, but this model's vocabulary has {vocab_size} ids, 0 to {}",
        .vocab_size - 1
    )]
    OutOfRange {
        /// Option or file.
        origin: String,
        /// Place in the list, from 1.
        index: usize,
        /// The number.
        id: i128,
        /// Ids of the model.
        vocab_size: usize,
    },
    /// A JSON text that is no array.
    #[error("{origin}: not a JSON array of token ids: {reason}")]
    NotAnArray {
        /// Option or file.
        origin: String,
        /// The parser's reason.
        reason: String,
    },
}

/// Numbers as given; whether a model has them is decided by
/// [`GivenIds::check`], once the model is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GivenIds {
    origin: String,
    numbers: Vec<i128>,
}

impl GivenIds {
    /// Reads ids separated by commas, blanks or line ends, or a JSON array.
    ///
    /// # Errors
    ///
    /// The first entry that is not a whole number, or is not there.
    pub(crate) fn parse(origin: &str, text: &str) -> Result<Self, IdsError> {
        let text = text.trim().trim_start_matches('\u{feff}');
        let numbers = if text.starts_with('[') {
            let values: Vec<serde_json::Value> =
                serde_json::from_str(text).map_err(|error| IdsError::NotAnArray {
                    origin: origin.to_owned(),
                    reason: error.to_string(),
                })?;
            parse_entries(origin, values.iter().map(ToString::to_string))?
        } else {
            parse_entries(origin, separated(origin, text)?.into_iter())?
        };
        Ok(Self {
            origin: origin.to_owned(),
            numbers,
        })
    }

    /// The ids of a model with `vocab_size` of them.
    ///
    /// # Errors
    ///
    /// The first number that is not one.
    pub(crate) fn check(&self, vocab_size: usize) -> Result<Vec<u32>, IdsError> {
        let check = |(index, number): (usize, &i128)| {
            let id = u32::try_from(*number).ok();
            let id = id.filter(|id| usize::try_from(*id).is_ok_and(|id| id < vocab_size));
            id.ok_or_else(|| IdsError::OutOfRange {
                origin: self.origin.clone(),
                index: index + 1,
                id: *number,
                vocab_size,
            })
        };
        self.numbers.iter().enumerate().map(check).collect()
    }
}

/// The entries of a list. Blanks around a comma belong to it.
fn separated(origin: &str, text: &str) -> Result<Vec<String>, IdsError> {
    let mut entries = Vec::new();
    for field in text.split(',') {
        let before = entries.len();
        entries.extend(field.split_whitespace().map(str::to_owned));
        if entries.len() == before && !text.is_empty() {
            return Err(IdsError::Empty {
                origin: origin.to_owned(),
                index: before + 1,
            });
        }
    }
    Ok(entries)
}

fn parse_entries(
    origin: &str,
    entries: impl Iterator<Item = String>,
) -> Result<Vec<i128>, IdsError> {
    let parse = |(index, entry): (usize, String)| {
        entry.parse().map_err(|_| IdsError::NotANumber {
            origin: origin.to_owned(),
            index: index + 1,
            text: quote(&entry),
        })
    };
    entries.enumerate().map(parse).collect()
}

fn quote(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED_CHARS).collect();
    if quoted.len() < text.len() {
        quoted.push('…');
    }
    quoted.escape_debug().to_string()
}

/// A kind of input, with the most that is read of it: a file named by mistake
/// must not fill the memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputKind {
    what: &'static str,
    limit: Bytes,
}

impl InputKind {
    /// Text or ids: a prompt of the longest context is a tenth of this.
    pub(crate) const PROMPT: Self = Self::new("a prompt", 256 << 20);
    /// A trace: a million positions of a full model have 12 GB.
    pub(crate) const TRACE: Self = Self::new("a trace", 16 << 30);
    /// Findings of `k3 verify`: a few hundred bytes for each bad range.
    pub(crate) const FINDINGS: Self = Self::new("findings of `k3 verify`", 1 << 30);
    /// Settings are a page of text.
    pub(crate) const SETTINGS: Self = Self::new("a settings file", 1 << 20);

    const fn new(what: &'static str, bytes: u64) -> Self {
        let limit = Bytes(bytes);
        Self { what, limit }
    }

    /// Everything in `file`, which has `path`.
    ///
    /// # Errors
    ///
    /// More than the limit, and a read that fails. A file that is not regular
    /// may have no end: no more than a prompt is read of one.
    pub(crate) fn read(self, path: &Path, file: File) -> Result<Vec<u8>, CliError> {
        let fail = |source| CliError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let too_large = |what, limit| CliError::InputTooLarge {
            path: path.to_owned(),
            what,
            limit,
        };
        let metadata = file.metadata().map_err(fail)?;
        let (what, limit) = if metadata.is_file() {
            // Known before anything is read.
            if metadata.len() > self.limit.0 {
                return Err(too_large(self.what, self.limit));
            }
            (self.what, self.limit)
        } else if self.limit > STREAM_LIMIT {
            ("what is no regular file", STREAM_LIMIT)
        } else {
            (self.what, self.limit)
        };
        let mut bytes = Vec::new();
        let mut bounded = file.take(limit.0 + 1);
        bounded.read_to_end(&mut bytes).map_err(fail)?;
        if bytes.len() as u64 > limit.0 {
            return Err(too_large(what, limit));
        }
        Ok(bytes)
    }
}

/// The content of a file the user named, or of standard input for `-`.
///
/// # Errors
///
/// A file that cannot be read, or is larger than any of its `kind`.
pub(crate) fn read_bytes(path: &Path, kind: InputKind) -> Result<Vec<u8>, CliError> {
    let (label, file) = if path == Path::new("-") {
        // A second handle of it, as nothing else here reads standard input.
        let input = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        (Path::new("standard input"), input)
    } else {
        (path, File::open(path))
    };
    let file = file.map_err(|source| CliError::Unreadable {
        path: label.to_owned(),
        source,
    })?;
    kind.read(label, file)
}

/// As [`read_bytes`], as the text of a prompt.
///
/// # Errors
///
/// A file that cannot be read, is too large or is not UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<String, CliError> {
    String::from_utf8(read_bytes(path, InputKind::PROMPT)?).map_err(|error| CliError::NotUtf8 {
        path: path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })
}

/// Ids from an option or a file; `None` when neither is given.
///
/// # Errors
///
/// A file that cannot be read, or an entry that is not a number.
pub(crate) fn given_ids(
    list: Option<&str>,
    file: Option<&Path>,
) -> Result<Option<GivenIds>, CliError> {
    match (list, file) {
        (Some(list), _) => Ok(Some(GivenIds::parse("--ids", list)?)),
        (None, Some(file)) => {
            let origin = file.display().to_string();
            Ok(Some(GivenIds::parse(&origin, &read_text(file)?)?))
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Result<Vec<u32>, IdsError> {
        GivenIds::parse("--ids", text)?.check(163_840)
    }

    #[test]
    fn reads_commas_blanks_lines_and_json() {
        for text in [
            "3,4,5",
            "3 4 5",
            " 3, 4,\n5\n",
            "[3, 4, 5]",
            "3 ,4\n,5",
            "\u{feff}3\t4\r\n5",
        ] {
            assert_eq!(ids(text), Ok(vec![3, 4, 5]), "{text:?}");
        }
        assert_eq!(ids(""), Ok(vec![]));
        assert_eq!(ids("[]"), Ok(vec![]));
        assert_eq!(ids("163839"), Ok(vec![163_839]));
    }

    #[test]
    fn an_id_that_is_missing_between_commas_is_told() {
        for (text, place) in [
            ("1,,2", 2),
            (",1", 1),
            ("1,2,", 3),
            ("1, \n ,2", 2),
            (",", 1),
        ] {
            let error = ids(text).unwrap_err();
            assert!(
                matches!(error, IdsError::Empty { index, .. } if index == place),
                "{text:?}: {error:?}"
            );
        }
    }

    #[test]
    fn numbers_outside_the_vocabulary_are_named_with_their_place() {
        for number in [
            "-1",
            "163840",
            "2147483648",
            "4294967296",
            "18446744073709551616",
        ] {
            let error = ids(&format!("0 {number}")).unwrap_err();
            assert!(
                matches!(error, IdsError::OutOfRange { index: 2, .. }),
                "{error:?}"
            );
            let message = error.to_string();
            assert!(
                message.contains(number) && message.contains("163839"),
                "{message}"
            );
        }
    }

    #[test]
    fn what_is_no_number_is_refused_and_quoted_shortly() {
        for text in [
            "3 x",
            "3 4.5",
            "[3, \"4\"]",
            "[3, 4.0]",
            "[3, [4]]",
            "3 0x4",
            "3 1e3",
        ] {
            let error = ids(text).unwrap_err();
            assert!(
                matches!(error, IdsError::NotANumber { index: 2, .. }),
                "{text}: {error:?}"
            );
        }
        assert!(matches!(ids("[3, 4"), Err(IdsError::NotAnArray { .. })));
        let long = ids(&"9".repeat(10_000)).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }
}
