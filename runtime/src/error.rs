//! What can go wrong in a run.

use std::path::PathBuf;

use k3_config::Bytes;
use k3_formats::FormatError;
use k3_io::IoError;
use k3_models::ModelError;

/// Why a run could not start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Reading a file failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A file is not what it should be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The model could not be bound or a sweep failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Every weight in memory is more than the machine has.
    #[error(
        "{path}: keeping every weight in memory needs {needed}, but {available} are available; \
         use a machine with more memory or limit the model with --layers"
    )]
    DoesNotFit {
        /// The checkpoint.
        path: PathBuf,
        /// Bytes needed.
        needed: Bytes,
        /// Bytes available.
        available: Bytes,
    },
    /// A thread count out of range.
    #[error("--threads {count} is outside 1..={max}")]
    ThreadCount {
        /// What was asked.
        count: usize,
        /// Upper bound.
        max: usize,
    },
    /// The system refused to start threads.
    #[error("could not start {count} compute threads: {reason}; lower --threads")]
    ThreadsNotStarted {
        /// How many were wanted.
        count: usize,
        /// The system's reason.
        reason: String,
    },
    /// The run was asked to stop; checked between blocks.
    #[error("interrupted")]
    Cancelled,
}
