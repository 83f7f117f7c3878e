//! From a child of `k3 ladder` to the run it stands for.
//!
//! A process is charged for memory where it is when it first touches it. So a
//! run is not moved into its group: this step moves, still with next to
//! nothing, and then becomes the run, which begins inside.

use std::fs;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::Command;

use clap::Parser as _;
use k3_config::GROUP_PROCS;
use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::cli::ladder::{ENTER_GROUP, EnterGroupArgs};
use crate::error::CliError;
use crate::exit::Exit;

/// What this process was started as, if it is on its way into a group.
pub(crate) fn entry() -> Option<EnterGroupArgs> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let is_entry = arguments.peek().is_some_and(|word| word == ENTER_GROUP);
    // The ladder writes these arguments: a mistake in them is nobody's typing.
    is_entry.then(|| EnterGroupArgs::parse_from(arguments))
}

/// Enters the group, then becomes the command.
///
/// # Errors
///
/// The group cannot be entered, the command cannot be started, or the caller is
/// gone.
pub(crate) fn enter(args: &EnterGroupArgs) -> Result<Exit, CliError> {
    let (program, arguments) = args.command.split_first().expect("required by the parser");
    let not_started = |source| CliError::NotStarted {
        program: program.into(),
        source,
    };
    // A ladder that dies must not leave gigabytes running. Kept by the command
    // that this becomes.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|errno| not_started(errno.into()))?;
    if parent_id() != args.parent {
        return Err(CliError::Interrupted);
    }
    if let Some(group) = &args.group {
        // 0 is whoever writes.
        fs::write(group.join(GROUP_PROCS), "0").map_err(|source| CliError::NotEntered {
            group: group.clone(),
            source,
        })?;
    }
    Err(not_started(Command::new(program).args(arguments).exec()))
}
