//! One block: read, encoded, its checksum taken.

use k3_formats::Dtype;
use k3_formats::FormatError;
use k3_formats::trunk::{Codec, CodecChoice, MatrixPart, bf16_x3, checksum, extent_bytes};
use k3_models::Block;

use super::source::{TrunkSource, length, matrix_span, shape};
use crate::aligned::AlignedBuffer;

/// What is known of a block once it is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) codec: Codec,
    pub(super) stored_bytes: u64,
    pub(super) checksum: u128,
    /// Exponents stored beside the codes.
    pub(super) escapes: u32,
    /// BLAKE3 of the block's whole matrix, if this is its last block; else zeros.
    pub(super) matrix_hash: [u8; 32],
}

/// Memory to encode blocks, one at a time.
#[derive(Debug)]
pub(super) struct Encoder {
    packed: Vec<u8>,
}

/// Bytes of the largest extent there can be.
pub(super) fn extent_max(source: &TrunkSource) -> usize {
    let extents = source
        .blocks()
        .iter()
        .map(|block| extent_bytes(block.bytes));
    usize::try_from(extents.max().unwrap_or(0)).expect("blocks fit memory")
}

impl Encoder {
    /// Room for the largest block of `source`.
    pub(super) fn new(source: &TrunkSource) -> Self {
        let payloads = source.blocks().iter().filter_map(|block| {
            let [rows, cols] = shape(block);
            bf16_x3::payload_bytes_max(rows, cols)
        });
        Self {
            packed: Vec::with_capacity(payloads.max().unwrap_or(0)),
        }
    }

    /// Reads `block`, the one with `index`, and leaves its extent in `buffer`:
    /// the payload, and zeros up to a whole page. Also gives what the block adds
    /// to the hash of its matrix.
    ///
    /// # Errors
    ///
    /// A failed or short read.
    pub(super) fn encode(
        &mut self,
        source: &TrunkSource,
        block: &Block,
        index: u32,
        choice: CodecChoice,
        buffer: &mut AlignedBuffer,
    ) -> Result<(Entry, MatrixPart), FormatError> {
        let raw_bytes = length(block);
        let raw = buffer.bytes(raw_bytes);
        source.read(block, raw)?;
        let (start, total) = matrix_span(block);
        let part = MatrixPart::new(start, total, raw);
        let [rows, cols] = shape(block);
        let is_packed = choice == CodecChoice::Auto
            && block.may_be_packed()
            && block.dtype == Dtype::Bf16
            && bf16_x3::encode(raw, rows, cols, &mut self.packed);
        let (codec, stored) = match is_packed {
            true => (Codec::Bf16X3, self.packed.len()),
            false => (Codec::Raw, raw_bytes),
        };
        let stored_bytes = stored as u64;
        let extent = usize::try_from(extent_bytes(stored_bytes)).expect("blocks fit memory");
        let extent = buffer.bytes(extent);
        if is_packed {
            extent[..stored].copy_from_slice(&self.packed);
        }
        extent[stored..].fill(0);
        let entry = Entry {
            codec,
            stored_bytes,
            checksum: checksum(index, extent),
            escapes: if is_packed { escapes(extent, rows) } else { 0 },
            matrix_hash: [0; 32],
        };
        Ok((entry, part))
    }
}

/// Escapes of a `bf16-x3` payload: the last number of its directory.
fn escapes(payload: &[u8], rows: usize) -> u32 {
    let at = 4 * rows;
    u32::from_le_bytes(payload[at..at + 4].try_into().expect("four bytes"))
}
