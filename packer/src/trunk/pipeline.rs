//! Blocks through a fixed amount of memory: read and encoded by any thread,
//! placed in order, written by any thread, recorded by the one that waits.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k3_formats::trunk::{MatrixHasher, MatrixPart, extent_bytes};

use super::encode::{Encoder, Entry, extent_max};
use super::error::TrunkError;
use super::finish::Point;
use super::plan::TrunkPlan;
use super::session::Session;
use super::source::{TrunkSource, length, matrix_span};
use super::stripe_file::StripeFile;
use crate::aligned::AlignedBuffer;
use crate::error::PackError;

/// Largest block there is memory for.
pub const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Memory for blocks; a run as a whole takes less than 512 MiB.
const BUFFER_BYTES: usize = 320 << 20;
/// How often a waiting run looks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);

/// Records that blocks from a first one on, with these entries, are on the disk, and
/// the hash of the matrix in which they end.
type Add<'a> = dyn FnMut(u32, &[Entry], &MatrixHasher) -> Result<(), TrunkError> + 'a;

/// What a run tells while it goes on.
pub struct Hooks<'a> {
    /// Bytes of the checkpoint whose blocks an earlier run has written; called
    /// once, before the first block.
    pub on_start: &'a (dyn Fn(u64) + Sync),
    /// Bytes of the checkpoint whose block was written, from any thread.
    pub on_bytes: &'a (dyn Fn(u64) + Sync),
    /// What has just been made safe. `Break` ends the run right there, as a
    /// power cut would: nothing is synced, recorded or tidied any more.
    pub at_point: &'a (dyn Fn(Point) -> ControlFlow<()> + Sync),
}

impl Hooks<'_> {
    /// Nobody listens.
    pub const NONE: Hooks<'static> = Hooks {
        on_start: &|_| (),
        on_bytes: &|_| (),
        at_point: &|_| ControlFlow::Continue(()),
    };

    pub(super) fn at(&self, point: Point) -> Result<(), TrunkError> {
        match (self.at_point)(point) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(TrunkError::Stopped { done: 0, total: 0 }),
        }
    }
}

/// Encodes and writes every block that `session` does not have, and records it.
///
/// # Errors
///
/// What a read or write reports, and [`TrunkError::Stopped`]; the session's
/// journal says what is kept.
pub(super) fn run(
    source: &TrunkSource,
    plan: &TrunkPlan,
    session: &mut Session,
    cancel: &AtomicBool,
    hooks: &Hooks<'_>,
) -> Result<(), PackError> {
    let total = source.block_count();
    if session.done() == total {
        return Ok(());
    }
    let (workers, slots) = sizes(source, plan.settings.threads.get());
    let extent_max = extent_max(source);
    let first = session.done();
    let Session {
        journal,
        entries,
        hasher,
        stripes,
        ends,
        ..
    } = session;
    let work = Work {
        source,
        plan,
        stripes,
        cancel,
        hooks,
        state: Mutex::new(State {
            buffers: (0..slots).map(|_| AlignedBuffer::new(extent_max)).collect(),
            next: first,
            placed: first,
            encoded: VecDeque::new(),
            to_write: VecDeque::new(),
            written: first,
            written_ahead: BTreeSet::new(),
            unrecorded_bytes: 0,
            entries: Vec::new(),
            ends: ends.clone(),
            error: None,
            is_cut: false,
        }),
        changed: Condvar::new(),
    };
    let result = std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work.encode_and_write());
        }
        let mut add = |first: u32, more: &[Entry], hasher: &MatrixHasher| {
            assert_eq!(first, count_of(entries), "records follow one another");
            journal.add(first, more, hasher)?;
            entries.extend_from_slice(more);
            hooks.at(Point::Recorded(first + count_of(more)))
        };
        work.record(first, hasher, &mut add)
    });
    let state = work
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    *ends = state.ends;
    let done = count_of(entries);
    match result.err().or(state.error) {
        Some(error) => Err(error.with_progress(done, total).into()),
        None if done < total => Err(TrunkError::Stopped { done, total }.into()),
        None => Ok(()),
    }
}

fn count_of(entries: &[Entry]) -> u32 {
    u32::try_from(entries.len()).expect("block counts are capped")
}

/// Threads and buffers that fit the memory.
fn sizes(source: &TrunkSource, threads: usize) -> (usize, usize) {
    let block = extent_max(source).max(1);
    // A payload may grow to 1.2 times its block before it is given up.
    let scratch = block + block / 4;
    let workers = threads.min(BUFFER_BYTES / (scratch + 2 * block)).max(1);
    let slots = (BUFFER_BYTES.saturating_sub(workers * scratch) / block).max(1);
    (workers, slots.min(2 * workers + 2))
}

/// What threads share.
struct Work<'a> {
    source: &'a TrunkSource,
    plan: &'a TrunkPlan,
    stripes: &'a [Option<StripeFile>],
    cancel: &'a AtomicBool,
    hooks: &'a Hooks<'a>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Memory that nobody uses. Blocks are taken in order, so the first that is
    /// not placed yet has some, and everything behind it can wait for it.
    buffers: Vec<AlignedBuffer>,
    /// The next block to encode.
    next: u32,
    /// Every block before this one has its place.
    placed: u32,
    /// Blocks from `placed` on, encoded or not yet.
    encoded: VecDeque<Option<(Entry, MatrixPart, AlignedBuffer)>>,
    to_write: VecDeque<Placed>,
    /// Every block before this one is written.
    written: u32,
    /// Blocks behind it that are written too.
    written_ahead: BTreeSet<u32>,
    /// Bytes written since the last record.
    unrecorded_bytes: u64,
    /// Entries of blocks that have a place and are not recorded, and what they add
    /// to the hashes of their matrices.
    entries: Vec<(Entry, MatrixPart)>,
    ends: Vec<u64>,
    error: Option<TrunkError>,
    /// The run ends as by a power cut.
    is_cut: bool,
}

/// A block that can be written.
struct Placed {
    index: u32,
    offset: u64,
    extent_bytes: usize,
    buffer: AlignedBuffer,
}

impl Work<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked in here ends the run anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let waited = self.changed.wait_timeout(state, LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Whether no block is begun any more.
    fn is_ending(&self, state: &State) -> bool {
        state.error.is_some() || state.is_cut || self.cancel.load(Ordering::Relaxed)
    }

    /// A thread's work: writes what can be written, else encodes the next block.
    fn encode_and_write(&self) {
        let _guard = EndOnPanic(self);
        let mut encoder = Encoder::new(self.source);
        let total = self.source.block_count();
        let mut state = self.lock();
        loop {
            if state.error.is_some() || state.is_cut {
                return;
            }
            if let Some(placed) = state.to_write.pop_front() {
                drop(state);
                let result = self.write(placed);
                state = self.lock();
                match result {
                    Ok((index, bytes, buffer)) => state.wrote(index, bytes, buffer),
                    Err(error) => state.error = Some(state.error.take().unwrap_or(error)),
                }
                self.changed.notify_all();
            } else if state.written == total || self.is_ending(&state) && state.is_idle() {
                return;
            } else if state.next < total && !self.is_ending(&state) && !state.buffers.is_empty() {
                let index = state.next;
                state.next += 1;
                state.encoded.push_back(None);
                let mut buffer = state.buffers.pop().expect("one is there");
                drop(state);
                let result = encoder.encode(
                    self.source,
                    &self.source.blocks()[index as usize],
                    index,
                    self.plan.settings.codec,
                    &mut buffer,
                );
                state = self.lock();
                match result {
                    Ok(encoded) => state.place(index, encoded, buffer, &self.plan.stripes),
                    Err(error) => {
                        let error = TrunkError::Source(error);
                        state.error = Some(state.error.take().unwrap_or(error));
                    }
                }
                self.changed.notify_all();
            } else {
                state = self.wait(state);
            }
        }
    }

    /// Writes a block; returns its index, the bytes written and the memory.
    fn write(&self, mut placed: Placed) -> Result<(u32, u64, AlignedBuffer), TrunkError> {
        let stripe = self.plan.stripes[placed.index as usize];
        let stripe = self.stripes[usize::from(stripe)].as_ref();
        let stripe = stripe.expect("stripes have their names only when all is written");
        let extent = placed.buffer.bytes(placed.extent_bytes);
        stripe.write_pages(extent, placed.offset)?;
        let written_bytes = extent.len() as u64;
        (self.hooks.on_bytes)(self.source.blocks()[placed.index as usize].bytes);
        Ok((placed.index, written_bytes, placed.buffer))
    }

    /// Syncs and records what the threads write from block `first` on, until they
    /// are done: `add` takes the first of some further blocks and their entries.
    fn record(
        &self,
        first: u32,
        hasher: &mut MatrixHasher,
        add: &mut Add<'_>,
    ) -> Result<(), TrunkError> {
        let interval = self.plan.settings.record;
        let total = self.source.block_count();
        let mut recorded = first;
        let mut last = Instant::now();
        let result = loop {
            let mut state = self.lock();
            let is_last = loop {
                let is_last = state.written == total
                    || state.error.is_some()
                    || state.is_cut
                    || self.is_ending(&state) && state.is_idle();
                let is_due = state.unrecorded_bytes >= interval.bytes
                    || last.elapsed() >= interval.time && state.written > recorded;
                if is_last || is_due {
                    break is_last;
                }
                state = self.wait(state);
            };
            let more = (state.written - recorded) as usize;
            let entries: Vec<_> = state.entries.drain(..more).collect();
            state.unrecorded_bytes = 0;
            drop(state);
            let entries = self.hashed(recorded, entries, hasher);
            let result = self.make_safe(recorded, &entries, hasher, add);
            recorded += count_of(&entries);
            last = Instant::now();
            if is_last || result.is_err() {
                break result;
            }
        };
        if result.is_err() {
            self.lock().is_cut = true;
            self.changed.notify_all();
        }
        result
    }

    /// The entries of blocks from `first` on, with the hash of each matrix that ends
    /// among them.
    fn hashed(
        &self,
        first: u32,
        entries: Vec<(Entry, MatrixPart)>,
        hasher: &mut MatrixHasher,
    ) -> Vec<Entry> {
        let blocks = &self.source.blocks()[first as usize..];
        let entries = entries.into_iter().zip(blocks);
        let hashed = entries.map(|((entry, part), block)| {
            let (start, total) = matrix_span(block);
            let hash = hasher.add(start, total, length(block) as u64, &part);
            Entry {
                matrix_hash: hash.unwrap_or_default(),
                ..entry
            }
        });
        hashed.collect()
    }

    /// Data first, then the record that says it is there.
    fn make_safe(
        &self,
        first: u32,
        entries: &[Entry],
        hasher: &MatrixHasher,
        add: &mut Add<'_>,
    ) -> Result<(), TrunkError> {
        if entries.is_empty() {
            return Ok(());
        }
        self.stripes
            .iter()
            .flatten()
            .try_for_each(StripeFile::sync)?;
        add(first, entries, hasher)
    }
}

/// Ends the run when a thread panics: its block would be waited for in vain.
struct EndOnPanic<'a>(&'a Work<'a>);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().is_cut = true;
            self.0.changed.notify_all();
        }
    }
}

impl State {
    /// Gives block `index` and all encoded ones behind it their places, as far
    /// as none before them is missing.
    fn place(
        &mut self,
        index: u32,
        (entry, part): (Entry, MatrixPart),
        buffer: AlignedBuffer,
        stripes: &[u16],
    ) {
        let at = (index - self.placed) as usize;
        self.encoded[at] = Some((entry, part, buffer));
        while let Some(Some(_)) = self.encoded.front() {
            let (entry, part, buffer) = self.encoded.pop_front().flatten().expect("it is there");
            let end = &mut self.ends[usize::from(stripes[self.placed as usize])];
            let extent = extent_bytes(entry.stored_bytes);
            self.to_write.push_back(Placed {
                index: self.placed,
                offset: *end,
                extent_bytes: usize::try_from(extent).expect("blocks fit memory"),
                buffer,
            });
            *end += extent;
            self.entries.push((entry, part));
            self.placed += 1;
        }
    }

    /// Block `index` is written, with `bytes`.
    fn wrote(&mut self, index: u32, bytes: u64, buffer: AlignedBuffer) {
        self.buffers.push(buffer);
        self.unrecorded_bytes += bytes;
        self.written_ahead.insert(index);
        while self.written_ahead.remove(&self.written) {
            self.written += 1;
        }
    }

    /// Whether every block that was begun is written.
    fn is_idle(&self) -> bool {
        self.written == self.next
    }
}
