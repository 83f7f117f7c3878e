//! Offline making and rewriting of checkpoints; the binary is `k3-pack`.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | what the command line accepts, and its help |
//! | [`synth`] | synthetic checkpoints: plan, target directory, writing |
//! | [`error`] | what can go wrong, and the exit code of each |
//! | [`progress`], [`interrupt`] | what a person sees, and how they stop it |
//!
//! # Invariants
//!
//! - A directory appears complete under its name or not at all; whatever ends a
//!   run, nothing half-written stays.
//! - Free space is compared with the exact need before anything is created.
//! - Bytes depend on what was asked for, never on threads or timing.
#![forbid(unsafe_code)]

pub mod cli;
pub mod error;
pub mod interrupt;
pub mod progress;
pub mod synth;

pub use error::PackError;
pub use synth::{Content, SynthPlan, SynthSettings, SynthSummary};
