//! A checkpoint directory, opened and indexed.

use std::path::{Path, PathBuf};

use k3_formats::{
    FormatError, Identity, IdentityHasher, KimiK3Config, ReadAt, ShardIndex, TensorRef,
};
use k3_io::{FileReader, list_shards, read_config, shard_names};
use k3_models::kimi_k3::KimiK3Layout;

use crate::error::RunError;

/// Where the parts of a checkpoint lie.
#[derive(Debug, Clone)]
pub struct CheckpointPaths {
    /// The snapshot's directory.
    pub model_dir: PathBuf,
    /// Further directories that hold shards, searched after the first.
    pub roots: Vec<PathBuf>,
    /// A configuration to use instead of the snapshot's own.
    pub config: Option<PathBuf>,
}
