//! The program from its arguments to its exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use super::{Cli, Command};
use crate::error::Exit;

/// The program: the arguments of the process, done.
pub fn main() -> ExitCode {
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
        Command::Synth(args) => super::synth::run(args),
        Command::Trunk(args) => super::trunk::run(args),
        Command::Manifest(args) => super::manifest::run(args),
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
