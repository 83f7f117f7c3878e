//! Tiny checkpoints, an independent reference and faulty inputs for tests.
#![forbid(unsafe_code)]
