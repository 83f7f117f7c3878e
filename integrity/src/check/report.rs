//! What a check found; `verify --json` prints it and `repair` takes it.

use serde::{Deserialize, Serialize};

/// The layout that is written and read.
pub const REPORT_VERSION: u32 = 1;

/// What is wrong with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BadKind {
    /// Other bytes than there should be.
    Mismatch,
    /// The file is not there.
    Missing,
    /// The file ends before the range does.
    Short,
    /// Bytes after the end the file should have.
    Long,
    /// The bytes cannot be read.
    Unreadable,
}

/// A range that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BadRange {
    /// Name of the file.
    pub file: String,
    /// First byte.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
    /// What should lie there: a tensor, an expert of a layer.
    pub content: String,
    /// What is wrong.
    pub kind: BadKind,
    /// The hash it should have, in hexadecimal.
    pub expected: Option<String>,
    /// The hash it has.
    pub found: Option<String>,
    /// What the system says, or other numbers.
    pub detail: Option<String>,
}

/// What was looked at and what was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckReport {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// The checkpoint's directory.
    pub model: String,
    /// The manifest, or the record of a download.
    pub source: String,
    /// "blake3" or "sha256".
    pub hash: String,
    /// Identity of the checkpoint the manifest was made of.
    pub identity: Option<String>,
    /// Root hash of the manifest.
    pub manifest_root: Option<String>,
    /// "all", "sample" or "layer".
    pub selection: String,
    /// What a sample was drawn from.
    pub seed: Option<u64>,
    /// The layer.
    pub layer: Option<u16>,
    /// Whether everything selected was looked at: nobody stopped it.
    pub complete: bool,
    /// Files there should be.
    pub file_count: u64,
    /// Ranges there should be.
    pub total_ranges: u64,
    /// Bytes there should be.
    pub total_bytes: u64,
    /// Ranges that were looked at.
    pub checked_ranges: u64,
    /// Bytes that were read and hashed.
    pub checked_bytes: u64,
    /// Wall time of reading and hashing.
    pub seconds: f64,
    /// Bytes that are bad.
    pub bad_bytes: u64,
    /// The bad ranges, in the order of the files.
    pub bad: Vec<BadRange>,
    /// Everything that was less than asked for, one sentence each.
    pub notes: Vec<String>,
}

impl CheckReport {
    /// Whether all that was selected was looked at and found good.
    pub fn is_good(&self) -> bool {
        self.complete && self.bad.is_empty()
    }
}
