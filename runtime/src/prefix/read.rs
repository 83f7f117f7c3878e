//! Reading a state out of a file.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use k3_formats::snapshot::Snapshot;
use k3_formats::{FormatError, ReadAt};
use k3_io::FileReader;

use super::error::PrefixError;
use super::steps::step;

/// A stored prefix: found, opened, and compared with the ids. As it is open, no
/// other process can take it away any more.
#[derive(Debug)]
pub struct Hit {
    pub(super) path: PathBuf,
    pub(super) file: PassingFile,
    pub(super) snapshot: Snapshot,
}

impl Hit {
    /// Token ids that the state has consumed.
    #[must_use]
    pub fn position(&self) -> usize {
        self.snapshot.header().position()
    }

    /// Bytes of state: what loading hands over.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.snapshot.header().payload_bytes()
    }
}

/// A file whose bytes pass through once: they do not stay in the page cache.
#[derive(Debug)]
pub(super) struct PassingFile(pub(super) FileReader);

impl PassingFile {
    pub(super) fn open(path: &Path) -> Result<Self, k3_io::IoError> {
        step().map_err(|source| k3_io::IoError::System {
            path: path.to_path_buf(),
            action: "open the file",
            source,
        })?;
        FileReader::open(path).map(Self)
    }
}

impl ReadAt for PassingFile {
    fn label(&self) -> &Path {
        self.0.label()
    }

    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        let result = self.0.read_exact_at(offset, buffer);
        self.0.drop_cache(offset, buffer.len() as u64);
        result
    }
}

impl Drop for PassingFile {
    fn drop(&mut self) {
        // What the system read ahead, and pages that two reads shared.
        self.0.drop_cache(0, self.0.len_bytes());
    }
}

/// Hands the state over; a fault of the file is `PrefixError::File`.
pub(super) fn load(
    file: &PassingFile,
    snapshot: &Snapshot,
    read: impl FnOnce(&mut dyn Read) -> io::Result<()>,
) -> Result<(), PrefixError> {
    let path = || file.label().to_path_buf();
    let mut payload = snapshot.payload(file);
    let result = read(&mut payload);
    // A fault of the file explains whatever the reader made of it.
    let taken_bytes = payload.finish().map_err(PrefixError::File)?;
    result.map_err(|source| PrefixError::State {
        path: path(),
        action: "restored",
        source,
    })?;
    let payload_bytes = snapshot.header().payload_bytes();
    if taken_bytes != payload_bytes {
        return Err(PrefixError::NotTaken {
            path: path(),
            payload_bytes,
            taken_bytes,
        });
    }
    Ok(())
}
