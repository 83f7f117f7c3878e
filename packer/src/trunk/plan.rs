//! What becomes of each block, decided before anything exists.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use k3_formats::trunk::{CodecChoice, STRIPES_MAX, SetDescription};

use super::error::TrunkError;
use super::pipeline::BLOCK_BYTES_MAX;
use super::source::TrunkSource;
use super::space::TRUNK_RESERVE_BYTES_MAX;
use crate::error::PackError;

/// How much may be written before it is synced and recorded.
#[derive(Debug, Clone, Copy)]
pub struct RecordInterval {
    /// Bytes of stripes.
    pub bytes: u64,
    /// Time.
    pub time: Duration,
}

impl Default for RecordInterval {
    /// A moment of a fast disk, and no more than a coffee's worth of a slow one.
    fn default() -> Self {
        Self {
            bytes: 256_000_000,
            time: Duration::from_secs(10),
        }
    }
}

/// What to pack, and where to.
#[derive(Debug, Clone)]
pub struct TrunkSettings {
    /// A directory for each stripe.
    pub outs: Vec<PathBuf>,
    /// How many parts of the blocks each takes; empty is one each.
    pub weights: Vec<u32>,
    /// Codecs that may be used.
    pub codec: CodecChoice,
    /// Threads that read, encode and write.
    pub threads: NonZeroUsize,
    /// Whether what an earlier packing left is removed first.
    pub restart: bool,
    /// Most space to be left free on each disk, usually
    /// [`TRUNK_RESERVE_BYTES_MAX`].
    pub reserve_bytes: u64,
    /// When progress is made safe.
    pub record: RecordInterval,
}

impl TrunkSettings {
    /// Into `outs`, everything else as usual.
    #[must_use]
    pub fn new(outs: Vec<PathBuf>) -> Self {
        Self {
            outs,
            weights: Vec::new(),
            codec: CodecChoice::Auto,
            threads: NonZeroUsize::MIN,
            restart: false,
            reserve_bytes: TRUNK_RESERVE_BYTES_MAX,
            record: RecordInterval::default(),
        }
    }
}

/// The stripe of each block, and everything the bytes follow from.
#[derive(Debug, Clone)]
pub struct TrunkPlan {
    pub(super) settings: TrunkSettings,
    pub(super) set: SetDescription,
    pub(super) stripes: Vec<u16>,
}

impl TrunkPlan {
    /// Decides where each block of `source` goes.
    ///
    /// # Errors
    ///
    /// Weights that are not one for each directory, too many directories, blocks
    /// that are too large.
    pub fn new(source: &TrunkSource, settings: &TrunkSettings) -> Result<Self, PackError> {
        let count = settings.outs.len();
        let weights = match settings.weights.len() {
            0 => vec![1; count],
            given if given == count => settings.weights.clone(),
            given => {
                let (weights, directories) = (given, count);
                return Err(TrunkError::Weights {
                    weights,
                    directories,
                }
                .into());
            }
        };
        if count > STRIPES_MAX {
            let max = STRIPES_MAX;
            return Err(TrunkError::TooManyDirectories { count, max }.into());
        }
        let sizes = source.blocks().iter().map(|block| block.bytes);
        let largest = sizes.clone().max().unwrap_or(0);
        if largest > BLOCK_BYTES_MAX {
            return Err(TrunkError::BlockTooLarge {
                block_bytes: largest,
                limit_bytes: BLOCK_BYTES_MAX,
            }
            .into());
        }
        let set = SetDescription {
            identity: source.identity(),
            block_bytes: source.block_bytes(),
            weights,
            codec: settings.codec,
        };
        Ok(Self {
            stripes: set.stripes(sizes),
            settings: settings.clone(),
            set,
        })
    }

    /// What was asked for.
    #[must_use]
    pub fn settings(&self) -> &TrunkSettings {
        &self.settings
    }

    /// Number of files.
    pub(super) fn stripe_count(&self) -> u16 {
        u16::try_from(self.set.weights.len()).expect("stripes are few")
    }
}
