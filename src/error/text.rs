//! What messages are made of.

use std::error::Error;
use std::io;

use super::CliError;

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text += &format!(": {source}");
        cause = source.source();
    }
    text
}

/// Which variable named a path, in brackets.
pub(super) fn by(variable: Option<&'static str>) -> String {
    variable.map_or_else(String::new, |name| format!(" ({name})"))
}

/// Further errors, one a line.
pub(super) fn also(others: &[CliError]) -> String {
    let lines = others
        .iter()
        .map(|other| format!("\nalso: {}", chain(other)));
    lines.collect()
}

/// Entries below a message, one a line.
pub(super) fn list(entries: &[String]) -> String {
    let lines = entries.iter().map(|entry| format!("\n  - {entry}"));
    lines.collect()
}

/// What to do about an address that cannot be listened on.
pub(super) fn another_address(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::AddrInUse => {
            Some("another program listens there: take another port, or port 0 for any free one")
        }
        io::ErrorKind::AddrNotAvailable => {
            Some("take an address of this machine, as in 127.0.0.1:9464")
        }
        io::ErrorKind::PermissionDenied => Some("take a port from 1024 on"),
        _ => None,
    }
}
