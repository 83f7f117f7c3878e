//! The cache against disks that no file can be made to be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrayvec::ArrayVec;
use crossbeam_channel::{RecvTimeoutError, bounded, never};
use k3_io::{
    EngineCaps, EngineCounters, EngineError, EngineKind, FileId, HugeArena, PagePolicy, ReadClass,
    ReadDone, ReadEngine, ReadRequest, Segment, SlotArena,
};
use k3_models::{ExpertDemand, ExpertKey, LayerIndex};

use super::{CacheSettings, ExpertHandle};
use crate::experts::{CacheShape, Lru};

const SLOTS: usize = 4;
const TOP_K: usize = 1;
const EXPERTS: u16 = 64;
const EXPERT_BYTES: u64 = 4096;
/// Far beyond what any of this takes.
const LONGEST: Duration = Duration::from_secs(60);

/// Answers on the thread that asks: every read from number `good` on fails.
#[derive(Debug)]
struct Brittle {
    good: u64,
    asked: AtomicU64,
}

impl ReadEngine for Brittle {
    fn submit(&self, request: ReadRequest) {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let ReadRequest {
            target, tag, reply, ..
        } = request;
        let result = if number < self.good {
            Ok(())
        } else {
            Err(EngineError::Stopped)
        };
        let payload = 0..usize::try_from(EXPERT_BYTES).unwrap();
        reply
            .send(ReadDone {
                tag,
                target,
                payload,
                result,
            })
            .unwrap();
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

fn cache(engine: Arc<dyn ReadEngine>, lookahead_count_max: usize) -> ExpertHandle {
    let bytes = usize::try_from(EXPERT_BYTES).unwrap();
    let (arena, _) = HugeArena::reserve(SLOTS * bytes, PagePolicy::Small).unwrap();
    let settings = CacheSettings {
        shape: CacheShape {
            slot_count: SLOTS,
            transit_count: 1,
            top_k: TOP_K,
            moe_layers: vec![LayerIndex(1), LayerIndex(2)],
            experts_per_layer: usize::from(EXPERTS),
            expert_bytes: EXPERT_BYTES,
            lookahead_count_max,
        },
        policy: Box::new(Lru::new(SLOTS - 1)),
        slots: SlotArena::new(&arena, 0..SLOTS * bytes, bytes).unwrap(),
        places: Box::new(|key| {
            let place = Segment {
                file: FileId(0),
                offset: u64::from(key.expert) * EXPERT_BYTES,
                bytes: EXPERT_BYTES,
            };
            ArrayVec::from_iter([place])
        }),
    };
    ExpertHandle::spawn(settings, engine).unwrap()
}

fn demand(layer: u16, picks: Vec<u16>) -> ExpertDemand {
    let layer = LayerIndex(layer);
    let union = picks.iter().map(|&expert| ExpertKey { layer, expert });
    ExpertDemand {
        layer: Some(layer),
        top_k: TOP_K,
        union: union.collect(),
        picks,
    }
}

fn everything(layer: u16) -> ExpertDemand {
    demand(layer, (0..EXPERTS).collect())
}

/// Panics, from outside, if `work` takes too long.
fn watched(work: impl FnOnce() + Send + 'static) {
    let (sender, ended) = bounded::<()>(0);
    let worker = std::thread::spawn(move || {
        let _sender = sender;
        work();
    });
    let end = ended.recv_timeout(LONGEST);
    assert_eq!(end, Err(RecvTimeoutError::Disconnected), "it hangs");
    worker.join().unwrap();
}

/// Many more misses than slots, all of which fail at once: whether compute
/// takes nothing, the error, or another sweep, the end comes.
#[test]
fn reads_that_all_fail_at_once_never_keep_the_cache_from_ending() {
    watched(|| {
        for round in 0..400 {
            let good = round % 7;
            let asked = AtomicU64::new(0);
            let mut cache = cache(Arc::new(Brittle { good, asked }), 0);
            for sweep in 0..round % 12 {
                cache.begin().unwrap();
                cache.demand(&everything(1)).unwrap();
                if sweep % 3 == 0 {
                    while let Ok(lease) = cache.next_expert() {
                        drop(lease.expect("reading goes on until it fails"));
                    }
                }
            }
            cache.begin().unwrap();
            cache.demand(&everything(2)).unwrap();
            cache.stop().unwrap();
        }
    });
}

/// A failed sweep ends with its first error, and reads nothing more.
#[test]
fn a_sweep_gets_one_error_and_no_further_reads() {
    watched(|| {
        let asked = AtomicU64::new(0);
        let engine = Arc::new(Brittle { good: 0, asked });
        let mut cache = cache(Arc::clone(&engine) as Arc<dyn ReadEngine>, 1);
        cache.begin().unwrap();
        cache.demand(&everything(1)).unwrap();
        let layer = LayerIndex(2);
        let guess = ExpertKey { layer, expert: 3 };
        assert!(cache.next_expert().is_err());
        cache.expect(&[guess]).unwrap();
        let late = cache.deliveries.recv_timeout(Duration::from_millis(50));
        assert!(late.is_err(), "one error is enough: {late:?}");
        cache.stop().unwrap();
        let asked = engine.asked.load(Ordering::Relaxed);
        assert_eq!(asked, SLOTS as u64, "what was in flight when it failed");
    });
}

/// Compute takes what is resident without the other thread: the channel between
/// them is cut off after the first sweep.
#[test]
fn what_is_resident_is_not_waited_for() {
    watched(|| {
        let asked = AtomicU64::new(0);
        let good = u64::MAX;
        let mut cache = cache(Arc::new(Brittle { good, asked }), 0);
        for sweep in 0..200 {
            cache.begin().unwrap();
            cache.demand(&demand(1, vec![7, 8, 9])).unwrap();
            while let Some(lease) = cache.next_expert().unwrap() {
                drop(lease);
            }
            let counts = *cache.counts();
            if sweep == 0 {
                cache.deliveries = never();
            } else {
                assert_eq!((counts.hits, counts.misses, counts.read_bytes), (3, 0, 0));
                assert!(counts.wait_seconds == 0.0, "{counts:?}");
            }
        }
        cache.stop().unwrap();
    });
}
