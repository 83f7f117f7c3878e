//! One state under a path.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use k3_formats::snapshot::{Snapshot, SnapshotBinding, SnapshotHeader, SnapshotWriter};

use super::error::PrefixError;
use super::partial::{PartialFile, remove_unowned, target_of};
use super::read::{PassingFile, load};

/// The ids of a conversation, and how far its state has come along them.
#[derive(Debug, Clone, Copy)]
pub struct ConversationIds<'a> {
    /// All of them.
    pub tokens: &'a [u32],
    /// How many of them the state has consumed, at least 1.
    pub position: usize,
    /// How many of the last of them were generated.
    pub answer_len: usize,
}

/// A conversation that is still to be saved: its name can be written.
#[derive(Debug)]
pub struct SnapshotDraft(PartialFile);

/// One conversation in a file: its token ids and its state.
#[derive(Debug)]
pub struct SnapshotFile {
    file: PassingFile,
    snapshot: Snapshot,
    tokens: Vec<u32>,
}

impl SnapshotFile {
    /// Begins a file under a hidden name beside `path`, so that what would not let
    /// it be written is known before there is anything to save. Removes what killed
    /// processes left of `path`.
    ///
    /// # Errors
    ///
    /// What the system reports.
    pub fn create(path: &Path) -> Result<SnapshotDraft, PrefixError> {
        remove_leftovers(path);
        PartialFile::create(path).map(SnapshotDraft)
    }

    /// Opens a file and checks all but the state itself.
    ///
    /// # Errors
    ///
    /// A file that is not there, is damaged, or was made with another checkpoint or
    /// other settings.
    pub fn open(path: &Path, binding: &SnapshotBinding) -> Result<Self, PrefixError> {
        let file = PassingFile::open(path)?;
        let (snapshot, tokens) = Snapshot::open(&file, binding).map_err(PrefixError::File)?;
        Ok(Self {
            file,
            snapshot,
            tokens,
        })
    }

    /// All token ids: those the state has consumed, then those it has not.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many of them the state has consumed.
    #[must_use]
    pub fn position(&self) -> usize {
        self.snapshot.header().position()
    }

    /// How many of the last of them were generated, in one answer.
    #[must_use]
    pub fn answer_len(&self) -> usize {
        self.snapshot.header().answer_len()
    }

    /// Length of the file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.snapshot.header().file_bytes()
    }

    /// Bytes of state: what loading hands over.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.snapshot.header().payload_bytes()
    }

    /// Hands the state to `read`, each byte checked before. After an error the state
    /// that `read` filled is to be reset.
    ///
    /// # Errors
    ///
    /// A damaged file, what `read` returns, and bytes that it left.
    pub fn load(
        &self,
        read: impl FnOnce(&mut dyn Read) -> io::Result<()>,
    ) -> Result<(), PrefixError> {
        load(&self.file, &self.snapshot, read)
    }
}

impl SnapshotDraft {
    /// Saves the state of `ids`, of which `write` writes exactly `payload_bytes`. The
    /// name has the former file or the new one, whatever happens. Returns the length
    /// of the file in bytes.
    ///
    /// # Errors
    ///
    /// What the system reports, a full disk, no ids or too many, and what `write`
    /// returns. The file that was there stays then.
    pub fn save(
        self,
        binding: &SnapshotBinding,
        ids: ConversationIds<'_>,
        payload_bytes: u64,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<u64, PrefixError> {
        let pending_len = ids.tokens.len() - ids.position;
        let header = SnapshotHeader::new(*binding, ids.position, payload_bytes)?;
        let header = header.of_conversation(pending_len, ids.answer_len)?;
        self.0.reserve(header.file_bytes())?;
        write_snapshot(self.0, header, ids.tokens, write)?;
        Ok(header.file_bytes())
    }
}

/// Writes a whole snapshot and gives it its name.
pub(super) fn write_snapshot(
    mut partial: PartialFile,
    header: SnapshotHeader,
    tokens: &[u32],
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), PrefixError> {
    let file_bytes = header.file_bytes();
    let result = SnapshotWriter::new(&mut partial, header, tokens).and_then(|mut writer| {
        write(&mut writer)?;
        writer.finish()?;
        Ok(())
    });
    match result {
        Ok(()) => partial.finish(file_bytes),
        Err(source) => Err(partial.blame(file_bytes, source)),
    }
}

/// Removes what killed processes left of `path`: a courtesy, so nothing fails.
fn remove_leftovers(path: &Path) {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let target = name.to_str().and_then(target_of);
        if target.is_some_and(|target| path.file_name() == Some(target.as_ref())) {
            remove_unowned(&entry.path());
        }
    }
}
