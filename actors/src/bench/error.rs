//! What can go wrong in a measurement.

use k3_io::EngineError;
use k3_runtime::RunError;

use crate::error::ActorError;

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The measured run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// An actor could not do its part.
    #[error(transparent)]
    Actor(#[from] ActorError),
    /// A read failed.
    #[error(transparent)]
    Read(#[from] EngineError),
    /// A budget that holds the whole model.
    #[error(
        "at this budget every weight stays in memory after the first sweep: there are no reads \
         to hide; lower the budget (--memory, or what set it; `k3 plan` tells the least)"
    )]
    NothingStreams,
    /// A record that does not hold a whole sweep.
    #[error(
        "the recorded requests of a sweep have {recorded} bytes, but it consumed {consumed}: this \
         is a bug in k3"
    )]
    Record {
        /// Bytes of the requests.
        recorded: u64,
        /// Bytes that the sweep says it took.
        consumed: u64,
    },
}
