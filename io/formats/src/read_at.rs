//! Positional reads of one file.

use std::path::Path;

use crate::error::FormatError;

/// Positional reads of one file.
///
/// The readers of this crate open no file themselves: whoever owns the file
/// (`k3-io`, a test, an embedded table) lends it through this trait, together
/// with the label that error messages show.
pub trait ReadAt: Send + Sync {
    /// The path to name in messages.
    fn label(&self) -> &Path;

    /// Length of the file in bytes, fixed while the value lives.
    fn len_bytes(&self) -> u64;

    /// Fills `buffer` with the bytes that start at `offset`.
    ///
    /// # Errors
    ///
    /// [`FormatError::ShortRead`] when the file ends before the buffer is full
    /// and [`FormatError::Read`] when the system refuses the read. The buffer's
    /// contents are unspecified after an error.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError>;

    /// The last component of [`ReadAt::label`], by which a shard index refers
    /// to the file; empty when the label has none.
    fn file_name(&self) -> String {
        self.label()
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn label(&self) -> &Path {
        (**self).label()
    }

    fn len_bytes(&self) -> u64 {
        (**self).len_bytes()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        (**self).read_exact_at(offset, buffer)
    }
}

/// Reads a whole small file.
///
/// # Errors
///
/// [`FormatError::TooLarge`] when the file is longer than `limit_bytes` (checked
/// before anything is allocated), else the errors of [`ReadAt::read_exact_at`].
pub fn read_all(file: &dyn ReadAt, limit_bytes: u64) -> Result<Vec<u8>, FormatError> {
    let too_large = || FormatError::TooLarge {
        path: file.label().to_path_buf(),
        found_bytes: file.len_bytes(),
        limit_bytes,
    };
    if file.len_bytes() > limit_bytes {
        return Err(too_large());
    }
    let length = usize::try_from(file.len_bytes()).map_err(|_| too_large())?;
    let mut bytes = vec![0; length];
    file.read_exact_at(0, &mut bytes)?;
    Ok(bytes)
}
