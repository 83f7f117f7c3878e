//! The requests of a sweep, as the engine gets them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use k3_io::{
    EngineCaps, EngineCounters, HugeArena, ReadClass, ReadEngine, ReadRequest, SEGMENTS_MAX,
    Segment,
};
use parking_lot::{Condvar, Mutex};

use crate::tags::Party;

/// Longest wait for reading ahead that goes on after a sweep.
const PATIENCE: Duration = Duration::from_secs(20);

/// One request, without the memory it was read into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedRead {
    pub(super) segments: ArrayVec<Segment, SEGMENTS_MAX>,
    pub(super) class: ReadClass,
    pub(super) party: Party,
}

impl RecordedRead {
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

#[derive(Debug, Default)]
struct Log {
    /// `None` while nothing is recorded.
    reads: Option<Vec<RecordedRead>>,
}

impl Log {
    fn trunk_count(&self) -> usize {
        let reads = self.reads.iter().flatten();
        reads.filter(|read| read.party == Party::Trunk).count()
    }
}

/// What has passed, and whether it is kept.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Arc<(Mutex<Log>, Condvar)>);

impl Recorder {
    /// An engine that passes everything on to `inner`.
    pub(super) fn wrap(&self, inner: Arc<dyn ReadEngine>) -> Arc<dyn ReadEngine> {
        Arc::new(RecordingEngine {
            inner,
            recorder: self.clone(),
        })
    }

    /// Keeps what passes from now on.
    pub(super) fn start(&self) {
        self.0.0.lock().reads = Some(Vec::new());
    }

    /// Ends the record when it holds `trunk_count` requests for blocks, and
    /// drops those for further blocks.
    ///
    /// Blocks are asked for in sweep order without end, and the reading is ahead
    /// of the sweep that is recorded by as much when the record starts as when
    /// the sweep ends. So this many requests in a row are one for every block
    /// that is read in a sweep, whichever comes first; at the end of the sweep
    /// the streamer fills up its ring and may have some still to make.
    pub(super) fn finish(&self, trunk_count: usize) -> Vec<RecordedRead> {
        let (log, changed) = &*self.0;
        let mut log = log.lock();
        let deadline = Instant::now() + PATIENCE;
        while log.trunk_count() < trunk_count {
            if changed.wait_until(&mut log, deadline).timed_out() {
                // Not a whole sweep: the caller counts.
                break;
            }
        }
        let mut reads = log.reads.take().expect("a record was started");
        let mut left = trunk_count;
        reads.retain(|read| {
            let is_trunk = read.party == Party::Trunk;
            let is_wanted = !is_trunk || left > 0;
            left = left.saturating_sub(usize::from(is_trunk));
            is_wanted
        });
        reads
    }

    /// Ends the record and forgets it.
    pub(super) fn abandon(&self) {
        self.0.0.lock().reads = None;
    }

    fn note(&self, request: &ReadRequest) {
        let (log, changed) = &*self.0;
        if let Some(reads) = &mut log.lock().reads {
            reads.push(RecordedRead {
                segments: request.segments.clone(),
                class: request.class,
                party: Party::of(request.tag),
            });
            changed.notify_all();
        }
    }
}

/// Passes everything on and notes what is asked for.
#[derive(Debug)]
struct RecordingEngine {
    inner: Arc<dyn ReadEngine>,
    recorder: Recorder,
}

impl ReadEngine for RecordingEngine {
    fn submit(&self, request: ReadRequest) {
        self.recorder.note(&request);
        self.inner.submit(request);
    }

    fn promote(&self, tag: u64, class: ReadClass) {
        self.inner.promote(tag, class);
    }

    fn cancel(&self, tag: u64) {
        self.inner.cancel(tag);
    }

    fn memory_ready(&self, arena: &HugeArena, range: Range<usize>) {
        self.inner.memory_ready(arena, range);
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
