//! Answers that are finished but wait for those before them, on the disk: they
//! survive the run as those in the output do.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// What is added to the name of the output.
const SUFFIX: &str = ".pending";

/// The file beside an output.
#[derive(Debug)]
pub(super) struct Pending {
    path: PathBuf,
    file: File,
    len_bytes: u64,
}

/// Where answers to `output` wait; `None` where it is no file, so that nothing
/// stands beside it.
pub(super) fn path_of(output: &Path) -> Option<PathBuf> {
    // A link is followed: the file beside it belongs to the file.
    let output = output.canonicalize().unwrap_or_else(|_| output.to_owned());
    if output.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return None;
    }
    let mut name = output.file_name()?.to_owned();
    name.push(SUFFIX);
    Some(output.with_file_name(name))
}

impl Pending {
    /// Opens the file at `path`, if it is there or is to be `made`, and what it
    /// holds. The output is locked: nobody else uses it.
    ///
    /// # Errors
    ///
    /// What is no file, or cannot be read and written.
    pub(super) fn open(path: PathBuf, made: bool) -> Result<Option<(Self, Vec<u8>)>, CliError> {
        let fail = |source| not_writable(&path, source);
        let metadata = path.symlink_metadata();
        if metadata.is_ok_and(|metadata| !metadata.is_file()) {
            return Err(fail(io::Error::other(
                "something else than a file is there",
            )));
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(made);
        let mut file = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !made => return Ok(None),
            other => other.map_err(fail)?,
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail)?;
        let pending = Self {
            file,
            len_bytes: bytes.len() as u64,
            path,
        };
        Ok(Some((pending, bytes)))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line, in one write.
    ///
    /// # Errors
    ///
    /// A file that can no longer be written.
    pub(super) fn add(&mut self, line: &[u8]) -> Result<(), CliError> {
        let written = self.file.write_all(line);
        written.map_err(|source| not_writable(&self.path, source))?;
        self.len_bytes += line.len() as u64;
        Ok(())
    }

    /// Keeps the first `len_bytes` alone.
    ///
    /// # Errors
    ///
    /// As [`Pending::add`].
    pub(super) fn cut(&mut self, len_bytes: u64) -> Result<(), CliError> {
        if len_bytes < self.len_bytes {
            let cut = self.file.set_len(len_bytes);
            cut.map_err(|source| not_writable(&self.path, source))?;
            self.len_bytes = len_bytes;
        }
        Ok(())
    }

    /// Everything that was added reaches the disk.
    ///
    /// # Errors
    ///
    /// As [`Pending::add`].
    pub(super) fn sync(&self) -> Result<(), CliError> {
        let synced = self.file.sync_data();
        synced.map_err(|source| not_writable(&self.path, source))
    }

    /// Removes the file: all that it holds is in the output, and on the disk there.
    ///
    /// # Errors
    ///
    /// As [`Pending::add`].
    pub(super) fn remove(self) -> Result<(), CliError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(not_writable(&self.path, error))
            }
            _ => Ok(()),
        }
    }
}

fn not_writable(path: &Path, source: io::Error) -> CliError {
    CliError::NotWritable {
        path: path.to_owned(),
        named: Some("OUTPUT, whose finished answers wait there"),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_beside_the_file_and_beside_no_device() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let output = root.join("out.jsonl");
        let beside = Some(root.join("out.jsonl.pending"));
        assert_eq!(path_of(&output), beside);
        fs::write(&output, "").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(&output, &link).unwrap();
        assert_eq!(path_of(&link), beside);
        assert_eq!(path_of(Path::new("/dev/null")), None);
        assert_eq!(path_of(&root), None);
    }

    #[test]
    fn lines_are_kept_cut_and_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.pending");
        assert!(Pending::open(path.clone(), false).unwrap().is_none());
        let (mut pending, bytes) = Pending::open(path.clone(), true).unwrap().unwrap();
        assert!(bytes.is_empty());
        pending.add(b"one\n").unwrap();
        pending.add(b"tw").unwrap();
        drop(pending);
        let (mut pending, bytes) = Pending::open(path.clone(), false).unwrap().unwrap();
        assert_eq!(bytes, b"one\ntw");
        pending.cut(4).unwrap();
        pending.add(b"three\n").unwrap();
        pending.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\nthree\n");
        pending.remove().unwrap();
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        let error = Pending::open(path, true).unwrap_err();
        assert!(error.to_string().contains("cannot be written"), "{error}");
    }
}
