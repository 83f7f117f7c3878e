//! How wide the terminal is.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, stderr, stdout};

/// Columns of text for people where nothing says otherwise, and at most.
pub const COLUMNS: usize = 80;
/// Columns below which breaking between words helps nobody.
const COLUMNS_MIN: usize = 20;

/// Where text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Whether a person looks at `stream` on a terminal.
#[must_use]
pub fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Stdout => stdout().is_terminal(),
        Stream::Stderr => stderr().is_terminal(),
    }
}

/// Whether the terminal knows no sequences that move its cursor.
#[must_use]
pub fn is_dumb() -> bool {
    is_dumb_name(std::env::var_os("TERM").as_deref())
}

fn is_dumb_name(term: Option<&OsStr>) -> bool {
    term.is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Columns of the terminal that `stream` is, as it is at this moment; `None` for what
/// is no terminal, does not tell, or is too narrow for words.
#[must_use]
pub fn columns(stream: Stream) -> Option<usize> {
    let size = match stream {
        Stream::Stdout => terminal_size::terminal_size_of(stdout()),
        Stream::Stderr => terminal_size::terminal_size_of(stderr()),
    };
    let columns = usize::from(size?.0.0);
    (columns >= COLUMNS_MIN).then_some(columns)
}

/// Columns that finished text may take on `stream`: those of the terminal, at most
/// [`COLUMNS`].
#[must_use]
pub fn fitting(stream: Stream) -> usize {
    columns(stream).map_or(COLUMNS, |columns| columns.min(COLUMNS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_nothing_is_known_of_is_dumb() {
        for (name, dumb) in [
            (None, true),
            (Some(""), true),
            (Some("dumb"), true),
            (Some("xterm"), false),
        ] {
            assert_eq!(is_dumb_name(name.map(OsStr::new)), dumb, "{name:?}");
        }
    }
}
