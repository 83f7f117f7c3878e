//! Synthetic checkpoints end to end: made, opened, run, refused, interrupted.
//! Packed trunks the same way, and against the checkpoint they come from.
//! Manifests of checkpoints.

#![allow(clippy::print_stdout, reason = "tests tell what they measured")]

mod checkpoint;
mod command;
mod faults;
mod manifest;
mod released;
mod support;
mod terminal;
mod trunk;
mod trunk_command;
mod trunk_faults;
mod trunk_kills;
mod trunk_resume;
mod trunk_sources;
mod trunk_support;
