//! What can go wrong between actors.

use std::sync::Arc;

use k3_formats::FormatError;
use k3_io::{EngineError, SpillError};

use crate::room::MemoryTaken;

/// Why an actor could not do its part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActorError {
    /// A read failed.
    #[error(transparent)]
    Read(#[from] EngineError),
    /// There is no place for pages that do not stay in memory.
    #[error(transparent)]
    Spill(#[from] SpillError),
    /// A trunk block is not what was packed.
    #[error(transparent)]
    Damaged(Arc<FormatError>),
    /// Others have taken memory that was planned.
    #[error(transparent)]
    MemoryTaken(#[from] MemoryTaken),
    /// The system refused a thread.
    #[error("cannot start thread {name}: {source}; raise the limit of processes (ulimit -u)")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An actor ended before it was told to.
    #[error("{name} has ended unexpectedly: this is a bug in k3; the run cannot go on")]
    Gone {
        /// Name of the thread.
        name: &'static str,
    },
    /// An actor died of a bug.
    #[error("{name} has panicked: this is a bug in k3; its message stands above")]
    Panicked {
        /// Name of the thread.
        name: &'static str,
    },
}
