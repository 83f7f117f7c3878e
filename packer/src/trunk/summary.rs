//! What a finished packing has to tell.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use k3_config::Bytes;
use k3_formats::trunk::{Codec, PAGE_BYTES, PackedBlock};
use serde::Serialize;

use super::finish::{ManifestState, Packed};
use super::source::TrunkSource;

/// A stripe's share.
#[derive(Debug, Clone, Serialize)]
pub struct StripeSummary {
    /// Its file.
    pub path: PathBuf,
    /// Blocks in it.
    pub blocks: u32,
    /// Length of the file.
    pub file_bytes: u64,
}

/// A packed trunk in figures.
#[derive(Debug, Clone, Serialize)]
pub struct TrunkSummary {
    /// The checkpoint's identity, in hexadecimal.
    pub identity: String,
    /// Largest block, in bytes of the checkpoint.
    pub block_bytes: u64,
    /// Blocks of a sweep.
    pub blocks: u32,
    /// Of them, those stored as they are.
    pub raw_blocks: u32,
    /// Of them, those stored as `bf16-x3`.
    pub bf16_x3_blocks: u32,
    /// Bytes of a sweep in the checkpoint.
    pub raw_bytes: u64,
    /// Bytes of a sweep as they are stored, without what pads them.
    pub stored_bytes: u64,
    /// The same as they are read: each block is padded to whole pages.
    pub extent_bytes: u64,
    /// Stored for each raw byte.
    pub ratio: f64,
    /// Part of the `bf16-x3` weights whose exponent is stored beside the codes.
    pub escape_share: f64,
    /// Blocks that an earlier run had written.
    pub resumed_blocks: u32,
    /// Wall time of this run, until everything was on the disk.
    pub seconds: f64,
    /// Bytes of the checkpoint that this run packed, each second.
    pub bytes_per_second: f64,
    /// Whether every write bypassed the page cache.
    pub direct: bool,
    /// The files.
    pub stripes: Vec<StripeSummary>,
    /// Matrices that have the hash of the checkpoint's manifest; `None` where there
    /// is none that could be used.
    pub manifest_matrices: Option<u64>,
    /// What else there is to know, one sentence each.
    pub notes: Vec<String>,
}

impl TrunkSummary {
    pub(super) fn new(
        source: &TrunkSource,
        packed: &Packed,
        resumed_blocks: u32,
        direct: bool,
        elapsed: Duration,
    ) -> Self {
        let blocks = &packed.blocks;
        let of = |codec| move |block: &&PackedBlock| block.codec == codec;
        let count = |codec| {
            let count = blocks.iter().filter(of(codec)).count();
            u32::try_from(count).expect("block counts are capped")
        };
        let sum = |bytes: fn(&PackedBlock) -> u64| blocks.iter().map(bytes).sum::<u64>();
        let raw_bytes = sum(|block| block.raw_bytes);
        let stored_bytes = sum(|block| block.stored_bytes);
        let extent_bytes = sum(PackedBlock::extent_bytes);
        let packed_bytes = blocks.iter().filter(of(Codec::Bf16X3));
        let weights: u64 = packed_bytes.map(|block| block.raw_bytes / 2).sum();
        let seconds = elapsed.as_secs_f64();
        let new_bytes = source.raw_bytes_of(resumed_blocks..source.block_count());
        let stripe = |(header, path): (&k3_formats::trunk::StripeHeader, &PathBuf)| StripeSummary {
            path: path.clone(),
            blocks: header.stripe_blocks,
            file_bytes: header.file_bytes,
        };
        Self {
            identity: source.identity().to_string(),
            block_bytes: source.block_bytes(),
            blocks: source.block_count(),
            raw_blocks: count(Codec::Raw),
            bf16_x3_blocks: count(Codec::Bf16X3),
            raw_bytes,
            stored_bytes,
            extent_bytes,
            ratio: stored_bytes as f64 / raw_bytes.max(1) as f64,
            escape_share: packed.escapes as f64 / weights.max(1) as f64,
            resumed_blocks,
            seconds,
            bytes_per_second: new_bytes as f64 / seconds.max(1e-9),
            direct,
            stripes: packed
                .headers
                .iter()
                .zip(&packed.paths)
                .map(stripe)
                .collect(),
            manifest_matrices: match packed.manifest {
                ManifestState::Agrees(count) => Some(count),
                ManifestState::Absent => None,
            },
            notes: notes(packed, raw_bytes, extent_bytes),
        }
    }
}

/// What is to be known beside the figures.
fn notes(packed: &Packed, raw_bytes: u64, extent_bytes: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if extent_bytes > raw_bytes {
        notes.push(format!(
            "this trunk takes more than the weights do in the checkpoint: each block is padded to \
             whole pages of {PAGE_BYTES} bytes, and its blocks have {} on average. Pack with a \
             larger --block-bytes; if that does not help, the matrices are too small to pack: run \
             from the shards",
            Bytes(raw_bytes / packed.blocks.len().max(1) as u64)
        ));
    }
    notes
}

/// For a person: a line for each thing there is to say.
impl fmt::Display for TrunkSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "packed trunk of {}", self.identity)?;
        writeln!(
            f,
            "  blocks   {}: {} bf16-x3, {} raw",
            self.blocks, self.bf16_x3_blocks, self.raw_blocks
        )?;
        writeln!(f, "  raw      {}", Bytes(self.raw_bytes))?;
        writeln!(
            f,
            "  stored   {}: {:.4} of raw, {:.2} % escapes",
            Bytes(self.stored_bytes),
            self.ratio,
            100.0 * self.escape_share
        )?;
        let padding = self.extent_bytes - self.stored_bytes;
        writeln!(
            f,
            "  read     {}, {} of it padding to whole pages",
            Bytes(self.extent_bytes),
            Bytes(padding)
        )?;
        if let Some(count) = self.manifest_matrices {
            writeln!(f, "  source   {count} matrices as the manifest has them")?;
        }
        if self.resumed_blocks > 0 {
            let count = self.resumed_blocks;
            writeln!(
                f,
                "  resumed  {count} blocks were there from an earlier run"
            )?;
        }
        let how = match self.direct {
            true => "direct",
            false => "through the page cache",
        };
        let rate = self.bytes_per_second / 1e9;
        writeln!(
            f,
            "  time     {:.1} s: {rate:.2} GB/s of raw ({how})",
            self.seconds
        )?;
        for stripe in &self.stripes {
            writeln!(
                f,
                "  {}: {} blocks, {}",
                stripe.path.display(),
                stripe.blocks,
                Bytes(stripe.file_bytes)
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
