//! The checkpoint, cut into blocks.

use std::ops::Range;
use std::path::{Path, PathBuf};

use k3_config::default_block_bytes;
use k3_formats::trunk::PackedBlock;
use k3_formats::{FormatError, Identity, Manifest, ReadAt};
use k3_io::{CheckpointFiles, Description, FileReader, IoError};
use k3_models::kimi_k3::KimiK3Layout;
use k3_models::{Block, SweepProgram};

use super::error::TrunkError;
use crate::error::PackError;

/// Where the parts of a checkpoint lie.
#[derive(Debug, Clone)]
pub struct SourcePaths {
    /// The snapshot's directory.
    pub model: PathBuf,
    /// Further directories that hold shards.
    pub roots: Vec<PathBuf>,
    /// A configuration instead of the snapshot's own.
    pub config: Option<PathBuf>,
}

/// A checkpoint whose trunk is packed or compared.
#[derive(Debug)]
pub struct TrunkSource {
    paths: SourcePaths,
    shards: Vec<FileReader>,
    identity: Identity,
    layout: KimiK3Layout,
    program: SweepProgram,
    block_bytes: u64,
}

impl TrunkSource {
    /// Opens the checkpoint and cuts its trunk into blocks of at most
    /// `block_bytes`, or of what a run would take.
    ///
    /// # Errors
    ///
    /// A checkpoint that cannot be read, is incomplete or not of its
    /// configuration.
    pub fn open(paths: &SourcePaths, block_bytes: Option<u64>) -> Result<Self, PackError> {
        let files = CheckpointFiles::open(&paths.model, &paths.roots)?;
        let Description {
            config,
            index,
            identity,
        } = files.describe(paths.config.as_deref())?;
        let layout = KimiK3Layout::bind(&paths.model, &config, &index, None)?;
        let block_bytes = block_bytes.unwrap_or_else(|| {
            // In the largest blocks there can be: the sum is the same in any.
            let blocks = layout.program(u64::MAX).blocks;
            default_block_bytes(blocks.iter().map(|block| block.bytes).sum())
        });
        Ok(Self {
            paths: paths.clone(),
            identity,
            program: layout.program(block_bytes),
            layout,
            shards: files.shards,
            block_bytes,
        })
    }

    /// The same checkpoint in blocks of at most `block_bytes`.
    #[must_use]
    pub fn recut(self, block_bytes: u64) -> Self {
        Self {
            program: self.layout.program(block_bytes),
            block_bytes,
            ..self
        }
    }

    /// The snapshot's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.paths.model
    }

    /// What makes this checkpoint this one.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Largest block, in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Every block, in sweep order.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.program.blocks
    }

    /// Number of blocks.
    ///
    /// # Panics
    ///
    /// Beyond 2^32 blocks, which no program has.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        u32::try_from(self.blocks().len()).expect("block counts are capped")
    }

    /// Bytes of some blocks in the checkpoint.
    #[must_use]
    pub fn raw_bytes_of(&self, range: Range<u32>) -> u64 {
        let range = range.start as usize..range.end as usize;
        self.blocks()[range].iter().map(|block| block.bytes).sum()
    }

    /// The file that holds a block.
    #[must_use]
    pub fn shard(&self, block: &Block) -> &FileReader {
        &self.shards[usize::from(block.shard)]
    }

    /// The manifest beside the shards, with its path; `None` where there is none.
    ///
    /// # Errors
    ///
    /// One that cannot be read, or is of another checkpoint.
    pub(super) fn manifest(&self) -> Result<Option<(PathBuf, Manifest)>, IoError> {
        k3_io::read_manifest(&self.paths.model, self.identity)
    }

    /// Names of the shards, in the order of their numbers.
    pub(super) fn shard_names(&self) -> Vec<String> {
        self.shards.iter().map(ReadAt::file_name).collect()
    }

    /// Fills `out` with a block's bytes, and leaves none of them in the page
    /// cache.
    ///
    /// # Errors
    ///
    /// A failed or short read.
    pub(super) fn read(&self, block: &Block, out: &mut [u8]) -> Result<(), FormatError> {
        let shard = self.shard(block);
        shard.read_exact_at(block.offset, out)?;
        shard.drop_cache(block.offset, out.len() as u64);
        Ok(())
    }

    /// Checks that no shard has changed its length since it was opened.
    pub(super) fn recheck(&self) -> Result<(), PackError> {
        for shard in &self.shards {
            shard.recheck_len()?;
        }
        Ok(())
    }

    /// Whether `packed` is where and what block `index` is here.
    pub(super) fn matches(&self, index: usize, packed: &PackedBlock) -> bool {
        let block = self.blocks().get(index);
        block.is_some_and(|block| block.is_packed_as(packed))
    }
}

/// A block's rows and columns as counts in memory.
pub(super) fn shape(block: &Block) -> [usize; 2] {
    [block.row_count as usize, block.cols as usize]
}

/// Where a block begins in its matrix, and the length of that, in bytes.
pub(super) fn matrix_span(block: &Block) -> (u64, u64) {
    let row_bytes = block.raw_bytes / u64::from(block.row_count);
    let rows = [block.row_start, block.row_total].map(u64::from);
    (rows[0] * row_bytes, rows[1] * row_bytes)
}

/// A block's length as a count in memory.
pub(super) fn length(block: &Block) -> usize {
    usize::try_from(block.bytes).expect("blocks fit memory")
}

impl From<FormatError> for TrunkError {
    fn from(error: FormatError) -> Self {
        Self::Source(error)
    }
}
