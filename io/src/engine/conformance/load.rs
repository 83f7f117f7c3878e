//! Many requests at a time.

use std::collections::HashMap;
use std::sync::Arc;

use super::files::LENGTHS;
use super::{Bench, Gate, OpenEngine, TestFiles, assert_same, segment};
use crate::direct::DirectPolicy;
use crate::engine::fault::FaultHook;
use crate::engine::request::{ReadClass, Segment};
use crate::units::{align_down, align_up, file, memory};

const MEMORY: usize = 128 << 20;

/// A repeatable mixture of requests.
struct Mixture(u64);

impl Mixture {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        memory(self.0 >> 16) % bound
    }

    fn segment(&mut self, largest: usize) -> Segment {
        let index = self.below(LENGTHS.len());
        let length = LENGTHS[index];
        let offset = self.below(length);
        let bytes = 1 + self.below(largest.min(length - offset));
        segment(
            u32::try_from(index).expect("few files"),
            file(offset),
            bytes,
        )
    }
}

/// Requests of all classes and shapes, kept in flight together; each comes
/// back once, with its own bytes.
pub(super) fn many_at_once(open: &OpenEngine<'_>, files: &TestFiles, policy: DirectPolicy) {
    let bench = Bench::new(open, files.paths(), policy, MEMORY, |config| {
        config.piece_bytes = 256 << 10;
        config.in_flight_bytes = 1 << 20;
    });
    let mut mixture = Mixture(0x1234_5678_9ABC_DEF1);
    let mut inside: HashMap<u64, Vec<Segment>> = HashMap::new();
    let check = |inside: &mut HashMap<u64, Vec<Segment>>| {
        let done = bench.answer();
        let segments = inside.remove(&done.tag).expect("a tag that is inside");
        done.result.expect("it can be read");
        let found = done.target.freeze(done.payload);
        assert_same(&found, &files.expected(&segments), segments);
    };
    for tag in 0..400_u64 {
        let count = 1 + mixture.below(6) * usize::from(tag % 3 == 0);
        let segments: Vec<Segment> = (0..count.min(6))
            .map(|_| mixture.segment(600_000))
            .collect();
        let class = ReadClass::ALL[mixture.below(3)];
        while inside.len() >= 24 {
            check(&mut inside);
        }
        bench.engine.submit(bench.request(&segments, tag, class));
        inside.insert(tag, segments);
        if tag % 5 == 0 {
            bench
                .engine
                .promote(tag.saturating_sub(3), ReadClass::AwaitedBlock);
        }
    }
    while !inside.is_empty() {
        check(&mut inside);
    }
    assert_eq!(bench.memory_in_use(), 0);
    assert!(bench.answers.is_empty(), "an answer too many");
}

/// Payload bytes are what was asked for; device bytes what that takes.
pub(super) fn counters_are_exact(open: &OpenEngine<'_>, files: &TestFiles, policy: DirectPolicy) {
    let bench = Bench::new(open, files.paths(), policy, MEMORY, |_| {});
    let mut mixture = Mixture(77);
    let (mut payload, mut device, mut requests) = ([0_u64; 3], 0_u64, 0_u64);
    for tag in 0..60_u64 {
        let wanted = mixture.segment(4_000_000);
        let class = ReadClass::ALL[memory(tag) % 3];
        let opened = bench.table.get(wanted.file);
        payload[memory(tag) % 3] += wanted.bytes;
        device += if opened.is_direct() {
            let unit = opened.alignment().offset_bytes;
            let end = align_up(wanted.offset + wanted.bytes, unit).expect("small");
            end.min(opened.len_bytes()) - align_down(wanted.offset, unit)
        } else {
            wanted.bytes
        };
        requests += 1;
        bench.engine.submit(bench.request(&[wanted], tag, class));
        bench.answer().result.expect("it can be read");
    }
    let counters = bench.engine.counters();
    let [only] = &counters.devices[..] else {
        panic!("one device: {counters:?}");
    };
    assert_eq!(only.payload_bytes, payload);
    assert_eq!(counters.payload_bytes(), payload.iter().sum::<u64>());
    assert_eq!(only.device_bytes, device);
    assert_eq!(only.requests, requests);
    assert_eq!((only.retries, only.bounced_bytes), (0, 0));
    assert!(only.pieces >= requests);
    assert!(counters.busy_seconds > 0.0);
    // Two clocks, and a thread may lose its processor between reading them.
    assert!(only.busy_seconds <= counters.busy_seconds + 0.25);
}

/// One piece in flight at a time, so that the order of answers is the order of
/// reading, and none before the gate opens.
fn narrow(open: &OpenEngine<'_>, files: &TestFiles) -> (Bench, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let bench = Bench::new(open, files.paths(), DirectPolicy::Probe, MEMORY, |config| {
        config.piece_bytes = 64 << 10;
        config.in_flight_bytes = 64 << 10;
        config.threads = 1;
        config.faults = Some(Arc::clone(&gate) as Arc<dyn FaultHook>);
    });
    (bench, gate)
}

fn order(bench: &Bench, count: usize) -> Vec<u64> {
    (0..count)
        .map(|_| {
            let done = bench.answer();
            done.result.expect("it can be read");
            done.tag
        })
        .collect()
}

/// A later request of a more urgent class passes queued pieces of the others.
pub(super) fn urgent_overtakes(open: &OpenEngine<'_>, files: &TestFiles) {
    let (bench, gate) = narrow(open, files);
    let long = [segment(0, 0, 5 << 20)];
    let short = [segment(0, 1 << 20, 100_000)];
    for (tag, class) in [
        (0, ReadClass::ReadAhead),
        (1, ReadClass::ReadAhead),
        (10, ReadClass::Expert),
        (11, ReadClass::Expert),
        (20, ReadClass::AwaitedBlock),
        (2, ReadClass::ReadAhead),
        (12, ReadClass::Expert),
    ] {
        let ranges = if tag < 10 { &long } else { &short };
        bench.engine.submit(bench.request(ranges, tag, class));
    }
    gate.open();
    // The first was begun, and its rest is overtaken like the others.
    assert_eq!(order(&bench, 7), [20, 10, 11, 12, 0, 1, 2]);
}

/// Read-ahead that has become awaited passes the rest.
pub(super) fn promotion_overtakes(open: &OpenEngine<'_>, files: &TestFiles) {
    let (bench, gate) = narrow(open, files);
    let long = [segment(0, 0, 3 << 20)];
    for tag in 0..5 {
        let request = bench.request(&long, tag, ReadClass::ReadAhead);
        bench.engine.submit(request);
    }
    bench.engine.promote(4, ReadClass::AwaitedBlock);
    bench.engine.promote(2, ReadClass::Expert);
    bench.engine.promote(99, ReadClass::AwaitedBlock);
    // Never down.
    bench.engine.promote(4, ReadClass::ReadAhead);
    gate.open();
    assert_eq!(order(&bench, 5), [4, 2, 0, 1, 3]);
}
