//! Offline rewriting of checkpoints.
#![forbid(unsafe_code)]
