//! What can go wrong with a state in a file.

use std::io;
use std::path::{Path, PathBuf};

use k3_config::Bytes;
use k3_formats::{FormatError, SnapshotFault};
use k3_io::IoError;

/// Why a state was not saved or not loaded. A run can go on without.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// The system refused.
    #[error(
        "{}: cannot {action}: {source}; choose another directory, or run without saved states",
        path.display()
    )]
    System {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The disk has too little room, also without the other entries.
    #[error(
        "{}: {} are needed, but the disk has {} free; free some, or choose another directory",
        path.display(), Bytes(*needed_bytes), Bytes(*available_bytes)
    )]
    DiskFull {
        /// The file or directory.
        path: PathBuf,
        /// Bytes that were to be written, with what is kept free.
        needed_bytes: u64,
        /// Bytes that were free.
        available_bytes: u64,
    },
    /// Another process makes room and does not get done.
    #[error(
        "{}: locked by another process for {wait_seconds} s; end that process if it is stopped",
        path.display()
    )]
    Busy {
        /// The lock.
        path: PathBuf,
        /// How long was waited.
        wait_seconds: u64,
    },
    /// A file could not be opened.
    #[error(transparent)]
    Open(#[from] IoError),
    /// A saved conversation is damaged, or is of something else.
    #[error(transparent)]
    File(FormatError),
    /// An entry of the cache was damaged. It was taken away: ask for a shorter one.
    #[error("{0}; this entry of the prefix cache was taken away")]
    Damaged(FormatError),
    /// No file can hold this state.
    #[error("the state cannot be saved: {0}")]
    Refused(#[from] SnapshotFault),
    /// Who gives or takes the state failed; the file is not at fault.
    #[error("{}: the state could not be {action}: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The state took fewer bytes than the file has.
    #[error(
        "{}: the state took {taken_bytes} of {payload_bytes} bytes; it is of another model or \
         version: remove the file", path.display()
    )]
    NotTaken {
        /// The file.
        path: PathBuf,
        /// Bytes of state in the file.
        payload_bytes: u64,
        /// Bytes that were taken.
        taken_bytes: u64,
    },
}

impl PrefixError {
    pub(super) fn system(
        path: &Path,
        action: &'static str,
    ) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::System {
            path,
            action,
            source,
        }
    }
}
