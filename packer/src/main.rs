//! The `k3-pack` command.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use k3_pack::cli::{Cli, Command};
use k3_pack::error::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to standard output, which may have been closed.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Refused.into()
            } else {
                Exit::Done.into()
            };
        }
    };
    let result = match &cli.command {
        Command::Synth(args) => k3_pack::cli::synth::run(args),
    };
    match result {
        Ok(()) => Exit::Done.into(),
        Err(error) => {
            // Without standard error the exit code has to do.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            error.exit().into()
        }
    }
}
