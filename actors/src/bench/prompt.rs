//! What sweeps that are measured are over, and how far they have come.

use k3_models::{ExpertDemand, LogitRows, Sweep};
use k3_runtime::SweepObserver;

/// A sweep over `count` tokens from position `at` on, of a fixed sequence.
pub(super) fn sweep(at: usize, count: usize, logit_rows: LogitRows, vocab_size: usize) -> Sweep {
    let token = |index: usize| {
        let mixed = (index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        u32::try_from((mixed >> 17) % vocab_size).expect("ids have 32 bits")
    };
    Sweep::single((at..at + count).map(token).collect(), logit_rows)
}

/// `done` of `total`, from 0 to 1.
#[allow(clippy::cast_precision_loss, reason = "for a progress bar")]
pub(super) fn share(done: usize, total: usize) -> f64 {
    done as f64 / total.max(1) as f64
}

/// Tells how far a sweep has come, from 0 to 1.
pub(super) struct Told<'w>(pub(super) &'w mut dyn FnMut(f64));

impl SweepObserver for Told<'_> {
    fn demand(&mut self, _demand: &ExpertDemand) {}

    fn progress(&mut self, done: usize, total: usize) {
        (self.0)(share(done, total));
    }
}
