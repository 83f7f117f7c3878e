//! The `k3-pack` command.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use k3_pack::cli::{Cli, Command};
use k3_pack::error::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let printed = error.print();
            return if error.use_stderr() {
                // Without standard error the exit code has to do.
                Exit::Refused.into()
            } else {
                help_is_out(printed).into()
            };
        }
    };
    let result = match &cli.command {
        Command::Synth(args) => k3_pack::cli::synth::run(args),
        Command::Trunk(args) => k3_pack::cli::trunk::run(args),
        Command::Manifest(args) => k3_pack::cli::manifest::run(args),
    };
    match result {
        Ok(()) => Exit::Done.into(),
        Err(error) => {
            // Without standard error the exit code has to do.
            let _ = writeln!(io::stderr(), "error: {error}");
            error.exit().into()
        }
    }
}

/// How the program ends after help went to standard output, which may be closed
/// or full.
fn help_is_out(printed: io::Result<()>) -> Exit {
    match printed.and_then(|()| io::stdout().flush()) {
        Ok(()) => Exit::Done,
        // Whoever read it has gone.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => {
            let text = format!("error: standard output: cannot be written: {error}");
            let _ = writeln!(io::stderr(), "{text}");
            Exit::NotWritable
        }
    }
}
