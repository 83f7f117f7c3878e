//! Ctrl-C: the first asks the run to stop and clean up, the second ends the
//! program at once, its unfinished directory removed as far as that goes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Exit, PackError};

/// The directory that is not complete yet.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Makes Ctrl-C set `cancel`, and a second one exit.
///
/// # Errors
///
/// The system refuses the handler.
pub fn install(cancel: &'static AtomicBool) -> Result<(), PackError> {
    ctrlc::set_handler(move || {
        if cancel.swap(true, Ordering::Relaxed) {
            let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(path) = unfinished.as_ref() {
                // Whoever presses twice does not wait for more than one try.
                let _ = std::fs::remove_dir_all(path);
            }
            std::process::exit(Exit::Interrupted as i32);
        }
    })?;
    Ok(())
}

/// Notes the directory being written, or that there is none any more.
pub(crate) fn note_unfinished(path: Option<&Path>) {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    *unfinished = path.map(Path::to_owned);
}
