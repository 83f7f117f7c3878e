//! The table of blocks, in the first stripe behind its blocks.

use super::PAGE_BYTES;
use super::codec::Codec;
use super::fault::EntryFault;
use super::header::{u16_at, u32_at, u64_at};
use crate::dtype::Dtype;

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 104;

/// Most blocks of a trunk: 60 times those of the released model at the usual
/// size. It bounds what a hostile header can make a reader allocate.
pub const BLOCKS_MAX: u32 = 1 << 22;

/// One block of a packed trunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedBlock {
    /// Shard of the checkpoint, counted in the order of their names.
    pub shard: u16,
    /// Absolute offset of the block's first byte in that shard.
    pub source_offset: u64,
    /// First row within the matrix.
    pub row_start: u32,
    /// Rows in this block, at least 1.
    pub row_count: u32,
    /// Rows of the whole matrix.
    pub row_total: u32,
    /// Elements per row.
    pub cols: u32,
    /// Type of the elements.
    pub dtype: Dtype,
    /// How it is stored.
    pub codec: Codec,
    /// The stripe that holds it.
    pub stripe: u16,
    /// First byte in the stripe's file, a multiple of 4096.
    pub offset: u64,
    /// Bytes of the payload.
    pub stored_bytes: u64,
    /// Bytes in the checkpoint.
    pub raw_bytes: u64,
    /// [`checksum`](super::checksum()) of the extent.
    pub checksum: u128,
    /// BLAKE3 of the whole matrix in the checkpoint, as it was when its blocks
    /// were packed: what a manifest has for the tensor.
    pub matrix_hash: [u8; 32],
}

impl PackedBlock {
    /// Bytes the block takes in its file: the payload, and zeros up to a
    /// multiple of 4096.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        extent_bytes(self.stored_bytes)
    }

    /// Bytes of the whole matrix in the checkpoint.
    #[must_use]
    pub fn matrix_bytes(&self) -> u64 {
        u64::from(self.row_total).saturating_mul(self.row_bytes())
    }

    /// Absolute offset of the matrix's first byte in the shard; `None` where the
    /// rows before the block would lie before the file.
    #[must_use]
    pub fn matrix_offset(&self) -> Option<u64> {
        let before = u64::from(self.row_start).checked_mul(self.row_bytes())?;
        self.source_offset.checked_sub(before)
    }

    fn row_bytes(&self) -> u64 {
        u64::from(self.cols) * self.dtype.size_bytes()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.shard.to_le_bytes());
        out.push(self.dtype as u8);
        out.push(self.codec.number());
        out.extend_from_slice(&self.stripe.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.source_offset.to_le_bytes());
        for value in [self.row_start, self.row_count, self.row_total, self.cols] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for value in [self.offset, self.stored_bytes, self.raw_bytes] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.checksum.to_le_bytes());
        out.extend_from_slice(&self.matrix_hash);
    }

    pub(super) fn decode(entry: &[u8]) -> Result<Self, EntryFault> {
        let (dtype, codec) = (entry[2], entry[3]);
        if entry[6..8] != [0; 2] {
            return Err(EntryFault::Reserved);
        }
        let block = Self {
            shard: u16_at(entry, 0),
            dtype: dtype_of(dtype).ok_or(EntryFault::Dtype(dtype))?,
            codec: Codec::from_number(codec).ok_or(EntryFault::Codec(codec))?,
            stripe: u16_at(entry, 4),
            source_offset: u64_at(entry, 8),
            row_start: u32_at(entry, 16),
            row_count: u32_at(entry, 20),
            row_total: u32_at(entry, 24),
            cols: u32_at(entry, 28),
            offset: u64_at(entry, 32),
            stored_bytes: u64_at(entry, 40),
            raw_bytes: u64_at(entry, 48),
            checksum: u128::from_le_bytes(entry[56..72].try_into().expect("16 bytes")),
            matrix_hash: entry[72..104].try_into().expect("32 bytes"),
        };
        block.check()?;
        Ok(block)
    }

    /// Whether the numbers agree with each other.
    fn check(&self) -> Result<(), EntryFault> {
        let end = u64::from(self.row_start) + u64::from(self.row_count);
        if self.row_count == 0 || end > self.row_total.into() {
            return Err(EntryFault::Rows {
                start: self.row_start,
                count: self.row_count,
                total: self.row_total,
            });
        }
        let elements = u128::from(self.row_count) * u128::from(self.cols);
        let expected = elements * u128::from(self.dtype.size_bytes());
        if expected != self.raw_bytes.into() || expected == 0 {
            return Err(EntryFault::RawBytes {
                expected,
                found: self.raw_bytes,
            });
        }
        let is_right = match self.codec {
            Codec::Raw => self.stored_bytes == self.raw_bytes,
            Codec::Bf16X3 => {
                self.dtype == Dtype::Bf16
                    && (1..self.raw_bytes).contains(&self.stored_bytes)
                    && self.extent_bytes() < extent_bytes(self.raw_bytes)
            }
        };
        if !is_right {
            return Err(EntryFault::StoredBytes {
                stored: self.stored_bytes,
                raw: self.raw_bytes,
            });
        }
        let is_in_file = self.source_offset.checked_add(self.raw_bytes).is_some();
        if !is_in_file || self.matrix_offset().is_none() {
            return Err(EntryFault::Source(self.source_offset));
        }
        Ok(())
    }
}

/// `bytes` up to a multiple of 4096; numbers that no file can have stay as they
/// are.
pub fn extent_bytes(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(PAGE_BYTES as u64)
        .unwrap_or(bytes)
}

/// Bytes of a table of `block_count` blocks, padding included.
pub fn table_bytes(block_count: u32) -> u64 {
    extent_bytes(u64::from(block_count) * ENTRY_BYTES as u64)
}

/// The table as it is written: entries in sweep order, zeros up to a multiple
/// of 4096.
///
/// # Panics
///
/// Beyond [`BLOCKS_MAX`] blocks.
pub fn encode_table(blocks: &[PackedBlock]) -> Vec<u8> {
    let count = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
    assert!(count <= BLOCKS_MAX, "{count} blocks");
    let length = usize::try_from(table_bytes(count)).expect("a table fits memory");
    let mut bytes = Vec::with_capacity(length);
    blocks.iter().for_each(|block| block.encode(&mut bytes));
    bytes.resize(length, 0);
    bytes
}

/// BLAKE3 of a table as [`encode_table`] gives it.
pub fn table_hash(table: &[u8]) -> [u8; 32] {
    *blake3::hash(table).as_bytes()
}

/// Types are numbered in the order of [`Dtype::ALL`].
fn dtype_of(code: u8) -> Option<Dtype> {
    Dtype::ALL.get(usize::from(code)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_in_files_do_not_change() {
        let codes = [(Dtype::F32, 1), (Dtype::F16, 2), (Dtype::Bf16, 3)];
        for (dtype, code) in codes {
            assert_eq!(dtype_of(code), Some(dtype));
            assert_eq!(dtype as u8, code);
        }
        assert_eq!(dtype_of(19), None);
        assert_eq!(table_bytes(39), 4096);
        assert_eq!(table_bytes(40), 8192);
        assert_eq!(extent_bytes(u64::MAX), u64::MAX);
    }
}
