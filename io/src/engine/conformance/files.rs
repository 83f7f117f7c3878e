//! Files whose every byte is known, and differs from its neighbours.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::request::Segment;
use crate::units::memory;

/// The files of the suite, in the order of their ids.
#[derive(Debug)]
pub struct TestFiles {
    paths: Vec<PathBuf>,
    files: Vec<File>,
}

/// Lengths: several pieces with an odd tail; exactly aligned; less than a page.
pub(super) const LENGTHS: [usize; 3] = [9 * (1 << 20) + 4097, 3 << 20, 777];

impl TestFiles {
    /// Writes the files below `directory`.
    ///
    /// # Panics
    ///
    /// When they cannot be written.
    #[must_use]
    pub fn create(directory: &Path) -> Self {
        let paths: Vec<PathBuf> = LENGTHS
            .iter()
            .enumerate()
            .map(|(index, &length)| {
                let path = directory.join(format!("conformance-{index}.bin"));
                write_pattern(&path, index, length);
                path
            })
            .collect();
        let files = paths
            .iter()
            .map(|path| File::open(path).expect("just written"));
        Self {
            files: files.collect(),
            paths,
        }
    }

    /// The paths.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The same bytes through the standard library.
    ///
    /// # Panics
    ///
    /// When they cannot be read.
    #[must_use]
    pub fn expected(&self, segments: &[Segment]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for segment in segments {
            let start = bytes.len();
            bytes.resize(start + memory(segment.bytes), 0);
            self.files[segment.file.0 as usize]
                .read_exact_at(&mut bytes[start..], segment.offset)
                .expect("within the file");
        }
        bytes
    }
}

/// Writes a file of bytes that look random and depend on file and position.
pub(super) fn write_pattern(path: &Path, seed: usize, length: usize) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_add(crate::units::file(seed) << 32);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    let mut file = File::create(path).expect("a test file");
    file.write_all(&bytes).expect("a test file");
    file.sync_all().expect("a test file");
}
