//! How well reading and arithmetic hide each other.
//!
//! One *triple* is three measures in a row, of sweeps over the same positions
//! with the same experts: wall, I/O alone, compute alone. Triples are repeated,
//! so that whatever else the machine does falls on all three alike, and it is
//! the ratios within a triple that count.
//!
//! A streamed sweep is timed in its steady state: another one, over other tokens,
//! comes right before it, so that the ring is as full when the clock starts as
//! when it stops. The sequence is emptied before each sweep, for the wall and for
//! compute alone, so that all of them do the same arithmetic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k3_config::{BlockKind, BudgetPlan, PinMap};
use k3_models::{
    ExpertDemand, LogitRows, ModelFamily, SequenceState, Sweep, SweepProgram, Workers,
    WorkspaceSize,
};
use k3_runtime::{Cancel, Checkpoint, ComputePool, RunError, SweepObserver, WeightSource, forward};

use super::cycle::CyclingSource;
use super::error::BenchError;
use super::impose::Imposed;
use super::prompt::{share, sweep};
use super::record::{RecordedRead, Recorder};
use super::replay::Replay;
use super::search::{self, Known};
use crate::source::SweepReads;
use crate::supervisor::{ShutdownReport, StreamSettings, Supervisor};

pub use super::point::{OverlapPoint, Triple};
pub use super::replay::reserved_bytes;

/// Probes of a search at most, its ends included.
const PROBES_MAX: usize = 7;
/// How long an engine must have had nothing to do to count as idle.
const IDLE: Duration = Duration::from_millis(20);

/// What is measured.
pub struct OverlapRequest<'a, M> {
    /// The model.
    pub model: &'a M,
    /// Its weights.
    pub checkpoint: &'a Arc<Checkpoint>,
    /// The plan of the streamed sweeps; its chunk is the largest sweep.
    pub plan: &'a BudgetPlan,
    /// How they read.
    pub settings: &'a StreamSettings,
    /// Who computes.
    pub pool: &'a ComputePool,
    /// Bytes of weights that compute alone goes around in.
    pub buffer_bytes: u64,
    /// Whether sweeps of several positions also pass the output head. In a run
    /// they are prompt chunks, of which only the last does.
    pub always_head: bool,
    /// A request to stop.
    pub cancel: &'a Cancel,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Filling the buffers of compute alone.
    Fill,
    /// The first sweep, which fills the pins.
    WarmUp,
    /// Looking for the positions whose sides are closest.
    Search,
    /// Triples of sweeps over this many positions.
    Measure {
        /// Positions of a sweep.
        positions: usize,
    },
}

/// Told how far a stage has come, from 0 to 1.
pub type Watch<'w> = dyn FnMut(Stage, f64) + 'w;

/// The requests and the experts of one sweep.
pub(super) struct Record {
    pub(super) has_head: bool,
    pub(super) reads: Vec<RecordedRead>,
    pub(super) demands: Vec<Vec<u16>>,
    pub(super) counts: SweepReads,
}

/// Everything that is measured, ready to run.
pub struct OverlapBench<'a, M: ModelFamily> {
    request: OverlapRequest<'a, M>,
    supervisor: Supervisor,
    recorder: Recorder,
    replay: Replay,
    cycling: CyclingSource,
    state: M::State,
    workspace: M::Workspace,
}

/// Notes demands and tells how far a sweep has come.
struct SweepWatch<'w> {
    demands: Vec<Vec<u16>>,
    progress: &'w mut dyn FnMut(f64),
}

impl SweepObserver for SweepWatch<'_> {
    fn demand(&mut self, demand: &ExpertDemand) {
        self.demands.push(demand.picks.clone());
    }

    fn progress(&mut self, done: usize, total: usize) {
        (self.progress)(share(done, total));
    }
}

/// Progress of a part of something: of the `share` that starts at `from`.
fn part<'p>(whole: &'p mut dyn FnMut(f64), from: f64, share: f64) -> impl FnMut(f64) + use<'p> {
    move |done| whole(from + done * share)
}

impl<'a, M: ModelFamily> OverlapBench<'a, M> {
    /// Starts the actors, fills the buffers and runs a first sweep.
    ///
    /// # Errors
    ///
    /// Memory, threads or reads that fail, and [`BenchError::NothingStreams`].
    pub fn start(
        request: OverlapRequest<'a, M>,
        watch: &mut Watch<'_>,
    ) -> Result<Self, BenchError> {
        let (model, plan) = (request.model, request.plan);
        let recorder = Recorder::default();
        let wrapper = recorder.clone();
        let wrap = move |engine, _| wrapper.wrap(engine);
        let (checkpoint, settings) = (request.checkpoint, request.settings);
        let supervisor = Supervisor::start(model, checkpoint, plan, settings, Some(&wrap))?;
        let row_bytes = model.program().embedding_row_bytes();
        let replay = Replay::open(checkpoint, row_bytes, plan, settings)?;
        let fill = |done: u64, total: u64| {
            #[allow(clippy::cast_precision_loss, reason = "for a progress bar")]
            watch(Stage::Fill, done as f64 / total.max(1) as f64);
            if request.cancel.is_requested() {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        };
        let buffer_bytes = request.buffer_bytes;
        let cycling = CyclingSource::load(model, checkpoint, buffer_bytes, settings.pages, fill)?;
        let positions = crate::units::memory(plan.sweep_positions);
        let workers = request.pool.count();
        let mut bench = Self {
            request,
            supervisor,
            recorder,
            replay,
            cycling,
            state: model.new_state(positions),
            workspace: model.new_workspace(WorkspaceSize {
                held_positions: 0,
                positions,
                logit_rows: 1,
                context_positions: positions,
                workers,
            }),
        };
        let first = sweep(0, 1, LogitRows::Last, model.vocab_size());
        bench.streamed(&first, &mut |done| watch(Stage::WarmUp, done))?;
        Ok(bench)
    }

    /// Bytes of weights that compute alone goes around in.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        self.cycling.buffer_bytes()
    }

    /// What had to be done without, by the engine and for the weights of compute
    /// alone.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<String> {
        let mut fallbacks = self.supervisor.fallbacks();
        fallbacks.extend_from_slice(self.cycling.fallbacks());
        fallbacks
    }

    /// What reads.
    #[must_use]
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Stops everything in order.
    #[must_use]
    pub fn shutdown(self) -> ShutdownReport {
        self.supervisor.shutdown()
    }

    /// Measures `rounds` triples of sweeps over `positions`.
    ///
    /// # Errors
    ///
    /// Reads that fail, a stop that was asked for, and
    /// [`BenchError::NothingStreams`].
    pub fn measure(
        &mut self,
        positions: usize,
        rounds: usize,
        watch: &mut Watch<'_>,
    ) -> Result<OverlapPoint, BenchError> {
        assert!(rounds > 0, "a median needs at least one triple");
        let stage = Stage::Measure { positions };
        let mut part = 0;
        // A record and the triples, of four equal parts each: nearly.
        let parts = 4 * (rounds + 1);
        let mut advance = |parts_done: usize, within: f64| {
            part += parts_done;
            #[allow(clippy::cast_precision_loss, reason = "for a progress bar")]
            let done = (part as f64 + 4.0 * within) / parts as f64;
            watch(stage, done);
        };
        let record = self.record(positions, &mut |done| advance(0, done))?;
        let mut triples = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            advance(4, 0.0);
            triples.push(self.triple(positions, &record, &mut |done| advance(0, done))?);
        }
        Ok(OverlapPoint::new(positions, &record, triples))
    }

    /// Looks for the positions, up to the plan's chunk, whose two sides are
    /// closest; `points` are taken for known.
    ///
    /// # Errors
    ///
    /// As [`OverlapBench::measure`].
    pub fn closest(
        &mut self,
        points: &[OverlapPoint],
        watch: &mut Watch<'_>,
    ) -> Result<usize, BenchError> {
        let most = crate::units::memory(self.request.plan.sweep_positions);
        let known = points.iter().map(|point| {
            let ratio = point.compute_seconds.median / point.io_seconds.median;
            (point.positions, ratio)
        });
        let mut known: Known = known.collect();
        for probe in 0..PROBES_MAX {
            let Some(positions) = search::next_probe(&known, most) else {
                break;
            };
            let within = &mut |done: f64| {
                #[allow(clippy::cast_precision_loss, reason = "for a progress bar")]
                let done = (probe as f64 + done) / PROBES_MAX as f64;
                watch(Stage::Search, done);
            };
            let record = self.record(positions, &mut part(within, 0.0, 0.5))?;
            self.settle()?;
            let io_seconds = self.io_alone(&record, &mut part(within, 0.5, 0.25))?;
            let compute = &mut part(within, 0.75, 0.25);
            let compute_seconds = self.compute_alone(positions, &record, compute)?;
            known.insert(positions, compute_seconds / io_seconds);
        }
        Ok(search::closest(&known).expect("at least one probe was made"))
    }

    /// Two sweeps, the second of which is recorded.
    pub(super) fn record(
        &mut self,
        positions: usize,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Record, BenchError> {
        let plan = self.request.plan;
        let [lead, timed] = [1, 2].map(|salt| self.sweep(positions, salt));
        let has_head = timed.logit_row_count() > 0;
        // With a cache, hits repeat from the second time on.
        let times = if plan.slots.cache_count > 0 { 2 } else { 1 };
        let share = 1.0 / f64::from(2 * times);
        let mut done = 0.0;
        for _ in 1..times {
            for sweep in [&lead, &timed] {
                self.streamed(sweep, &mut part(progress, done, share))?;
                done += share;
            }
        }
        self.streamed(&lead, &mut part(progress, done, share))?;
        self.recorder.start();
        let streamed = self.streamed(&timed, &mut part(progress, done + share, share));
        let Ok(streamed) = streamed else {
            self.recorder.abandon();
            return streamed.map(|_| unreachable!("just seen to have failed"));
        };
        let program = self.request.model.program();
        let unpinned = unpinned_count(program, &plan.pinned, has_head);
        let reads = self.recorder.finish(unpinned);
        let record = Record {
            has_head,
            reads,
            demands: streamed.demands,
            counts: streamed.reads,
        };
        let recorded = record.reads.iter().map(RecordedRead::bytes).sum();
        let consumed = read_bytes(&record.counts);
        if recorded != consumed {
            return Err(BenchError::Record { recorded, consumed });
        }
        if consumed == record.counts.row_bytes {
            return Err(BenchError::NothingStreams);
        }
        Ok(record)
    }

    /// As a run makes it, over other tokens for another `salt`: one position is a step of decoding, more are a chunk of
    /// a prompt.
    fn sweep(&self, positions: usize, salt: usize) -> Sweep {
        let logit_rows = if positions == 1 || self.request.always_head {
            LogitRows::Last
        } else {
            LogitRows::None
        };
        sweep(
            salt * positions,
            positions,
            logit_rows,
            self.request.model.vocab_size(),
        )
    }

    fn triple(
        &mut self,
        positions: usize,
        record: &Record,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Triple, BenchError> {
        let [lead, timed] = [1, 2].map(|salt| self.sweep(positions, salt));
        self.streamed(&lead, &mut part(progress, 0.0, 0.25))?;
        let busy = self.supervisor.counters().busy_seconds;
        let wall = self.streamed(&timed, &mut part(progress, 0.25, 0.25))?;
        let busy_seconds = self.supervisor.counters().busy_seconds - busy;
        self.settle()?;
        let io_seconds = self.io_alone(record, &mut part(progress, 0.5, 0.25))?;
        let compute = &mut part(progress, 0.75, 0.25);
        let compute_seconds = self.compute_alone(positions, record, compute)?;
        Ok(Triple {
            wall_seconds: wall.seconds,
            io_seconds,
            compute_seconds,
            trunk_wait_seconds: wall.reads.trunk.wait_seconds,
            expert_wait_seconds: wall.reads.experts.wait_seconds,
            busy_seconds,
            wall_read_bytes: read_bytes(&wall.reads),
        })
    }

    /// A sweep as a run makes it.
    fn streamed(
        &mut self,
        sweep: &Sweep,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Streamed, BenchError> {
        let model = self.request.model;
        let source = self.supervisor.source();
        let (state, workspace) = (&mut self.state, &mut self.workspace);
        let timed = timed_sweep(
            model,
            source,
            sweep,
            state,
            workspace,
            &self.request,
            progress,
        );
        let (seconds, demands) = timed?;
        Ok(Streamed {
            seconds,
            demands,
            reads: self.supervisor.source_ref().sweep_reads(),
        })
    }

    fn io_alone(
        &mut self,
        record: &Record,
        progress: &mut dyn FnMut(f64),
    ) -> Result<f64, BenchError> {
        let total = record.reads.len();
        let tell = |done| progress(share(done, total));
        let replayed = self.replay.run(&record.reads, self.request.cancel, tell)?;
        assert_eq!(
            replayed.payload_bytes,
            read_bytes(&record.counts),
            "every request was answered in full"
        );
        Ok(replayed.seconds)
    }

    fn compute_alone(
        &mut self,
        positions: usize,
        record: &Record,
        progress: &mut dyn FnMut(f64),
    ) -> Result<f64, BenchError> {
        let model = Imposed {
            model: self.request.model,
            demands: &record.demands,
        };
        let timed = self.sweep(positions, 2);
        let (state, workspace) = (&mut self.state, &mut self.workspace);
        let source = &mut self.cycling;
        let request = &self.request;
        let (seconds, demands) =
            timed_sweep(&model, source, &timed, state, workspace, request, progress)?;
        assert!(demands == record.demands, "the recorded experts were taken");
        Ok(seconds)
    }

    /// Waits until the streamer has filled its ring and the disk is free.
    fn settle(&self) -> Result<(), BenchError> {
        let mut since = Instant::now();
        let mut before = self.supervisor.counters().busy_seconds;
        while since.elapsed() < IDLE {
            std::thread::sleep(IDLE / 10);
            if self.request.cancel.is_requested() {
                return Err(RunError::Cancelled.into());
            }
            // The clock stands still while nothing is queued or in flight.
            let now = self.supervisor.counters().busy_seconds;
            if now > before {
                (since, before) = (Instant::now(), now);
            }
        }
        Ok(())
    }
}

/// A streamed sweep, done.
struct Streamed {
    seconds: f64,
    demands: Vec<Vec<u16>>,
    reads: SweepReads,
}

/// Empties the sequence, runs `sweep` and says how long both took, and which
/// experts every layer asked for.
fn timed_sweep<M: ModelFamily, S: WeightSource, R>(
    model: &M,
    source: &mut S,
    sweep: &Sweep,
    state: &mut M::State,
    workspace: &mut M::Workspace,
    request: &OverlapRequest<'_, R>,
    progress: &mut dyn FnMut(f64),
) -> Result<(f64, Vec<Vec<u16>>), RunError> {
    let mut watch = SweepWatch {
        demands: Vec::new(),
        progress,
    };
    let start = Instant::now();
    state.reset();
    let (pool, cancel) = (request.pool, request.cancel);
    let states = vec![state];
    let _entered = pool.enter();
    forward(
        model, source, sweep, states, workspace, pool, &mut watch, cancel,
    )?;
    Ok((start.elapsed().as_secs_f64(), watch.demands))
}

/// Payload bytes that a sweep took from the disk.
pub(super) fn read_bytes(reads: &SweepReads) -> u64 {
    reads.trunk.read_bytes + reads.experts.read_bytes + reads.row_bytes
}

/// Blocks that a sweep reads: those that are not pinned, the head's only if it
/// is passed.
fn unpinned_count(program: &SweepProgram, pinned: &PinMap, with_head: bool) -> usize {
    let blocks = program.blocks.iter().enumerate();
    blocks
        .filter(|(index, block)| {
            let is_passed = with_head || block.kind != BlockKind::Head;
            is_passed && !pinned.is_pinned(*index)
        })
        .count()
}
