//! The files of a run.

use std::path::Path;

use super::file::{DirectFile, DirectPolicy};
use crate::engine::EngineError;
use crate::file::FileReader;

/// Index of a file in a [`FileTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// The files that an engine reads, grouped by device. Built first, then shared
/// unchanged; files may lie on any number of roots and drives.
#[derive(Debug, Default)]
pub struct FileTable {
    files: Vec<DirectFile>,
    /// Index into `devices` for each file.
    device_of: Vec<usize>,
    /// `st_dev` of each device, in order of first appearance.
    devices: Vec<u64>,
}

impl FileTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens each path in order: the n-th becomes `FileId(n)`.
    ///
    /// # Errors
    ///
    /// Those of [`DirectFile::open`].
    pub fn open<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        policy: DirectPolicy,
    ) -> Result<Self, EngineError> {
        let mut table = Self::new();
        for path in paths {
            table.add(DirectFile::open(path.as_ref(), policy)?);
        }
        Ok(table)
    }

    /// Opens the files of `readers` again, for large reads: the n-th becomes
    /// `FileId(n)`.
    ///
    /// # Errors
    ///
    /// Those of [`DirectFile::reopen`].
    pub fn reopen(readers: &[FileReader], policy: DirectPolicy) -> Result<Self, EngineError> {
        let mut table = Self::new();
        for reader in readers {
            table.add(DirectFile::reopen(reader, policy)?);
        }
        Ok(table)
    }

    /// Adds an open file.
    ///
    /// # Panics
    ///
    /// Beyond 2^32 files.
    pub fn add(&mut self, file: DirectFile) -> FileId {
        let id = u32::try_from(self.files.len()).expect("fewer than 2^32 files");
        let known = self.devices.iter().position(|&dev| dev == file.device());
        self.device_of.push(known.unwrap_or(self.devices.len()));
        if known.is_none() {
            self.devices.push(file.device());
        }
        self.files.push(file);
        FileId(id)
    }

    /// The file of an id.
    ///
    /// # Panics
    ///
    /// When the id is of another table.
    #[must_use]
    pub fn get(&self, id: FileId) -> &DirectFile {
        &self.files[id.0 as usize]
    }

    /// All files, in the order of their ids.
    #[must_use]
    pub fn files(&self) -> &[DirectFile] {
        &self.files
    }

    /// `st_dev` of the devices, in order of first appearance.
    #[must_use]
    pub fn devices(&self) -> &[u64] {
        &self.devices
    }

    /// Index into [`FileTable::devices`] of a file's device.
    ///
    /// # Panics
    ///
    /// When the id is of another table.
    #[must_use]
    pub fn device_index(&self, id: FileId) -> usize {
        self.device_of[id.0 as usize]
    }

    /// The largest offset alignment of all files: windows computed with it
    /// suit each of them.
    #[must_use]
    pub fn alignment_bytes(&self) -> u64 {
        let alignments = self.files.iter().map(|file| file.alignment().offset_bytes);
        alignments.max().unwrap_or(4096)
    }

    /// Which files are read through the page cache, and why: one line for each
    /// reason.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<String> {
        let mut lines: Vec<(String, usize, &Path)> = Vec::new();
        for file in &self.files {
            let Some(reason) = file.fallback() else {
                continue;
            };
            match lines.iter_mut().find(|(known, _, _)| known == reason) {
                Some((_, count, _)) => *count += 1,
                None => lines.push((reason.to_owned(), 1, file.path())),
            }
        }
        lines
            .into_iter()
            .map(|(reason, count, path)| {
                format!(
                    "buffered reads for {count} file(s), the first {}: {reason}",
                    path.display()
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_probed_and_grouped() {
        let directory = tempfile::tempdir().unwrap();
        let paths = [("a", 10_000), ("b", 1), ("empty", 0)].map(|(name, bytes)| {
            let path = directory.path().join(name);
            std::fs::write(&path, vec![7_u8; bytes]).unwrap();
            path
        });
        let table = FileTable::open(&paths, DirectPolicy::Probe).unwrap();
        assert_eq!(table.devices().len(), 1);
        let lengths: Vec<u64> = table.files().iter().map(DirectFile::len_bytes).collect();
        assert_eq!(lengths, [10_000, 1, 0]);
        assert!(table.alignment_bytes().is_power_of_two());
        let direct = table.files().iter().filter(|file| file.is_direct()).count();
        assert_eq!(direct == 3, table.fallbacks().is_empty());
        assert_eq!(table.get(FileId(1)).path(), paths[1]);
    }

    #[test]
    fn buffered_on_request_and_reported_once_per_reason() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| {
            let path = directory.path().join(name);
            std::fs::write(&path, "x").unwrap();
            path
        });
        let table = FileTable::open(&paths, DirectPolicy::Never).unwrap();
        assert!(!table.get(FileId(0)).is_direct());
        let lines = table.fallbacks();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("2 file(s)"), "{}", lines[0]);
    }

    #[test]
    fn a_file_that_took_the_place_of_another_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shard");
        std::fs::write(&path, "a shard").unwrap();
        let readers = [FileReader::open(&path).unwrap()];
        FileTable::reopen(&readers, DirectPolicy::Probe).unwrap();
        let other = directory.path().join("other");
        std::fs::write(&other, "another").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let error = FileTable::reopen(&readers, DirectPolicy::Probe).unwrap_err();
        assert_eq!(error, EngineError::Replaced { path });
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = DirectFile::open(directory.path(), DirectPolicy::Probe).unwrap_err();
        assert!(matches!(error, EngineError::NotAFile { .. }), "{error}");
        let missing = directory.path().join("none");
        let error = DirectFile::open(&missing, DirectPolicy::Probe).unwrap_err();
        assert!(matches!(
            error,
            EngineError::Open {
                errno: libc::ENOENT,
                ..
            }
        ));
        assert!(error.to_string().contains("none"), "{error}");
    }
}
