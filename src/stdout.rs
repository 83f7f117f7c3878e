//! Standard output, where data goes: it may be closed or full at any time.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::error::CliError;

/// What standard output is called where outputs have paths.
pub(crate) const STDOUT: &str = "standard output";

/// Writes to standard output and tells a reader that has gone
/// ([`CliError::OutputClosed`]) from one that cannot take more.
#[derive(Debug, Default)]
pub(crate) struct Stdout;

impl Stdout {
    /// Writes all of `bytes` and hands them on at once.
    ///
    /// # Errors
    ///
    /// The reader has gone, or the write fails.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .map_err(fault)
    }

    /// What became of text that somebody else has `written` there.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub(crate) fn finish(&mut self, written: io::Result<()>) -> Result<(), CliError> {
        written.and_then(|()| io::stdout().flush()).map_err(fault)
    }
}

fn fault(source: io::Error) -> CliError {
    if source.kind() == io::ErrorKind::BrokenPipe {
        CliError::OutputClosed
    } else {
        CliError::NotWritable {
            path: PathBuf::from(STDOUT),
            named: None,
            source,
        }
    }
}
