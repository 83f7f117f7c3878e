//! What a trunk was packed from, against a manifest of the checkpoint.

use std::collections::HashMap;

use super::table::PackedBlock;
use crate::manifest::{FileKind, Manifest, ManifestRange};

/// A matrix that was packed from other bytes than a manifest has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherMatrix {
    /// Index of its first block.
    pub block: u32,
    /// The tensor, as the manifest names it.
    pub matrix: String,
    /// Name of its shard.
    pub shard: String,
}

/// Compares the hash of each matrix of `blocks` with what `manifest` has for the
/// same bytes of the same shard; `shards` are the shards' names in order. Gives the
/// number of matrices that could be compared.
///
/// # Errors
///
/// The first matrix with another hash.
pub fn compare_matrices(
    blocks: &[PackedBlock],
    manifest: &Manifest,
    shards: &[String],
) -> Result<u64, Box<OtherMatrix>> {
    let files = manifest.files().iter();
    let files: HashMap<&str, &[ManifestRange]> = files
        .filter(|file| file.kind == FileKind::Shard)
        .map(|file| (file.name.as_str(), manifest.ranges_of(file)))
        .collect();
    let mut compared = 0;
    let mut last = None;
    for (index, block) in (0..).zip(blocks) {
        // Blocks of a matrix follow one another, and have one hash.
        let matrix = (block.shard, block.matrix_offset());
        if last.replace(matrix) == Some(matrix) {
            continue;
        }
        let shard = shards.get(usize::from(block.shard));
        let ranges = shard.and_then(|name| files.get(name.as_str()));
        let (Some(shard), Some(ranges), Some(offset)) = (shard, ranges, matrix.1) else {
            continue;
        };
        let found = ranges.binary_search_by_key(&offset, |range| range.offset);
        let Some(range) = found.ok().map(|place| &ranges[place]) else {
            continue;
        };
        if range.bytes != block.matrix_bytes() {
            continue;
        }
        if range.hash != block.matrix_hash {
            return Err(Box::new(OtherMatrix {
                block: index,
                matrix: range.content.to_string(),
                shard: shard.clone(),
            }));
        }
        compared += 1;
    }
    Ok(compared)
}
