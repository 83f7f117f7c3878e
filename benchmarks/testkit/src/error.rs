//! Why a checkpoint could not be read by the reference.

use std::io;
use std::path::PathBuf;

use k3_formats::{Dtype, FormatError};

/// What went wrong while opening a checkpoint directory or binding its tensors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestkitError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file was read but is not what its name says.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The config was refused.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A tensor the config calls for is absent.
    #[error("no tensor named {name}; the config calls for it")]
    MissingTensor {
        /// Full name.
        name: String,
    },
    /// A tensor has another shape than the config calls for.
    #[error("{name} has shape {found:?}, the config calls for {expected:?}")]
    WrongShape {
        /// Full name.
        name: String,
        /// Extents that follow from the config.
        expected: Vec<u64>,
        /// Extents in the file.
        found: Vec<u64>,
    },
    /// A tensor has an element type its role cannot have.
    #[error("{name} is stored as {found}, its role needs {expected}")]
    WrongDtype {
        /// Full name.
        name: String,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        found: Dtype,
    },
    /// Neither known prefix names the embedding.
    #[error(
        "no embed_tokens.weight under language_model.model. or model. among {tensor_count} tensors"
    )]
    UnknownPrefix {
        /// Tensors looked through.
        tensor_count: usize,
    },
}
