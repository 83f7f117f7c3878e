//! Ctrl-C, a request to terminate and a terminal that hangs up: the first asks
//! the run to stop and leave things in order, the second ends the program at
//! once, its unfinished directory removed as far as that goes.
//!
//! A terminal hangs up once for the kernel and once for the shell: that signal
//! is never the second. Whoever has it ignored (nohup) has it ignored here too.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::error::{Exit, PackError};

/// The directory that is not complete yet.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Makes SIGINT (Ctrl-C), SIGTERM or SIGHUP set `cancel`, and a second one of the
/// first two exit.
///
/// # Errors
///
/// The system refuses the handlers or their thread.
pub fn install(cancel: &'static AtomicBool) -> Result<(), PackError> {
    // A limit on the size of files then fails the write, which has an error of its
    // own, instead of ending the program.
    flag::register(SIGXFSZ, Arc::default()).map_err(PackError::Signal)?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut caught = vec![SIGINT, SIGTERM];
    if !is_ignored(&status, SIGHUP) {
        caught.push(SIGHUP);
    }
    let mut signals = Signals::new(caught).map_err(PackError::Signal)?;
    let wait = move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some() {
            cancel.store(true, Ordering::Relaxed);
        }
        if arrived.any(|signal| signal != SIGHUP) {
            let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(path) = unfinished.as_ref() {
                // Whoever asks twice does not wait for more than one try.
                let _ = std::fs::remove_dir_all(path);
            }
            std::process::exit(Exit::Interrupted as i32);
        }
    };
    let thread = std::thread::Builder::new().name("k3-pack-signals".to_owned());
    thread.spawn(wait).map_err(PackError::Signal)?;
    Ok(())
}

/// Notes the directory being written, or that there is none any more.
pub(crate) fn note_unfinished(path: Option<&Path>) {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    *unfinished = path.map(Path::to_owned);
}

/// Whether a process with this `/proc/PID/status` ignores `signal`; not known is
/// no.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_counted_from_one() {
        let status = "Name:\tk3-pack\nSigIgn:\t0000000000001001\n";
        for (signal, want) in [(1, true), (13, true), (2, false), (15, false)] {
            assert_eq!(is_ignored(status, signal), want, "{signal}");
        }
        assert!(!is_ignored("", 1) && !is_ignored("SigIgn:\tx\n", 1));
    }
}
