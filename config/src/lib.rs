//! The memory dial: byte counts and what a model costs.
//!
//! Everything here is pure arithmetic. [`ModelFootprint`] is the one place
//! where a model family states its sizes; whoever plans memory or predicts
//! bytes per token reads them from here and from nowhere else.
//!
//! Invariants: no file is opened, no memory reserved, no unit but bytes.
#![forbid(unsafe_code)]

mod bytes;
mod footprint;

pub use bytes::{Bytes, ParseBytesError};
pub use footprint::{BlockFootprint, BlockKind, ModelFootprint};
