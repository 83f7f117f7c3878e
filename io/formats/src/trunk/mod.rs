//! The packed trunk: one file or several stripes with every block of a sweep, in
//! order, each stored by the codec that suits it; and the field's raw
//! `trunk.json` with `trunk.bin`. `docs/formats/trunk.md` has both to the bit, and
//! the payload of [`bf16_x3`].
//!
//! Reading is [`PackedTrunk`] and [`ForeignTrunk`]. For writing there are the
//! bytes of each part ([`StripeHeader::encode`], [`encode_table`]) and what
//! decides them ([`SetDescription`]); whoever has the files puts them together.

pub mod bf16_x3;
mod codec;
mod fault;
mod foreign;
mod header;
mod matrix_hash;
mod packed;
mod provenance;
mod set;
mod table;

pub use codec::Codec;
pub use fault::{EntryFault, TrunkFault};
pub use foreign::{ForeignTensor, ForeignTrunk};
pub use header::StripeHeader;
pub use matrix_hash::{MatrixHasher, MatrixPart};
pub use packed::PackedTrunk;
pub use provenance::{OtherMatrix, compare_matrices};
pub use set::{CodecChoice, STRIPES_MAX, SetDescription, stripe_file_name, stripe_of_name};
pub use table::{BLOCKS_MAX, PackedBlock, encode_table, extent_bytes, table_bytes, table_hash};

/// Version of the container and of every payload in it.
///
/// 2: entries of the table have the hash of their matrix.
pub const TRUNK_VERSION: u32 = 2;

/// Everything begins at a multiple of this many bytes.
pub const PAGE_BYTES: usize = 4096;

/// XXH3-128 of a block's extent, seeded with the block's index: two blocks that
/// changed places are noticed too.
#[must_use]
pub fn checksum(index: u32, extent: &[u8]) -> u128 {
    twox_hash::XxHash3_128::oneshot_with_seed(index.into(), extent)
}
