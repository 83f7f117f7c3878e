//! A file that lives in memory.

use std::path::{Path, PathBuf};

use crate::error::FormatError;
use crate::read_at::ReadAt;

/// [`ReadAt`] over bytes in memory: embedded data and tests.
#[derive(Debug, Clone)]
pub struct MemoryFile {
    label: PathBuf,
    bytes: Vec<u8>,
}

impl MemoryFile {
    /// A file called `label` with the given content.
    pub fn new(label: impl Into<PathBuf>, bytes: Vec<u8>) -> Self {
        Self {
            label: label.into(),
            bytes,
        }
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The content, given back.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl ReadAt for MemoryFile {
    fn label(&self) -> &Path {
        &self.label
    }

    fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        // An offset beyond the address space is simply beyond the end.
        let tail = usize::try_from(offset)
            .ok()
            .and_then(|start| self.bytes.get(start..))
            .unwrap_or_default();
        match tail.get(..buffer.len()) {
            Some(source) => {
                buffer.copy_from_slice(source);
                Ok(())
            }
            None => Err(FormatError::ShortRead {
                path: self.label.clone(),
                offset,
                wanted_bytes: buffer.len() as u64,
                got_bytes: tail.len() as u64,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_at::read_all;

    #[test]
    fn reads_inside_and_refuses_outside() {
        let file = MemoryFile::new("five", vec![1, 2, 3, 4, 5]);
        let mut buffer = [0; 2];
        file.read_exact_at(3, &mut buffer).unwrap();
        assert_eq!(buffer, [4, 5]);
        for offset in [4, 5, 6, u64::MAX] {
            let error = file.read_exact_at(offset, &mut buffer).unwrap_err();
            let got = if offset == 4 { 1 } else { 0 };
            assert!(
                matches!(error, FormatError::ShortRead { offset: at, wanted_bytes: 2, got_bytes, .. }
                    if at == offset && got_bytes == got),
                "{error}"
            );
        }
        file.read_exact_at(5, &mut []).unwrap();
    }

    #[test]
    fn read_all_stops_at_the_limit() {
        let file = MemoryFile::new("five", vec![1, 2, 3, 4, 5]);
        assert_eq!(read_all(&file, 5).unwrap(), file.bytes());
        let error = read_all(&file, 4).unwrap_err().to_string();
        assert!(error.contains("five") && error.contains('4'), "{error}");
    }
}
