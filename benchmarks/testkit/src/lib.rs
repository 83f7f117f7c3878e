//! Tiny checkpoints, an independent reference and faulty inputs for tests.
//!
//! A development dependency: nothing here is shipped.
//!
//! # Map
//!
//! - [`TinySpec`], [`TinyCheckpoint`]: checkpoints of a few hundred kilobytes
//!   in the released layout, made from a seed, with every awkwardness the
//!   format allows.
//! - [`Reference`]: a scalar forward pass of plain loops, the oracle; and
//!   [`Mistake`], the ways to get it wrong that a fixture must notice.
//! - [`replica`]: the headers of the released checkpoint, all 497,220 tensors,
//!   over files that need no disk.
//! - [`hub`]: a model hub on loopback, with every way of misbehaving.
//! - [`terminal`]: programs on a terminal, and what is on the screen then.
//! - [`FaultyReadAt`]: files that end early, fail, wait or lie.
//!
//! # Invariants
//!
//! - The same [`TinySpec`] gives the same bytes on every machine: no platform
//!   libm, no hash order, no clock.
//! - A tensor's values depend on the seed, its name and its shape alone, so
//!   two layouts of one model have the same logits.
//! - The reference shares no arithmetic with k3-kernels but the proved `exp`
//!   and `tanh`, and no shard reader with k3-formats.
#![forbid(unsafe_code)]

mod error;
mod faulty;
pub mod hub;
pub mod reference;
mod rng;
mod shape;
mod tensor;
pub mod terminal;
mod tiny;

pub use error::TestkitError;
pub use faulty::{Fault, FaultyReadAt};
/// The forms of config.json a spec can ask for.
pub use k3_formats::ConfigForm;
/// Whether a test runs, and saying when it does not.
pub use k3_formats::gates;
/// The full-size checkpoint without its data.
pub use k3_formats::replica;
pub use reference::{AttentionForm, Forward, Mistake, Norm, Reference};
pub use rng::Rng;
pub use shape::ModelShape;
pub use tensor::{Tensor, TensorSet, bf16_bytes, f32_bytes};
pub use tiny::{
    Dtypes, ExpertOrder, ExpertPlacement, FileImage, FloatDtype, Layout, NamePrefix,
    TinyCheckpoint, TinySpec, TinyTokenizer, write_files,
};
