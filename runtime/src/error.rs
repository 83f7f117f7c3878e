//! What can go wrong in a run.

use std::path::PathBuf;

use k3_config::Bytes;
use k3_formats::FormatError;
use k3_io::IoError;
use k3_models::ModelError;

use crate::memory::MemoryNeed;
use crate::prefix::PrefixError;
use crate::sampler::SampleError;

/// Why a run could not start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Reading a file failed.
    #[error(transparent)]
    Io(IoError),
    /// A file is not what it should be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The model could not be bound or a sweep failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Weights, state and buffers are more than the machine has.
    #[error(
        "{path}: {} of memory are needed ({} of weights, {} of state, {} of buffers), but \
         {available} are available; use a machine with more memory, limit the model with \
         --layers, or lower --gen or --chunk",
        Bytes(.need.total_bytes()), Bytes(.need.weights_bytes), Bytes(.need.state_bytes),
        Bytes(.need.workspace_bytes)
    )]
    DoesNotFit {
        /// The checkpoint.
        path: PathBuf,
        /// Bytes needed.
        need: MemoryNeed,
        /// Bytes available.
        available: Bytes,
    },
    /// A packed trunk whose blocks are cut in another way.
    #[error(
        "{}: the block at offset {offset} of shard {shard} should have {rows} rows of {cols} \
         columns, but {}; it was packed by a version that cuts the trunk in another way: pack it \
         again with the k3-pack of this version", path.display(), found_block(*found)
    )]
    TrunkBlocks {
        /// A file of the trunk.
        path: PathBuf,
        /// The shard.
        shard: u16,
        /// First byte of the block in the shard.
        offset: u64,
        /// Its rows.
        rows: u32,
        /// Its columns.
        cols: u32,
        /// Rows and columns of the block that starts there, if any does.
        found: Option<(u32, u32)>,
    },
    /// A raw trunk that does not belong to the checkpoint.
    #[error(
        "{}: {what} in the trunk is {found}, but in the checkpoint {expected}; name the trunk \
         that was made from this checkpoint, or run without it",
        path.display()
    )]
    ForeignTrunk {
        /// The description of the trunk, or the trunk.
        path: PathBuf,
        /// What differs: the tensor or matrix, and which field of it.
        what: String,
        /// What the trunk says.
        found: String,
        /// What the checkpoint says.
        expected: String,
    },
    /// A sequence longer than any session serves.
    #[error("a context of {count} positions is outside 1..={max}; lower --gen")]
    ContextPositions {
        /// What was asked.
        count: usize,
        /// Upper bound.
        max: usize,
    },
    /// Fewer positions for all sequences than one may reach.
    #[error(
        "--context-total {total} is less than the {context} positions that one sequence needs; ask \
         for {context} or more"
    )]
    ContextTotal {
        /// Positions of all sequences.
        total: usize,
        /// Positions of one.
        context: usize,
    },
    /// More sequences than a scheduler runs.
    #[error("{count} sequences at a time are outside 1..={max}")]
    Sequences {
        /// What was asked.
        count: usize,
        /// Upper bound.
        max: usize,
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
    /// No token could be drawn.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A saved conversation could not be taken up.
    #[error(transparent)]
    State(#[from] PrefixError),
    /// The source of weights failed.
    #[error(transparent)]
    Source(Box<dyn std::error::Error + Send + Sync>),
    /// The run was asked to stop; checked between pieces of a load and between
    /// the blocks of a sweep.
    #[error("interrupted")]
    Cancelled,
}

/// One error of a file's content, whoever met it.
impl From<IoError> for RunError {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Format(error) => Self::Format(error),
            other => Self::Io(other),
        }
    }
}

fn found_block(found: Option<(u32, u32)>) -> String {
    match found {
        Some((rows, cols)) => format!("has {rows} of {cols}"),
        None => "no block starts there".to_owned(),
    }
}
