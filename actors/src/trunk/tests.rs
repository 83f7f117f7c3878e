//! Which blocks change hands, and which compute takes itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{bounded, never};
use k3_config::{BlockFootprint, BlockKind, Pins, pinned_blocks};
use k3_io::{
    EngineCaps, EngineCounters, EngineError, EngineKind, FileId, HugeArena, PagePolicy, ReadClass,
    ReadDone, ReadEngine, ReadRequest, RingArena, Segment, SlotArena,
};

use super::{TrunkBlock, TrunkHandle, TrunkSettings};

const BLOCKS: usize = 9;
/// The last block is the head.
const BODY: usize = BLOCKS - 1;
const BLOCK_BYTES: u64 = 4096;
const PLACES: usize = 2;

/// Answers on the thread that asks, but for read number `bad`, which fails.
#[derive(Debug)]
struct Prompt {
    asked: AtomicU64,
    bad: u64,
}

impl ReadEngine for Prompt {
    fn submit(&self, request: ReadRequest) {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let ReadRequest {
            target, tag, reply, ..
        } = request;
        let result = if number == self.bad {
            Err(EngineError::Stopped)
        } else {
            Ok(())
        };
        let payload = 0..usize::try_from(BLOCK_BYTES).unwrap();
        let done = ReadDone {
            tag,
            target,
            payload,
            result,
        };
        reply.send(done).unwrap();
    }

    fn promote(&self, _tag: u64, _class: ReadClass) {}

    fn cancel(&self, _tag: u64) {}

    fn caps(&self) -> EngineCaps {
        EngineCaps {
            kind: EngineKind::Pread,
            devices: Vec::new(),
            fallbacks: Vec::new(),
        }
    }

    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }

    fn shutdown(&self) {}
}

/// A streamer that pins `pinned` of its blocks, whose read number `bad` fails.
fn trunk(pinned: usize, bad: u64) -> (TrunkHandle, Arc<Prompt>) {
    let kind = |index| match index {
        BODY => BlockKind::Head,
        _ => BlockKind::Layer(0),
    };
    let footprints: Vec<_> = (0..BLOCKS)
        .map(|index| BlockFootprint {
            kind: kind(index),
            bytes: BLOCK_BYTES,
        })
        .collect();
    let map = pinned_blocks(&footprints, pinned as u64 * BLOCK_BYTES, Pins::Spread);
    assert_eq!(map.pinned_count(), pinned);
    let place = usize::try_from(BLOCK_BYTES).unwrap();
    let reserve = |count: usize| {
        let bytes = count.max(1) * 2 * place;
        HugeArena::reserve(bytes, PagePolicy::Small).unwrap().0
    };
    let (ring, pins) = (reserve(PLACES), reserve(pinned));
    let (release, released) = bounded(1);
    let streams = pinned < BLOCKS;
    let ring = SlotArena::with_signal(&ring, 0..PLACES * place, place, Some(release)).unwrap();
    // Windows of unaligned reads take a page more.
    let room = pinned.max(1) * 2 * place;
    let pins = RingArena::new(&pins, 0..room, pinned.max(1), None).unwrap();
    let settings = TrunkSettings {
        blocks: (0..BLOCKS as u64)
            .map(|index| TrunkBlock {
                place: Segment {
                    file: FileId(0),
                    offset: index * BLOCK_BYTES,
                    bytes: BLOCK_BYTES,
                },
                bytes: BLOCK_BYTES,
                is_head: index == BODY as u64,
            })
            .collect(),
        pinned: map,
        ring: streams.then_some(ring),
        pins: (pinned > 0).then_some(pins),
        alignment_bytes: 4096,
        checks: None,
    };
    let asked = AtomicU64::new(0);
    let engine = Arc::new(Prompt { asked, bad });
    let handle = TrunkHandle::spawn(settings, Arc::clone(&engine) as _, released).unwrap();
    (handle, engine)
}

/// One sweep up to block `end`: bytes read and found.
fn sweep(trunk: &mut TrunkHandle, with_head: bool, end: usize) -> (u64, u64) {
    trunk.begin(with_head).unwrap();
    for block in 0..end {
        let lease = trunk.block(block).unwrap();
        assert_eq!(lease.len() as u64, BLOCK_BYTES);
    }
    let counts = trunk.counts();
    (counts.read_bytes, counts.pinned_bytes)
}

/// The channel is cut off after the first sweep: what is resident comes all the
/// same, and nothing waits for the streamer.
#[test]
fn resident_blocks_change_hands_once() {
    let (mut trunk, engine) = trunk(BLOCKS, u64::MAX);
    let all = BLOCKS as u64 * BLOCK_BYTES;
    assert_eq!(sweep(&mut trunk, true, BLOCKS), (all, 0));
    trunk.deliveries = never();
    for _ in 0..100 {
        assert_eq!(sweep(&mut trunk, true, BLOCKS), (0, all));
        let body = BODY as u64 * BLOCK_BYTES;
        assert_eq!(sweep(&mut trunk, false, BODY), (0, body));
    }
    assert!(trunk.counts().wait_seconds == 0.0);
    trunk.stop().unwrap();
    assert_eq!(engine.asked.load(Ordering::Relaxed), BLOCKS as u64);
}

/// Processor time of all streamers of this process, in ticks of 10 ms.
fn streamer_ticks() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let ticks = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let mut times = fields.split(' ').skip(11);
        let mut time = || times.next()?.parse::<u64>().ok();
        (name == "k3-trunk").then_some(time()? + time()?)
    });
    ticks.sum()
}

/// With everything in memory nobody is left who could wake the thread but
/// compute: it must wait for it, not ask without end.
#[test]
fn a_streamer_with_nothing_to_read_rests() {
    let (mut trunk, _) = trunk(BLOCKS, u64::MAX);
    sweep(&mut trunk, true, BLOCKS);
    sweep(&mut trunk, true, BLOCKS);
    let before = streamer_ticks();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let busy = streamer_ticks().saturating_sub(before);
    assert!(busy < 10, "{busy} of 30 ticks");
}

/// Sweeps that end anywhere, with and without a head: both ends agree on what
/// still changes hands, whatever is left over in between.
#[test]
fn both_ends_agree_after_sweeps_that_end_early() {
    for pinned in 0..=BLOCKS {
        let (mut trunk, _) = trunk(pinned, u64::MAX);
        for round in 0..60 {
            let with_head = round % 3 != 1;
            let end = if with_head { BLOCKS } else { BODY };
            sweep(&mut trunk, with_head, (round * 7 + pinned) % (end + 1));
        }
        let first = sweep(&mut trunk, true, BLOCKS);
        assert_eq!(first.0 + first.1, BLOCKS as u64 * BLOCK_BYTES);
        let resident = pinned as u64 * BLOCK_BYTES;
        let (_, found) = sweep(&mut trunk, true, BLOCKS);
        assert_eq!(found, resident, "{pinned} pinned");
        trunk.stop().unwrap();
    }
}

/// A pinned block whose read fails is read again by the next sweep, and only
/// then changes hands.
#[test]
fn a_failed_pin_is_tried_again() {
    for bad in 0..BLOCKS as u64 {
        let (mut trunk, engine) = trunk(BLOCKS, bad);
        trunk.begin(true).unwrap();
        let failed = (0..BLOCKS).find(|&block| trunk.block(block).is_err());
        assert_eq!(failed, Some(usize::try_from(bad).unwrap()));
        let (read, found) = sweep(&mut trunk, true, BLOCKS);
        assert_eq!(read + found, BLOCKS as u64 * BLOCK_BYTES);
        assert_eq!(sweep(&mut trunk, true, BLOCKS).0, 0);
        trunk.stop().unwrap();
        assert_eq!(engine.asked.load(Ordering::Relaxed), BLOCKS as u64 + 1);
    }
}
