//! What the files should be.

use std::path::{Path, PathBuf};

use k3_formats::manifest::{FileKind, MANIFEST_NAME, ManifestFile, ManifestRange, RangeContent};
use k3_formats::{Identity, Manifest};
use k3_io::{FileReader, HashKind};

use crate::error::IntegrityError;
use crate::record::{FetchRecord, RECORD_NAME, parse_sha256};

/// Where the hashes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An integrity manifest.
    Manifest {
        /// The file.
        path: PathBuf,
        /// The checkpoint it was made of.
        identity: Identity,
        /// Its root hash.
        root: [u8; 32],
    },
    /// What `k3 fetch` recorded.
    Record {
        /// The file.
        path: PathBuf,
        /// The commit that was fetched.
        commit: String,
    },
}

/// Files, their ranges, and the hash of each.
#[derive(Debug, Clone)]
pub struct Basis {
    /// Where it comes from.
    pub source: Source,
    /// What the hashes are.
    pub kind: HashKind,
    /// The files.
    pub files: Vec<ManifestFile>,
    /// The ranges, file after file.
    pub ranges: Vec<ManifestRange>,
}

impl Basis {
    /// The manifest `named`, else that of `directory`, else the record there.
    ///
    /// # Errors
    ///
    /// Neither is there, or what is there is not what it should be.
    pub fn find(directory: &Path, named: Option<&Path>) -> Result<Self, IntegrityError> {
        let path = named.map_or_else(|| directory.join(MANIFEST_NAME), Path::to_owned);
        if named.is_some() || path.exists() {
            return Self::manifest(path);
        }
        match FetchRecord::read(directory)? {
            Some(record) => Ok(Self::record(directory, &record)),
            None => Err(IntegrityError::NoBasis {
                directory: directory.to_owned(),
            }),
        }
    }

    fn manifest(path: PathBuf) -> Result<Self, IntegrityError> {
        let manifest = Manifest::read(&FileReader::open(&path)?)?;
        Ok(Self {
            kind: HashKind::Blake3,
            files: manifest.files().to_vec(),
            ranges: manifest.ranges().to_vec(),
            source: Source::Manifest {
                path,
                identity: manifest.identity(),
                root: manifest.root(),
            },
        })
    }

    fn record(directory: &Path, record: &FetchRecord) -> Self {
        let mut basis = Self {
            source: Source::Record {
                path: directory.join(RECORD_NAME),
                commit: record.commit.clone(),
            },
            kind: HashKind::Sha256,
            files: Vec::new(),
            ranges: Vec::new(),
        };
        for file in &record.files {
            let number = basis.files.len();
            basis.files.push(ManifestFile {
                name: file.path.clone(),
                bytes: file.bytes,
                kind: FileKind::Other,
                first_range: basis.ranges.len(),
                range_count: usize::from(file.bytes > 0),
            });
            if file.bytes > 0 {
                basis.ranges.push(ManifestRange {
                    file: number,
                    offset: 0,
                    bytes: file.bytes,
                    content: RangeContent::File,
                    hash: parse_sha256(&file.sha256).expect("checked when it was read"),
                });
            }
        }
        basis
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The ranges of file number `file`.
    pub fn ranges_of(&self, file: usize) -> std::ops::Range<usize> {
        let entry = &self.files[file];
        entry.first_range..entry.first_range + entry.range_count
    }

    /// The layers that ranges belong to: one more than the last.
    pub fn layer_count(&self) -> u16 {
        let layers = self.ranges.iter().filter_map(|range| range.content.layer());
        layers.max().map_or(0, |last| last + 1)
    }
}
