//! `k3 man`.

use crate::cli;
use crate::cli::commands::{ManArgs, Program};
use crate::error::CliError;
use crate::exit::Exit;

/// Writes a page for each program and command.
///
/// # Errors
///
/// A page that cannot be written.
pub(crate) fn run(args: &ManArgs) -> Result<Exit, CliError> {
    for program in [Program::K3, Program::K3Pack] {
        let command = cli::command_of(program);
        clap_mangen::generate_to(command, &args.directory).map_err(|source| {
            CliError::NotWritable {
                path: args.directory.clone(),
                named: None,
                source,
            }
        })?;
    }
    Ok(Exit::Done)
}
