//! What can be wrong with a packed or foreign trunk.

use std::path::PathBuf;

use crate::identity::Identity;
use crate::shown::{quoted, sentence};

/// What is wrong with a packed trunk, or with the field's `trunk.json` beside its
/// `trunk.bin`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrunkFault {
    /// No files were given.
    #[error("no file of a packed trunk; make one with k3-pack trunk")]
    NoFiles,
    /// Other first bytes than a packed trunk has.
    #[error(
        "not a packed trunk: it does not begin with \"K3TRUNK\"; name the directory that k3-pack \
         trunk wrote to"
    )]
    Magic,
    /// Written by another version of the packer.
    #[error(
        "version {found} of the packed form, but this program reads version {supported}; pack \
         the trunk again with the k3-pack of this version"
    )]
    Version {
        /// Of the file.
        found: u32,
        /// Of this reader.
        supported: u32,
    },
    /// The file ends within its header.
    #[error("{found_bytes} bytes, fewer than a header has: cut short; pack the trunk again")]
    Short {
        /// Length of the file.
        found_bytes: u64,
    },
    /// The header's checksum is not that of its bytes.
    #[error(
        "the header does not have its checksum ({} instead of {}): damaged; pack the trunk again",
        short(found),
        short(expected)
    )]
    HeaderDamaged {
        /// By the header.
        expected: [u8; 32],
        /// Of its bytes.
        found: [u8; 32],
    },
    /// A field of the header that no packer writes so.
    #[error("the header's {field} is {found}, which no packer writes; pack the trunk again")]
    Header {
        /// The field.
        field: &'static str,
        /// What it says.
        found: u64,
    },
    /// The file has another length than its header says.
    #[error(
        "the file has {actual_bytes} bytes, but its header says {stated_bytes}: cut short or \
         appended to; pack the trunk again"
    )]
    Length {
        /// By the header.
        stated_bytes: u64,
        /// By the file system.
        actual_bytes: u64,
    },
    /// Packed from other weights.
    #[error(
        "packed from another checkpoint ({found}) than this one ({expected}); pack this one, or \
         name the other"
    )]
    Identity {
        /// Of the checkpoint at hand.
        expected: Identity,
        /// Of the trunk.
        found: Identity,
    },
    /// Two files of different packings.
    #[error(
        "belongs to another packing than {}; keep the files of one of them", other.display()
    )]
    OtherSet {
        /// The file it does not belong to.
        other: PathBuf,
    },
    /// The same stripe twice.
    #[error("stripe {index} again: {} has it too; name each directory once", other.display())]
    DuplicateStripe {
        /// The stripe.
        index: u16,
        /// The file met first.
        other: PathBuf,
    },
    /// Stripes that were not given.
    #[error(
        "one of {count} stripes, of which {} missing; name every directory that the trunk was \
         packed into",
        missing_stripes(missing)
    )]
    MissingStripes {
        /// Stripes of the set.
        count: u16,
        /// Those that are missing.
        missing: Vec<u16>,
    },
    /// The table's checksum is not that of its bytes.
    #[error(
        "the table of blocks ({bytes} bytes) does not have its checksum ({} instead of {}): \
         damaged; pack the trunk again",
        short(found),
        short(expected)
    )]
    TableDamaged {
        /// Bytes it covers in the file.
        bytes: u64,
        /// By the header.
        expected: [u8; 32],
        /// Of its bytes.
        found: [u8; 32],
    },
    /// An entry of the table that no packer writes.
    #[error("block {block}: {fault}; pack the trunk again")]
    Entry {
        /// Index of the block.
        block: u32,
        /// What is wrong with it.
        fault: EntryFault,
    },
    /// A block's bytes do not have the checksum of the table.
    #[error(
        "block {block} does not have its checksum ({found:032x} instead of {expected:032x}): its \
         {bytes} bytes are damaged; pack the trunk again, and check the disk"
    )]
    BlockDamaged {
        /// Index of the block.
        block: u32,
        /// Bytes it covers in the file.
        bytes: u64,
        /// By the table.
        expected: u128,
        /// Of the bytes.
        found: u128,
    },
    /// What was packed is not what the checkpoint's manifest has.
    #[error(
        "block {block} was packed from other bytes of {matrix} in {shard} than {} has: the shard \
         was damaged then, or has changed since; check it with k3 verify, then pack the trunk \
         again (k3-pack trunk --restart)", manifest.display()
    )]
    OtherWeights {
        /// Index of the matrix's first block.
        block: u32,
        /// The tensor, as the manifest names it.
        matrix: String,
        /// The shard's name.
        shard: String,
        /// The manifest.
        manifest: PathBuf,
    },
    /// An entry of `trunk.json` contradicts itself, another, or `trunk.bin`.
    #[error(
        "{} {}; pack the trunk again with the tool that made it, or with k3-pack trunk, or run \
         without it",
        quoted(place),
        sentence(detail)
    )]
    Foreign {
        /// The layer or tensor.
        place: String,
        /// What is wrong with it.
        detail: String,
    },
}

/// What is wrong with a block's entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryFault {
    /// A codec that this reader does not know.
    #[error("codec {0} is none that this program knows")]
    Codec(u8),
    /// An element type that this reader does not know.
    #[error("element type {0} is none that this program knows")]
    Dtype(u8),
    /// Bytes that must be zero are not.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// No rows, or rows beyond the matrix.
    #[error("rows {start} and {count} more are not within a matrix of {total}")]
    Rows {
        /// First row.
        start: u32,
        /// Rows.
        count: u32,
        /// Rows of the matrix.
        total: u32,
    },
    /// The length is not that of the rows.
    #[error("{found} bytes, but its rows take {expected}")]
    RawBytes {
        /// By rows, columns and type.
        expected: u128,
        /// By the entry.
        found: u64,
    },
    /// A stored length that the codec does not give.
    #[error("{stored} of {raw} bytes are stored, which is not what its codec gives")]
    StoredBytes {
        /// Bytes in the file.
        stored: u64,
        /// Bytes in the checkpoint.
        raw: u64,
    },
    /// A stripe that does not exist.
    #[error("it lies in stripe {stripe} of {count}")]
    Stripe {
        /// By the entry.
        stripe: u16,
        /// Stripes of the set.
        count: u16,
    },
    /// A place other than right after the stripe's block before it: an overlap or a hole.
    #[error("it lies at offset {found} of its stripe instead of {expected}")]
    Offset {
        /// Where the block before it ends.
        expected: u64,
        /// By the entry.
        found: u64,
    },
    /// The block ends beyond the blocks of its file.
    #[error("it ends at {end}, but the blocks of its file end at {limit}")]
    End {
        /// End of the block.
        end: u64,
        /// End of the file's blocks.
        limit: u64,
    },
    /// A place in the checkpoint that no file can have.
    #[error("its source begins at {0}, which no file can reach")]
    Source(u64),
    /// Another hash of the matrix than another of its blocks has.
    #[error("block {other} has another hash of the matrix that both are of")]
    MatrixHash {
        /// The other block.
        other: u32,
    },
    /// The same rows twice.
    #[error("block {other} has the same source")]
    SameSource {
        /// The other block.
        other: u32,
    },
    /// The blocks of a file are not as many, or do not reach as far, as its header says.
    #[error(
        "after it, the {count} blocks of stripe {stripe} end at {end}; its header says {stated} \
         that end at {limit}"
    )]
    Sum {
        /// The stripe.
        stripe: u16,
        /// Blocks by the table.
        count: u32,
        /// Where they end.
        end: u64,
        /// Blocks by the header.
        stated: u32,
        /// Where they must end.
        limit: u64,
    },
}

/// The first half of a hash, in hex: enough to tell two apart.
fn short(hash: &[u8; 32]) -> String {
    hash[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// "1 is" or "0, 2 are".
fn missing_stripes(missing: &[u16]) -> String {
    let list: Vec<String> = missing.iter().map(u16::to_string).collect();
    let verb = if missing.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", list.join(", "))
}
