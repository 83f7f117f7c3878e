//! Text of a file in messages: escaped, so that it cannot steer a terminal,
//! and cut off, so that it cannot drown the message.

use std::fmt::{self, Write};

/// Characters shown of one name or value.
const SHOWN_CHARS_MAX: usize = 120;

/// Characters shown of a parser's message, which may quote the file.
const DETAIL_CHARS_MAX: usize = 400;

/// Names shown of a list.
const LISTED_MAX: usize = 20;

/// A piece of a file's text, ready for a message.
pub(crate) struct Shown<'a> {
    text: &'a str,
    chars_max: usize,
    is_quoted: bool,
}

/// A name or value between quotation marks.
pub(crate) fn quoted(text: &str) -> Shown<'_> {
    Shown {
        text,
        chars_max: SHOWN_CHARS_MAX,
        is_quoted: true,
    }
}

/// A name or value without quotation marks.
pub(crate) fn plain(text: &str) -> Shown<'_> {
    Shown {
        is_quoted: false,
        ..quoted(text)
    }
}

/// A whole sentence with text of the file in it.
pub(crate) fn sentence(text: &str) -> Shown<'_> {
    Shown {
        chars_max: DETAIL_CHARS_MAX,
        ..plain(text)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_quoted {
            formatter.write_char('"')?;
        }
        let mut rest = self.text.chars();
        for character in rest.by_ref().take(self.chars_max) {
            match character {
                // Of the visible characters only these matter, and only between marks.
                '"' | '\\' if !self.is_quoted => formatter.write_char(character)?,
                '\'' => formatter.write_char(character)?,
                other => write!(formatter, "{}", other.escape_debug())?,
            }
        }
        if rest.next().is_some() {
            formatter.write_char('…')?;
        }
        if self.is_quoted {
            formatter.write_char('"')?;
        }
        Ok(())
    }
}

/// Names with commas between, as [`plain`].
pub(crate) struct Listed<'a>(&'a [String]);

/// The first names of a list and how many follow.
pub(crate) fn listed(names: &[String]) -> Listed<'_> {
    Listed(names)
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().take(LISTED_MAX).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(formatter, "{comma}{}", plain(name))?;
        }
        match self.0.len().saturating_sub(LISTED_MAX) {
            0 => Ok(()),
            more => write!(formatter, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        let hostile = "a\u{1b}[2J\n\u{202e}\u{0}\"\\'é";
        assert_eq!(
            quoted(hostile).to_string(),
            r#""a\u{1b}[2J\n\u{202e}\0\"\\'é""#
        );
        assert_eq!(plain(hostile).to_string(), r#"a\u{1b}[2J\n\u{202e}\0"\'é"#);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let exact = "é".repeat(SHOWN_CHARS_MAX);
        assert_eq!(plain(&exact).to_string(), exact);
        assert_eq!(plain(&format!("{exact}é")).to_string(), format!("{exact}…"));
        let long = "x".repeat(10_000);
        assert_eq!(sentence(&long).to_string().chars().count(), 401);
    }

    #[test]
    fn long_lists_are_counted() {
        let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(listed(&names(2)).to_string(), "0, 1");
        assert!(listed(&names(20)).to_string().ends_with(", 19"));
        assert!(listed(&names(23)).to_string().ends_with(", 19 and 3 more"));
    }
}
