//! The program from its arguments to its exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use k3_terminal::{Stream, fitting, is_terminal, wrap};

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
            say(&format!("error: {error}\n"));
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
            say(&format!("{text}\n"));
            Exit::NotWritable
        }
    }
}

/// Tells a person: on a terminal between words, so that it breaks none.
pub(super) fn say(text: &str) {
    let shown = match is_terminal(Stream::Stderr) {
        true => wrap(text, fitting(Stream::Stderr)),
        false => text.to_owned(),
    };
    // Without standard error there is nobody to tell.
    let _ = io::stderr().write_all(shown.as_bytes());
}
