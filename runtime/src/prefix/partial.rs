//! A file being written: hidden and locked until it is whole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use k3_io::{beside, rename_to_disk};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::sys::statvfs::statvfs;

use super::error::PrefixError;
use super::steps::step;

/// Bytes after which what was written goes to the disk and leaves the page cache,
/// which is memory that others count on.
const SYNC_BYTES: u64 = 32 << 20;

/// Names that are tried for an unfinished file.
const ATTEMPTS_MAX: u32 = 1000;

/// An unfinished file; dropped before its end, it is removed.
#[derive(Debug)]
pub(super) struct PartialFile {
    path: PathBuf,
    target: PathBuf,
    file: File,
    unsynced_bytes: u64,
    /// What made a write fail, whatever its caller made of it.
    failure: Option<io::Error>,
    is_named: bool,
}

impl PartialFile {
    /// Makes and locks a hidden file beside `target`, for its owner alone.
    pub(super) fn create(target: &Path) -> Result<Self, PrefixError> {
        let error = |source| PrefixError::system(target, "create the file")(source);
        for attempt in 0..ATTEMPTS_MAX {
            let path = beside(target, &format!("{}-{attempt}.partial", std::process::id()));
            step().map_err(error)?;
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let file = match options.open(&path) {
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other.map_err(error)?,
            };
            let is_kept = match file.try_lock() {
                // Somebody tidied up between the two calls, or is about to.
                Ok(()) => is_at(&file, &path),
                Err(TryLockError::WouldBlock) => false,
                // No locks here: nobody can lock it, so nobody removes it.
                Err(TryLockError::Error(_)) => true,
            };
            if is_kept {
                return Ok(Self {
                    path,
                    target: target.to_path_buf(),
                    file,
                    unsynced_bytes: 0,
                    failure: None,
                    is_named: false,
                });
            }
        }
        Err(error(io::ErrorKind::AlreadyExists.into()))
    }

    /// Takes the room for the whole file, so that a full disk fails before the work
    /// and other processes see what will be there.
    pub(super) fn reserve(&self, file_bytes: u64) -> Result<(), PrefixError> {
        let bytes = i64::try_from(file_bytes).unwrap_or(i64::MAX);
        let reserve = || -> io::Result<()> {
            step()?;
            match fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => self.file.set_len(file_bytes),
                other => Ok(other?),
            }
        };
        reserve().map_err(|source| self.error("reserve room", file_bytes, source))
    }

    /// What failed: the file, or else whoever wrote to it, who says `source`.
    pub(super) fn blame(&mut self, file_bytes: u64, source: io::Error) -> PrefixError {
        match self.failure.take() {
            Some(failure) => self.error("write", file_bytes, failure),
            None => PrefixError::State {
                path: self.target.clone(),
                action: "saved",
                source,
            },
        }
    }

    /// Brings everything to the disk, then gives it its name.
    pub(super) fn finish(mut self, file_bytes: u64) -> Result<(), PrefixError> {
        let finish = |partial: &mut Self| -> io::Result<()> {
            step()?;
            partial.file.set_modified(SystemTime::now())?;
            step()?;
            partial.file.sync_all()?;
            partial.drop_cache();
            step()?;
            rename_to_disk(&partial.path, &partial.target)?;
            partial.is_named = true;
            step()
        };
        finish(&mut self).map_err(|source| self.error("write to the disk", file_bytes, source))
    }

    fn error(&self, action: &'static str, file_bytes: u64, source: io::Error) -> PrefixError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => PrefixError::DiskFull {
                path: self.target.clone(),
                needed_bytes: file_bytes,
                available_bytes: available_bytes(&self.path).unwrap_or(0),
            },
            _ => PrefixError::system(&self.target, action)(source),
        }
    }

    /// Advice: a file system that does not take it loses nothing.
    fn drop_cache(&self) {
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        step()?;
        let written = self.file.write(bytes)?;
        self.unsynced_bytes += written as u64;
        if self.unsynced_bytes >= SYNC_BYTES {
            self.file.sync_data()?;
            self.drop_cache();
            self.unsynced_bytes = 0;
        }
        Ok(written)
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_some(bytes).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.failure = Some(match error.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(error.kind(), error.to_string()),
                });
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_named && step().is_ok() {
            // What failed before matters; the next process tries again.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The name of the finished file that `file_name` is an unfinished form of.
pub(super) fn target_of(file_name: &str) -> Option<&str> {
    let rest = file_name.strip_prefix('.')?.strip_suffix(".partial")?;
    let (name, numbers) = rest.rsplit_once('.')?;
    let (pid, attempt) = numbers.split_once('-')?;
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    (is_number(pid) && is_number(attempt)).then_some(name)
}

/// Removes an unfinished file that no living process owns; whether it is gone.
pub(super) fn remove_unowned(path: &Path) -> bool {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits());
    let Ok(file) = options.open(path) else {
        return false;
    };
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    // Held until the name is gone.
    is_file
        && file.try_lock().is_ok()
        && is_at(&file, path)
        && step().is_ok()
        && fs::remove_file(path).is_ok()
}

/// Bytes that whoever runs this may still write to the disk of `path`.
pub(super) fn available_bytes(path: &Path) -> io::Result<u64> {
    let found = statvfs(path.parent().unwrap_or(path))?;
    // Their types differ between platforms.
    #[allow(clippy::useless_conversion, reason = "u32 on some platforms")]
    Ok(u64::from(found.blocks_available()).saturating_mul(found.fragment_size().into()))
}

/// Whether `path` still names `file`.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(named)) => (file.dev(), file.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}
