//! The command line: what is accepted, and nothing of what is done.

pub(crate) mod args;
pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod commands;
pub(crate) mod demo;
mod help;
pub(crate) mod integrity;
pub(crate) mod ladder;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod sampling;
pub(crate) mod values;

use std::ffi::OsStr;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use args::Cli;
use commands::Program;

/// What users of other engines call the command that k3 does not need.
const GENERATE_NAMES: [&str; 3] = ["generate", "gen", "run"];

/// The parsed command line.
///
/// # Errors
///
/// What clap has to say, a request for help or the version included.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let first = std::env::args_os().nth(1);
    if let Some(name) = first.as_deref().and_then(generate_name) {
        let text = format!(
            "there is no command `{name}`: k3 generates without one, as in\n\n    \
             k3 --prompt hello"
        );
        return Err(command().error(ErrorKind::InvalidSubcommand, text));
    }
    let matches = command().try_get_matches()?;
    Cli::from_arg_matches(&matches)
}

/// The name of a command for generating, unless a directory has it.
fn generate_name(argument: &OsStr) -> Option<&str> {
    let name = argument.to_str()?;
    (GENERATE_NAMES.contains(&name) && !Path::new(name).is_dir()).then_some(name)
}

/// The definition of the command line, with the version's long form filled in.
pub(crate) fn command() -> clap::Command {
    Cli::command().long_version(help::long_version())
}

/// The definition of a program's command line, the same on every machine.
pub(crate) fn command_of(program: Program) -> clap::Command {
    match program {
        Program::K3 => Cli::command(),
        Program::K3Pack => k3_pack::cli::Cli::command(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_engine_agree_about_the_most() {
        assert_eq!(
            k3_config::THREADS_MAX as usize,
            k3_models::parallel::WORKERS_MAX
        );
        assert_eq!(k3_config::POSITIONS_MAX as usize, k3_runtime::POSITIONS_MAX);
    }

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_option_has_help_and_a_heading() {
        let command = command();
        for arg in command.get_arguments() {
            let id = arg.get_id();
            assert!(arg.get_help().is_some(), "{id} has no help");
            let plain = ["help", "version", "model"].contains(&id.as_str());
            assert!(
                plain || arg.get_help_heading().is_some(),
                "{id} has no heading"
            );
        }
        for sub in command.get_subcommands() {
            for arg in sub.get_arguments() {
                assert!(
                    arg.get_help().is_some(),
                    "{} of {}",
                    arg.get_id(),
                    sub.get_name()
                );
            }
        }
    }
}
