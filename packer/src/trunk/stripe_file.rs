//! A stripe being written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

use super::error::TrunkError;

/// A stripe under the name of something unfinished.
#[derive(Debug)]
pub(super) struct StripeFile {
    path: PathBuf,
    file: File,
    /// Bypasses the page cache; `None` where that is not to be had.
    direct: Option<File>,
    /// The file system took the flag but not the write.
    direct_refused: AtomicBool,
    /// Whether something was written that is not synced.
    is_dirty: AtomicBool,
}

impl StripeFile {
    /// Opens the file, made if it is not there, with `kept_bytes` of it.
    ///
    /// # Errors
    ///
    /// A file that is shorter, and what the system reports.
    pub(super) fn open(path: &Path, kept_bytes: u64) -> Result<Self, TrunkError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(TrunkError::writing(path, "open the file"))?;
        let length = file
            .metadata()
            .map_err(TrunkError::writing(path, "ask for the length"))?
            .len();
        if length < kept_bytes {
            return Err(TrunkError::Damaged {
                path: path.to_owned(),
                detail: format!("has {length} bytes, but the journal says {kept_bytes}"),
            });
        }
        // What was written after the last record is written again.
        file.set_len(kept_bytes)
            .map_err(TrunkError::writing(path, "set the length"))?;
        let direct = OpenOptions::new()
            .write(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(path)
            .ok();
        Ok(Self {
            path: path.to_owned(),
            file,
            direct,
            direct_refused: AtomicBool::new(false),
            is_dirty: AtomicBool::new(true),
        })
    }

    /// Writes whole pages from aligned memory.
    pub(super) fn write_pages(&self, pages: &[u8], offset: u64) -> Result<(), TrunkError> {
        self.is_dirty.store(true, Ordering::Relaxed);
        self.put(pages, offset)
            .map_err(TrunkError::writing(&self.path, "write"))
    }

    fn put(&self, pages: &[u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = &self.direct
            && !self.direct_refused.load(Ordering::Relaxed)
        {
            match direct.write_all_at(pages, offset) {
                Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                    self.direct_refused.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.file.write_all_at(pages, offset)
    }

    /// Writes a little from any memory.
    pub(super) fn write_small(&self, bytes: &[u8], offset: u64) -> Result<(), TrunkError> {
        self.is_dirty.store(true, Ordering::Relaxed);
        self.file
            .write_all_at(bytes, offset)
            .map_err(TrunkError::writing(&self.path, "write"))
    }

    /// Everything written is on the disk when this returns, and as good as
    /// nothing of it in the page cache.
    pub(super) fn sync(&self) -> Result<(), TrunkError> {
        if !self.is_dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.file
            .sync_data()
            .map_err(TrunkError::writing(&self.path, "write to the disk"))?;
        // Read by another program later, if at all: a hint that may be ignored.
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        Ok(())
    }

    /// Whether writes bypass the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some() && !self.direct_refused.load(Ordering::Relaxed)
    }
}
