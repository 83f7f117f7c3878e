//! Model mechanics per family, without I/O.
//!
//! A family never opens a file and never sees an arena: it declares a
//! [`SweepProgram`] once, and is then fed byte slices, one block of trunk rows
//! and one expert at a time, in the program's order. What feeds it (memory, a
//! ring that streams from disk, a packed file) cannot be told apart from here,
//! which is why the result cannot depend on it.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`family`] | the seam: [`ModelFamily`], [`SweepRun`], [`SequenceState`] |
//! | [`program`] | the order in which a sweep consumes blocks and experts |
//! | [`sweep`] | which positions of which sequences one walk serves |
//! | [`pages`] | memory for positions, in pages that sequences share |
//! | [`parallel`] | static splits of independent outputs over workers |
//! | [`phase`] | names of what a sweep spends its time on |
//! | [`kimi_k3`] | the Kimi K3 family |
//!
//! # Invariants
//!
//! - Work is split over workers by independent outputs only (rows, heads,
//!   positions): no float is ever reduced across workers.
//! - Experts may arrive in any order; their outputs are summed in pick order.
//! - A state touched by a sweep that did not finish is poisoned until it is
//!   reset: it can neither be read nor continued.
#![forbid(unsafe_code)]

pub mod error;
pub mod family;
pub mod ids;
pub mod kimi_k3;
pub mod pages;
pub mod parallel;
pub mod phase;
pub mod program;
pub mod sweep;

pub use error::ModelError;
pub use family::{
    ExpertDemand, Fault, Finished, ModelFamily, SequenceState, SweepRun, WorkspaceSize,
};
pub use ids::{ExpertKey, LayerIndex};
pub use pages::{
    PAGE_POSITIONS, PagePool, PageStore, PagesShort, PastPart, Spill, StoreError, pages_for,
};
pub use parallel::{Inline, Workers};
pub use phase::Phase;
pub use program::{Block, BlockIndex, BlockPlace, Router, Step, SweepProgram};
pub use sweep::{Advance, LogitRows, Segment, Sweep};
