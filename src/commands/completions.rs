//! `k3 completions`.

use crate::cli;
use crate::cli::commands::CompletionsArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::stdout::Stdout;

/// Prints the script.
///
/// # Errors
///
/// Standard output cannot be written.
pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    let mut command = cli::command_of(args.program);
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    Stdout.write(&script)?;
    Ok(Exit::Done)
}
