//! Reading a snapshot, strictly: anything but what the writer makes is refused.

use std::io::{self, Read};

use super::{
    CHUNK_HASH_BYTES, END_BYTES, HASH_OFFSET, HEADER_BYTES, IDS_AT_ONCE, SNAPSHOT_CHUNK_BYTES,
    SNAPSHOT_MAGIC, SnapshotBinding, SnapshotFault, SnapshotHeader, StateForm, VERSION,
    VERSION_CONVERSATION, chunk_hash, header_hasher,
};
use crate::error::FormatError;
use crate::identity::Identity;
use crate::read_at::ReadAt;

/// A snapshot of which all but the state is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    header: SnapshotHeader,
    key: [u8; 32],
}

impl Snapshot {
    /// Checks a snapshot of whatever ids, and returns them all: also those that the
    /// state has not consumed.
    ///
    /// # Errors
    ///
    /// A failed read, and [`FormatError::Snapshot`] with the place of the first
    /// fault, which may be another binding.
    pub fn open(
        file: &dyn ReadAt,
        binding: &SnapshotBinding,
    ) -> Result<(Self, Vec<u32>), FormatError> {
        let mut tokens = Vec::new();
        let snapshot = Self::check(file, binding, |ids, count| {
            // No more than the file has bytes for: its length was compared.
            tokens.reserve_exact(count);
            tokens.extend_from_slice(ids);
        })?;
        Ok((snapshot, tokens))
    }

    /// Checks a snapshot that should have consumed exactly `tokens`, and hold nothing
    /// else.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::open`]; other ids are a fault too.
    pub fn open_of(
        file: &dyn ReadAt,
        binding: &SnapshotBinding,
        tokens: &[u32],
    ) -> Result<Self, FormatError> {
        let mut fault = None;
        let mut seen = 0;
        let snapshot = Self::check(file, binding, |ids, _| {
            let expected = tokens.get(seen..).unwrap_or_default();
            let pairs = expected.iter().zip(ids).enumerate();
            let mut others = pairs.filter(|(_, (expected, found))| expected != found);
            if let (None, Some((index, (&expected, &found)))) = (&fault, others.next()) {
                let index = (seen + index) as u64;
                fault = Some(SnapshotFault::Token {
                    index,
                    expected,
                    found,
                });
            }
            seen += ids.len();
        })?;
        let header = snapshot.header;
        if !header.is_plain() {
            let fault = SnapshotFault::NotPlain {
                pending: (header.id_count() - header.position()) as u64,
            };
            return Err(fault_at(file, 8, fault));
        }
        if seen != tokens.len() {
            let (expected, found) = (tokens.len() as u64, seen as u64);
            return Err(fault_at(
                file,
                56,
                SnapshotFault::TokenCount { expected, found },
            ));
        }
        match fault {
            Some(SnapshotFault::Token { index, .. }) => {
                let offset = HEADER_BYTES as u64 + 4 * index;
                Err(fault_at(file, offset, fault.expect("just matched")))
            }
            _ => Ok(snapshot),
        }
    }

    /// What the snapshot says of itself.
    #[must_use]
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// The bytes of the state, each checked before it is seen. `file` is the one
    /// that was opened.
    pub fn payload<'a>(&self, file: &'a dyn ReadAt) -> SnapshotPayload<'a> {
        SnapshotPayload {
            file,
            snapshot: *self,
            chunk: Vec::new(),
            taken_of_chunk: 0,
            chunk_index: 0,
            read_bytes: 0,
            taken_bytes: 0,
            failure: None,
        }
    }

    /// Reads header, ids and end; hands the ids over piece by piece, with the
    /// number that is left.
    fn check(
        file: &dyn ReadAt,
        binding: &SnapshotBinding,
        mut each: impl FnMut(&[u32], usize),
    ) -> Result<Self, FormatError> {
        let mut bytes = [0; HEADER_BYTES];
        if file.len_bytes() < (HEADER_BYTES + END_BYTES) as u64 {
            return Err(too_short(file));
        }
        file.read_exact_at(0, &mut bytes)?;
        let header = parse(file, &bytes)?;
        let (head, stated) = bytes.split_at(HASH_OFFSET);
        let mut hasher = header_hasher(head.try_into().expect("split there"));
        let mut left = header.id_count();
        let mut offset = HEADER_BYTES as u64;
        let mut encoded = vec![0; 4 * left.min(IDS_AT_ONCE)];
        let mut ids = Vec::with_capacity(left.min(IDS_AT_ONCE));
        while left > 0 {
            let count = left.min(IDS_AT_ONCE);
            let piece = &mut encoded[..4 * count];
            file.read_exact_at(offset, piece)?;
            hasher.update(piece);
            ids.clear();
            ids.extend(piece.chunks_exact(4).map(|id| u32_at(id, 0)));
            each(&ids, left);
            left -= count;
            offset += 4 * count as u64;
        }
        let key = *hasher.finalize().as_bytes();
        if stated != key {
            let (expected, found) = (hex(stated), hex(&key));
            let fault = SnapshotFault::HeaderHash { expected, found };
            return Err(fault_at(file, HASH_OFFSET as u64, fault));
        }
        check_binding(file, binding, header.binding())?;
        let mut end = [0; END_BYTES];
        file.read_exact_at(header.end_offset(), &mut end)?;
        if end != header.end() {
            let (expected, found) = (hex(&header.end()), hex(&end));
            let fault = SnapshotFault::End { expected, found };
            return Err(fault_at(file, header.end_offset(), fault));
        }
        Ok(Self { header, key })
    }
}

/// The bytes of a state. A chunk is read and checked before its first byte is
/// handed over: what fails is never seen.
pub struct SnapshotPayload<'a> {
    file: &'a dyn ReadAt,
    snapshot: Snapshot,
    chunk: Vec<u8>,
    taken_of_chunk: usize,
    chunk_index: u64,
    read_bytes: u64,
    taken_bytes: u64,
    failure: Option<FormatError>,
}

impl SnapshotPayload<'_> {
    /// Bytes handed over, once it is clear that none was missed for a fault of the
    /// file.
    ///
    /// # Errors
    ///
    /// What made [`Read::read`] fail: a failed read of the file or
    /// [`SnapshotFault::ChunkHash`].
    pub fn finish(self) -> Result<u64, FormatError> {
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self.taken_bytes),
        }
    }

    fn next_chunk(&mut self) -> Result<(), FormatError> {
        let header = &self.snapshot.header;
        let left = header.payload_bytes() - self.read_bytes;
        let bytes = usize::try_from(left).unwrap_or(usize::MAX);
        let bytes = bytes.min(SNAPSHOT_CHUNK_BYTES);
        let hashes_bytes = self.chunk_index * CHUNK_HASH_BYTES as u64;
        let offset = header.payload_offset() + self.read_bytes + hashes_bytes;
        self.chunk.resize(bytes + CHUNK_HASH_BYTES, 0);
        self.file.read_exact_at(offset, &mut self.chunk)?;
        let (chunk, stated) = self.chunk.split_at(bytes);
        let hash = chunk_hash(&self.snapshot.key, self.chunk_index, chunk);
        if stated != hash {
            let fault = SnapshotFault::ChunkHash {
                index: self.chunk_index,
                expected: hex(stated),
                found: hex(&hash),
            };
            return Err(fault_at(self.file, offset, fault));
        }
        self.chunk.truncate(bytes);
        self.taken_of_chunk = 0;
        self.chunk_index += 1;
        self.read_bytes += bytes as u64;
        Ok(())
    }
}

/// An error is repeated for whoever reads on; [`SnapshotPayload::finish`] has it.
impl Read for SnapshotPayload<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let is_empty = self.taken_of_chunk == self.chunk.len();
        let is_more = self.read_bytes < self.snapshot.header.payload_bytes();
        if self.failure.is_none()
            && is_empty
            && is_more
            && let Err(failure) = self.next_chunk()
        {
            self.chunk.clear();
            self.taken_of_chunk = 0;
            self.failure = Some(failure);
        }
        if let Some(failure) = &self.failure {
            let text = failure.to_string();
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let ready = &self.chunk[self.taken_of_chunk..];
        let taken = ready.len().min(out.len());
        out[..taken].copy_from_slice(&ready[..taken]);
        self.taken_of_chunk += taken;
        self.taken_bytes += taken as u64;
        Ok(taken)
    }
}

/// Not even a header and an end: another file, or one that was cut off.
fn too_short(file: &dyn ReadAt) -> FormatError {
    let mut bytes = SNAPSHOT_MAGIC;
    let found = file.len_bytes();
    let len = usize::try_from(found).map_or(bytes.len(), |len| len.min(bytes.len()));
    if let Err(error) = file.read_exact_at(0, &mut bytes[..len]) {
        return error;
    }
    let expected = (HEADER_BYTES + END_BYTES) as u64;
    let fault = match len > 0 && bytes == SNAPSHOT_MAGIC {
        true => SnapshotFault::TooShort { expected, found },
        false => SnapshotFault::Magic,
    };
    fault_at(file, 0, fault)
}

/// The header's fields, where they can be those of this file.
fn parse(file: &dyn ReadAt, bytes: &[u8; HEADER_BYTES]) -> Result<SnapshotHeader, FormatError> {
    let fault = |offset, fault| Err(fault_at(file, offset, fault));
    if bytes[..8] != SNAPSHOT_MAGIC {
        return fault(0, SnapshotFault::Magic);
    }
    let found = u32_at(bytes, 8);
    let zero_offset = match found {
        VERSION => 72,
        VERSION_CONVERSATION => 88,
        _ => {
            let expected = VERSION_CONVERSATION;
            return fault(8, SnapshotFault::Version { expected, found });
        }
    };
    if bytes[zero_offset..HASH_OFFSET]
        .iter()
        .any(|byte| *byte != 0)
    {
        return fault(zero_offset as u64, SnapshotFault::Reserved);
    }
    let code = u32_at(bytes, 48);
    let Some(form) = StateForm::of_code(code) else {
        return fault(48, SnapshotFault::Form { found: code });
    };
    let binding = SnapshotBinding {
        identity: Identity::from_bytes(bytes[16..48].try_into().expect("32 bytes")),
        numerics_version: u32_at(bytes, 12),
        form,
        layer_count: u32_at(bytes, 52),
    };
    let position = usize::try_from(u64_at(bytes, 56)).unwrap_or(usize::MAX);
    let header = SnapshotHeader::new(binding, position, u64_at(bytes, 64)).map_err(|fault| {
        let is_position = matches!(fault, SnapshotFault::Position { .. });
        fault_at(file, if is_position { 56 } else { 64 }, fault)
    })?;
    let header = match found {
        VERSION => header,
        _ => conversation(header, bytes).map_err(|fault| fault_at(file, 72, fault))?,
    };
    let (expected, found) = (header.file_bytes(), file.len_bytes());
    if expected != found {
        return fault(56, SnapshotFault::Length { expected, found });
    }
    Ok(header)
}

/// The rest of a conversation's header; one that has no more than a plain snapshot
/// would be written as such.
fn conversation(
    header: SnapshotHeader,
    bytes: &[u8; HEADER_BYTES],
) -> Result<SnapshotHeader, SnapshotFault> {
    let size = |at| usize::try_from(u64_at(bytes, at)).unwrap_or(usize::MAX);
    let header = header.of_conversation(size(72), size(80))?;
    if header.is_plain() {
        return Err(SnapshotFault::Conversation {
            position: header.position() as u64,
            pending: 0,
            answer: 0,
        });
    }
    Ok(header)
}

fn check_binding(
    file: &dyn ReadAt,
    expected: &SnapshotBinding,
    found: &SnapshotBinding,
) -> Result<(), FormatError> {
    let fields = [
        (
            12,
            "numerics version",
            expected.numerics_version.to_string(),
            found.numerics_version.to_string(),
        ),
        (
            16,
            "checkpoint",
            expected.identity.to_string(),
            found.identity.to_string(),
        ),
        (
            48,
            "attention form",
            expected.form.name().to_owned(),
            found.form.name().to_owned(),
        ),
        (
            52,
            "layer count",
            expected.layer_count.to_string(),
            found.layer_count.to_string(),
        ),
    ];
    match fields.into_iter().find(|field| field.2 != field.3) {
        Some((offset, what, expected, found)) => {
            let fault = SnapshotFault::Binding {
                what,
                expected,
                found,
            };
            Err(fault_at(file, offset, fault))
        }
        None => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn fault_at(file: &dyn ReadAt, offset: u64, fault: SnapshotFault) -> FormatError {
    FormatError::Snapshot {
        path: file.label().to_path_buf(),
        offset,
        fault,
    }
}
