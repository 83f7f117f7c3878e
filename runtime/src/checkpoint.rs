//! A checkpoint directory, opened, indexed and ready to be read.

use std::path::{Path, PathBuf};

use k3_formats::{Identity, KimiK3Config, ReadAt, ShardIndex, TensorRef};
use k3_io::{CheckpointFiles, Description, FileReader};
use k3_models::SweepProgram;
use k3_models::kimi_k3::KimiK3Layout;

use crate::error::RunError;
use crate::trunk::{Beside, Checksums, Trunk};

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

/// An open checkpoint: configuration, index and shard files.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    config: KimiK3Config,
    index: ShardIndex,
    identity: Identity,
    /// The shards, then the files of the trunk.
    files: Vec<FileReader>,
    shard_count: usize,
    trunk: Option<Trunk>,
}

impl Checkpoint {
    /// Opens the files at `paths` and indexes every tensor.
    ///
    /// # Errors
    ///
    /// Missing or unreadable files, a configuration that is incomplete or of
    /// another model, and every fault of headers and index.
    pub fn open(paths: &CheckpointPaths) -> Result<Self, RunError> {
        let files = CheckpointFiles::open(&paths.model_dir, &paths.roots)?;
        let Description {
            config,
            index,
            identity,
        } = files.describe(paths.config.as_deref())?;
        Ok(Self {
            path: paths.model_dir.clone(),
            config,
            index,
            identity,
            shard_count: files.shards.len(),
            files: files.shards,
            trunk: None,
        })
    }

    /// The same checkpoint with the trunk that lies in `directories`; with none
    /// of them as it is.
    ///
    /// # Errors
    ///
    /// No trunk there, one that is damaged, incomplete or of another checkpoint.
    pub fn with_trunk(
        mut self,
        directories: &[PathBuf],
        checksums: Checksums,
    ) -> Result<Self, RunError> {
        if directories.is_empty() {
            return Ok(self);
        }
        let beside = Beside {
            model_dir: &self.path,
            index: &self.index,
            identity: &self.identity,
            shards: self.shards(),
        };
        let (trunk, files) = Trunk::open(directories, beside, checksums)?;
        self.files.truncate(self.shard_count);
        self.files.extend(files);
        self.trunk = Some(trunk);
        Ok(self)
    }

    /// The trunk beside the shards, where there is one.
    #[must_use]
    pub fn trunk(&self) -> Option<&Trunk> {
        self.trunk.as_ref()
    }

    /// Says of the blocks of `program` where they are read: unless there is a
    /// trunk of its own, where they are.
    ///
    /// # Errors
    ///
    /// Those of [`Trunk::place`].
    pub fn place(&self, program: &mut SweepProgram) -> Result<(), RunError> {
        match &self.trunk {
            Some(trunk) => trunk.place(program),
            None => Ok(()),
        }
    }

    /// The snapshot's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &KimiK3Config {
        &self.config
    }

    /// Paths of the shards, in the order of their numbers.
    pub fn shard_paths(&self) -> impl Iterator<Item = &Path> {
        self.shards().iter().map(ReadAt::label)
    }

    /// The shards, open, in the order of their numbers.
    #[must_use]
    pub fn shards(&self) -> &[FileReader] {
        &self.files[..self.shard_count]
    }

    /// The shards and the files of the trunk, open, in the order of the numbers
    /// by which [`k3_models::BlockPlace`] names them.
    #[must_use]
    pub fn files(&self) -> &[FileReader] {
        &self.files
    }

    /// Every tensor of every shard.
    #[must_use]
    pub fn index(&self) -> &ShardIndex {
        &self.index
    }

    /// What makes this checkpoint this one.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Binds the first `layer_limit` layers (all when `None`).
    ///
    /// # Errors
    ///
    /// Tensors that are missing, foreign or of another shape than the
    /// configuration implies.
    pub fn bind(&self, layer_limit: Option<usize>) -> Result<KimiK3Layout, RunError> {
        Ok(KimiK3Layout::bind(
            &self.path,
            &self.config,
            &self.index,
            layer_limit,
        )?)
    }

    /// Fills `out` from `offset` of file `file`, by the numbers of
    /// [`Checkpoint::files`].
    ///
    /// # Errors
    ///
    /// A failed or short read.
    pub fn read(&self, file: u32, offset: u64, out: &mut [u8]) -> Result<(), RunError> {
        Ok(self.files[file as usize].read_exact_at(offset, out)?)
    }

    /// Fills `out` with a whole tensor.
    ///
    /// # Errors
    ///
    /// A failed or short read.
    pub fn read_tensor(&self, tensor: &TensorRef, out: &mut [u8]) -> Result<(), RunError> {
        self.read(tensor.shard.into(), tensor.offset, out)
    }
}
