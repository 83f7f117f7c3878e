//! The `k3` command.
#![forbid(unsafe_code)]
fn main() {}
