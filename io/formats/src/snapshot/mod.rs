//! Sequence snapshots: what one conversation carries, in a file.
//!
//! The layout is in `docs/formats/snapshot.md`. A snapshot has the token ids that
//! the state has consumed, so that who finds one compares ids and trusts no hash
//! of them alone. A conversation's goes on with ids that the state has not consumed
//! yet: the last token of an answer is drawn, but not computed. The payload is opaque
//! here: a known number of bytes, which are checked piece by piece before anybody sees
//! them.

mod fault;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use fault::SnapshotFault;
pub use read::{Snapshot, SnapshotPayload};
pub use write::SnapshotWriter;

use crate::identity::Identity;

/// Most positions of a snapshot.
pub const SNAPSHOT_POSITIONS_MAX: usize = 1 << 24;

/// Most bytes of a payload: 256 TiB.
pub const SNAPSHOT_PAYLOAD_BYTES_MAX: u64 = 1 << 48;

/// Bytes of the payload that one checksum covers; the last piece may be shorter.
pub const SNAPSHOT_CHUNK_BYTES: usize = 1 << 20;

/// The first bytes of every snapshot.
pub const SNAPSHOT_MAGIC: [u8; 8] = *b"k3-snaps";
/// The state after some ids.
const VERSION: u32 = 1;
/// The same, with ids that are still to be consumed, or with an answer at the end.
const VERSION_CONVERSATION: u32 = 2;
const HEADER_BYTES: usize = 128;
/// Where the header's own hash begins; what is before it is hashed.
const HASH_OFFSET: usize = 96;
const CHUNK_HASH_BYTES: usize = 16;
const END_MARK: [u8; 8] = *b"k3-s-end";
const END_BYTES: usize = 16;
/// Token ids that are encoded or decoded at a time.
const IDS_AT_ONCE: usize = 1 << 16;
const HEADER_DOMAIN: &[u8] = b"k3 sequence snapshot 1\0";

/// The form of attention whose state a snapshot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateForm {
    /// Latents, per position.
    Latent,
    /// Keys and values of every head, per position.
    Expanded,
}

impl StateForm {
    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latent => "latent",
            Self::Expanded => "expanded",
        }
    }

    const fn code(self) -> u32 {
        match self {
            Self::Latent => 0,
            Self::Expanded => 1,
        }
    }

    const fn of_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Latent),
            1 => Some(Self::Expanded),
            _ => None,
        }
    }
}

/// All that a state depends on beside the token ids: a snapshot with another
/// binding is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SnapshotBinding {
    /// The checkpoint.
    pub identity: Identity,
    /// Version of the definition of every number.
    pub numerics_version: u32,
    /// The form of attention.
    pub form: StateForm,
    /// Layers that are run.
    pub layer_count: u32,
}

impl SnapshotBinding {
    /// The binding as it stands in a header, from numerics version to layer count:
    /// for keys over bindings.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 44] {
        let mut bytes = [0; 44];
        bytes[..4].copy_from_slice(&self.numerics_version.to_le_bytes());
        bytes[4..36].copy_from_slice(self.identity.as_bytes());
        bytes[36..40].copy_from_slice(&self.form.code().to_le_bytes());
        bytes[40..].copy_from_slice(&self.layer_count.to_le_bytes());
        bytes
    }
}

/// What a snapshot says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHeader {
    binding: SnapshotBinding,
    position: usize,
    pending_len: usize,
    answer_len: usize,
    payload_bytes: u64,
}

impl SnapshotHeader {
    /// A snapshot of `position` ids and `payload_bytes` of state.
    ///
    /// # Errors
    ///
    /// [`SnapshotFault::Position`] and [`SnapshotFault::PayloadBytes`] outside 1 to
    /// [`SNAPSHOT_POSITIONS_MAX`] and [`SNAPSHOT_PAYLOAD_BYTES_MAX`].
    pub fn new(
        binding: SnapshotBinding,
        position: usize,
        payload_bytes: u64,
    ) -> Result<Self, SnapshotFault> {
        if position == 0 || position > SNAPSHOT_POSITIONS_MAX {
            let found = position as u64;
            return Err(SnapshotFault::Position { found });
        }
        if payload_bytes == 0 || payload_bytes > SNAPSHOT_PAYLOAD_BYTES_MAX {
            let found = payload_bytes;
            return Err(SnapshotFault::PayloadBytes { found });
        }
        Ok(Self {
            binding,
            position,
            pending_len: 0,
            answer_len: 0,
            payload_bytes,
        })
    }

    /// The same, followed by `pending_len` ids that the state has not consumed;
    /// the last `answer_len` of all ids were generated.
    ///
    /// # Errors
    ///
    /// [`SnapshotFault::Conversation`]: more ids than [`SNAPSHOT_POSITIONS_MAX`], or
    /// an answer of more ids than there are.
    pub fn of_conversation(
        self,
        pending_len: usize,
        answer_len: usize,
    ) -> Result<Self, SnapshotFault> {
        let id_count = self.position.saturating_add(pending_len);
        if id_count > SNAPSHOT_POSITIONS_MAX || answer_len > id_count {
            let (pending, answer) = (pending_len as u64, answer_len as u64);
            let position = self.position as u64;
            return Err(SnapshotFault::Conversation {
                position,
                pending,
                answer,
            });
        }
        Ok(Self {
            pending_len,
            answer_len,
            ..self
        })
    }

    /// What the state depends on beside the ids.
    #[must_use]
    pub fn binding(&self) -> &SnapshotBinding {
        &self.binding
    }

    /// Token ids that the state has consumed.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Token ids of the file: those of the state, then those that are still to be
    /// consumed.
    #[must_use]
    pub fn id_count(&self) -> usize {
        self.position + self.pending_len
    }

    /// How many of the last ids were generated, in one answer.
    #[must_use]
    pub fn answer_len(&self) -> usize {
        self.answer_len
    }

    /// Whether the file is the state after its ids and nothing more.
    fn is_plain(&self) -> bool {
        self.pending_len == 0 && self.answer_len == 0
    }

    /// Bytes of state.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Length of the file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.end_offset() + END_BYTES as u64
    }

    fn payload_offset(&self) -> u64 {
        HEADER_BYTES as u64 + self.id_count() as u64 * 4
    }

    fn end_offset(&self) -> u64 {
        let chunks = self.payload_bytes.div_ceil(SNAPSHOT_CHUNK_BYTES as u64);
        self.payload_offset() + self.payload_bytes + chunks * CHUNK_HASH_BYTES as u64
    }

    /// The header up to its hash.
    fn to_bytes(self) -> [u8; HASH_OFFSET] {
        let mut bytes = [0; HASH_OFFSET];
        bytes[..8].copy_from_slice(&SNAPSHOT_MAGIC);
        let version = if self.is_plain() {
            VERSION
        } else {
            VERSION_CONVERSATION
        };
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[12..56].copy_from_slice(&self.binding.to_bytes());
        bytes[56..64].copy_from_slice(&(self.position as u64).to_le_bytes());
        bytes[64..72].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[72..80].copy_from_slice(&(self.pending_len as u64).to_le_bytes());
        bytes[80..88].copy_from_slice(&(self.answer_len as u64).to_le_bytes());
        bytes
    }

    fn end(&self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[..8].copy_from_slice(&END_MARK);
        bytes[8..].copy_from_slice(&self.file_bytes().to_le_bytes());
        bytes
    }
}

/// The hash of a header and of the ids that follow it, begun with the header.
fn header_hasher(header: &[u8; HASH_OFFSET]) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(HEADER_DOMAIN);
    hasher.update(header);
    hasher
}

/// Checksum of a chunk: keyed with the header's hash, so that no chunk of another
/// snapshot passes, and with the index, so that none passes in another place.
fn chunk_hash(key: &[u8; 32], index: u64, chunk: &[u8]) -> [u8; CHUNK_HASH_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&index.to_le_bytes());
    hasher.update(chunk);
    let hash = hasher.finalize();
    hash.as_bytes()[..CHUNK_HASH_BYTES]
        .try_into()
        .expect("a hash has 32 bytes")
}
