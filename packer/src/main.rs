//! The `k3-pack` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    k3_pack::cli::main()
}
