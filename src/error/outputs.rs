//! What to do about outputs that cannot be written.

use std::path::Path;

use k3_integrity::IntegrityError;

use super::CliError;
use crate::stdout::STDOUT;

impl CliError {
    /// What the user can do about an output, where the message does not say so itself.
    pub(super) fn output_way_out(&self) -> Option<String> {
        let text = match self {
            Self::OutputIsInput { .. } => "name another file",
            Self::OutputInCheckpoint { .. } => {
                "name a file that is called otherwise or lies elsewhere"
            }
            Self::SameOutput { .. } => "name two files",
            Self::NotWritable { path, .. } if path == Path::new(STDOUT) => {
                "check that what it goes to has room"
            }
            Self::Integrity(IntegrityError::NotWritable { .. }) => {
                "see that it may be written and has room, and run the same command again: what \
                 is complete by now stays"
            }
            Self::NotWritable { .. } => {
                "check that the directory exists, may be written and has room"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
