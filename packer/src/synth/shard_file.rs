//! A shard file being written by several threads.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k3_formats::synth::SynthValues;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::time::{ClockId, clock_gettime};

use super::image::{self, ShardImage};
use super::plan::Content;
use crate::aligned::{AlignedBuffer, DIRECT_ALIGNMENT};
use crate::error::PackError;

/// Space a file may take beyond its blocks: extent trees and the like.
const FILE_OVERHEAD_BYTES: u64 = 1 << 20;

/// A shard's file and what is left to write.
#[derive(Debug)]
pub(super) struct ShardFile {
    image: ShardImage,
    path: PathBuf,
    file: File,
    /// Bypasses the page cache; `None` where that is no use.
    direct: Option<File>,
    /// The file system took the flag but not the write.
    direct_refused: AtomicBool,
    pieces_left: AtomicUsize,
    /// Most the file may take on disk, when it has holes.
    disk_limit_bytes: Option<u64>,
}

/// What became of a piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct PieceWritten {
    /// CPU time to generate it.
    pub(super) generating: Duration,
    /// When it was the shard's last: whether every write bypassed the page
    /// cache.
    pub(super) is_direct: Option<bool>,
}

impl ShardFile {
    /// Creates the file and reserves its space, or its holes.
    ///
    /// # Errors
    ///
    /// What the system reports.
    pub(super) fn create(
        directory: &Path,
        image: ShardImage,
        content: Content,
        ranges: &[Range<u64>],
    ) -> Result<Self, PackError> {
        let path = directory.join(image.name());
        let options = OpenOptions::new().write(true).create_new(true).to_owned();
        let file = options
            .open(&path)
            .map_err(PackError::writing(&path, "create the file"))?;
        let mut shard = Self {
            path,
            file,
            direct: None,
            direct_refused: AtomicBool::new(false),
            pieces_left: AtomicUsize::new(ranges.len()),
            disk_limit_bytes: None,
            image,
        };
        match content {
            Content::Everything => {
                shard.reserve()?;
                shard.direct = OpenOptions::new()
                    .write(true)
                    .custom_flags(OFlag::O_DIRECT.bits())
                    .open(&shard.path)
                    .ok();
            }
            Content::VectorsOnly => {
                shard.set_len()?;
                let limit = image::disk_bytes(ranges) + FILE_OVERHEAD_BYTES;
                shard.disk_limit_bytes = Some(limit);
                // Before the whole of a terabyte is zeros on disk.
                shard.check_holes()?;
            }
        }
        Ok(shard)
    }

    /// Takes the space at once, so that the file is contiguous and a disk that
    /// is too full fails early.
    fn reserve(&self) -> Result<(), PackError> {
        let bytes = i64::try_from(self.image.file_bytes()).unwrap_or(i64::MAX);
        match fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
            Err(error) => Err(PackError::writing(&self.path, "reserve space")(
                error.into(),
            )),
        }
    }

    fn set_len(&self) -> Result<(), PackError> {
        self.file
            .set_len(self.image.file_bytes())
            .map_err(PackError::writing(&self.path, "set the length"))
    }

    /// Generates and writes one range.
    ///
    /// # Errors
    ///
    /// What the system reports.
    pub(super) fn write(
        &self,
        values: &SynthValues,
        range: &Range<u64>,
        buffer: &mut AlignedBuffer,
    ) -> Result<PieceWritten, PackError> {
        let started = cpu_time();
        let len = usize::try_from(image::range_bytes(range)).expect("pieces are small");
        let padded = len.next_multiple_of(DIRECT_ALIGNMENT);
        let bytes = buffer.bytes(match self.direct {
            Some(_) => padded,
            None => len,
        });
        self.image.fill(values, range.start, bytes);
        let generating = cpu_time().saturating_sub(started);
        self.put(bytes, len, range.start)
            .map_err(PackError::writing(&self.path, "write"))?;
        let was_last = self.pieces_left.fetch_sub(1, Ordering::AcqRel) == 1;
        Ok(PieceWritten {
            generating,
            is_direct: was_last.then(|| self.finish()).transpose()?,
        })
    }

    /// Writes `bytes`, of which `len` count and the rest pads a direct write.
    fn put(&self, bytes: &[u8], len: usize, offset: u64) -> io::Result<()> {
        if let Some(direct) = &self.direct
            && !self.direct_refused.load(Ordering::Relaxed)
        {
            match direct.write_all_at(bytes, offset) {
                Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                    self.direct_refused.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.file.write_all_at(&bytes[..len], offset)
    }

    /// Cuts the padding off and sends everything to the disk.
    fn finish(&self) -> Result<bool, PackError> {
        self.set_len()?;
        self.file
            .sync_all()
            .map_err(PackError::writing(&self.path, "write to the disk"))?;
        // What was written is read by another program later, if at all: a hint
        // that may be ignored.
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        self.check_holes()?;
        Ok(self.direct.is_some() && !self.direct_refused.load(Ordering::Relaxed))
    }

    /// An error when there should be holes and are none.
    fn check_holes(&self) -> Result<(), PackError> {
        let Some(expected_bytes) = self.disk_limit_bytes else {
            return Ok(());
        };
        let metadata = self
            .file
            .metadata()
            .map_err(PackError::writing(&self.path, "ask for the size"))?;
        let disk_bytes = disk_usage_bytes(&metadata);
        if disk_bytes > expected_bytes {
            return Err(PackError::NoHoles {
                path: self.path.clone(),
                disk_bytes,
                expected_bytes,
            });
        }
        Ok(())
    }
}

/// Space a file takes on disk; the system counts it in units of 512.
pub(super) fn disk_usage_bytes(metadata: &Metadata) -> u64 {
    metadata.blocks() * 512
}

/// CPU time of this thread, zero where the system does not say.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
