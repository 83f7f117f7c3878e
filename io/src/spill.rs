//! A file for what a run writes away and reads back: it has no name, so nothing
//! of it is left when the process is gone, however it ended.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::sys::statvfs::statvfs;

use crate::direct::{DirectFile, DirectPolicy};
use crate::engine::EngineError;
use crate::units::file;

/// Why nothing can be written away, or read back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpillError {
    /// The directory takes no file.
    #[error(
        "{}: cannot {action} in this directory: {}; name another with --spill",
        dir.display(),
        io::Error::from_raw_os_error(*errno)
    )]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        errno: i32,
    },
    /// There is no room for the file.
    #[error(
        "{}: {bytes} bytes are needed for positions that do not stay in memory, {}: {}; free \
         some, name another directory with --spill, or lower --context or --sequences",
        dir.display(),
        free_of(*free_bytes),
        io::Error::from_raw_os_error(*errno)
    )]
    Full {
        /// The directory.
        dir: PathBuf,
        /// What the file would take.
        bytes: u64,
        /// What is free, where the file system tells.
        free_bytes: Option<u64>,
        /// The system's reason.
        errno: i32,
    },
    /// A write failed.
    #[error(
        "{}: writing {bytes} bytes of positions at offset {offset} failed: {}; if the disk is \
         full, free some or name another directory with --spill, else check the drive (dmesg, \
         smartctl)",
        dir.display(),
        io::Error::from_raw_os_error(*errno)
    )]
    Write {
        /// The directory.
        dir: PathBuf,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// The system's reason.
        errno: i32,
    },
    /// A read failed.
    #[error(
        "{}: reading {bytes} bytes of positions back at offset {offset} failed: {}; check the \
         drive (dmesg, smartctl), or name another directory with --spill",
        dir.display(),
        io::Error::from_raw_os_error(*errno)
    )]
    Read {
        /// The directory.
        dir: PathBuf,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// The system's reason.
        errno: i32,
    },
    /// What was read is not what was written.
    #[error(
        "{}: {bytes} bytes of positions at offset {offset} are not what was written there; check \
         the drive (dmesg, smartctl), or name another directory with --spill",
        dir.display()
    )]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
    },
}

fn free_of(free_bytes: Option<u64>) -> String {
    match free_bytes {
        Some(bytes) => format!("but {bytes} are free"),
        None => "but they cannot be had".to_owned(),
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// A file without a name, with all its room taken from the disk when it is made.
#[derive(Debug)]
pub struct SpillFile {
    dir: PathBuf,
    file: File,
    /// Bypasses the page cache; `None` where that is not to be had.
    direct: Option<File>,
    /// The file system took the flag but not the write.
    direct_refused: AtomicBool,
    bytes: u64,
}

impl SpillFile {
    /// A file of `bytes` bytes in `dir`. A file system that can set room aside
    /// does so: the disk is full now or not at all.
    ///
    /// # Errors
    ///
    /// [`SpillError::Directory`] and [`SpillError::Full`].
    pub fn create(dir: &Path, bytes: u64, policy: DirectPolicy) -> Result<Self, SpillError> {
        let refused = |action| {
            move |error: io::Error| SpillError::Directory {
                dir: dir.to_owned(),
                action,
                errno: errno(&error),
            }
        };
        let file = nameless(dir).map_err(refused("make a file"))?;
        let full = |reason: i32| SpillError::Full {
            dir: dir.to_owned(),
            bytes,
            free_bytes: statvfs(dir).ok().map(|found| {
                found
                    .blocks_available()
                    .saturating_mul(found.fragment_size())
            }),
            errno: reason,
        };
        let length = i64::try_from(bytes).map_err(|_| full(libc::EFBIG))?;
        match fallocate(&file, FallocateFlags::empty(), 0, length.max(1)) {
            Ok(()) => {}
            // Room is then found, or not, with every write.
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                file.set_len(bytes).map_err(|error| full(errno(&error)))?;
            }
            Err(reason) => return Err(full(reason as i32)),
        }
        let direct = match policy {
            DirectPolicy::Never => None,
            DirectPolicy::Probe => OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_DIRECT)
                .open(reopened(&file))
                .ok(),
        };
        Ok(Self {
            dir: dir.to_owned(),
            file,
            direct,
            direct_refused: AtomicBool::new(false),
            bytes,
        })
    }

    /// The directory, for messages.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its length.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// The same file for an engine to read.
    ///
    /// # Errors
    ///
    /// Those of [`DirectFile::open`].
    pub fn reader(&self, policy: DirectPolicy) -> Result<DirectFile, EngineError> {
        DirectFile::open_named(&self.dir, &reopened(&self.file), policy)
    }

    /// Writes whole 4096-byte pages from memory aligned to as many.
    ///
    /// # Errors
    ///
    /// [`SpillError::Write`].
    pub fn write(&self, pages: &[u8], offset: u64) -> Result<(), SpillError> {
        self.try_write(pages, offset)
            .map_err(|error| SpillError::Write {
                dir: self.dir.clone(),
                offset,
                bytes: file(pages.len()),
                errno: errno(&error),
            })
    }

    fn try_write(&self, pages: &[u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = self.direct() {
            match direct.write_all_at(pages, offset) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.direct_refused.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.file.write_all_at(pages, offset)?;
        // The plan counts on the memory that the page cache would take.
        self.file.sync_data()?;
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        Ok(())
    }

    /// Fills whole 4096-byte pages of memory aligned to as many. For what nobody
    /// reads ahead; else there is [`SpillFile::reader`].
    ///
    /// # Errors
    ///
    /// [`SpillError::Read`].
    pub fn read(&self, pages: &mut [u8], offset: u64) -> Result<(), SpillError> {
        let bytes = file(pages.len());
        self.try_read(pages, offset)
            .map_err(|error| SpillError::Read {
                dir: self.dir.clone(),
                offset,
                bytes,
                errno: errno(&error),
            })
    }

    fn try_read(&self, pages: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = self.direct() {
            match direct.read_exact_at(pages, offset) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.direct_refused.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.file.read_exact_at(pages, offset)
    }

    fn direct(&self) -> Option<&File> {
        let is_refused = self.direct_refused.load(Ordering::Relaxed);
        self.direct.as_ref().filter(|_| !is_refused)
    }
}

/// Another way to a file that has no name.
fn reopened(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A file in `dir` that no directory lists.
fn nameless(dir: &Path) -> io::Result<File> {
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(flags);
        options
    };
    match open(libc::O_TMPFILE).open(dir) {
        // Not every file system has it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {}
        result => return result,
    }
    let path = dir.join(format!(".k3-spill-{}", std::process::id()));
    let file = open(0).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{HugeArena, PagePolicy};
    use crate::lease::SlotArena;

    #[test]
    fn what_is_written_is_read_back_and_no_name_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (arena, _) = HugeArena::reserve(8192, PagePolicy::Small).unwrap();
        let slots = SlotArena::new(&arena, 0..8192, 4096).unwrap();
        for policy in [DirectPolicy::Probe, DirectPolicy::Never] {
            let spill = SpillFile::create(dir.path(), 5 * 4096, policy).unwrap();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            let [mut written, mut read] = [0, 1].map(|slot| slots.acquire(slot).unwrap());
            for page in [4_u8, 0, 2] {
                written.fill(page + 1);
                spill.write(&written, u64::from(page) * 4096).unwrap();
            }
            for (page, value) in [(0_u8, 1), (1, 0), (2, 3), (4, 5)] {
                spill.read(&mut read, u64::from(page) * 4096).unwrap();
                assert!(read.iter().all(|byte| *byte == value), "page {page}");
            }
            let reader = spill.reader(policy).unwrap();
            assert_eq!(reader.len_bytes(), spill.len_bytes());
            assert_eq!(reader.path(), dir.path());
            let beyond = spill.read(&mut read, 5 * 4096).unwrap_err();
            assert!(matches!(beyond, SpillError::Read { offset: 20_480, .. }));
        }
    }

    #[test]
    fn room_that_is_not_there_is_refused_with_what_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        for bytes in [1 << 60, u64::MAX] {
            let full = SpillFile::create(dir.path(), bytes, DirectPolicy::Probe).unwrap_err();
            assert!(matches!(full, SpillError::Full { .. }), "{full:?}");
            let said = full.to_string();
            assert!(said.contains(&bytes.to_string()), "{said}");
            assert!(said.contains(dir.path().to_str().unwrap()), "{said}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let missing = dir.path().join("none");
        let refused = SpillFile::create(&missing, 4096, DirectPolicy::Probe).unwrap_err();
        assert!(matches!(refused, SpillError::Directory { .. }));
        assert!(refused.to_string().contains("none"), "{refused}");
    }
}
