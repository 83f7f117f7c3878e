//! Strict readers and writers of every file k3 touches.
//!
//! # Invariants
//!
//! - No file is opened here: bytes come through [`ReadAt`], which names the file
//!   for messages and reads at positions.
//! - A size that a file declares is compared with the file before anything is
//!   allocated or added to it.
//! - Every fault is a [`FormatError`] that names the file, the place, what was
//!   expected and found, and the way out. No reader panics on any input.
//!
//! # Map
//!
//! | module | file |
//! |---|---|
//! | [`safetensors`] | shards: header reader, index over many shards, writer |
//! | [`experts`] | the routed experts of an index as a dense table |
//! | [`config`] | `config.json` of Kimi K3 |
//! | [`RankFile`] | `tiktoken.model`: the tokens of the vocabulary |
//! | [`trace`] | expert traces |
//! | [`trunk`] | packed trunks, and the field's raw one |
//! | [`manifest`] | the integrity manifest: hashes of every byte |
//! | [`snapshot`] | sequence snapshots: what one conversation carries |
//! | [`Identity`] | what makes two checkpoints the same one |
//! | [`synth`] | synthetic checkpoints in the released layout |
//! | `gates` (feature `testing`) | whether a test runs, and saying when it does not |
//! | `replica` (feature `testing`) | headers of a full-size checkpoint, for tests |
#![forbid(unsafe_code)]

mod base64;
pub mod config;
mod dtype;
mod error;
pub mod experts;
#[cfg(any(test, feature = "testing"))]
pub mod gates;
mod identity;
mod json_error;
mod json_stream;
pub mod manifest;
mod memory_file;
mod read_at;
#[cfg(feature = "testing")]
pub mod replica;
pub mod safetensors;
mod shown;
pub mod snapshot;
pub mod synth;
mod tensor;
mod tiktoken;
pub mod trace;
pub mod trunk;

pub use config::{ConfigForm, ConfigProblem, KimiK3Config};
pub use dtype::Dtype;
pub use error::{FormatError, IndexFault, RankFault, TensorFault, TraceFault};
pub use experts::{ExpertDirectory, ExpertPart, ExpertRef, Segment};
pub use identity::Identity;
pub use manifest::{Manifest, ManifestFault, ManifestPlan};
pub use memory_file::MemoryFile;
pub use read_at::{ReadAt, read_all};
pub use safetensors::{ShardIndex, ShardInfo, ShardList};
pub use snapshot::{
    Snapshot, SnapshotBinding, SnapshotFault, SnapshotHeader, SnapshotWriter, StateForm,
};
pub use tensor::{MAX_DIMENSIONS, Shape, TensorRef};
pub use tiktoken::{RANK_FILE_BYTES_MAX, RankFile, write_ranks};
pub use trace::ExpertTrace;
pub use trunk::{ForeignTrunk, PackedTrunk};
