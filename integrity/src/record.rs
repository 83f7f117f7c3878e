//! What was fetched, from where, and which hashes the files were published with.

use std::io;
use std::path::Path;

use k3_io::{IoError, read_small, replace_file};
use serde::{Deserialize, Serialize};

use crate::error::IntegrityError;

/// Name of the record in a checkpoint's directory.
pub const RECORD_NAME: &str = "k3-fetch.json";
/// Longest record that is read.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// The layout that is written and read.
const VERSION: u32 = 1;

/// A snapshot, as far as it is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchRecord {
    /// Version of the layout.
    pub version: u32,
    /// Address of the hub.
    pub endpoint: String,
    /// Repository, `OWNER/NAME`.
    pub repo: String,
    /// What was asked for.
    pub revision: String,
    /// The commit it was resolved to.
    pub commit: String,
    /// The files that are complete, by path.
    pub files: Vec<RecordedFile>,
}

/// A file that is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedFile {
    /// Path inside the repository.
    pub path: String,
    /// Length.
    pub bytes: u64,
    /// SHA-256 of the content, in hexadecimal: the published one where there is
    /// one, else that of the content whose object id was the published one.
    pub sha256: String,
    /// What the hub knows the content by: a SHA-256, or the id of a git object.
    pub oid: String,
}

impl FetchRecord {
    /// Nothing fetched yet.
    pub fn new(endpoint: &str, repo: &str, revision: &str, commit: &str) -> Self {
        Self {
            version: VERSION,
            endpoint: endpoint.to_owned(),
            repo: repo.to_owned(),
            revision: revision.to_owned(),
            commit: commit.to_owned(),
            files: Vec::new(),
        }
    }

    /// The record of a directory, if it has one.
    ///
    /// # Errors
    ///
    /// One that cannot be read, or is not one.
    pub fn read(directory: &Path) -> Result<Option<Self>, IntegrityError> {
        let path = directory.join(RECORD_NAME);
        let bytes = match read_small(&path, RECORD_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(IoError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let fault = |reason| IntegrityError::Record {
            path: path.clone(),
            reason,
        };
        let record: Self =
            serde_json::from_slice(&bytes).map_err(|error| fault(error.to_string()))?;
        if record.version != VERSION {
            let reason = format!(
                "version {}, but this program reads {VERSION}",
                record.version
            );
            return Err(fault(reason));
        }
        for file in &record.files {
            if !is_relative(&file.path) || parse_sha256(&file.sha256).is_none() {
                return Err(fault(format!(
                    "file {:?} has no valid path or hash",
                    file.path
                )));
            }
        }
        Ok(Some(record))
    }

    /// Writes the record: complete or not at all.
    ///
    /// # Errors
    ///
    /// A directory that cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), IntegrityError> {
        let path = directory.join(RECORD_NAME);
        let mut text = serde_json::to_string_pretty(self).expect("plain data serialises");
        text.push('\n');
        replace_file(&path, text.as_bytes()).map_err(IntegrityError::writing(path, "write"))
    }

    /// The entry of a path.
    pub fn file(&self, path: &str) -> Option<&RecordedFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Puts in an entry, in the place of one with the same path.
    pub fn put(&mut self, file: RecordedFile) {
        match self
            .files
            .binary_search_by(|other| other.path.cmp(&file.path))
        {
            Ok(place) => self.files[place] = file,
            Err(place) => self.files.insert(place, file),
        }
    }
}

/// Whether `path` stays inside the directory it is joined to.
pub(crate) fn is_relative(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\\', '\0'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// 64 hexadecimal digits.
pub(crate) fn parse_sha256(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        let digit = |value: u8| char::from(value).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> RecordedFile {
        RecordedFile {
            path: path.to_owned(),
            bytes: 3,
            sha256: "0a".repeat(32),
            oid: "0b".repeat(20),
        }
    }

    #[test]
    fn what_is_written_is_read_and_kept_in_order() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FetchRecord::read(dir.path()).unwrap(), None);
        let mut record = FetchRecord::new("http://hub", "a/b", "main", "c0ffee");
        for path in ["b", "a/x", "c", "b"] {
            record.put(file(path));
        }
        let paths: Vec<_> = record.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a/x", "b", "c"]);
        record.write(dir.path()).unwrap();
        assert_eq!(FetchRecord::read(dir.path()).unwrap(), Some(record.clone()));
        assert_eq!(record.file("b"), Some(&file("b")));
        let names: Vec<_> = dir.path().read_dir().unwrap().collect();
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn a_record_that_is_none_or_reaches_outside_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = FetchRecord::new("http://hub", "a/b", "main", "c0ffee");
        for path in ["../x", "/etc/passwd", "a//b", "a/./b", "", "a\\b"] {
            record.files = vec![file(path)];
            record.write(dir.path()).unwrap();
            let error = FetchRecord::read(dir.path()).unwrap_err();
            assert!(matches!(error, IntegrityError::Record { .. }), "{error}");
        }
        record.files.clear();
        record.version = 2;
        record.write(dir.path()).unwrap();
        let error = FetchRecord::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("version 2"), "{error}");
        for text in ["{", "{}", "[]", "{\"version\":1,\"x\":2}"] {
            std::fs::write(dir.path().join(RECORD_NAME), text).unwrap();
            FetchRecord::read(dir.path()).unwrap_err();
        }
    }
}
