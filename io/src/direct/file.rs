//! One file, opened for buffered and, where possible, direct reads.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::dio::{self, DioSupport};
use crate::arena::{HugeArena, PagePolicy};
use crate::engine::EngineError;
use crate::file::FileReader;
use crate::lease::SlotArena;
use crate::units::{file, memory};
use crate::window::DioAlignment;
use k3_formats::ReadAt as _;

/// Whether to try direct reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectPolicy {
    /// Yes, where a real aligned read of the file works.
    Probe,
    /// No: buffered reads whose pages are dropped from the cache afterwards.
    Never,
}

/// A regular file that engines read, open as long as the value lives.
#[derive(Debug)]
pub struct DirectFile {
    path: PathBuf,
    buffered: File,
    direct: Option<File>,
    alignment: DioAlignment,
    length: u64,
    device: u64,
    fallback: Option<String>,
}

impl DirectFile {
    /// Opens a file and finds out how it can be read.
    ///
    /// # Errors
    ///
    /// [`EngineError::Open`] when it cannot be opened or read,
    /// [`EngineError::NotAFile`] when it is a directory, a device or a pipe.
    pub fn open(path: &Path, policy: DirectPolicy) -> Result<Self, EngineError> {
        Self::open_named(path, path, policy)
    }

    /// The same of the file at `at`, which messages call `path`.
    ///
    /// # Errors
    ///
    /// As [`DirectFile::open`].
    pub(crate) fn open_named(
        path: &Path,
        at: &Path,
        policy: DirectPolicy,
    ) -> Result<Self, EngineError> {
        let open_error = |error: &io::Error| EngineError::open(path, "open the file", error);
        // Asked before opening: to open a pipe waits for its writer.
        let metadata = at.metadata().map_err(|error| open_error(&error))?;
        if !metadata.is_file() {
            return Err(EngineError::NotAFile {
                path: path.to_path_buf(),
            });
        }
        let buffered = File::open(at).map_err(|error| open_error(&error))?;
        let metadata = buffered.metadata().map_err(|error| open_error(&error))?;
        let mut opened = Self {
            path: path.to_path_buf(),
            buffered,
            direct: None,
            alignment: DioAlignment::FLOOR,
            length: metadata.len(),
            device: metadata.dev(),
            fallback: None,
        };
        match policy {
            DirectPolicy::Never => opened.fallback = Some("asked for".to_owned()),
            DirectPolicy::Probe => match opened.probe(at) {
                Ok((direct, alignment)) => {
                    // Both handles were opened by name.
                    opened.require(&direct, (metadata.dev(), metadata.ino()))?;
                    opened.direct = Some(direct);
                    opened.alignment = alignment;
                }
                Err(reason) => opened.fallback = Some(reason),
            },
        }
        Ok(opened)
    }

    /// Opens the file of `reader` again, for large reads. What its header said
    /// holds for no other file that may have taken its name.
    ///
    /// # Errors
    ///
    /// [`EngineError::Replaced`] when the path names another file by now, and
    /// those of [`DirectFile::open`].
    pub fn reopen(reader: &FileReader, policy: DirectPolicy) -> Result<Self, EngineError> {
        let opened = Self::open(reader.label(), policy)?;
        opened.require(&opened.buffered, reader.identity())?;
        Ok(opened)
    }

    /// Checks that `handle` is open on the file `identity` names.
    fn require(&self, handle: &File, identity: (u64, u64)) -> Result<(), EngineError> {
        let metadata = handle
            .metadata()
            .map_err(|error| EngineError::open(&self.path, "identify the file", &error))?;
        if (metadata.dev(), metadata.ino()) == identity {
            return Ok(());
        }
        Err(EngineError::Replaced {
            path: self.path.clone(),
        })
    }

    /// Opens the file at `at` for direct reads and makes one; else the reason why
    /// not.
    fn probe(&self, at: &Path) -> Result<(File, DioAlignment), String> {
        let alignment = match dio::support(&self.buffered) {
            Ok(DioSupport::Refused) => return Err("the file system has no direct reads".into()),
            Ok(DioSupport::Aligned(alignment)) => {
                DioAlignment::at_least(alignment.memory_bytes, alignment.offset_bytes)
            }
            Ok(DioSupport::Unknown) | Err(_) => DioAlignment::FLOOR,
        };
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(at)
            .map_err(|error| format!("opening with O_DIRECT: {error}"))?;
        let reread = self
            .first_bytes(&direct, alignment)
            .map_err(|error| format!("a direct read: {error}"))?;
        let expected = self
            .first_bytes(&self.buffered, alignment)
            .map_err(|error| format!("a read: {error}"))?;
        if reread != expected {
            return Err("a direct read brought other bytes than a buffered one".into());
        }
        Ok((direct, alignment))
    }

    /// Reads the first aligned unit through `file`, as much of it as there is.
    fn first_bytes(&self, file: &File, alignment: DioAlignment) -> io::Result<Vec<u8>> {
        let unit = memory(alignment.memory_bytes.max(alignment.offset_bytes));
        let (arena, _) = HugeArena::reserve(2 * unit, PagePolicy::Small)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let skip =
            arena.base().as_ptr().addr().next_multiple_of(unit) - arena.base().as_ptr().addr();
        let slots = SlotArena::new(&arena, skip..skip + unit, unit)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let mut lease = slots.acquire_any().expect("a fresh slot");
        let expected = memory(self.length).min(unit);
        let got = loop {
            match file.read_at(&mut lease, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if got < expected {
            return Err(io::Error::other(format!("{got} bytes of {expected}")));
        }
        Ok(lease[..expected].to_vec())
    }

    /// The path it was opened with, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length when it was opened.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.length
    }

    /// Number of the device that holds it (`st_dev`).
    #[must_use]
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Whether reads bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// What direct reads must be aligned to; the floor when there are none.
    #[must_use]
    pub fn alignment(&self) -> DioAlignment {
        self.alignment
    }

    /// Why reads are buffered, when they are.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Length now; differs from [`DirectFile::len_bytes`] when the file was
    /// changed while in use.
    ///
    /// # Errors
    ///
    /// [`EngineError::Open`] when the file system does not answer.
    pub fn current_len_bytes(&self) -> Result<u64, EngineError> {
        let metadata = self.buffered.metadata();
        metadata
            .map(|metadata| metadata.len())
            .map_err(|error| EngineError::open(&self.path, "read the file's length", &error))
    }

    /// The descriptor for one kind of read. Buffered when there is no other.
    pub(crate) fn descriptor(&self, buffered: bool) -> RawFd {
        self.handle(buffered).as_raw_fd()
    }

    /// The open file for one kind of read.
    pub(crate) fn handle(&self, buffered: bool) -> &File {
        match &self.direct {
            Some(direct) if !buffered => direct,
            _ => &self.buffered,
        }
    }

    /// Drops the pages of a buffered read from the page cache: weights pass
    /// through once, and the cache is memory that the plan counts on.
    pub(crate) fn drop_cache(&self, offset: u64, bytes: usize) {
        let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(file(bytes))) else {
            return;
        };
        // Advice: a file system that does not take it loses nothing.
        let _ = posix_fadvise(
            &self.buffered,
            offset,
            bytes,
            PosixFadviseAdvice::POSIX_FADV_DONTNEED,
        );
    }
}
