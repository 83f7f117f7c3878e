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
    clap_complete::generate(args.shell, &mut cli::command(), "k3", &mut script);
    Stdout.write(&script)?;
    Ok(Exit::Done)
}
