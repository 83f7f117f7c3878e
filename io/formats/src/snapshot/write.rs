//! Writing a snapshot.

use std::io::{self, Write};

use super::{
    CHUNK_HASH_BYTES, IDS_AT_ONCE, SNAPSHOT_CHUNK_BYTES, SnapshotHeader, chunk_hash, header_hasher,
};

/// Takes the bytes of a state and writes the file around them; holds one chunk.
#[derive(Debug)]
pub struct SnapshotWriter<W: Write> {
    out: W,
    header: SnapshotHeader,
    key: [u8; 32],
    chunk: Vec<u8>,
    chunk_index: u64,
    taken_bytes: u64,
}

impl<W: Write> SnapshotWriter<W> {
    /// Writes header and ids to `out`, which is at the file's first byte and best
    /// takes large writes as they come.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    ///
    /// # Panics
    ///
    /// When `tokens`, those that are still to be consumed included, are not as many as
    /// the header says.
    pub fn new(mut out: W, header: SnapshotHeader, tokens: &[u32]) -> io::Result<Self> {
        assert_eq!(tokens.len(), header.id_count(), "as announced");
        let head = header.to_bytes();
        let mut hasher = header_hasher(&head);
        let mut encoded = Vec::with_capacity(4 * IDS_AT_ONCE.min(tokens.len()));
        for ids in tokens.chunks(IDS_AT_ONCE) {
            encode(ids, &mut encoded);
            hasher.update(&encoded);
        }
        let key = *hasher.finalize().as_bytes();
        out.write_all(&head)?;
        out.write_all(&key)?;
        for ids in tokens.chunks(IDS_AT_ONCE) {
            encode(ids, &mut encoded);
            out.write_all(&encoded)?;
        }
        let chunk_bytes = usize::try_from(header.payload_bytes()).unwrap_or(usize::MAX);
        let room = chunk_bytes.min(SNAPSHOT_CHUNK_BYTES) + CHUNK_HASH_BYTES;
        Ok(Self {
            out,
            header,
            key,
            chunk: Vec::with_capacity(room),
            chunk_index: 0,
            taken_bytes: 0,
        })
    }

    /// Writes the end. The bytes are in `out`, on no disk yet.
    ///
    /// # Errors
    ///
    /// Those of `out`, and `InvalidInput` when fewer bytes of state came than the
    /// header says.
    pub fn finish(mut self) -> io::Result<W> {
        if self.taken_bytes != self.header.payload_bytes() {
            return Err(self.other_length(self.taken_bytes));
        }
        self.write_chunk()?;
        self.out.write_all(&self.header.end())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_chunk(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let hash = chunk_hash(&self.key, self.chunk_index, &self.chunk);
        self.chunk.extend_from_slice(&hash);
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        self.chunk_index += 1;
        Ok(())
    }

    fn other_length(&self, found_bytes: u64) -> io::Error {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "a state of {found_bytes} bytes or more came, where {} were announced",
                self.header.payload_bytes()
            ),
        )
    }
}

/// Takes bytes of the state; more than announced are refused.
impl<W: Write> Write for SnapshotWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let after = self.taken_bytes.saturating_add(bytes.len() as u64);
        if after > self.header.payload_bytes() {
            return Err(self.other_length(after));
        }
        if self.chunk.len() == SNAPSHOT_CHUNK_BYTES {
            self.write_chunk()?;
        }
        let taken = bytes.len().min(SNAPSHOT_CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        self.taken_bytes += taken as u64;
        Ok(taken)
    }

    /// Chunks are written when they are full, whoever asks.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn encode(ids: &[u32], encoded: &mut Vec<u8>) {
    encoded.clear();
    for id in ids {
        encoded.extend_from_slice(&id.to_le_bytes());
    }
}
