//! Once a run has started, all big memory is there: what is allocated from then
//! on is small, and it does not add up.
//!
//! A process-wide allocator counts, so this file holds a single test.

#![allow(
    unsafe_code,
    reason = "a counting allocator cannot be written without; it forwards every call"
)]

mod counting;
#[path = "../support/synth.rs"]
mod synth;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k3_actors::planning::{PlanInputs, plan_run};
use k3_actors::{StreamSettings, Supervisor};
use k3_config::{
    ArenaLayout, BudgetPlan, Bytes, CachePolicy, MemoryBudget, Origin, Pins, SpillRequest,
};
use k3_formats::gates;
use k3_io::{DirectPolicy, EngineConfig, EnginePreference, PagePolicy};
use k3_kernels::{KernelSet, argmax};
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_models::{ModelFamily as _, Workers as _};
use k3_runtime::{
    Cancel, Checkpoint, CheckpointPaths, ComputePool, GenerateRequest, SamplingSettings, Scheduler,
    SchedulerSettings, Session, SessionSettings, SpillSizes,
};
use k3_testkit::TinySpec;

use counting::{Counting, Growth, Mark};
use synth::Synthetic;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TOKENS: usize = 100;
const PROMPT: [u32; 3] = [1, 2, 3];
const CONTEXT: usize = PROMPT.len() + TOKENS;
/// Bounds at released dimensions; logits of a position are 0.66 MB.
const LARGEST_BYTES_MAX: usize = 1 << 20;
const NET_BYTES_MAX: usize = 16 << 20;

/// A run of 100 tokens.
struct Case<'a> {
    dir: &'a Path,
    block_bytes: u64,
    budget: Bytes,
    layout: ArenaLayout,
    pages: PagePolicy,
    engine: EngineConfig,
    threads: usize,
    /// Pages of the sequence that stay in memory; `None`: all.
    memory_pages: Option<u64>,
}

impl Case<'_> {
    /// Positions of a sweep: one, where a single page may be in memory.
    fn chunk(&self) -> usize {
        self.memory_pages.map_or(PROMPT.len(), |_| 1)
    }

    fn inputs(&self) -> PlanInputs {
        PlanInputs {
            sequences: 1,
            guesses: 0,
            context_total: None,
            spill: self.memory_pages.map(|pages| SpillRequest {
                bytes_max: None,
                memory_pages: Some(pages),
            }),
            context_positions: CONTEXT as u64,
            chunk_positions: self.chunk() as u64,
            logit_rows: 1,
            workers: self.threads as u64,
            vocabulary_bytes: 0,
            index_bytes: 0,
            in_flight_bytes: self.engine.in_flight_bytes as u64,
            layout: self.layout,
            slots: None,
            pins: Pins::Spread,
            lookahead: 0,
        }
    }

    /// Streams a prompt and 100 tokens; what was allocated from the moment
    /// everything had started.
    fn growth(&self) -> Growth {
        let checkpoint = Checkpoint::open(&CheckpointPaths {
            model_dir: self.dir.to_owned(),
            roots: Vec::new(),
            config: None,
        });
        let checkpoint = Arc::new(checkpoint.unwrap());
        let model = KimiK3::new(
            checkpoint.bind(None).unwrap(),
            AttentionForm::Latent,
            KernelSet::detect(),
            self.block_bytes,
            |tensor, out| checkpoint.read_tensor(tensor, out),
        );
        let model = model.unwrap();
        let inputs = self.inputs();
        let budget = MemoryBudget::given(self.budget, Origin::Default);
        let workspace = |size: &_| model.workspace_bytes(size);
        let plan = plan_run(&model.footprint(), &workspace, &budget, &inputs).unwrap();
        let settings = StreamSettings {
            engine: EnginePreference::Uring,
            engine_config: self.engine.clone(),
            direct: DirectPolicy::Probe,
            pages: self.pages,
            policy: CachePolicy::DeepLayers,
            spill: Some(self.dir.to_owned()),
        };
        let mut supervisor =
            Supervisor::start(&model, &checkpoint, &plan, &settings, None).unwrap();
        let pool = ComputePool::new(self.threads).unwrap();
        if self.memory_pages.is_some() {
            let growth = spilled(&model, &mut supervisor, &pool, &plan);
            assert!(supervisor.shutdown().failures.is_empty());
            return growth;
        }
        let settings = SessionSettings {
            context_positions: CONTEXT,
            chunk_positions: PROMPT.len(),
            all_logits: false,
        };
        let cancel = Cancel::default();
        let mut session = Session::new(&model, supervisor.source(), &pool, settings, cancel);
        let mark = Mark::new();
        let mut logits = session.append_for_logits(&PROMPT).unwrap();
        for _ in 0..TOKENS {
            let token = u32::try_from(argmax(&logits).unwrap()).unwrap();
            logits = session.append_for_logits(&[token]).unwrap();
        }
        drop(logits);
        let growth = mark.growth();
        assert_eq!(session.position(), CONTEXT);
        drop(session);
        assert!(supervisor.shutdown().failures.is_empty());
        growth
    }
}

/// The same tokens of a sequence whose pages do not all stay in memory.
fn spilled(
    model: &KimiK3,
    supervisor: &mut Supervisor,
    pool: &ComputePool,
    plan: &BudgetPlan,
) -> Growth {
    let pages = supervisor.page_store().expect("pages that leave");
    let settings = SchedulerSettings {
        spill: SpillSizes::of(&plan.pages),
        ..SchedulerSettings::single(CONTEXT, 1)
    };
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(model, supervisor.source(), pool, settings, cancel);
    scheduler.spill_to(pages);
    let mark = Mark::new();
    let sampling = SamplingSettings::default();
    let request = GenerateRequest::new(PROMPT.to_vec(), TOKENS, sampling);
    scheduler.submit(request).unwrap();
    let mut events = Vec::new();
    let mut read_bytes = 0;
    while let Some(step) = scheduler.step(&mut events).unwrap() {
        read_bytes += step.read.past_bytes;
        events.clear();
    }
    drop(events);
    let growth = mark.growth();
    assert!(read_bytes > 0, "pages were read back");
    growth
}

/// Forks by threads that look for work, and by threads that sleep.
fn forks_allocate_nothing() {
    let pool = ComputePool::new(3).unwrap();
    let sum = AtomicUsize::new(0);
    let fork = |tasks| {
        pool.run(tasks, &|index| {
            sum.fetch_add(index, Ordering::Relaxed);
        });
    };
    // Threads have started, and know their names.
    fork(3);
    std::thread::sleep(Duration::from_millis(20));
    let mark = Mark::new();
    for _ in 0..1000 {
        fork(3);
        fork(2);
    }
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        fork(3);
    }
    assert_eq!(mark.growth().count, 0);
    assert_eq!(sum.into_inner(), 3 + 4000 + 60);
}

#[test]
fn a_run_of_100_tokens_allocates_little_and_keeps_nothing() {
    forks_allocate_nothing();
    let dir = tempfile::tempdir().unwrap();
    TinySpec::small(7).generate().write_to(dir.path()).unwrap();
    let tiny = Case {
        dir: dir.path(),
        block_bytes: 4 << 10,
        budget: Bytes(96 << 20),
        layout: ArenaLayout::PAGES_4K,
        pages: PagePolicy::Small,
        engine: EngineConfig {
            in_flight_bytes: 64 << 10,
            piece_bytes: 16 << 10,
            ..EngineConfig::default()
        },
        threads: 2,
        memory_pages: None,
    };
    let spilled = Case {
        memory_pages: Some(1),
        engine: tiny.engine.clone(),
        ..tiny
    };
    let growth = spilled.growth();
    assert!(growth.largest_bytes <= 64 << 10, "{growth:?}");
    assert!(growth.net_bytes <= 256 << 10, "{growth:?}");
    let growth = tiny.growth();
    // Everything in this model is a thousand times smaller than in a released
    // one, lists of reads and leases are not.
    assert!(growth.largest_bytes <= 64 << 10, "{growth:?}");
    assert!(growth.net_bytes <= 256 << 10, "{growth:?}");
    released();
}

/// The same at released dimensions, 8 layers of 32 experts: 19 GB.
fn released() {
    if !gates::slow_only() {
        return;
    }
    let Some(model) = Synthetic::released() else {
        return;
    };
    let released = Case {
        dir: &model.path(),
        block_bytes: 4 << 20,
        budget: Bytes(8_000_000_000),
        layout: ArenaLayout::PAGES_2M,
        pages: PagePolicy::Transparent,
        engine: EngineConfig::default(),
        threads: 2,
        memory_pages: None,
    };
    let growth = released.growth();
    assert!(growth.largest_bytes <= LARGEST_BYTES_MAX, "{growth:?}");
    assert!(growth.net_bytes <= NET_BYTES_MAX, "{growth:?}");
}
