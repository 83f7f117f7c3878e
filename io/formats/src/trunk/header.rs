//! The first page of a stripe file.

use super::fault::TrunkFault;
use super::set::STRIPES_MAX;
use super::table::{BLOCKS_MAX, table_bytes};
use super::{PAGE_BYTES, TRUNK_VERSION};
use crate::error::FormatError;
use crate::identity::Identity;
use crate::read_at::ReadAt;

/// First bytes of every stripe file.
const MAGIC: [u8; 8] = *b"K3TRUNK\0";

/// Where each field begins.
mod at {
    pub(super) const VERSION: usize = 8;
    pub(super) const FLAGS: usize = 12;
    pub(super) const IDENTITY: usize = 16;
    pub(super) const SET_ID: usize = 48;
    pub(super) const INDEX: usize = 80;
    pub(super) const COUNT: usize = 82;
    pub(super) const STRIPE_BLOCKS: usize = 84;
    pub(super) const BLOCK_BYTES: usize = 88;
    pub(super) const BLOCK_COUNT: usize = 96;
    pub(super) const TABLE_OFFSET: usize = 104;
    pub(super) const TABLE_BYTES: usize = 112;
    pub(super) const TABLE_HASH: usize = 120;
    pub(super) const FILE_BYTES: usize = 152;
    /// End of the fields; zeros follow.
    pub(super) const END: usize = 160;
    pub(super) const HEADER_HASH: usize = 4064;
}

/// The header of one stripe file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeHeader {
    /// The checkpoint it was packed from.
    pub identity: Identity,
    /// See [`SetDescription::id`](super::SetDescription::id).
    pub set_id: [u8; 32],
    /// Which stripe this is.
    pub index: u16,
    /// How many there are.
    pub count: u16,
    /// Blocks in this file.
    pub stripe_blocks: u32,
    /// Largest block, in raw bytes.
    pub block_bytes: u64,
    /// Blocks in all files.
    pub block_count: u32,
    /// Where the table begins; 0 in all stripes but the first.
    pub table_offset: u64,
    /// BLAKE3 of the table, padding included; the same in every stripe.
    pub table_hash: [u8; 32],
    /// Length of this file.
    pub file_bytes: u64,
}

impl StripeHeader {
    /// The page as it is written.
    pub fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(at::VERSION, &TRUNK_VERSION.to_le_bytes());
        put(at::IDENTITY, self.identity.as_bytes());
        put(at::SET_ID, &self.set_id);
        put(at::INDEX, &self.index.to_le_bytes());
        put(at::COUNT, &self.count.to_le_bytes());
        put(at::STRIPE_BLOCKS, &self.stripe_blocks.to_le_bytes());
        put(at::BLOCK_BYTES, &self.block_bytes.to_le_bytes());
        put(at::BLOCK_COUNT, &self.block_count.to_le_bytes());
        put(at::TABLE_OFFSET, &self.table_offset.to_le_bytes());
        put(
            at::TABLE_BYTES,
            &table_bytes(self.block_count).to_le_bytes(),
        );
        put(at::TABLE_HASH, &self.table_hash);
        put(at::FILE_BYTES, &self.file_bytes.to_le_bytes());
        let hash = blake3::hash(&page[..at::HEADER_HASH]);
        page[at::HEADER_HASH..].copy_from_slice(hash.as_bytes());
        page
    }

    /// Reads and checks the first page of `file`.
    ///
    /// # Errors
    ///
    /// What is no header, of another version, damaged or of another file length.
    pub fn read(file: &dyn ReadAt) -> Result<Self, FormatError> {
        let fail = |offset: usize, fault| FormatError::Trunk {
            path: file.label().to_path_buf(),
            offset: offset as u64,
            fault: Box::new(fault),
        };
        if file.len_bytes() < PAGE_BYTES as u64 {
            let found_bytes = file.len_bytes();
            return Err(fail(0, TrunkFault::Short { found_bytes }));
        }
        let mut page = vec![0; PAGE_BYTES];
        file.read_exact_at(0, &mut page)?;
        Self::decode(&page, file.len_bytes()).map_err(|(offset, fault)| fail(offset, fault))
    }

    /// Where the blocks of this file end.
    pub fn blocks_end(&self) -> u64 {
        if self.index == 0 {
            self.table_offset
        } else {
            self.file_bytes
        }
    }

    fn decode(page: &[u8], file_bytes: u64) -> Result<Self, (usize, TrunkFault)> {
        if page[..MAGIC.len()] != MAGIC {
            return Err((0, TrunkFault::Magic));
        }
        let found = u32_at(page, at::VERSION);
        if found != TRUNK_VERSION {
            let supported = TRUNK_VERSION;
            return Err((at::VERSION, TrunkFault::Version { found, supported }));
        }
        let found = *blake3::hash(&page[..at::HEADER_HASH]).as_bytes();
        let expected = hash_at(page, at::HEADER_HASH);
        if found != expected {
            let fault = TrunkFault::HeaderDamaged { expected, found };
            return Err((at::HEADER_HASH, fault));
        }
        let header = Self {
            identity: Identity::from_bytes(hash_at(page, at::IDENTITY)),
            set_id: hash_at(page, at::SET_ID),
            index: u16_at(page, at::INDEX),
            count: u16_at(page, at::COUNT),
            stripe_blocks: u32_at(page, at::STRIPE_BLOCKS),
            block_bytes: u64_at(page, at::BLOCK_BYTES),
            block_count: u32_at(page, at::BLOCK_COUNT),
            table_offset: u64_at(page, at::TABLE_OFFSET),
            table_hash: hash_at(page, at::TABLE_HASH),
            file_bytes: u64_at(page, at::FILE_BYTES),
        };
        header.check(page)?;
        if header.file_bytes != file_bytes {
            let fault = TrunkFault::Length {
                stated_bytes: header.file_bytes,
                actual_bytes: file_bytes,
            };
            return Err((at::FILE_BYTES, fault));
        }
        Ok(header)
    }

    /// What a true checksum does not say: that the fields make sense together.
    fn check(&self, page: &[u8]) -> Result<(), (usize, TrunkFault)> {
        let fail = |at: usize, field, found| Err((at, TrunkFault::Header { field, found }));
        if u32_at(page, at::FLAGS) != 0 {
            return fail(at::FLAGS, "flags field", u32_at(page, at::FLAGS).into());
        }
        if let Some(step) = page[at::END..at::HEADER_HASH].iter().position(|b| *b != 0) {
            let at = at::END + step;
            return fail(at, "reserved part", page[at].into());
        }
        if u32_at(page, at::BLOCK_COUNT + 4) != 0 {
            let found = u32_at(page, at::BLOCK_COUNT + 4).into();
            return fail(at::BLOCK_COUNT + 4, "reserved part", found);
        }
        if self.count == 0 || usize::from(self.count) > STRIPES_MAX {
            return fail(at::COUNT, "number of stripes", self.count.into());
        }
        if self.index >= self.count {
            return fail(at::INDEX, "stripe", self.index.into());
        }
        if self.block_count == 0 || self.block_count > BLOCKS_MAX {
            return fail(at::BLOCK_COUNT, "number of blocks", self.block_count.into());
        }
        if self.block_bytes == 0 {
            return fail(at::BLOCK_BYTES, "largest block", 0);
        }
        let table = table_bytes(self.block_count);
        if u64_at(page, at::TABLE_BYTES) != table {
            let found = u64_at(page, at::TABLE_BYTES);
            return fail(at::TABLE_BYTES, "size of the table", found);
        }
        let is_placed = if self.index == 0 {
            self.table_offset >= PAGE_BYTES as u64
                && self.table_offset.checked_add(table) == Some(self.file_bytes)
        } else {
            self.table_offset == 0 && self.file_bytes >= PAGE_BYTES as u64
        };
        if !is_placed || !self.blocks_end().is_multiple_of(PAGE_BYTES as u64) {
            return fail(at::TABLE_OFFSET, "place of the table", self.table_offset);
        }
        Ok(())
    }
}

/// Where the identity stands in a header.
pub(super) const IDENTITY_OFFSET: u64 = at::IDENTITY as u64;
/// Where the set's name stands in a header.
pub(super) const SET_ID_OFFSET: u64 = at::SET_ID as u64;
/// Where the stripe's index stands in a header.
pub(super) const INDEX_OFFSET: u64 = at::INDEX as u64;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn hash_at(bytes: &[u8], at: usize) -> [u8; 32] {
    bytes[at..at + 32].try_into().expect("32 bytes")
}
