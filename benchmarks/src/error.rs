//! Why a measure could not be taken.

use k3_config::{Bytes, Headroom};
use k3_io::EngineError;
use k3_runtime::RunError;

/// Why a measure could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The pool could not be started, or a stop was asked for.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The memory for weights could not be had.
    #[error(transparent)]
    Memory(#[from] EngineError),
    /// Weights beyond what the machine has.
    #[error(
        "the measurement takes {bytes}, but this machine has {} to give ({room}): lower --weights \
         (from 1.2G on caches do not matter), or free some memory", .room.bytes
    )]
    NoRoom {
        /// What it takes.
        bytes: Bytes,
        /// What there is, and what says so.
        room: Headroom,
    },
    /// Fewer weights than a kernel takes at once.
    #[error(
        "{bytes} bytes of weights are less than the {least} that a call takes: raise --weights, to \
         1.2G or more so that no cache holds them"
    )]
    TooFewWeights {
        /// What was asked for.
        bytes: usize,
        /// The least.
        least: usize,
    },
    /// Only a pool, and no number of threads above one.
    #[error(
        "nothing to measure: a pool of one thread hands out no jobs; give a number of --threads \
         above 1, or another --kernel"
    )]
    Nothing,
    /// A model without experts in MXFP4.
    #[error("nothing to measure: the model has no experts in the layers that are looked at")]
    NoExperts,
}
