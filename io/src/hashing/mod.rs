//! Hashes of many ranges of files, at the speed of the disk.
//!
//! Threads take ranges from a queue in the order of the disk. Each keeps a few
//! large direct reads ahead of its hash, over the end of one range into the
//! next, so that neither the disk nor the processor waits. The memory is
//! reserved once and does not depend on the length of a range.

mod digest;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub use digest::{Digest, HashKind};

use crate::arena::{HugeArena, PagePolicy};
use crate::direct::FileTable;
use crate::engine::{
    EngineConfig, EngineError, EngineKind, EnginePreference, FixedBuffers, Segment, open_engine,
};
use crate::lease::SlotArena;
use crate::units::{MIB, file, memory};
use crate::window::AlignedWindow;
use worker::Worker;

/// Most threads that hash unless told otherwise: sixteen outrun any one drive.
const THREADS_MAX: usize = 16;

/// How to read and hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashSettings {
    /// The hash.
    pub kind: HashKind,
    /// Threads that hash.
    pub threads: usize,
    /// Bytes that are read at once.
    pub piece_bytes: usize,
    /// Pieces that each thread holds: one that is hashed, the others on their
    /// way.
    pub pieces: usize,
    /// How to read.
    pub engine: EnginePreference,
}

impl HashSettings {
    /// Four pieces of 4 MiB for each of the processors, at most sixteen.
    #[must_use]
    pub fn new(kind: HashKind) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            kind,
            threads: threads.min(THREADS_MAX),
            piece_bytes: 4 * MIB,
            pieces: 4,
            engine: EnginePreference::Uring,
        }
    }

    /// Memory that is reserved for pieces, give or take their alignment.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.threads * self.pieces * self.piece_bytes
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct HashSummary {
    /// Whether every range was hashed, or found unreadable: nobody stopped it.
    pub is_complete: bool,
    /// Bytes that were hashed.
    pub hashed_bytes: u64,
    /// Wall time.
    pub seconds: f64,
    /// How the files were read.
    pub kind: EngineKind,
    /// Files read past the page cache.
    pub direct_file_count: usize,
    /// Everything that was less than asked for, one sentence each.
    pub fallbacks: Vec<String>,
}

/// Who hears what is done; called from any thread.
pub trait HashSink: Sync {
    /// Asked now and then; `false` ends the run.
    fn go_on(&self) -> bool;
    /// So many more bytes are hashed.
    fn bytes(&self, count: u64);
    /// Range number `range` has this hash, or could not be read.
    fn range(&self, range: usize, hash: Result<[u8; 32], EngineError>);
}

/// Hashes each of `ranges`. A range that cannot be read is reported as such and
/// the others go on.
///
/// # Errors
///
/// No memory, or no way to read at all.
///
/// # Panics
///
/// When a setting is 0.
pub fn hash_ranges(
    table: &Arc<FileTable>,
    ranges: &[Segment],
    settings: &HashSettings,
    sink: &dyn HashSink,
) -> Result<HashSummary, EngineError> {
    assert!(settings.threads > 0 && settings.pieces > 0 && settings.piece_bytes > 0);
    let started = Instant::now();
    let threads = settings.threads.min(ranges.len()).max(1);
    let slot_bytes =
        AlignedWindow::capacity_for(file(settings.piece_bytes), table.alignment_bytes())
            .expect("pieces are small");
    let slot_bytes = memory(slot_bytes).next_multiple_of(4096);
    let share = settings.pieces * slot_bytes;
    let (arena, _) = HugeArena::reserve(threads * share, PagePolicy::Transparent)?;
    let config = EngineConfig {
        arenas: vec![Arc::clone(&arena)],
        fixed_buffers: FixedBuffers::Off,
        ..EngineConfig::default()
    };
    let engine = open_engine(Arc::clone(table), &config, settings.engine)?;
    let queue = Queue::new(table, ranges);
    let mut workers = Vec::with_capacity(threads);
    for number in 0..threads {
        let slots = SlotArena::new(&arena, number * share..(number + 1) * share, slot_bytes)?;
        workers.push(Worker::new(
            &*engine, &queue, ranges, settings, sink, &slots,
        ));
    }
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| scope.spawn(move || worker.run()))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            let result = thread.join();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Vec<Result<_, _>>>()
    });
    let caps = engine.caps();
    engine.shutdown();
    let mut hashed_bytes = 0;
    for result in results {
        hashed_bytes += result?;
    }
    Ok(HashSummary {
        is_complete: !queue.is_stopped(),
        hashed_bytes,
        seconds: started.elapsed().as_secs_f64(),
        kind: caps.kind,
        direct_file_count: table.files().iter().filter(|file| file.is_direct()).count(),
        fallbacks: [caps.fallbacks, table.fallbacks()].concat(),
    })
}

/// Ranges that nobody has taken yet.
#[derive(Debug)]
struct Queue {
    /// Numbers of ranges, devices in turn.
    order: Vec<usize>,
    next: AtomicUsize,
    stopped: Mutex<bool>,
}

impl Queue {
    /// The ranges as given, but in turn from each device: all are to be busy.
    fn new(table: &FileTable, ranges: &[Segment]) -> Self {
        let mut lanes: Vec<Vec<usize>> = vec![Vec::new(); table.devices().len()];
        for (number, range) in ranges.iter().enumerate() {
            lanes[table.device_index(range.file)].push(number);
        }
        let longest = lanes.iter().map(Vec::len).max().unwrap_or(0);
        let turn = |row: usize| lanes.iter().filter_map(move |lane| lane.get(row).copied());
        Self {
            order: (0..longest).flat_map(turn).collect(),
            next: AtomicUsize::new(0),
            stopped: Mutex::new(false),
        }
    }

    /// The next range's number.
    fn take(&self) -> Option<usize> {
        if self.is_stopped() {
            return None;
        }
        let place = self.next.fetch_add(1, Ordering::Relaxed);
        self.order.get(place).copied()
    }

    /// No range is handed out any more.
    fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
