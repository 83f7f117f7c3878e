//! An error on one screen: what, why, and the way out.

use std::error::Error;
use std::fmt::Write as _;

use super::escape;
use super::style::Style;
use crate::error::CliError;

/// Causes shown at most.
const CAUSES_MAX: usize = 8;

/// The error, its chain of causes and what to do about it, in lines of any length.
pub(crate) fn render(error: &CliError, style: Style) -> String {
    if matches!(
        error,
        CliError::Interrupted | CliError::MeasuringInterrupted | CliError::KeptInterrupted(_)
    ) {
        return format!("{error}\n");
    }
    let mut shown = error.to_string();
    let label = style.error("error:");
    let mut text = format!("{label} {}\n", escape::message(&shown));
    let mut cause = error.source();
    for _ in 0..CAUSES_MAX {
        let Some(source) = cause else { break };
        let message = source.to_string();
        // Some errors repeat their cause in their own words.
        if !shown.contains(&message) {
            let _ = writeln!(text, "  cause: {}", escape::message(&message));
        }
        shown.push_str(&message);
        cause = source.source();
    }
    if let Some(table) = error.table() {
        let _ = write!(text, "\n{table}");
    }
    if let Some(way_out) = error.way_out() {
        let way_out = escape::message(&way_out);
        let _ = writeln!(text, "\n  {} {way_out}", style.hint("way out:"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn shows_message_cause_and_way_out() {
        let error = CliError::NotWritable {
            path: PathBuf::from("x/run.json"),
            named: Some("--out"),
            source: io::Error::other("the disk is on fire"),
        };
        assert_eq!(
            render(&error, Style::plain()),
            "error: x/run.json: cannot be written (--out)\n  cause: the disk is on fire\n\n  \
             way out: check that the directory exists, may be written and has room\n"
        );
    }

    #[test]
    fn a_transparent_error_is_shown_once() {
        let inner = k3_runtime::RunError::ThreadCount { count: 0, max: 256 };
        let text = render(&CliError::Run(inner), Style::plain());
        assert_eq!(text.matches("--threads").count(), 1, "{text}");
    }

    #[test]
    fn names_from_files_cannot_steer_the_terminal() {
        let error = CliError::NotWritable {
            path: PathBuf::from("x\u{1b}[2J\n\n  way out: do harm"),
            named: None,
            source: io::Error::other("\u{1b}]0;title\u{7}"),
        };
        let text = render(&error, Style::plain());
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert_eq!(text.matches("\n  way out:").count(), 1, "{text}");
    }
}
