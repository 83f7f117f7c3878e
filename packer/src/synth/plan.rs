//! What a synthetic checkpoint takes, known before anything exists.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use k3_formats::KimiK3Config;
use k3_formats::synth::{Vision, shards};
use nix::sys::statvfs::statvfs;

use super::image::{self, ShardImage};
use super::target::parent;
use crate::error::PackError;

/// Space left free beside a checkpoint that has all its values: whoever makes
/// one wants to run it, and full disks break other programs.
pub const RESERVE_BYTES: u64 = 5_000_000_000;
/// The same beside one with holes.
const SPARSE_RESERVE_BYTES: u64 = 256 << 20;
/// What file systems count space in, mostly.
pub(super) const DISK_BLOCK_BYTES: u64 = 4096;
/// Bytes of a line of the index besides its two names, at most.
const INDEX_LINE_BYTES: u64 = 16;
/// Directory, configuration and what file systems keep per file.
const OVERHEAD_BYTES: u64 = 1 << 20;

/// What is written of the tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Every value.
    Everything,
    /// The vectors' values; the rest are holes, which read as zeros.
    VectorsOnly,
}

/// What to make.
#[derive(Debug, Clone)]
pub struct SynthSettings {
    /// The directory to make.
    pub out: PathBuf,
    /// Sizes of the model.
    pub config: KimiK3Config,
    /// Whether it has a vision tower.
    pub vision: Vision,
    /// What the values follow from.
    pub seed: u64,
    /// What is written.
    pub content: Content,
    /// Whether an existing checkpoint is replaced.
    pub replace: bool,
    /// Threads that generate and write.
    pub threads: NonZeroUsize,
    /// Space to be left free, usually [`RESERVE_BYTES`]; for holes a fixed
    /// smaller one counts if this is larger.
    pub reserve_bytes: u64,
}

/// A checkpoint's sizes.
#[derive(Debug, Clone)]
pub struct SynthPlan {
    settings: SynthSettings,
    tensor_count: usize,
    shard_count: usize,
    tensor_bytes: u64,
    written_bytes: u64,
    disk_bytes: u64,
}

impl SynthPlan {
    /// Adds up all sizes.
    ///
    /// # Errors
    ///
    /// [`PackError::BadTarget`], or [`PackError::NoSpace`] with the figures.
    pub fn new(settings: &SynthSettings) -> Result<Self, PackError> {
        let mut plan = Self {
            settings: settings.clone(),
            tensor_count: 0,
            shard_count: 0,
            tensor_bytes: 0,
            written_bytes: 0,
            disk_bytes: OVERHEAD_BYTES,
        };
        for layout in shards(&settings.config, settings.vision) {
            plan.shard_count += 1;
            plan.tensor_count += layout.tensors.len();
            plan.tensor_bytes += layout.data_bytes();
            let name_bytes = layout
                .tensors
                .iter()
                .map(|tensor| (tensor.name.len() + layout.name.len()) as u64 + INDEX_LINE_BYTES);
            plan.disk_bytes += name_bytes.sum::<u64>();
            let ranges = ShardImage::new(layout).ranges(settings.content);
            plan.written_bytes += ranges.iter().map(image::range_bytes).sum::<u64>();
            plan.disk_bytes += image::disk_bytes(&ranges);
        }
        plan.require_space()?;
        Ok(plan)
    }

    fn require_space(&self) -> Result<(), PackError> {
        let path = parent(&self.settings.out)?;
        let found = statvfs(&path).map_err(|error| match error {
            nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR => {
                PackError::NoParent { path: path.clone() }
            }
            error => PackError::writing(&path, "ask for the free space")(error.into()),
        })?;
        // Their types differ between platforms.
        #[allow(clippy::useless_conversion, reason = "u32 on some platforms")]
        let available_bytes =
            u64::from(found.blocks_available()).saturating_mul(found.fragment_size().into());
        let reserve_bytes = match self.settings.content {
            Content::Everything => self.settings.reserve_bytes,
            Content::VectorsOnly => self.settings.reserve_bytes.min(SPARSE_RESERVE_BYTES),
        };
        if self.disk_bytes.saturating_add(reserve_bytes) > available_bytes {
            return Err(PackError::NoSpace {
                path,
                checkpoint_bytes: self.disk_bytes,
                reserve_bytes,
                available_bytes,
            });
        }
        Ok(())
    }

    /// What was asked for.
    pub fn settings(&self) -> &SynthSettings {
        &self.settings
    }

    /// Tensors of all shards.
    pub fn tensor_count(&self) -> usize {
        self.tensor_count
    }

    /// Shard files.
    pub fn shard_count(&self) -> usize {
        self.shard_count
    }

    /// Bytes of all tensors, holes included.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensor_bytes
    }

    /// Bytes of headers and values that are written to the shards.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Most space the checkpoint takes, in blocks of the usual size.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }
}
