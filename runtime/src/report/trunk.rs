//! The trunk that a run read in files of its own.

use std::time::Duration;

use k3_formats::trunk::Codec;
use k3_models::SweepProgram;
use serde::Serialize;

/// A packed trunk, or a raw copy of one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrunkReport {
    /// What its files are.
    pub source: TrunkFormat,
    /// Its files.
    pub files: Vec<String>,
    /// Blocks of the sweep by codec; codecs without blocks are left out.
    pub codecs: Vec<CodecReport>,
    /// Bytes of all blocks as they are in the checkpoint.
    pub raw_bytes: u64,
    /// Bytes of all blocks as they are stored, without what pads them.
    pub stored_bytes: u64,
    /// Bytes of all blocks as they are read: in a packed trunk each is padded to
    /// whole pages.
    pub extent_bytes: u64,
    /// Matrices that were packed from the bytes that the checkpoint's manifest has a
    /// hash of; `None` where there is none to compare with.
    pub manifest_matrices: Option<u64>,
    /// What is done with its checksums.
    pub checksums: ChecksumUse,
    /// Bytes compared with checksums, with what pads a block to whole pages.
    pub checked_bytes: u64,
    /// Time that took: beside the arithmetic, or while weights were loaded.
    pub check_seconds: f64,
}

/// What the files of a trunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrunkFormat {
    /// What `k3-pack trunk` writes.
    Packed,
    /// The raw copy that other tools make.
    RawCopy,
}

/// What is done with a trunk's checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChecksumUse {
    /// Each block is compared as it is read.
    Compared,
    /// They are there, and `--no-checksums` says not to look.
    Off,
    /// There are none.
    None,
}

impl ChecksumUse {
    /// As in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compared => "compared",
            Self::Off => "off",
            Self::None => "none",
        }
    }
}

/// The blocks of one codec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CodecReport {
    /// Its name.
    pub codec: &'static str,
    /// Blocks stored so.
    pub blocks: u64,
    /// Their bytes as they are in the checkpoint.
    pub raw_bytes: u64,
    /// Their bytes as they are stored.
    pub stored_bytes: u64,
}

impl TrunkReport {
    /// Of the blocks of `program`, which are in `files`; nothing compared yet.
    #[must_use]
    pub fn new(
        program: &SweepProgram,
        source: TrunkFormat,
        files: Vec<String>,
        checksums: ChecksumUse,
    ) -> Self {
        let of_codec = |codec: Codec| {
            let blocks = program.blocks.iter().filter(|block| block.codec == codec);
            let mut report = CodecReport {
                codec: codec.name(),
                blocks: 0,
                raw_bytes: 0,
                stored_bytes: 0,
            };
            for block in blocks {
                report.blocks += 1;
                report.raw_bytes += block.raw_bytes;
                report.stored_bytes += block.bytes;
            }
            report
        };
        let mut codecs = Codec::ALL.map(of_codec).to_vec();
        codecs.retain(|codec| codec.blocks > 0);
        let extents = program.blocks.iter().map(|block| block.place.read_bytes);
        Self {
            source,
            files,
            extent_bytes: extents.sum(),
            manifest_matrices: None,
            checksums,
            raw_bytes: codecs.iter().map(|codec| codec.raw_bytes).sum(),
            stored_bytes: codecs.iter().map(|codec| codec.stored_bytes).sum(),
            codecs,
            checked_bytes: 0,
            check_seconds: 0.0,
        }
    }

    /// Adds what comparing a block with its checksum took.
    pub fn add_check(&mut self, bytes: u64, time: Duration) {
        self.checked_bytes += bytes;
        self.check_seconds += time.as_secs_f64();
    }
}
