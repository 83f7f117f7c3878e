//! The arithmetic of one token, every share of it by name.
//!
//! Sweeps of one position follow one another, as in decoding, over weights that
//! lie in memory: more of them than any cache holds, taken in turn. The family
//! names its steps ([`Workers::phase`]); between one name and the next the clocks
//! of the wall and of the process's processor time are read. What a phase took in
//! one sweep is the sum of its occurrences; the figures are over sweeps.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use k3_io::{PagePolicy, process_cpu_seconds};
use k3_models::parallel::{for_each_piece, partition};
use k3_models::{LogitRows, ModelFamily, Phase, Workers, WorkspaceSize};
use k3_runtime::statistics::Spread;
use k3_runtime::{Cancel, Checkpoint, ComputePool, forward};
use parking_lot::Mutex;

use super::cycle::CyclingSource;
use super::error::BenchError;
use super::prompt::{Told, sweep};

/// Phases a family may name without the book growing.
const PHASES_MAX: usize = 64;
/// What passes before the first phase and after the last.
const OUTSIDE: Phase = Phase {
    part: "sweep",
    name: "start and end",
};

/// What is measured.
pub struct DecodeRequest<'a, M> {
    /// The model.
    pub model: &'a M,
    /// Where its weights come from.
    pub checkpoint: &'a Arc<Checkpoint>,
    /// Who computes.
    pub pool: &'a ComputePool,
    /// Reads memory as fast as the instruction set can.
    pub read_sums: fn(&[u8]) -> [u64; 8],
    /// Bytes of weights that are gone around in.
    pub buffer_bytes: u64,
    /// Pages they lie in.
    pub pages: PagePolicy,
    /// Positions before the first measured one.
    pub context_positions: usize,
    /// Most positions of the sweeps that fill the context.
    pub chunk_positions: usize,
    /// A request to stop.
    pub cancel: &'a Cancel,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Filling the buffers of weights.
    Fill,
    /// The positions before the first measured one.
    Context,
    /// Sweeps of one position.
    Measure,
}

/// Told how far a stage has come, from 0 to 1.
pub type Watch<'w> = dyn FnMut(Stage, f64) + 'w;

/// One phase of the sweeps.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseFigures {
    /// Which.
    pub phase: Phase,
    /// Times it occurs in a sweep.
    pub occurrences: u64,
    /// Weights it goes over in a sweep.
    pub weight_bytes: u64,
    /// Seconds of a sweep by the wall.
    pub wall_seconds: Spread,
    /// Processor seconds of a sweep, of all threads.
    pub cpu_seconds: Spread,
}

/// All sweeps.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodeFigures {
    /// In order of first occurrence.
    pub phases: Vec<PhaseFigures>,
    /// Seconds of a whole sweep by the wall.
    pub wall_seconds: Spread,
    /// Processor seconds of a whole sweep, of all threads.
    pub cpu_seconds: Spread,
    /// Bytes for each processor second while the same weights are only read, before
    /// each sweep.
    pub stream_bytes_per_core_second: Spread,
    /// Bytes of weights that took turns.
    pub buffer_bytes: u64,
    /// What their memory had to do without.
    pub fallbacks: Vec<String>,
}

/// What a phase took, so far in the sweep at hand.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    occurrences: u64,
    weight_bytes: u64,
    wall_seconds: f64,
    cpu_seconds: f64,
}

/// By phase, in order of first occurrence.
type Entries = Vec<(Phase, Taken)>;

/// The phases of a sweep.
#[derive(Debug)]
struct Book {
    entries: Entries,
    current: usize,
    wall: Instant,
    cpu_seconds: f64,
}

impl Book {
    fn new() -> Self {
        let mut entries = Vec::with_capacity(PHASES_MAX);
        entries.push((OUTSIDE, Taken::default()));
        Self {
            entries,
            current: 0,
            wall: Instant::now(),
            cpu_seconds: process_cpu_seconds(),
        }
    }

    fn turn_to(&mut self, phase: Phase, weight_bytes: usize) {
        let (wall, cpu_seconds) = (Instant::now(), process_cpu_seconds());
        let taken = &mut self.entries[self.current].1;
        taken.wall_seconds += (wall - self.wall).as_secs_f64();
        taken.cpu_seconds += cpu_seconds - self.cpu_seconds;
        (self.wall, self.cpu_seconds) = (wall, cpu_seconds);
        let known = self.entries.iter().position(|(known, _)| *known == phase);
        self.current = known.unwrap_or_else(|| {
            self.entries.push((phase, Taken::default()));
            self.entries.len() - 1
        });
        let taken = &mut self.entries[self.current].1;
        taken.occurrences += 1;
        taken.weight_bytes += weight_bytes as u64;
    }
}

/// Computes with `pool` and keeps the book.
struct BookKeeper<'p> {
    pool: &'p ComputePool,
    book: Mutex<Book>,
}

impl Workers for BookKeeper<'_> {
    fn count(&self) -> usize {
        self.pool.count()
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        self.pool.run(tasks, body);
    }

    fn work_min(&self) -> usize {
        self.pool.work_min()
    }

    fn phase(&self, phase: Phase, weight_bytes: usize) {
        self.book.lock().turn_to(phase, weight_bytes);
    }
}

/// Measures `rounds` sweeps of one position.
///
/// # Errors
///
/// Memory or reads that fail, arithmetic that does, and a stop that was asked
/// for.
///
/// # Panics
///
/// If `rounds` is 0.
pub fn measure<M: ModelFamily>(
    request: &DecodeRequest<'_, M>,
    rounds: usize,
    watch: &mut Watch<'_>,
) -> Result<DecodeFigures, BenchError> {
    assert!(rounds > 0, "a median needs at least one sweep");
    let model = request.model;
    let mut source = load(request, watch)?;
    // One sweep more than is measured: the first touches what comes after it.
    let capacity = request.context_positions + rounds + 1;
    let mut state = model.new_state(capacity);
    let mut workspace = model.new_workspace(WorkspaceSize {
        held_positions: 0,
        positions: chunk_positions(request),
        logit_rows: 1,
        context_positions: capacity,
        workers: request.pool.count(),
    });
    let _entered = request.pool.enter();
    fill_context(request, &mut source, &mut state, &mut workspace, watch)?;
    let at = request.context_positions;
    let mut books = Vec::with_capacity(rounds);
    let mut streams = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        let sweep = sweep(at + round, 1, LogitRows::Last, model.vocab_size());
        #[allow(clippy::cast_precision_loss, reason = "for a progress bar")]
        let mut told =
            |done: f64| watch(Stage::Measure, (round as f64 + done) / (rounds + 1) as f64);
        let observer = &mut Told(&mut told);
        let stream = stream_rate(&source, request);
        let keeper = BookKeeper {
            pool: request.pool,
            book: Mutex::new(Book::new()),
        };
        let states = vec![&mut state];
        forward(
            model,
            &mut source,
            &sweep,
            states,
            &mut workspace,
            &keeper,
            observer,
            request.cancel,
        )?;
        let mut book = keeper.book.into_inner();
        book.turn_to(OUTSIDE, 0);
        if round > 0 {
            books.push(book.entries);
            streams.push(stream);
        }
    }
    Ok(figures(&books, &streams, &source))
}

/// Positions of the sweeps that fill the context.
fn chunk_positions<M: ModelFamily>(request: &DecodeRequest<'_, M>) -> usize {
    let most = request.context_positions.max(1);
    request.chunk_positions.clamp(1, most)
}

/// Sweeps over what comes before the positions that are measured.
fn fill_context<M: ModelFamily>(
    request: &DecodeRequest<'_, M>,
    source: &mut CyclingSource,
    state: &mut M::State,
    workspace: &mut M::Workspace,
    watch: &mut Watch<'_>,
) -> Result<(), BenchError> {
    let (model, total) = (request.model, request.context_positions);
    for start in (0..total).step_by(chunk_positions(request)) {
        let count = chunk_positions(request).min(total - start);
        let sweep = sweep(start, count, LogitRows::None, model.vocab_size());
        #[allow(clippy::cast_precision_loss, reason = "for a progress bar")]
        let mut told = |done: f64| {
            watch(
                Stage::Context,
                (start as f64 + done * count as f64) / total as f64,
            );
        };
        let observer = &mut Told(&mut told);
        let (states, pool) = (vec![&mut *state], request.pool);
        forward(
            model,
            source,
            &sweep,
            states,
            workspace,
            pool,
            observer,
            request.cancel,
        )?;
    }
    Ok(())
}

fn load<M: ModelFamily>(
    request: &DecodeRequest<'_, M>,
    watch: &mut Watch<'_>,
) -> Result<CyclingSource, BenchError> {
    let fill = |done: u64, total: u64| {
        #[allow(clippy::cast_precision_loss, reason = "for a progress bar")]
        watch(Stage::Fill, done as f64 / total.max(1) as f64);
        if request.cancel.is_requested() {
            std::ops::ControlFlow::Break(())
        } else {
            std::ops::ControlFlow::Continue(())
        }
    };
    let (model, checkpoint) = (request.model, request.checkpoint);
    CyclingSource::load(model, checkpoint, request.buffer_bytes, request.pages, fill)
}

/// What the books of several sweeps come to; all name the same phases.
fn figures(books: &[Entries], streams: &[f64], source: &CyclingSource) -> DecodeFigures {
    let over = |value: &dyn Fn(&Entries) -> f64| {
        let values: Vec<f64> = books.iter().map(value).collect();
        Spread::of(&values).expect("at least one sweep")
    };
    let of = |phase: Phase, value: fn(&Taken) -> f64| {
        over(&|book| {
            let entries = book.iter().filter(|(known, _)| *known == phase);
            entries.map(|(_, taken)| value(taken)).sum()
        })
    };
    let phases = books[0].iter().map(|(phase, taken)| PhaseFigures {
        phase: *phase,
        occurrences: taken.occurrences,
        weight_bytes: taken.weight_bytes,
        wall_seconds: of(*phase, |taken| taken.wall_seconds),
        cpu_seconds: of(*phase, |taken| taken.cpu_seconds),
    });
    DecodeFigures {
        phases: phases.collect(),
        wall_seconds: over(&|book| book.iter().map(|(_, taken)| taken.wall_seconds).sum()),
        cpu_seconds: over(&|book| book.iter().map(|(_, taken)| taken.cpu_seconds).sum()),
        stream_bytes_per_core_second: Spread::of(streams).expect("one for each sweep"),
        buffer_bytes: source.buffer_bytes(),
        fallbacks: source.fallbacks().to_vec(),
    }
}

/// Bytes for each processor second, all weights read once by all threads.
fn stream_rate<M>(source: &CyclingSource, request: &DecodeRequest<'_, M>) -> f64 {
    let read_sums = request.read_sums;
    let before = process_cpu_seconds();
    let mut bytes = 0;
    for buffer in source.buffers() {
        bytes += buffer.len();
        let pieces = partition(buffer.len(), request.pool.count()).collect();
        for_each_piece(request.pool, pieces, |piece: Range<usize>| {
            std::hint::black_box(read_sums(&buffer[piece]));
        });
    }
    #[allow(clippy::cast_precision_loss, reason = "a rate to a few digits")]
    let bytes = bytes as f64;
    bytes / (process_cpu_seconds() - before).max(f64::MIN_POSITIVE)
}
