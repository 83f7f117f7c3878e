//! Who may touch the job when.
//!
//! One *caller* writes a job, lets some *helpers* read it and must not touch
//! or drop it before the last of them is done:
//!
//! ```text
//! caller:  write job ─► fork ───── own part ─────► join ─► job is the caller's
//! helper:       await_fork ─► read job ─► finish
//! ```
//!
//! Ordering: `fork` publishes the job to every helper it names; each `finish`
//! is a read-modify-write of one counter, so the last one has seen all others,
//! and its signal makes all they did visible to the caller after `join`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::signal::Signal;
use crate::word::Word;

/// Keeps what two threads write on different cache lines; neighbouring lines
/// are fetched in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

/// The waits of one caller and its helpers.
#[derive(Debug)]
pub struct ForkJoin<W> {
    /// One for each helper: there is a job for it.
    forks: Box<[Apart<Signal<W>>]>,
    /// Helpers of the job at hand that are not done.
    pending: Apart<W>,
    /// The last helper is done.
    done: Apart<Signal<W>>,
}

impl<W: Word> ForkJoin<W> {
    /// For `helpers` threads besides the caller.
    #[must_use]
    pub fn new(helpers: usize) -> Self {
        assert!(
            u32::try_from(helpers).is_ok(),
            "helpers are counted in a word"
        );
        Self {
            forks: (0..helpers).map(|_| Apart(Signal::new())).collect(),
            pending: Apart(W::new(0)),
            done: Apart(Signal::new()),
        }
    }

    /// Helpers in all.
    #[must_use]
    pub fn helper_count(&self) -> usize {
        self.forks.len()
    }

    /// Lets the first `helpers` threads read the job. By one caller at a time;
    /// [`Self::join`] comes before the next fork.
    ///
    /// # Panics
    ///
    /// If there are fewer helpers, or `helpers` is 0: nobody would end a join.
    pub fn fork(&self, helpers: usize) {
        assert!(helpers > 0 && helpers <= self.helper_count());
        let pending = u32::try_from(helpers).expect("bounded by the constructor");
        debug_assert_eq!(
            self.pending.0.load(Ordering::Relaxed),
            0,
            "the last job is done"
        );
        // Published by the signals.
        self.pending.0.store(pending, Ordering::Relaxed);
        for Apart(fork) in &self.forks[..helpers] {
            fork.set();
        }
    }

    /// Returns when every helper of the fork has finished: whether that was
    /// within `patience`.
    pub fn join(&self, patience: Duration) -> bool {
        self.done.0.wait(patience)
    }

    /// Helper `index`, from 0, waits for its next fork.
    pub fn await_fork(&self, index: usize, patience: Duration) {
        self.forks[index].0.wait(patience);
    }

    /// A helper is done with the job and touches it no more.
    pub fn finish(&self) {
        if self.pending.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.0.set();
        }
    }
}
