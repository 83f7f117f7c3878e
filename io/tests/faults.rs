//! What engines make of system calls that misbehave.

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{open_pread, open_uring};
use crossbeam_channel::bounded;
use k3_io::{
    DirectPolicy, EngineConfig, EngineError, Fault, FaultHook, FaultyEngine, FaultyPlan, FileId,
    FileTable, HugeArena, PagePolicy, ReadCall, ReadClass, ReadEngine, ReadRequest, Segment,
    SlotArena,
};

const FILE_BYTES: usize = 5_000_003;

/// A fault for each call, by its number.
struct Script<F>(AtomicU64, F);

impl<F> std::fmt::Debug for Script<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

impl<F: Fn(u64, ReadCall<'_>) -> Fault + Send + Sync> FaultHook for Script<F> {
    fn before(&self, call: ReadCall<'_>) -> Fault {
        (self.1)(self.0.fetch_add(1, Ordering::Relaxed), call)
    }
}

type Open = fn(Arc<FileTable>, &EngineConfig) -> Result<Arc<dyn ReadEngine>, EngineError>;

/// A file, its bytes, and an engine whose calls go as scripted.
struct Stage {
    engine: Arc<dyn ReadEngine>,
    table: Arc<FileTable>,
    slots: SlotArena,
    bytes: Vec<u8>,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Stage {
    fn new(
        open: Open,
        script: impl Fn(u64, ReadCall<'_>) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shard");
        let bytes: Vec<u8> = (0..FILE_BYTES)
            .map(|i| (i * 31 + i / 977).to_le_bytes()[0])
            .collect();
        std::fs::write(&path, &bytes).unwrap();
        let table = Arc::new(FileTable::open([&path], DirectPolicy::Probe).unwrap());
        let config = EngineConfig {
            piece_bytes: 64 << 10,
            faults: Some(Arc::new(Script(AtomicU64::new(0), script))),
            ..EngineConfig::default()
        };
        let engine = open(Arc::clone(&table), &config).unwrap();
        let (arena, report) = HugeArena::reserve(64 << 20, PagePolicy::Small).unwrap();
        let slots = SlotArena::new(&arena, 0..report.bytes, 8 << 20).unwrap();
        Self {
            engine,
            table,
            slots,
            bytes,
            path,
            _directory: directory,
        }
    }

    /// Reads a range through `engine` and checks the bytes if they come.
    fn read_through(
        &self,
        engine: &dyn ReadEngine,
        offset: usize,
        bytes: usize,
    ) -> Result<(), EngineError> {
        let (reply, answers) = bounded(1);
        let segment = Segment {
            file: FileId(0),
            offset: offset as u64,
            bytes: bytes as u64,
        };
        let mut target = self.slots.acquire_any().expect("a slot came back");
        target.fill(0xEE);
        engine.submit(ReadRequest::single(
            segment,
            target,
            ReadClass::Expert,
            1,
            reply,
        ));
        let done = answers.recv_timeout(Duration::from_secs(60)).unwrap();
        done.result?;
        let found = done.target.freeze(done.payload);
        assert!(
            found[..] == self.bytes[offset..offset + bytes],
            "wrong bytes"
        );
        Ok(())
    }

    fn read(&self, offset: usize, bytes: usize) -> Result<(), EngineError> {
        self.read_through(&*self.engine, offset, bytes)
    }
}

fn engines() -> Vec<Open> {
    let mut engines: Vec<Open> = vec![open_pread];
    if common::uring_here() {
        engines.push(open_uring);
    }
    engines
}

#[test]
fn short_reads_are_continued() {
    for open in engines() {
        for limit in [1, 511, 4096, 5000, 40_960] {
            // Whole calls between the short ones keep one-byte reads bearable.
            let stage = Stage::new(open, move |number, _| {
                if number % 3 < 2 {
                    Fault::Short(limit)
                } else {
                    Fault::None
                }
            });
            for (offset, bytes) in [(0, 70_000), (12_345, 3_000_000), (FILE_BYTES - 9, 9)] {
                stage.read(offset, bytes).unwrap();
            }
            let counters = stage.engine.counters();
            assert_eq!(counters.payload_bytes(), 3_070_009);
            assert!(counters.devices[0].short_reads > 0);
        }
    }
}

/// A shim that never brings more than a byte: slow, but whole.
#[test]
fn a_byte_at_a_time_is_enough() {
    for open in engines() {
        let stage = Stage::new(open, |_, _| Fault::Short(1));
        stage.read(4090, 300).unwrap();
        assert!(stage.engine.counters().devices[0].buffered_pieces >= 1);
    }
}

#[test]
fn interruptions_and_passing_refusals_are_retried() {
    for open in engines() {
        let stage = Stage::new(open, |number, _| match number % 4 {
            0 => Fault::Errno(libc::EINTR),
            1 => Fault::Errno(libc::EAGAIN),
            2 => Fault::Short(20_000),
            _ => Fault::None,
        });
        stage.read(100, 2_000_000).unwrap();
        assert!(stage.engine.counters().devices[0].retries >= 30);
    }
}

#[test]
fn an_io_error_that_passes_is_survived() {
    for open in engines() {
        // Two pieces at most fail at a time, each no more than three times.
        let stage = Stage::new(open, |number, _| match number {
            5..8 => Fault::Errno(libc::EIO),
            _ => Fault::None,
        });
        stage.read(0, 1_000_000).unwrap();
        assert_eq!(stage.engine.counters().devices[0].retries, 3);
    }
}

#[test]
fn an_io_error_that_stays_names_file_place_and_reason() {
    for open in engines() {
        // A bad spot on the disk, in the third piece.
        let bad = 2 * (64 << 10)..3 * (64 << 10);
        let stage = Stage::new(open, move |_, call| {
            if bad.contains(&call.offset) {
                Fault::Errno(libc::EIO)
            } else {
                Fault::None
            }
        });
        let error = stage.read(0, 1_000_000).unwrap_err();
        let EngineError::Read {
            path,
            offset,
            bytes,
            errno,
            tries,
        } = &error
        else {
            panic!("{error:?}");
        };
        assert_eq!(path, &stage.path);
        assert_eq!((*offset, *bytes), (131_072, 65_536));
        assert_eq!((*errno, *tries), (libc::EIO, 4));
        let text = error.to_string();
        for part in [&*stage.path.to_string_lossy(), "131072", "errno 5", "dmesg"] {
            assert!(text.contains(part), "{text}");
        }
        stage.read(1_000_000, 1_000_000).unwrap();
    }
}

#[test]
fn hopeless_errors_are_not_retried() {
    for open in engines() {
        for errno in [libc::ENXIO, libc::ESTALE, libc::EBADF] {
            let stage = Stage::new(open, move |_, _| Fault::Errno(errno));
            let error = stage.read(0, 1000).unwrap_err();
            assert!(
                matches!(error, EngineError::Read { errno: found, tries: 1, .. } if found == errno),
                "{error:?}"
            );
            assert_eq!(stage.engine.counters().devices[0].retries, 0);
        }
    }
}

#[test]
fn a_direct_read_refused_late_goes_through_the_cache() {
    for open in engines() {
        let stage = Stage::new(open, |_, call| {
            if call.buffered {
                Fault::None
            } else {
                Fault::Errno(libc::EINVAL)
            }
        });
        if !stage.table.get(FileId(0)).is_direct() {
            common::note("not run: no direct reads here");
            return;
        }
        stage.read(777, 500_000).unwrap();
        let counters = stage.engine.counters();
        assert_eq!(
            counters.devices[0].buffered_pieces,
            counters.devices[0].pieces
        );
    }
}

#[test]
fn late_reads_are_right_reads() {
    for open in engines() {
        let stage = Stage::new(open, |number, _| {
            Fault::Delay(Duration::from_micros(number * 7919 % 900))
        });
        for offset in [0, 5, 4096, 1_000_001] {
            stage.read(offset, 900_000).unwrap();
        }
    }
}

/// A bug in an engine's thread (here: in the hook it calls) must not leave
/// anybody waiting, nor memory behind.
#[test]
fn a_panicking_reader_answers_everybody() {
    for open in engines() {
        let stage = Stage::new(open, |number, _| {
            assert!(number < 6, "this panic is part of the test");
            Fault::Delay(Duration::from_millis(1))
        });
        for _ in 0..4 {
            let result = stage.read(0, 3_000_000);
            assert_eq!(result, Err(EngineError::Stopped));
        }
        assert_eq!(stage.slots.free_count(), stage.slots.slot_count());
        stage.engine.shutdown();
    }
}

#[test]
fn the_wrapper_s_errors_hit_the_requests_they_name() {
    let stage = Stage::new(open_pread, |_, _| Fault::None);
    let plan = FaultyPlan {
        io_errors: vec![1],
        truncations: vec![2],
        ..FaultyPlan::default()
    };
    let table = Arc::clone(&stage.table);
    let faulty = FaultyEngine::new(Arc::clone(&stage.engine), table, plan);
    stage.read_through(&faulty, 0, 1000).unwrap();
    let error = stage.read_through(&faulty, 0, 1000).unwrap_err();
    assert!(matches!(
        error,
        EngineError::Read {
            errno: libc::EIO,
            ..
        }
    ));
    let error = stage.read_through(&faulty, 0, 1000).unwrap_err();
    assert!(matches!(
        error,
        EngineError::Truncated { found_bytes: 0, .. }
    ));
    stage.read_through(&faulty, 0, 1000).unwrap();
}
