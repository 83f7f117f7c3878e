//! `k3 demo`: the built-in model.
//!
//! | module | holds |
//! |---|---|
//! | [`ladder`] | the same run in more and more memory |
//! | [`show`] | the same, to read |

mod ladder;
mod show;

use std::os::unix::ffi::OsStrExt as _;

use crate::cli::demo::{DemoArgs, DemoCommand};
use crate::demo;
use crate::error::CliError;
use crate::exit::Exit;
use crate::stdout::Stdout;

/// Runs what `args` name.
///
/// # Errors
///
/// A model that cannot be unpacked, and whatever ends the ladder without rows.
pub(crate) fn run(args: &DemoArgs) -> Result<Exit, CliError> {
    match &args.what {
        DemoCommand::Ladder(args) => ladder::run(args),
        DemoCommand::Path => {
            let directory = demo::model_dir()?;
            let line = [directory.as_os_str().as_bytes(), b"\n"].concat();
            Stdout.write(&line)?;
            Ok(Exit::Done)
        }
    }
}
