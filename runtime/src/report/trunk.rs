//! The trunk that a run read in files of its own.

use k3_formats::trunk::Codec;
use k3_models::SweepProgram;
use serde::Serialize;

/// A packed trunk, or a raw copy of one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrunkReport {
    /// Its files.
    pub files: Vec<String>,
    /// Blocks of the sweep by codec; codecs without blocks are left out.
    pub codecs: Vec<CodecReport>,
    /// Bytes of all blocks as they are in the checkpoint.
    pub raw_bytes: u64,
    /// Bytes of all blocks as they are read and kept in memory.
    pub stored_bytes: u64,
    /// Bytes compared with checksums, with what pads a block to whole pages.
    pub checked_bytes: u64,
    /// Time that took, beside the arithmetic.
    pub check_seconds: f64,
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
    pub fn new(program: &SweepProgram, files: Vec<String>) -> Self {
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
        Self {
            files,
            raw_bytes: codecs.iter().map(|codec| codec.raw_bytes).sum(),
            stored_bytes: codecs.iter().map(|codec| codec.stored_bytes).sum(),
            codecs,
            checked_bytes: 0,
            check_seconds: 0.0,
        }
    }
}
