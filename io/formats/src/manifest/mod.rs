//! The integrity manifest: a hash of every byte of a checkpoint, range by range.
//!
//! A shard is cut into its header, each expert (its six tensors, as far as they
//! lie together) and each other tensor; other files are one range each. The
//! ranges of a file follow one another without a gap, so no byte goes unhashed.
//! `docs/formats/manifest.md` describes the file byte by byte.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | from an index to the ranges to be hashed |
//! | `read`, `write` | the file |
//! | `fault` | what can be wrong with it |

mod fault;
mod plan;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

pub use fault::ManifestFault;
pub use plan::ManifestPlan;

use crate::experts::{EXPERT_PARTS, layer_of};
use crate::identity::Identity;

/// Name of the manifest in a checkpoint's directory.
pub const MANIFEST_NAME: &str = "k3-manifest.bin";
/// Longest manifest that is read. Kimi K3's has 4.25 MB.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// First bytes of the file.
const MAGIC: [u8; 8] = *b"k3-mnfst";
/// Version of the layout.
const VERSION: u32 = 1;
/// What the root hash begins with, so that no other use of BLAKE3 can give it.
const ROOT_DOMAIN: &[u8] = b"k3 manifest root 1\0";
/// Bytes of the header.
const HEADER_BYTES: usize = 128;
/// Where in the header the root stands: its last 32 bytes.
const ROOT_OFFSET: usize = 96;
/// Bytes of an entry in the table of files.
const FILE_BYTES: usize = 24;
/// Bytes of an entry in the table of ranges.
const RANGE_BYTES: usize = 48;
/// The shortest header of a shard: its length and `{}`.
const SHARD_HEADER_BYTES_MIN: u64 = 10;

/// What a file of the checkpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A safetensors file, cut into header, experts and tensors.
    Shard,
    /// Anything else, hashed as a whole.
    Other,
}

/// A file of the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    /// Name inside the checkpoint's directory, or one of its roots: a plain file
    /// name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// What it is.
    pub kind: FileKind,
    /// Its first range in [`Manifest::ranges`].
    pub first_range: usize,
    /// How many it has; 0 when it is empty.
    pub range_count: usize,
}

/// What the bytes of a range are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeContent {
    /// The length field and the header of a shard, its padding included.
    Header,
    /// One tensor that is not a routed expert's.
    Tensor(String),
    /// A routed expert, or those of its tensors that lie together.
    Expert {
        /// Zero-based layer.
        layer: u16,
        /// Id within the layer.
        expert: u16,
        /// The first tensor, as [`ExpertPart`](crate::ExpertPart) numbers them.
        first_part: u8,
        /// How many of the six.
        part_count: u8,
    },
    /// A whole file.
    File,
}

impl RangeContent {
    /// The layer the bytes belong to, if to one alone.
    pub fn layer(&self) -> Option<u16> {
        match self {
            Self::Tensor(name) => layer_of(name),
            Self::Expert { layer, .. } => Some(*layer),
            Self::Header | Self::File => None,
        }
    }
}

impl fmt::Display for RangeContent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => formatter.write_str("header"),
            Self::File => formatter.write_str("whole file"),
            Self::Tensor(name) => write!(formatter, "tensor {name}"),
            Self::Expert {
                layer,
                expert,
                first_part,
                part_count,
            } => {
                write!(formatter, "layer {layer} expert {expert}")?;
                if usize::from(*part_count) == EXPERT_PARTS {
                    return Ok(());
                }
                let last = first_part + part_count;
                write!(formatter, " (tensors {} to {last} of 6)", first_part + 1)
            }
        }
    }
}

/// A range of a file and its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestRange {
    /// Index of the file in [`Manifest::files`].
    pub file: usize,
    /// First byte.
    pub offset: u64,
    /// Length; never 0.
    pub bytes: u64,
    /// What lies there.
    pub content: RangeContent,
    /// BLAKE3 of the bytes.
    pub hash: [u8; 32],
}

/// Hashes of every byte of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    identity: Identity,
    root: [u8; 32],
    files: Vec<ManifestFile>,
    ranges: Vec<ManifestRange>,
}

impl Manifest {
    /// The checkpoint it was made of.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// BLAKE3 over everything else in the file: two checkpoints with the same
    /// root are the same, byte for byte.
    pub fn root(&self) -> [u8; 32] {
        self.root
    }

    /// The files: shards by name, then all others by name.
    pub fn files(&self) -> &[ManifestFile] {
        &self.files
    }

    /// The ranges, file after file, from the start of each to its end.
    pub fn ranges(&self) -> &[ManifestRange] {
        &self.ranges
    }

    /// The ranges of one file.
    pub fn ranges_of(&self, file: &ManifestFile) -> &[ManifestRange] {
        &self.ranges[file.first_range..file.first_range + file.range_count]
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// A hash in hexadecimal.
pub fn hex(hash: &[u8; 32]) -> String {
    Identity::from_bytes(*hash).to_string()
}
