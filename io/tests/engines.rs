//! The conformance suite, for each engine and in hostile surroundings.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{note, open_pread, open_uring};
use k3_io::conformance::{self, Promises};
use k3_io::{
    DirectPolicy, EngineConfig, FaultyEngine, FaultyPlan, FileId, FileTable, FixedBuffers,
    HugeArena, PagePolicy, ReadClass, ReadEngine, ReadRequest, Segment, SlotArena,
};

const STRICT: Promises = Promises {
    exact_counters: true,
    ordered: true,
};

#[test]
fn pread_conforms() {
    let directory = tempfile::tempdir().unwrap();
    conformance::run(&open_pread, directory.path(), STRICT);
}

#[test]
fn uring_conforms() {
    if !common::uring_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    conformance::run(&open_uring, directory.path(), STRICT);
}

/// The wrapper itself: answers late and in any order, but right.
#[test]
fn a_disorderly_engine_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let open = |table: Arc<FileTable>, config: &EngineConfig| {
        let plan = FaultyPlan {
            seed: 42,
            delay_max: Duration::from_micros(300),
            reorder: 5,
            ..FaultyPlan::default()
        };
        let inner = open_pread(Arc::clone(&table), config)?;
        let engine: Arc<dyn ReadEngine> = Arc::new(FaultyEngine::new(inner, table, plan));
        Ok(engine)
    };
    let promises = Promises {
        exact_counters: true,
        ordered: false,
    };
    conformance::run(&open, directory.path(), promises);
}

#[test]
fn engines_conform_on_tmpfs() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return note("not run: /dev/shm is not writable");
    };
    conformance::run(&open_pread, directory.path(), STRICT);
    if common::uring_here() {
        conformance::run(&open_uring, directory.path(), STRICT);
    }
}

/// One request over files on two devices: each device reads its part, and the
/// answer comes when both are done.
#[test]
fn a_request_may_span_devices() {
    let here = tempfile::tempdir().unwrap();
    let Ok(there) = tempfile::tempdir_in("/dev/shm") else {
        return note("not run: /dev/shm is not writable");
    };
    let paths = [here.path().join("a"), there.path().join("b")];
    let contents = [vec![1_u8; 3_000_000], vec![2_u8; 2_000_000]];
    for (path, content) in paths.iter().zip(&contents) {
        std::fs::write(path, content).unwrap();
    }
    let table = Arc::new(FileTable::open(&paths, DirectPolicy::Probe).unwrap());
    if table.devices().len() == 1 {
        return note("not run: /dev/shm is on the same device");
    }
    for open in [open_pread, open_uring] {
        let Ok(engine) = open(Arc::clone(&table), &EngineConfig::default()) else {
            continue;
        };
        let (arena, report) = HugeArena::reserve(8 << 20, PagePolicy::Small).unwrap();
        let slots = SlotArena::new(&arena, 0..report.bytes, 8 << 20).unwrap();
        let (reply, answers) = crossbeam_channel::bounded(1);
        let segment = |file, offset, bytes| Segment {
            file: FileId(file),
            offset,
            bytes,
        };
        let segments = [
            segment(1, 5, 1_999_995),
            segment(0, 7, 2_999_993),
            segment(1, 0, 1),
        ];
        engine.submit(ReadRequest {
            segments: segments.into_iter().collect(),
            target: slots.acquire_any().unwrap(),
            class: ReadClass::Expert,
            tag: 3,
            reply,
        });
        let done = answers.recv().unwrap();
        done.result.unwrap();
        let found = done.target.freeze(done.payload);
        let (first, rest) = found.split_at(1_999_995);
        let (second, third) = rest.split_at(2_999_993);
        assert!(first.iter().all(|&byte| byte == 2));
        assert!(second.iter().all(|&byte| byte == 1));
        assert_eq!(third, [2]);
        let counters = engine.counters();
        assert_eq!(engine.caps().devices.len(), 2);
        assert_eq!(counters.devices[0].payload_bytes[1], 2_999_993);
        assert_eq!(counters.devices[1].payload_bytes[1], 1_999_996);
        assert_eq!(
            (counters.devices[0].requests, counters.devices[1].requests),
            (1, 1)
        );
        drop(found);
    }
}

/// Registered memory is really used: a read that names the wrong buffer would
/// turn registration off and count a retry.
#[test]
fn registered_buffers_serve_the_reads() {
    if !common::uring_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shard");
    let content: Vec<u8> = (0..6_000_000_u32)
        .map(|i| (i % 249).to_le_bytes()[0])
        .collect();
    std::fs::write(&path, &content).unwrap();
    let table = Arc::new(FileTable::open([&path], DirectPolicy::Probe).unwrap());
    let (arena, report) = HugeArena::reserve(24 << 20, PagePolicy::Transparent).unwrap();
    let config = EngineConfig {
        arenas: vec![Arc::clone(&arena)],
        fixed_buffers: FixedBuffers::AtStart,
        // Several buffers, with reads that cross from one to the next.
        fixed_piece_bytes: 2 << 20,
        ..EngineConfig::default()
    };
    let engine = open_uring(table, &config).unwrap();
    let slots = SlotArena::new(&arena, 0..report.bytes, 7 << 20).unwrap();
    let (reply, answers) = crossbeam_channel::bounded(3);
    for tag in 0..3 {
        let segment = Segment {
            file: FileId(0),
            offset: tag * 4321,
            bytes: 5_900_000,
        };
        let target = slots.acquire_any().unwrap();
        let request = ReadRequest::single(segment, target, ReadClass::Expert, tag, reply.clone());
        engine.submit(request);
    }
    for _ in 0..3 {
        let done = answers.recv().unwrap();
        done.result.unwrap();
        let start = usize::try_from(done.tag * 4321).unwrap();
        let found = done.target.freeze(done.payload);
        assert!(found[..] == content[start..start + 5_900_000]);
    }
    let caps = engine.caps();
    if !caps.fallbacks.is_empty() {
        return note(&format!(
            "not run to the end: {}",
            caps.fallbacks.join("; ")
        ));
    }
    assert_eq!(caps.devices[0].fixed_bytes, report.bytes);
    assert_eq!(engine.counters().devices[0].retries, 0);
}
