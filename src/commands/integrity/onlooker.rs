//! Progress on a terminal, and Ctrl-C.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use k3_integrity::Watch;
use k3_runtime::Cancel;

use crate::interrupt;
use crate::render::escape;
use crate::render::progress::Progress;

/// Shows a bar for each phase, and lines for a person above it.
#[derive(Debug)]
pub(super) struct Onlooker {
    cancel: Cancel,
    quiet: bool,
    done: AtomicU64,
    bar: Mutex<Option<Progress>>,
}

impl Onlooker {
    /// Nothing has begun.
    pub(super) fn new(cancel: Cancel, quiet: bool) -> Self {
        Self {
            cancel,
            quiet,
            done: AtomicU64::new(0),
            bar: Mutex::new(None),
        }
    }

    /// Takes the bar off the screen.
    pub(super) fn end(&self) {
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn show(&self, done: u64) {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = &*bar {
            bar.set(done);
        }
    }
}

impl Watch for Onlooker {
    fn go_on(&self) -> bool {
        !self.cancel.is_requested()
    }

    fn phase(&self, label: &'static str, total_bytes: u64) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        // The former bar goes before the next comes.
        *bar = None;
        self.done.store(0, Ordering::Relaxed);
        if total_bytes > 0 {
            *bar = Some(Progress::bytes(label, total_bytes, self.quiet));
        }
    }

    fn bytes(&self, count: u64) {
        let done = self.done.fetch_add(count, Ordering::Relaxed) + count;
        self.show(done);
    }

    fn undone(&self, count: u64) {
        let former = self.done.fetch_sub(count, Ordering::Relaxed);
        self.show(former.saturating_sub(count));
    }

    fn unfinished(&self, path: &Path) {
        interrupt::note_unfinished(path);
    }

    fn finished(&self, path: &Path) {
        interrupt::forget_unfinished(path);
    }

    fn message(&self, text: &str) {
        if self.quiet {
            return;
        }
        let text = format!("{}\n", escape::message(text));
        let print = || {
            // Nobody else can be told.
            let _ = std::io::stderr().write_all(text.as_bytes());
        };
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        match &*bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}
