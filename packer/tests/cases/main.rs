//! Synthetic checkpoints end to end: made, opened, run, refused, interrupted.

#![allow(clippy::print_stdout, reason = "tests tell what they measured")]

mod checkpoint;
mod command;
mod faults;
mod released;
mod support;
