//! Files that appear complete or not at all.

mod leftovers;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use k3_io::rename_to_disk;

use crate::error::CliError;
use crate::interrupt::{forget_unfinished, note_unfinished};

/// Names tried for the unfinished file before giving up.
const NAME_TRIES_MAX: u32 = 16;

/// An output opened before the run, so that a run of hours does not end with
/// a result that cannot be stored.
///
/// A regular file is written beside its target and renamed over it by
/// [`OutputFile::commit`]; dropped before that, it leaves no trace. What a
/// killed run leaves is removed by the next run with the same output
/// ([`leftovers`]). What is not a regular file (a pipe, a device) is written
/// directly.
#[derive(Debug)]
pub(crate) struct OutputFile {
    target: PathBuf,
    /// The option that names it.
    option: Option<&'static str>,
    /// The unfinished file, when there is one.
    unfinished: Option<PathBuf>,
    writer: BufWriter<File>,
}

impl OutputFile {
    /// Opens the output `path`.
    ///
    /// # Errors
    ///
    /// [`CliError::NotWritable`] when the file could not be written later.
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        let fail = |source| CliError::NotWritable {
            path: path.to_owned(),
            named: None,
            source,
        };
        match fs::metadata(path) {
            Ok(existing) if existing.is_file() => {
                // Whether the file itself may be written, which the rename
                // would not ask. A link is followed, not replaced.
                OpenOptions::new().append(true).open(path).map_err(fail)?;
                let target = fs::canonicalize(path).map_err(fail)?;
                let file = Self::beside(target).map_err(fail)?;
                fs::set_permissions(file.path(), existing.permissions()).map_err(fail)?;
                Ok(file)
            }
            Ok(_) => {
                let file = OpenOptions::new().write(true).open(path).map_err(fail)?;
                Ok(Self {
                    target: path.to_owned(),
                    option: None,
                    unfinished: None,
                    writer: BufWriter::new(file),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::beside(path.to_owned()).map_err(fail)
            }
            Err(error) => Err(fail(error)),
        }
    }

    /// The same, as `option` asks for it: an error names that too.
    ///
    /// # Errors
    ///
    /// As [`Self::create`].
    pub(crate) fn create_as(option: &'static str, path: &Path) -> Result<Self, CliError> {
        match Self::create(path) {
            Ok(mut file) => {
                file.option = Some(option);
                Ok(file)
            }
            Err(CliError::NotWritable { path, source, .. }) => Err(CliError::NotWritable {
                path,
                named: Some(option),
                source,
            }),
            Err(error) => Err(error),
        }
    }

    fn beside(target: PathBuf) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        leftovers::remove(&target);
        for attempt in 0..NAME_TRIES_MAX {
            let hidden = leftovers::name(name, std::process::id(), attempt);
            let unfinished = target.with_file_name(hidden);
            let opened = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&unfinished);
            match opened {
                // Somebody took it for a leftover before it was locked.
                Ok(file) if !leftovers::keep(&file, &unfinished) => {}
                Ok(file) => {
                    note_unfinished(&unfinished);
                    return Ok(Self {
                        target,
                        option: None,
                        unfinished: Some(unfinished),
                        writer: BufWriter::new(file),
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn path(&self) -> &Path {
        self.unfinished.as_deref().unwrap_or(&self.target)
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    ///
    /// A failed write.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.writer
            .write_all(bytes)
            .map_err(|source| self.fault(source))
    }

    /// Appends `values` as little-endian f32.
    ///
    /// # Errors
    ///
    /// A failed write.
    pub(crate) fn write_f32s(&mut self, values: &[f32]) -> Result<(), CliError> {
        values
            .iter()
            .try_for_each(|value| self.write(&value.to_le_bytes()))
    }

    /// Makes the file appear under its name.
    ///
    /// # Errors
    ///
    /// A failed write; the unfinished file is removed then.
    pub(crate) fn commit(mut self) -> Result<(), CliError> {
        let finish = |output: &mut Self| -> io::Result<()> {
            output.writer.flush()?;
            if let Some(unfinished) = &output.unfinished {
                output.writer.get_ref().sync_all()?;
                rename_to_disk(unfinished, &output.target)?;
            }
            Ok(())
        };
        finish(&mut self).map_err(|source| self.fault(source))?;
        if let Some(unfinished) = self.unfinished.take() {
            forget_unfinished(&unfinished);
        }
        Ok(())
    }

    fn fault(&self, source: io::Error) -> CliError {
        CliError::NotWritable {
            path: self.target.clone(),
            named: self.option,
            source,
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            // Nothing can be done about a file that refuses to go.
            let _ = fs::remove_file(&unfinished);
            forget_unfinished(&unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn appears_on_commit_and_only_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.bin");
        let mut output = OutputFile::create(&path).unwrap();
        output.write_f32s(&[1.0, -0.0]).unwrap();
        assert!(!path.exists());
        output.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [0, 0, 0x80, 0x3f, 0, 0, 0, 0x80]);
        assert_eq!(names(dir.path()), ["out.bin"]);
    }

    #[test]
    fn a_dropped_output_leaves_the_former_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        fs::write(&path, "former").unwrap();
        let mut output = OutputFile::create(&path).unwrap();
        output.write(b"half").unwrap();
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"former");
        assert_eq!(names(dir.path()), ["out.json"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "former").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut output = OutputFile::create(&link).unwrap();
        output.write(b"new").unwrap();
        output.commit().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn directories_absent_places_and_full_devices_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("no/such/file")] {
            let error = OutputFile::create(&path).unwrap_err();
            assert!(matches!(error, CliError::NotWritable { .. }), "{error}");
        }
        let mut full = OutputFile::create(Path::new("/dev/full")).unwrap();
        full.write(b"x").unwrap();
        assert!(matches!(full.commit(), Err(CliError::NotWritable { .. })));
    }
}
