//! How far the ladder has come, for whoever watches it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k3_config::Bytes;
use k3_runtime::ladder::{LadderRun, RunOutcome};
use prometheus::core::Collector;

use crate::metrics::family::{Families, Family, Kind};

/// The state of a ladder, shared with whoever watches it.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Climbed>>);

/// What has been done so far.
#[derive(Debug, Clone, Copy, Default)]
struct Climbed {
    /// Runs to be made in all.
    runs: usize,
    /// Budget and repeat of the run at hand.
    at: Option<(Bytes, u32)>,
    finished: u64,
    refused: u64,
    out_of_memory: u64,
    failed: u64,
    seconds: f64,
}

impl Watch {
    /// `runs` are to be made.
    pub(super) fn planned(&self, runs: usize) {
        self.state().runs = runs;
    }

    /// A run begins.
    pub(super) fn begin(&self, budget: Bytes, repeat: u32) {
        self.state().at = Some((budget, repeat));
    }

    /// It has ended.
    pub(super) fn end(&self, run: &LadderRun) {
        let mut state = self.state();
        state.at = None;
        state.seconds += run.seconds;
        match run.outcome {
            RunOutcome::Finished(_) => state.finished += 1,
            RunOutcome::Refused(_) => state.refused += 1,
            RunOutcome::OutOfMemory => state.out_of_memory += 1,
            RunOutcome::Failed(_) => state.failed += 1,
        }
    }

    /// Collects how far it is when somebody asks.
    pub(super) fn collector(&self) -> impl Collector + use<> {
        let watch = self.clone();
        Families::new(FAMILIES, move || *watch.state())
    }

    fn state(&self) -> MutexGuard<'_, Climbed> {
        // Counts have no half-changed state that a panic could leave.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FAMILIES: &[Family<Climbed>] = &[
    Family {
        name: "k3_ladder_runs",
        help: "Runs the ladder will make",
        kind: Kind::Gauge,
        read: |climbed, samples| samples.one(climbed.runs),
    },
    Family {
        name: "k3_ladder_runs_done_total",
        help: "Runs that have ended, by how they did",
        kind: Kind::Counter,
        read: |climbed, samples| {
            for (outcome, count) in [
                ("finished", climbed.finished),
                ("refused", climbed.refused),
                ("out-of-memory", climbed.out_of_memory),
                ("failed", climbed.failed),
            ] {
                samples.labelled(&[("outcome", outcome)], count);
            }
        },
    },
    Family {
        name: "k3_ladder_seconds_total",
        help: "Time the runs that have ended took",
        kind: Kind::Counter,
        read: |climbed, samples| samples.one(climbed.seconds),
    },
    Family {
        name: "k3_ladder_budget_bytes",
        help: "Budget of the run at hand",
        kind: Kind::Gauge,
        read: |climbed, samples| samples.known(climbed.at.map(|(budget, _)| budget.0)),
    },
    Family {
        name: "k3_ladder_repeat",
        help: "Which time its rung is run, from 1",
        kind: Kind::Gauge,
        read: |climbed, samples| samples.known(climbed.at.map(|(_, repeat)| u64::from(repeat))),
    },
];
