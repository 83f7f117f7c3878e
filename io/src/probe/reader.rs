//! One way of reading at a time, for as long as it takes to know its rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::places::Places;
use super::process_cpu_seconds;
use crate::arena::{HugeArena, PagePolicy};
use crate::direct::FileTable;
use crate::engine::{
    EngineConfig, EngineError, EngineKind, EnginePreference, FixedBuffers, ReadClass, ReadDone,
    ReadEngine, ReadRequest, open_engine,
};
use crate::lease::{SlotArena, WriteLease};
use crate::units::{MIB, file};

/// An engine with its settings, and the size of the requests it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadWay {
    /// The engine.
    pub engine: EnginePreference,
    /// Size of a request in bytes, a multiple of 4096.
    pub request_bytes: usize,
    /// Largest single read; see [`EngineConfig::piece_bytes`].
    pub piece_bytes: usize,
    /// Bytes in flight; see [`EngineConfig::in_flight_bytes`].
    pub in_flight_bytes: usize,
    /// Threads of a pread engine.
    pub threads: usize,
}

impl ReadWay {
    /// Requests that are queued or in flight at once: twice what is in flight,
    /// so that the engine never runs dry while an answer is being handled.
    fn request_count(&self) -> usize {
        (2 * self.in_flight_bytes)
            .div_ceil(self.request_bytes)
            .max(2)
    }

    fn arena_bytes(&self) -> usize {
        self.request_count() * self.request_bytes
    }
}

/// When a pass is over, whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PassLimits {
    /// Seconds.
    pub seconds: f64,
    /// Bytes asked for.
    pub bytes: u64,
}

/// What came of reading in one way for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadPass {
    /// Bytes read.
    pub read_bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// CPU time of the process for it, the kernel's included.
    pub cpu_seconds: f64,
    /// The engine that read.
    pub kind: EngineKind,
}

impl ReadPass {
    /// Bytes per second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a rate for people to read")]
        let bytes = self.read_bytes as f64;
        bytes / self.seconds.max(1e-9)
    }
}

/// Reads a device in one way after the other, into the same memory, never the
/// same place twice before all others were read.
pub struct DiskReader {
    table: Arc<FileTable>,
    arena: Arc<HugeArena>,
    pages: PagePolicy,
    places: Places,
    fallbacks: Vec<String>,
    reply: Sender<ReadDone>,
    answers: Receiver<ReadDone>,
}

impl DiskReader {
    /// Reserves memory for reading device number `device` of the table (an
    /// index into [`FileTable::devices`]) in any of `ways`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Unavailable`] when the device has no file with enough
    /// bytes on disk, and memory that cannot be had.
    pub fn new(
        table: &Arc<FileTable>,
        device: usize,
        ways: &[ReadWay],
    ) -> Result<Self, EngineError> {
        let most = |value: fn(&ReadWay) -> usize| ways.iter().map(value).max().unwrap_or(MIB);
        let places = Places::new(table, device, most(|way| way.request_bytes))?;
        let arena_bytes = most(ReadWay::arena_bytes);
        let (arena, report) = HugeArena::reserve(arena_bytes, PagePolicy::Transparent)?;
        arena.prefault(0..arena.len_bytes(), |_| true)?;
        let (reply, answers) = bounded(most(ReadWay::request_count));
        Ok(Self {
            table: Arc::clone(table),
            arena,
            pages: report.got,
            places,
            fallbacks: report.fallbacks,
            reply,
            answers,
        })
    }

    /// Whether reads bypass the page cache. If not, rates may be the memory's.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.places.direct
    }

    /// Pages that are read into.
    #[must_use]
    pub fn pages(&self) -> PagePolicy {
        self.pages
    }

    /// Everything that was less than asked for, one sentence each.
    #[must_use]
    pub fn fallbacks(&self) -> &[String] {
        &self.fallbacks
    }

    /// Reads until one of `limits` is reached (at least one request), as long as
    /// `go_on`, which is asked before every request, says so. Starting and
    /// stopping the engine is not counted.
    ///
    /// # Errors
    ///
    /// An engine that does not start, or a read that fails.
    pub fn pass(
        &mut self,
        way: &ReadWay,
        limits: PassLimits,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<ReadPass, EngineError> {
        let config = EngineConfig {
            piece_bytes: way.piece_bytes,
            in_flight_bytes: way.in_flight_bytes,
            threads: way.threads,
            arenas: vec![Arc::clone(&self.arena)],
            fixed_buffers: FixedBuffers::AtStart,
            ..EngineConfig::default()
        };
        let engine = open_engine(Arc::clone(&self.table), &config, way.engine)?;
        let caps = engine.caps();
        for line in caps.fallbacks {
            if !self.fallbacks.contains(&line) {
                self.fallbacks.push(line);
            }
        }
        let slots = SlotArena::new(&self.arena, 0..way.arena_bytes(), way.request_bytes)?;
        let free = (0..slots.slot_count()).filter_map(|slot| slots.acquire(slot));
        let free = free.collect();
        let cpu = process_cpu_seconds();
        let start = Instant::now();
        let limit = Duration::from_secs_f64(limits.seconds);
        let going_on = |asked: u64| {
            (asked == 0 || (asked < limits.bytes && start.elapsed() < limit)) && go_on()
        };
        let read_bytes = self.pump(&*engine, way.request_bytes, free, going_on)?;
        Ok(ReadPass {
            read_bytes,
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: process_cpu_seconds() - cpu,
            kind: caps.kind,
        })
    }

    /// Keeps all of `free` under way until `going_on` ends it; bytes that came.
    fn pump(
        &mut self,
        engine: &dyn ReadEngine,
        request_bytes: usize,
        mut free: Vec<WriteLease>,
        mut going_on: impl FnMut(u64) -> bool,
    ) -> Result<u64, EngineError> {
        let (mut asked, mut came, mut inside) = (0, 0, 0_usize);
        let mut failed = None;
        loop {
            let going_on = failed.is_none() && going_on(asked);
            match free.pop() {
                Some(target) if going_on => {
                    engine.submit(ReadRequest::single(
                        self.places.next(request_bytes),
                        target,
                        ReadClass::Expert,
                        0,
                        self.reply.clone(),
                    ));
                    asked += file(request_bytes);
                    inside += 1;
                }
                _ if inside == 0 => break,
                other => {
                    free.extend(other);
                    let done = self.answers.recv().expect("this reader holds a sender");
                    inside -= 1;
                    match done.result {
                        Ok(()) => came += file(done.payload.len()),
                        Err(error) => failed = Some(error),
                    }
                    free.push(done.target);
                }
            }
        }
        failed.map_or(Ok(came), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::DirectPolicy;

    #[test]
    fn every_way_reads_whole_requests_and_stops_when_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1_u8; 9 * MIB]).unwrap();
        let table = Arc::new(FileTable::open([&path], DirectPolicy::Probe).unwrap());
        let way = |engine, request_bytes, piece_bytes| ReadWay {
            engine,
            request_bytes,
            piece_bytes,
            in_flight_bytes: MIB,
            threads: 2,
        };
        let ways = [
            way(EnginePreference::Pread, 4 * MIB, 256 << 10),
            way(EnginePreference::Uring, 4 * MIB, 256 << 10),
            way(EnginePreference::Uring, 64 << 10, MIB),
        ];
        let mut reader = DiskReader::new(&table, 0, &ways).unwrap();
        for way in &ways {
            let request = file(way.request_bytes);
            let limits = |seconds, bytes| PassLimits { seconds, bytes };
            let mut pass = |limits, go_on| {
                let pass = reader.pass(way, limits, &mut || go_on).unwrap();
                assert!(pass.read_bytes.is_multiple_of(request), "{pass:?}");
                pass
            };
            assert!(pass(limits(0.03, u64::MAX), true).seconds >= 0.03);
            assert_eq!(
                pass(limits(60.0, 3 * request), true).read_bytes,
                3 * request
            );
            assert_eq!(pass(limits(0.0, 0), true).read_bytes, request);
            assert_eq!(pass(limits(60.0, u64::MAX), false).read_bytes, 0);
        }
    }
}
