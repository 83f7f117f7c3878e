//! One state under a path.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use k3_formats::snapshot::{Snapshot, SnapshotBinding, SnapshotHeader, SnapshotWriter};

use super::error::PrefixError;
use super::partial::{PartialFile, remove_unowned, target_of};
use super::read::{PassingFile, load};

/// One conversation in a file: its token ids and the state after them.
#[derive(Debug)]
pub struct SnapshotFile {
    file: PassingFile,
    snapshot: Snapshot,
    tokens: Vec<u32>,
}

impl SnapshotFile {
    /// Saves the state after `tokens`, of which `write` writes exactly
    /// `payload_bytes`. `path` has the former file or the new one, whatever happens.
    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    ///
    /// What the system reports, a full disk, no ids or too many, and what `write`
    /// returns. The file that was there stays then.
    pub fn save(
        path: &Path,
        binding: &SnapshotBinding,
        tokens: &[u32],
        payload_bytes: u64,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<u64, PrefixError> {
        let header = SnapshotHeader::new(*binding, tokens.len(), payload_bytes)?;
        remove_leftovers(path);
        let partial = PartialFile::create(path)?;
        partial.reserve(header.file_bytes())?;
        write_snapshot(partial, header, tokens, write)?;
        Ok(header.file_bytes())
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

    /// The token ids that the state has consumed: as many as its position.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
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
