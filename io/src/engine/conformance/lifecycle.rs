//! Requesters that leave, requests that are withdrawn, engines that stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ANSWER_LIMIT, Bench, Gate, OpenEngine, TestFiles, assert_same, segment};
use crate::direct::DirectPolicy;
use crate::engine::error::EngineError;
use crate::engine::fault::FaultHook;
use crate::engine::request::ReadClass;

const MEMORY: usize = 128 << 20;

/// Two pieces in flight at most, none before the gate opens.
fn bench(open: &OpenEngine<'_>, files: &TestFiles) -> (Bench, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let bench = Bench::new(open, files.paths(), DirectPolicy::Probe, MEMORY, |config| {
        config.piece_bytes = 64 << 10;
        config.in_flight_bytes = 128 << 10;
        config.faults = Some(Arc::clone(&gate) as Arc<dyn FaultHook>);
    });
    (bench, gate)
}

/// The receiver is dropped with reads in flight: the engine goes on, and every
/// lease comes back.
pub(super) fn a_requester_goes_away(open: &OpenEngine<'_>, files: &TestFiles) {
    let (mut bench, gate) = bench(open, files);
    for tag in 0..8 {
        bench.submit(&[segment(0, tag * 999, 5_000_000)], tag);
    }
    let (reply, answers) = crossbeam_channel::bounded(super::LEASES_MAX);
    bench.reply = reply;
    bench.answers = answers;
    gate.open();
    // The old channel is gone; this request comes through the new one.
    let wanted = [segment(1, 5, 100_000)];
    let found = bench.read(&wanted).expect("the engine goes on");
    assert_same(&found, &files.expected(&wanted), wanted);
    let start = Instant::now();
    while bench.memory_in_use() > 0 {
        assert!(start.elapsed() < ANSWER_LIMIT, "leases were lost");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A withdrawn request is answered, its memory returned, others unharmed.
pub(super) fn cancelling(open: &OpenEngine<'_>, files: &TestFiles) {
    let (bench, gate) = bench(open, files);
    let long = [segment(0, 0, 9 << 20)];
    for tag in 0..6 {
        let request = bench.request(&long, tag, ReadClass::ReadAhead);
        bench.engine.submit(request);
    }
    for tag in [3, 4, 99] {
        bench.engine.cancel(tag);
    }
    gate.open();
    let mut cancelled = Vec::new();
    for _ in 0..6 {
        let done = bench.answer();
        match done.result {
            Ok(()) => {
                let found = done.target.freeze(done.payload);
                assert_same(&found, &files.expected(&long), done.tag);
            }
            Err(EngineError::Cancelled) => cancelled.push(done.tag),
            Err(error) => panic!("{error}"),
        }
    }
    cancelled.sort_unstable();
    assert_eq!(cancelled, [3, 4]);
    assert_eq!(bench.memory_in_use(), 0);
}

/// Shutdown waits for what is in flight, answers the rest with an error, and
/// later requests too; nothing hangs, nothing is lost.
pub(super) fn shutdown_answers_everybody(open: &OpenEngine<'_>, files: &TestFiles) {
    let (bench, gate) = bench(open, files);
    let wanted = [segment(0, 12_345, 6_000_000)];
    for tag in 0..10 {
        bench.submit(&wanted, tag);
    }
    let engine = Arc::clone(&bench.engine);
    let stopping = std::thread::spawn(move || engine.shutdown());
    // The queue is closed when the last request has been dropped from it.
    let mut done = vec![bench.answer()];
    gate.open();
    stopping.join().expect("shutdown");
    bench.submit(&wanted, 10);
    let mut stopped = 0;
    // Everything was answered before shutdown returned.
    done.extend(bench.answers.try_iter());
    assert_eq!(done.len(), 11);
    for done in done {
        match done.result {
            Err(EngineError::Stopped) => stopped += 1,
            other => panic!("{other:?}"),
        }
    }
    // Those that were begun could not be completed either: their rest was
    // dropped. What was in flight has landed before that.
    assert_eq!(stopped, 11);
    assert_eq!(bench.memory_in_use(), 0);
    bench.engine.shutdown();
}

/// Engines leave nothing behind: no thread, no descriptor, no locked memory.
pub(super) fn a_hundred_engines(open: &OpenEngine<'_>, files: &TestFiles) {
    let wanted = [segment(0, 4097, 300_000)];
    let expected = files.expected(&wanted);
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let mut early = 0;
    for round in 0..100 {
        let bench = Bench::new(open, files.paths(), DirectPolicy::Probe, 4 << 20, |_| {});
        assert_same(&bench.read(&wanted).expect("read"), &expected, round);
        if round % 2 == 0 {
            // Dropped with a read in flight.
            bench.submit(&wanted, 1);
        }
        drop(bench);
        if round == 9 {
            early = descriptors();
        }
    }
    // Other tests of the process open files too: only a leak grows this much.
    let late = descriptors();
    assert!(late < early + 60, "{early} descriptors became {late}");
}
