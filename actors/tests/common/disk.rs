//! A disk that reads at once, on the thread that asks, and counts every byte.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};

use k3_actors::supervisor::WrapEngine;
use k3_io::{
    EngineCaps, EngineCounters, EngineError, FileTable, ReadClass, ReadDone, ReadEngine,
    ReadRequest,
};
use k3_runtime::Checkpoint;

/// What was read, in payload bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskCounts {
    /// Experts asked for by a demand.
    pub(crate) demanded_bytes: u64,
    /// Experts asked for by a guess.
    pub(crate) guessed_bytes: u64,
    /// Everything else.
    pub(crate) other_bytes: u64,
    /// Guesses that were demanded before they were read.
    pub(crate) hurried: u64,
}

/// See the module. A guess can be made to take forever unless it is hurried
/// or withdrawn.
#[derive(Debug)]
pub(crate) struct FakeDisk {
    inner: Arc<dyn ReadEngine>,
    table: Arc<FileTable>,
    /// File and offset of each expert's first byte.
    experts: HashSet<(u32, u64)>,
    stalls_guesses: bool,
    state: Arc<Mutex<DiskState>>,
}

#[derive(Debug, Default)]
struct DiskState {
    counts: DiskCounts,
    /// Reads of anything but experts: how often, by file, offset and bytes.
    others: HashMap<(u32, u64, u64), u64>,
    stalled: HashMap<u64, ReadRequest>,
}

/// The counts of a disk, to look at from outside.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskView(Arc<Mutex<DiskState>>);

impl DiskView {
    pub(crate) fn counts(&self) -> DiskCounts {
        self.0.lock().unwrap().counts
    }

    /// How often each range that is no expert was read: file, offset, bytes.
    pub(crate) fn others(&self) -> HashMap<(u32, u64, u64), u64> {
        self.0.lock().unwrap().others.clone()
    }

    /// Puts a disk that this looks at in the place of an engine.
    pub(crate) fn wrap(&self, checkpoint: &Checkpoint, stalls_guesses: bool) -> Box<WrapEngine> {
        let index = checkpoint.index().experts();
        let mut experts = HashSet::new();
        for layer in 0..64 {
            for expert in 0..index.experts_of_layer(layer) {
                let first = index.get(layer, expert).unwrap().segments()[0];
                experts.insert((u32::from(first.shard), first.offset));
            }
        }
        let state = Arc::clone(&self.0);
        Box::new(move |inner, table| {
            Arc::new(FakeDisk {
                inner,
                table,
                experts: experts.clone(),
                stalls_guesses,
                state: Arc::clone(&state),
            })
        })
    }
}

impl FakeDisk {
    fn read(&self, mut request: ReadRequest) {
        let mut at = 0;
        for segment in &request.segments {
            let end = at + usize::try_from(segment.bytes).unwrap();
            let file = File::open(self.table.get(segment.file).path()).unwrap();
            file.read_exact_at(&mut request.target[at..end], segment.offset)
                .unwrap();
            at = end;
        }
        answer(request, at, Ok(()));
    }
}

fn answer(request: ReadRequest, bytes: usize, result: Result<(), EngineError>) {
    let ReadRequest {
        target, tag, reply, ..
    } = request;
    let payload = 0..bytes;
    // Nobody may be left to hear of it.
    let _ = reply.send(ReadDone {
        tag,
        target,
        payload,
        result,
    });
}

impl ReadEngine for FakeDisk {
    fn submit(&self, request: ReadRequest) {
        let first = request.segments[0];
        let is_expert = self.experts.contains(&(first.file.0, first.offset));
        let is_guess = is_expert && request.class == ReadClass::ReadAhead;
        let bytes: u64 = request.segments.iter().map(|segment| segment.bytes).sum();
        let mut state = self.state.lock().unwrap();
        if is_guess && self.stalls_guesses {
            state.stalled.insert(request.tag, request);
            return;
        }
        if !is_expert {
            let range = (first.file.0, first.offset, bytes);
            *state.others.entry(range).or_default() += 1;
        }
        let counts = &mut state.counts;
        match (is_expert, is_guess) {
            (true, true) => counts.guessed_bytes += bytes,
            (true, false) => counts.demanded_bytes += bytes,
            (false, _) => counts.other_bytes += bytes,
        }
        drop(state);
        self.read(request);
    }

    fn promote(&self, tag: u64, class: ReadClass) {
        let mut state = self.state.lock().unwrap();
        if let Some(request) = state.stalled.remove(&tag) {
            assert_eq!(class, ReadClass::Expert);
            state.counts.hurried += 1;
            drop(state);
            self.read(request);
        }
    }

    fn cancel(&self, tag: u64) {
        let stalled = self.state.lock().unwrap().stalled.remove(&tag);
        if let Some(request) = stalled {
            answer(request, 0, Err(EngineError::Cancelled));
        }
    }

    fn caps(&self) -> EngineCaps {
        self.inner.caps()
    }

    fn counters(&self) -> EngineCounters {
        self.inner.counters()
    }

    fn shutdown(&self) {
        self.inner.shutdown();
    }
}
