//! Positional reads of one file.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use k3_formats::{FormatError, ReadAt};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::error::IoError;

/// A regular file opened for positional reads.
///
/// Several threads may read at once; there is no file position to share.
#[derive(Debug)]
pub struct FileReader {
    path: PathBuf,
    file: File,
    length: u64,
    /// Device and inode: what stays the same under any name.
    identity: (u64, u64),
}

impl FileReader {
    /// Opens a file and takes its length.
    ///
    /// # Errors
    ///
    /// [`IoError::System`] when it cannot be opened, [`IoError::NotAFile`] when
    /// it is a directory, a device or a pipe.
    pub fn open(path: &Path) -> Result<Self, IoError> {
        let system = |action| {
            move |source| IoError::System {
                path: path.to_path_buf(),
                action,
                source,
            }
        };
        // Asked before opening: to open a pipe waits for its writer.
        let metadata = path.metadata().map_err(system("open the file"))?;
        if !metadata.is_file() {
            return Err(IoError::NotAFile {
                path: path.to_path_buf(),
            });
        }
        let file = File::open(path).map_err(system("open the file"))?;
        let metadata = file.metadata().map_err(system("read the file's length"))?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            length: metadata.len(),
            identity: (metadata.dev(), metadata.ino()),
        })
    }

    /// Device and inode numbers of the open file.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Drops a range from the page cache, where it takes the place of what is
    /// read more than once. Advice: a file system that does not take it loses
    /// nothing.
    pub fn drop_cache(&self, offset: u64, bytes: u64) {
        let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else {
            return;
        };
        let _ = posix_fadvise(
            &self.file,
            offset,
            bytes,
            PosixFadviseAdvice::POSIX_FADV_DONTNEED,
        );
    }

    /// Sets the time of last modification, by which those that order files by use
    /// know this one. Whoever may not sees no more than an older time.
    pub fn touch(&self, time: SystemTime) -> bool {
        self.file.set_modified(time).is_ok()
    }

    /// Whether `path` still names this file, not one that took its place.
    pub fn is_at(&self, path: &Path) -> bool {
        path.symlink_metadata()
            .is_ok_and(|named| (named.dev(), named.ino()) == self.identity)
    }

    /// Checks that the file still has the length it was opened with.
    ///
    /// # Errors
    ///
    /// [`IoError::LengthChanged`] when it has not.
    pub fn recheck_len(&self) -> Result<(), IoError> {
        let metadata = self.file.metadata().map_err(|source| IoError::System {
            path: self.path.clone(),
            action: "read the file's length",
            source,
        })?;
        if metadata.len() == self.length {
            return Ok(());
        }
        Err(IoError::LengthChanged {
            path: self.path.clone(),
            opened_bytes: self.length,
            current_bytes: metadata.len(),
        })
    }
}

impl ReadAt for FileReader {
    fn label(&self) -> &Path {
        &self.path
    }

    fn len_bytes(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        read_fully(&self.path, offset, buffer, |offset, rest| {
            self.file.read_at(rest, offset)
        })
    }
}

/// Reads until `buffer` is full: a read may bring less than was asked for (the
/// kernel gives at most 2 GiB at once) and may be interrupted by a signal.
fn read_fully(
    path: &Path,
    offset: u64,
    buffer: &mut [u8],
    mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> Result<(), FormatError> {
    let wanted_bytes = buffer.len() as u64;
    let mut filled = 0;
    while filled < buffer.len() {
        // Beyond u64 there is no file; the read below then finds nothing.
        let position = offset.saturating_add(filled as u64);
        match read_at(position, &mut buffer[filled..]) {
            Ok(0) => {
                return Err(FormatError::ShortRead {
                    path: path.to_path_buf(),
                    offset,
                    wanted_bytes,
                    got_bytes: filled as u64,
                });
            }
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(FormatError::Read {
                    path: path.to_path_buf(),
                    offset: position,
                    wanted_bytes: wanted_bytes - filled as u64,
                    source,
                });
            }
        }
    }
    Ok(())
}

/// Reads a whole file of at most `limit_bytes`.
///
/// # Errors
///
/// Those of [`FileReader::open`]; [`IoError::Empty`] and [`IoError::TooLarge`]
/// before anything is read.
pub fn read_small(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, IoError> {
    let file = FileReader::open(path)?;
    let found_bytes = file.len_bytes();
    if found_bytes == 0 {
        return Err(IoError::Empty {
            path: path.to_path_buf(),
        });
    }
    match usize::try_from(found_bytes) {
        Ok(length) if found_bytes <= limit_bytes => {
            let mut bytes = vec![0; length];
            file.read_exact_at(0, &mut bytes)?;
            Ok(bytes)
        }
        _ => Err(IoError::TooLarge {
            path: path.to_path_buf(),
            found_bytes,
            limit_bytes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of the bytes 0, 1, 2, … whose reads come as scripted.
    fn scripted(script: &[Result<usize, ErrorKind>]) -> (Result<(), FormatError>, Vec<u8>) {
        let mut buffer = vec![0; 10];
        let mut steps = script.iter();
        let result = read_fully(Path::new("f"), 5, &mut buffer, |offset, rest| match *steps
            .next()
            .expect("no further read")
        {
            Ok(count) => {
                for (step, byte) in rest[..count].iter_mut().enumerate() {
                    *byte = u8::try_from(offset).unwrap() + u8::try_from(step).unwrap();
                }
                Ok(count)
            }
            Err(kind) => Err(kind.into()),
        });
        assert_eq!(steps.len(), 0, "reads left over");
        (result, buffer)
    }

    #[test]
    fn short_and_interrupted_reads_are_continued() {
        let interrupted = Err(ErrorKind::Interrupted);
        for script in [
            vec![Ok(10)],
            vec![interrupted, Ok(10)],
            vec![Ok(1), Ok(2), interrupted, interrupted, Ok(7)],
            vec![Ok(1); 10],
        ] {
            let (result, buffer) = scripted(&script);
            result.unwrap();
            assert_eq!(buffer, [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        }
    }

    #[test]
    fn an_early_end_is_a_short_read_not_a_result() {
        let (result, _) = scripted(&[Ok(4), Ok(0)]);
        let error = result.unwrap_err();
        assert!(
            matches!(
                error,
                FormatError::ShortRead {
                    offset: 5,
                    wanted_bytes: 10,
                    got_bytes: 4,
                    ..
                }
            ),
            "{error}"
        );
        assert!(
            error.to_string().contains("truncated while in use"),
            "{error}"
        );
    }

    #[test]
    fn an_error_names_where_it_happened() {
        let (result, _) = scripted(&[Ok(4), Err(ErrorKind::PermissionDenied)]);
        let error = result.unwrap_err();
        assert!(
            matches!(
                error,
                FormatError::Read {
                    offset: 9,
                    wanted_bytes: 6,
                    ..
                }
            ),
            "{error}"
        );
    }
}
