//! What a run has done so far, for the report at its end and for whoever asks
//! before.
//!
//! The run's thread adds to it after each sweep and each token. Whoever looks
//! holds the lock for as long as it takes to copy some counts; what takes longer
//! (the process's own files in /proc) is read before, so that looking does not
//! hold up the run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k3_actors::StreamGauges;
use k3_runtime::SweepProgress;
use k3_runtime::report::{CountsReport, SweepReport, SweepTable, TrunkReport};

use super::figures::{Figures, Observation, StreamFacts};
use crate::process::ProcessMemory;

/// What is known before the run starts.
#[derive(Debug)]
pub(crate) struct RunFacts {
    /// The checkpoint's identity, in hex.
    pub identity: String,
    /// Instruction set.
    pub isa: String,
    /// Form of attention.
    pub attention: String,
    /// Compute threads.
    pub threads: usize,
    /// `streaming` or `resident`.
    pub source: &'static str,
    /// Ids of the prompt.
    pub prompt_tokens: usize,
}

/// The state of a run, shared with whoever watches it.
#[derive(Debug, Clone)]
pub(crate) struct Live(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    facts: RunFacts,
    progress: Arc<SweepProgress>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: CountsReport,
    generated_tokens: u64,
    load_seconds: Option<f64>,
    prefill_seconds: Option<f64>,
    token_seconds: f64,
    sweeps: SweepTable,
    /// Of a run with everything in memory.
    trunk: Option<TrunkReport>,
    stream: Option<Stream>,
}

#[derive(Debug)]
struct Stream {
    facts: Arc<StreamFacts>,
    counted: Counted,
}

/// Where a stream's counts are found.
#[derive(Debug)]
enum Counted {
    /// They go on.
    Going(StreamGauges),
    /// This is what they came to.
    Ended(Observation),
}

/// The state at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    live: Live,
    pub counts: CountsReport,
    pub generated_tokens: u64,
    pub load_seconds: Option<f64>,
    pub prefill_seconds: Option<f64>,
    /// Sum over the generated tokens.
    pub token_seconds: f64,
    /// Steps of the sweep at hand that have run, and all of them.
    pub steps: (usize, usize),
    /// The sweep that finished last.
    pub latest: Option<SweepReport>,
    /// The trunk in files of its own.
    pub trunk: Option<TrunkReport>,
    pub streaming: Option<(Arc<StreamFacts>, Figures)>,
}

impl Snapshot {
    /// What was known before the run.
    pub(crate) fn facts(&self) -> &RunFacts {
        &self.live.0.facts
    }
}

impl Live {
    pub(crate) fn new(facts: RunFacts) -> Self {
        Self(Arc::new(Shared {
            facts,
            progress: Arc::default(),
            state: Mutex::default(),
        }))
    }

    /// Where each sweep stands.
    pub(crate) fn progress(&self) -> Arc<SweepProgress> {
        Arc::clone(&self.0.progress)
    }

    /// Everything is in place for the first sweep.
    pub(crate) fn loaded(&self, seconds: f64) {
        self.state().load_seconds = Some(seconds);
    }

    /// The prompt has been read.
    pub(crate) fn prefilled(&self, seconds: f64) {
        self.state().prefill_seconds = Some(seconds);
    }

    /// A sweep has finished; `row` tells what it read, of a source that reads.
    pub(crate) fn sweep(&self, row: Option<SweepReport>, counts: CountsReport) {
        let mut state = self.state();
        state.counts = counts;
        if let Some(row) = row {
            state.sweeps.push(row);
        }
    }

    /// A token has been drawn.
    pub(crate) fn token(&self, seconds: f64) {
        let mut state = self.state();
        state.generated_tokens += 1;
        state.token_seconds += seconds;
    }

    /// Every weight is in memory; the trunk was read in files of its own, or
    /// was not.
    pub(crate) fn resident(&self, trunk: Option<TrunkReport>) {
        self.state().trunk = trunk;
    }

    /// Reading is about to begin.
    pub(crate) fn streaming(&self, facts: StreamFacts, gauges: StreamGauges) {
        self.state().stream = Some(Stream {
            facts: Arc::new(facts),
            counted: Counted::Going(gauges),
        });
    }

    /// Reading is over: from now on the figures stand still, and nothing here
    /// keeps the engine.
    ///
    /// # Panics
    ///
    /// If it has not begun.
    pub(crate) fn end_streaming(&self) -> Figures {
        let mut state = self.state();
        let state = &mut *state;
        // While the arenas are mapped: huge pages have no high-water mark. And
        // under the lock: nobody may have seen more than this.
        let process = ProcessMemory::read();
        let stream = state.stream.as_mut().expect("reading has begun");
        if let Counted::Going(gauges) = &stream.counted {
            stream.counted = Counted::Ended(Observation::of(gauges, process));
        }
        stream.figures(&state.sweeps, process)
    }

    /// The rows of the report, and how many are missing in the middle.
    pub(crate) fn rows(&self) -> (Vec<SweepReport>, u64) {
        self.state().sweeps.clone().into_rows()
    }

    /// The state at this moment.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let process = ProcessMemory::read();
        let state = self.state();
        let streaming = state.stream.as_ref().map(|stream| {
            let figures = stream.figures(&state.sweeps, process);
            (Arc::clone(&stream.facts), figures)
        });
        let streamed = streaming.as_ref().map(|(_, figures)| &figures.trunk);
        Snapshot {
            trunk: streamed.unwrap_or(&state.trunk).clone(),
            live: self.clone(),
            counts: state.counts,
            generated_tokens: state.generated_tokens,
            load_seconds: state.load_seconds,
            prefill_seconds: state.prefill_seconds,
            token_seconds: state.token_seconds,
            steps: self.0.progress.get(),
            latest: state.sweeps.latest().copied(),
            streaming,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Sums have no half-changed state that a panic could leave.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// The figures so far. Counts are read under the caller's lock: no later
    /// look can find less.
    fn figures(&self, sweeps: &SweepTable, process: ProcessMemory) -> Figures {
        let seen = match &self.counted {
            Counted::Ended(seen) => seen.clone(),
            Counted::Going(gauges) => Observation::of(gauges, process),
        };
        Figures::new(&self.facts, seen, sweeps.totals())
    }
}
