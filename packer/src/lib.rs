//! Offline making and rewriting of checkpoints; the binary is `k3-pack`.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | what the command line accepts, and its help |
//! | [`synth`] | synthetic checkpoints: plan, target directory, writing |
//! | [`trunk`] | packed trunks: plan, journal, pipeline, checking |
//! | [`manifest`] | the integrity manifest of a checkpoint |
//! | [`error`] | what can go wrong, and the exit code of each |
//! | [`interrupt`] | how a person stops it |
//!
//! # Invariants
//!
//! - What is made appears complete under its name or not at all. Whatever ends a
//!   run, of a checkpoint nothing half-written stays; of a trunk what is written
//!   stays under other names, and the next run goes on from there.
//! - Free space is compared with the exact need before anything is created.
//! - Bytes depend on what was asked for, never on threads or timing.
#![forbid(unsafe_code)]

mod aligned;
pub mod cli;
pub mod error;
pub mod interrupt;
pub mod manifest;
pub mod synth;
pub mod trunk;

pub use error::PackError;
pub use synth::{Content, SynthPlan, SynthSettings, SynthSummary};
