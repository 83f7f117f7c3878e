//! Hashes of ranges, against hashes of bytes in memory.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::direct::{DirectPolicy, FileId};

#[derive(Default)]
struct Sink {
    hashes: Mutex<BTreeMap<usize, Result<[u8; 32], EngineError>>>,
    bytes: AtomicU64,
    stop_at: Option<u64>,
}

impl HashSink for Sink {
    fn go_on(&self) -> bool {
        self.stop_at
            .is_none_or(|limit| self.bytes.load(Ordering::Relaxed) < limit)
    }

    fn bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    fn range(&self, range: usize, hash: Result<[u8; 32], EngineError>) {
        let former = self.hashes.lock().unwrap().insert(range, hash);
        assert!(former.is_none(), "range {range} twice");
    }
}

/// Two files of bytes that repeat at no multiple of a page.
fn files(directory: &std::path::Path) -> (Arc<FileTable>, Vec<Vec<u8>>) {
    let contents: Vec<Vec<u8>> = [300_001_usize, 70_000]
        .iter()
        .map(|&length| {
            (0..length)
                .map(|at| u8::try_from(at * 7 % 251).unwrap())
                .collect()
        })
        .collect();
    let paths: Vec<_> = (0..contents.len())
        .map(|number| directory.join(format!("file{number}")))
        .collect();
    for (path, content) in paths.iter().zip(&contents) {
        std::fs::write(path, content).unwrap();
    }
    let table = FileTable::open(&paths, DirectPolicy::Probe).unwrap();
    (Arc::new(table), contents)
}

fn segment(file: u32, offset: u64, bytes: u64) -> Segment {
    Segment {
        file: FileId(file),
        offset,
        bytes,
    }
}

fn settings(kind: HashKind, threads: usize, engine: EnginePreference) -> HashSettings {
    HashSettings {
        kind,
        threads,
        piece_bytes: 10_000,
        pieces: 3,
        engine,
    }
}

fn expected(kind: HashKind, bytes: &[u8]) -> [u8; 32] {
    let mut digest = Digest::new(kind);
    digest.update(bytes);
    digest.finish()
}

#[test]
fn the_hashes_are_those_of_their_definitions() {
    let text = |hash: [u8; 32]| k3_formats::manifest::hex(&hash);
    assert_eq!(
        text(expected(HashKind::Blake3, b"")),
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    );
    assert_eq!(
        text(expected(HashKind::Sha256, b"abc")),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn ranges_of_any_place_and_length_hash_as_their_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (table, contents) = files(directory.path());
    let ranges = [
        segment(0, 0, 300_001),
        segment(1, 69_999, 1),
        segment(0, 4095, 2),
        segment(1, 0, 70_000),
        segment(0, 10_000, 20_000),
        segment(0, 299_000, 1001),
    ];
    for kind in [HashKind::Blake3, HashKind::Sha256] {
        for (threads, engine) in [
            (1, EnginePreference::Pread),
            (3, EnginePreference::Pread),
            (4, EnginePreference::Uring),
            (20, EnginePreference::Uring),
        ] {
            let sink = Sink::default();
            let settings = settings(kind, threads, engine);
            let summary = hash_ranges(&table, &ranges, &settings, &sink).unwrap();
            assert!(summary.is_complete);
            let sum: u64 = ranges.iter().map(|range| range.bytes).sum();
            assert_eq!(summary.hashed_bytes, sum);
            assert_eq!(sink.bytes.into_inner(), sum);
            let hashes = sink.hashes.into_inner().unwrap();
            assert_eq!(hashes.len(), ranges.len());
            for (number, range) in ranges.iter().enumerate() {
                let start = memory(range.offset);
                let bytes = &contents[range.file.0 as usize][start..start + memory(range.bytes)];
                assert_eq!(hashes[&number], Ok(expected(kind, bytes)), "{number}");
            }
        }
    }
}

#[test]
fn a_range_that_cannot_be_read_leaves_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let (table, contents) = files(directory.path());
    let ranges = [
        segment(0, 0, 50_000),
        segment(1, 60_000, 20_000),
        segment(1, 0, 60_000),
    ];
    let sink = Sink::default();
    let settings = settings(HashKind::Blake3, 2, EnginePreference::Pread);
    let summary = hash_ranges(&table, &ranges, &settings, &sink).unwrap();
    assert!(summary.is_complete);
    let hashes = sink.hashes.into_inner().unwrap();
    assert!(
        matches!(hashes[&1], Err(EngineError::OutOfRange { .. })),
        "{hashes:?}"
    );
    assert_eq!(
        hashes[&0],
        Ok(expected(HashKind::Blake3, &contents[0][..50_000]))
    );
    assert_eq!(
        hashes[&2],
        Ok(expected(HashKind::Blake3, &contents[1][..60_000]))
    );
}

#[test]
fn who_says_stop_gets_no_hash_of_half_a_range() {
    let directory = tempfile::tempdir().unwrap();
    let (table, _) = files(directory.path());
    let ranges = [segment(0, 0, 300_001), segment(1, 0, 70_000)];
    let sink = Sink {
        stop_at: Some(60_000),
        ..Sink::default()
    };
    let settings = settings(HashKind::Blake3, 1, EnginePreference::Pread);
    let summary = hash_ranges(&table, &ranges, &settings, &sink).unwrap();
    assert!(
        !summary.is_complete && summary.hashed_bytes < 200_000,
        "{summary:?}"
    );
    assert!(sink.hashes.into_inner().unwrap().is_empty());
}

#[test]
fn no_ranges_are_done_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (table, _) = files(directory.path());
    let settings = HashSettings::new(HashKind::Blake3);
    assert!(settings.memory_bytes() <= 256 * MIB);
    let summary = hash_ranges(&table, &[], &settings, &Sink::default()).unwrap();
    assert!(summary.is_complete && summary.hashed_bytes == 0);
}
