//! One request at a time.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::files::{LENGTHS, write_pattern};
use super::{Bench, OpenEngine, TestFiles, assert_same, segment};
use crate::direct::DirectPolicy;
use crate::engine::error::EngineError;
use crate::engine::request::{ReadClass, Segment};
use crate::units::file;

const MEMORY: usize = 64 << 20;

fn bench(open: &OpenEngine<'_>, files: &TestFiles, policy: DirectPolicy) -> Bench {
    Bench::new(open, files.paths(), policy, MEMORY, |_| {})
}

/// Odd offsets and sizes from one byte to several pieces, and every file's tail.
pub(super) fn every_odd_place(open: &OpenEngine<'_>, files: &TestFiles, policy: DirectPolicy) {
    let bench = bench(open, files, policy);
    let mut wanted = Vec::new();
    for offset in [
        0, 1, 511, 512, 4095, 4096, 4097, 1_048_575, 1_048_576, 3_333_333,
    ] {
        for bytes in [
            1,
            2,
            511,
            4095,
            4096,
            4097,
            1 << 20,
            (1 << 20) + 1,
            5_000_001,
        ] {
            wanted.push(segment(0, offset, bytes));
        }
    }
    for (index, &length) in (0_u32..).zip(&LENGTHS) {
        wanted.push(segment(index, 0, length));
        for back in [1, 7, 700] {
            wanted.push(segment(index, file(length - back), back));
            wanted.push(segment(index, file(length - back), back - 1));
        }
    }
    for segment in wanted {
        let found = bench.read(&[segment]).expect("it can be read");
        assert_same(&found, &files.expected(&[segment]), segment);
    }
    assert_eq!(bench.memory_in_use(), 0);
}

/// Up to six ranges of several files land back to back, whether or not their
/// offsets agree with where they land.
pub(super) fn several_ranges(open: &OpenEngine<'_>, files: &TestFiles, policy: DirectPolicy) {
    let bench = bench(open, files, policy);
    let requests: [&[Segment]; 6] = [
        &[
            segment(0, 1000, 2_500_000),
            segment(0, 2_501_000, 2_500_000),
        ],
        &[
            segment(0, 4096, 8192),
            segment(1, 0, 4096),
            segment(0, 0, 4096),
        ],
        &[segment(0, 3, 5), segment(1, 100, 1), segment(2, 0, 777)],
        &[
            segment(2, 770, 7),
            segment(1, 4095, 2_000_001),
            segment(0, 1, 0),
        ],
        &[
            segment(0, 17, 1_400_000),
            segment(0, 2_000_001, 175_001),
            segment(1, 13, 1_400_000),
            segment(1, 2_900_000, 175_000),
            segment(0, 5_000_003, 1_400_000),
            segment(0, 8_000_000, 175_000),
        ],
        &[segment(0, 0, 0)],
    ];
    for segments in requests {
        let found = bench.read(segments).expect("it can be read");
        assert_same(&found, &files.expected(segments), segments);
    }
    assert_eq!(bench.read(&[]).expect("nothing wanted"), [0_u8; 0]);
}

/// A target of exactly the payload's size works too, and not a byte beyond the
/// target's end is touched.
pub(super) fn tight_targets(open: &OpenEngine<'_>, files: &TestFiles, policy: DirectPolicy) {
    let bench = bench(open, files, policy);
    for (offset, bytes) in [
        (1, 4096),
        (4097, 8192),
        (12_345, 2 << 20),
        (8_000_000, 1 << 20),
    ] {
        let wanted = [segment(0, offset, bytes)];
        let request = bench.request_into(&wanted, bytes, 1, ReadClass::Expert);
        assert_eq!(request.target.len(), bytes);
        let neighbour = bench.request_into(&[], 8192, 2, ReadClass::Expert).target;
        bench.engine.submit(request);
        let done = bench.answer();
        done.result.expect("it can be read");
        let found = done.target.freeze(done.payload);
        assert_same(&found, &files.expected(&wanted), wanted);
        assert!(neighbour.iter().all(|&byte| byte == 0xEE), "an overrun");
    }
}

/// What cannot be read is an answer that says why.
pub(super) fn refusals(open: &OpenEngine<'_>, files: &TestFiles) {
    let bench = bench(open, files, DirectPolicy::Probe);
    for wanted in [
        segment(2, 0, 778),
        segment(2, 778, 0),
        segment(0, u64::MAX, 1),
        segment(0, u64::MAX - 4096, 4096),
    ] {
        let error = bench.read(&[wanted]).expect_err("outside the file");
        let EngineError::OutOfRange { path, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(path, &files.paths()[wanted.file.0 as usize]);
    }
    let mut request = bench.request(&[], 3, ReadClass::Expert);
    request.segments.push(segment(0, 0, 1 << 20));
    bench.engine.submit(request);
    let done = bench.answer();
    assert!(
        matches!(done.result, Err(EngineError::TargetTooSmall { .. })),
        "{done:?}"
    );
    drop(done);
    assert_eq!(bench.memory_in_use(), 0);
}

/// Offsets and ends beyond 32 bits.
pub(super) fn beyond_four_gib(open: &OpenEngine<'_>, files: &TestFiles) {
    let path = files.paths()[0].with_file_name("conformance-sparse.bin");
    let sparse = std::fs::File::create(&path).expect("a test file");
    let mark: Vec<u8> = (0..200_000_u32)
        .map(|i| (i % 253).to_le_bytes()[0])
        .collect();
    let end = (6_u64 << 30) + 12_345;
    if let Err(error) = sparse
        .set_len(end)
        .and_then(|()| sparse.write_all_at(&mark, (4 << 30) - 100_000))
        .and_then(|()| sparse.write_all_at(&mark, end - 200_000))
    {
        // A file system in memory may be smaller than the file.
        let _ = std::fs::remove_file(&path);
        return note(&format!("not run: offsets beyond 4 GiB: {error}"));
    }
    let paths = [path.clone()];
    let bench = Bench::new(open, &paths, DirectPolicy::Probe, MEMORY, |_| {});
    for offset in [(4 << 30) - 100_000, end - 200_000] {
        let found = bench.read(&[segment(0, offset, 200_000)]).expect("read");
        assert_same(&found, &mark, offset);
    }
    let hole = bench.read(&[segment(0, (5 << 30) + 1, 3_000_000)]);
    assert!(hole.expect("a hole").iter().all(|&byte| byte == 0));
    drop(bench);
    let _ = std::fs::remove_file(&path);
}

/// A shard that becomes shorter during the run is an error that names it.
pub(super) fn a_file_cut_while_in_use(open: &OpenEngine<'_>, directory: &Path) {
    for policy in [DirectPolicy::Probe, DirectPolicy::Never] {
        let path = directory.join("conformance-cut.bin");
        write_pattern(&path, 5, 3_000_000);
        let bench = Bench::new(open, std::slice::from_ref(&path), policy, MEMORY, |_| {});
        let whole = [segment(0, 0, 3_000_000)];
        bench.read(&whole).expect("whole as yet");
        let writer = std::fs::OpenOptions::new().write(true).open(&path);
        writer
            .and_then(|writer| writer.set_len(1_500_001))
            .expect("cutting a test file");
        // Around the new end, and far behind it.
        for (offset, bytes) in [(0, 3_000_000), (1_500_000, 9), (2_700_000, 4096)] {
            let error = bench.read(&[segment(0, offset, bytes)]).expect_err("cut");
            let EngineError::Truncated {
                path: named,
                opened_bytes,
                found_bytes,
                ..
            } = &error
            else {
                panic!("{error:?}");
            };
            assert_eq!((named, *opened_bytes), (&path, 3_000_000));
            assert_eq!(*found_bytes, 1_500_001, "read at {offset}");
            let text = error.to_string();
            assert!(text.contains("the file ends at 1500001;"), "{text}");
        }
        let start = bench.read(&[segment(0, 0, 1_000_000)]);
        start.expect("what is left can still be read");
        drop(bench);
        let _ = std::fs::remove_file(&path);
    }
}

/// A line for whoever reads the test's output.
pub(super) fn note(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
