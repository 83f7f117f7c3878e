//! Ctrl-C, a request to terminate and a terminal that hangs up: the first asks
//! the run to stop, the second ends the program.
//!
//! A terminal hangs up once for the kernel and once for the shell, and nobody
//! is in a hurry then: that signal is never the second. Whoever has it ignored
//! (nohup) has it ignored here too.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k3_runtime::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::CliError;
use crate::exit::Exit;
use crate::process;

/// Files that are not complete yet, removed when the program ends at once.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// What else is done when the program ends at once.
static LAST_ACT: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Makes SIGINT (Ctrl-C), SIGTERM or SIGHUP request `cancel`, and a second one of
/// the first two exit.
///
/// # Errors
///
/// The system refuses the handlers or their thread.
pub(crate) fn install(cancel: &Cancel) -> Result<(), CliError> {
    let cancel = cancel.clone();
    let mut caught = vec![SIGINT, SIGTERM];
    if !process::ignores(SIGHUP) {
        caught.push(SIGHUP);
    }
    let mut signals = Signals::new(caught).map_err(CliError::Signal)?;
    let wait = move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some() {
            cancel.request();
        }
        if arrived.any(|signal| signal != SIGHUP) {
            with_unfinished(|paths| paths.drain(..).for_each(remove));
            if let Some(act) = last_act().take() {
                act();
            }
            std::process::exit(Exit::Interrupted.code().into());
        }
    };
    let thread = std::thread::Builder::new().name("k3-signals".to_owned());
    thread.spawn(wait).map_err(CliError::Signal)?;
    Ok(())
}

/// Takes back what [`at_once`] asked for.
#[derive(Debug)]
pub(crate) struct AtOnce;

/// Has `act` done if the program ends at once, until the guard is dropped. There
/// is one such act at a time.
#[must_use]
pub(crate) fn at_once(act: impl FnOnce() + Send + 'static) -> AtOnce {
    *last_act() = Some(Box::new(act));
    AtOnce
}

impl Drop for AtOnce {
    fn drop(&mut self) {
        *last_act() = None;
    }
}

fn last_act() -> MutexGuard<'static, Option<Box<dyn FnOnce() + Send>>> {
    LAST_ACT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a file that is being written.
pub(crate) fn note_unfinished(path: &Path) {
    with_unfinished(|paths| paths.push(path.to_owned()));
}

/// Forgets a file that is complete or gone.
pub(crate) fn forget_unfinished(path: &Path) {
    with_unfinished(|paths| paths.retain(|other| other != path));
}

fn with_unfinished(action: impl FnOnce(&mut Vec<PathBuf>)) {
    // A list of paths has no half-changed state a panic could leave.
    action(&mut UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner));
}

fn remove(path: PathBuf) {
    // It may have been completed or removed meanwhile, and there is nobody
    // left to tell.
    let _ = std::fs::remove_file(path);
}
