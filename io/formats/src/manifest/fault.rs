//! What can be wrong with a manifest.

use crate::shown::quoted;

/// What is wrong with an integrity manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestFault {
    /// Not a manifest.
    #[error("does not begin with \"k3-mnfst\": not an integrity manifest")]
    Magic,
    /// Another version of the layout.
    #[error("version {found}, but this program reads version {expected}")]
    Version {
        /// The version that is read.
        expected: u32,
        /// The version of the file.
        found: u32,
    },
    /// The tables do not fill the file.
    #[error("its tables take {expected} bytes, but the file has {found}")]
    Length {
        /// Length by the header.
        expected: u64,
        /// Length of the file.
        found: u64,
    },
    /// The contents are not what was written.
    #[error("its root hash is {expected}, but the contents hash to {found}")]
    Root {
        /// Stated, in hexadecimal.
        expected: String,
        /// Found, in hexadecimal.
        found: String,
    },
    /// Bytes that must be zero are not.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// A sum that is not the sum of its parts.
    #[error("{what}: {stated} stated, {found} counted")]
    Sum {
        /// What is counted.
        what: &'static str,
        /// What the file states.
        stated: u64,
        /// The sum of the parts.
        found: u64,
    },
    /// A file name that is not a plain file name.
    #[error("{} is not a plain file name", quoted(.0))]
    FileName(String),
    /// Files that are not in order, or stand twice.
    #[error("file {} stands after {}, out of order", quoted(name), quoted(before))]
    FileOrder {
        /// The file.
        name: String,
        /// The one before it.
        before: String,
    },
    /// A name that does not follow the one before it, or is not text.
    #[error(
        "a name of {bytes} bytes at {offset} of the names, where text at {expected} of \
         {names_bytes} bytes should follow"
    )]
    Name {
        /// Where the names so far end.
        expected: u64,
        /// Where it begins.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Length of all names.
        names_bytes: u64,
    },
    /// A kind that a file or a range cannot have there.
    #[error("kind {found}, which cannot stand here")]
    Kind {
        /// The kind's number.
        found: u8,
    },
    /// A range without bytes, or a header shorter than any.
    #[error("a range of {found} bytes, at least {expected} are needed")]
    RangeBytes {
        /// The fewest that can be.
        expected: u64,
        /// The length stated.
        found: u64,
    },
    /// Tensors that no expert has.
    #[error("tensors {first_part} to {} of an expert, which has 6", u16::from(*first_part) + u16::from(*part_count))]
    ExpertParts {
        /// The first, counted from 0.
        first_part: u8,
        /// How many.
        part_count: u8,
    },
}
