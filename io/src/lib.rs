//! Bytes from files into caller-owned memory.
//!
//! # Invariants
//!
//! - Whatever goes wrong with a file is an error that names it, the place and
//!   the way out; a short read never passes for a whole one.
//! - A file's length is taken when it is opened. Reads are checked against it,
//!   and [`FileReader::recheck_len`] tells whether it still holds.
//! - Nothing here knows a model: what the bytes mean is `k3-formats`' business.
//!
//! # Map
//!
//! | item | purpose |
//! |---|---|
//! | [`FileReader`] | positional reads of one file |
//! | [`CheckpointFiles`] | the files of a checkpoint directory |
//! | [`read_small`] | a whole file, up to a limit |
#![forbid(unsafe_code)]

mod checkpoint;
mod error;
mod file;

pub use checkpoint::{CONFIG_NAME, CheckpointFiles, INDEX_NAME, VOCABULARY_NAME, read_vocabulary};
pub use error::IoError;
pub use file::{FileReader, read_small};
