//! Ctrl-C: the first asks the run to stop, the second ends the program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use k3_runtime::Cancel;

use crate::error::CliError;
use crate::exit::Exit;

/// Files that are not complete yet, removed when the program ends at once.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Makes Ctrl-C request `cancel`, and a second one exit.
///
/// # Errors
///
/// The system refuses the handler.
pub(crate) fn install(cancel: &Cancel) -> Result<(), CliError> {
    let cancel = cancel.clone();
    let asked = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            with_unfinished(|paths| paths.drain(..).for_each(remove));
            std::process::exit(Exit::Interrupted.code().into());
        }
        cancel.request();
    })
    .map_err(CliError::Signal)
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
