//! A tiny checkpoint, streamed in any way.
#![allow(dead_code, reason = "each test binary uses its share")]

pub(crate) mod check;
pub(crate) mod disk;
pub(crate) mod trunks;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k3_actors::experts::CacheCounters;
use k3_actors::planning::{PlanInputs, plan_run};
use k3_actors::supervisor::WrapEngine;
use k3_actors::{StreamSettings, Supervisor, SweepReads};
use k3_config::{
    ArenaLayout, BudgetPlan, Bytes, CachePolicy, MemoryBudget, Origin, Pins, PlanRefusal,
};
use k3_io::{
    DirectPolicy, EngineConfig, EngineCounters, EnginePreference, FaultyEngine, FaultyPlan,
    PagePolicy, ReadEngine,
};
use k3_kernels::{Isa, KernelSet};
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_models::{LogitRows, ModelFamily};
use k3_runtime::{
    Cancel, Checkpoint, CheckpointPaths, Checksums, ComputePool, Session, SessionSettings, Trunk,
};
use k3_testkit::{TinyCheckpoint, TinySpec, reference};
use tempfile::TempDir;

/// How one streamed run differs from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Bytes above the smallest budget, out of what the whole model needs.
    pub(crate) budget_twelfths: u64,
    pub(crate) engine: EnginePreference,
    pub(crate) pins: Pins,
    pub(crate) policy: CachePolicy,
    pub(crate) slots: Option<u64>,
    pub(crate) block_bytes: u64,
    pub(crate) threads: usize,
    pub(crate) chunk: usize,
    pub(crate) delay: bool,
    pub(crate) lookahead: u64,
    /// Of the kernels; `None` is the processor's best.
    pub(crate) isa: Option<Isa>,
}

pub(crate) const BASE: Way = Way {
    budget_twelfths: 0,
    engine: EnginePreference::Pread,
    pins: Pins::Spread,
    policy: CachePolicy::DeepLayers,
    slots: None,
    block_bytes: 4 << 10,
    threads: 1,
    chunk: 4,
    delay: false,
    lookahead: 0,
    isa: None,
};

/// What a streamed run gave and took.
pub(crate) struct Run {
    /// Of the second time through all positions.
    pub(crate) logits: Vec<f32>,
    /// Of each sweep.
    pub(crate) reads: Vec<SweepReads>,
    pub(crate) plan: BudgetPlan,
    pub(crate) cache: CacheCounters,
    pub(crate) engine: EngineCounters,
}

pub(crate) struct Case {
    pub(crate) tiny: TinyCheckpoint,
    pub(crate) dir: TempDir,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) ids: Vec<u32>,
    pub(crate) want: Vec<f32>,
}

pub(crate) fn open(model_dir: &Path) -> Checkpoint {
    Checkpoint::open(&CheckpointPaths {
        model_dir: model_dir.to_owned(),
        roots: Vec::new(),
        config: None,
    })
    .unwrap()
}

impl Case {
    pub(crate) fn new(spec: &TinySpec) -> Self {
        Self::of(spec.generate())
    }

    pub(crate) fn of(mut tiny: TinyCheckpoint) -> Self {
        let dir = TempDir::new().unwrap();
        tiny.write_to(dir.path()).unwrap();
        let checkpoint = open(dir.path());
        let vocab = tiny.config.vocab_size;
        let mut rng = k3_testkit::Rng::new(5);
        let ids: Vec<u32> = (0..11)
            .map(|_| u32::try_from(rng.below(vocab)).unwrap())
            .collect();
        let form = reference::AttentionForm::Latent;
        let want = tiny.reference().forward(&ids, form, None).logits().to_vec();
        Self {
            tiny,
            dir,
            checkpoint: Arc::new(checkpoint),
            ids,
            want,
        }
    }

    /// The same with its first `count` positions.
    pub(crate) fn shortened(mut self, count: usize) -> Self {
        self.ids.truncate(count);
        self.want.truncate(count * self.tiny.config.vocab_size);
        self
    }

    /// The same with the trunk that lies in `directories`.
    pub(crate) fn with_trunk(mut self, directories: &[PathBuf], checksums: Checksums) -> Self {
        let checkpoint = open(self.dir.path()).with_trunk(directories, checksums);
        self.checkpoint = Arc::new(checkpoint.unwrap());
        self
    }

    /// In blocks of `block_bytes`, unless its trunk was packed in others.
    pub(crate) fn model(&self, block_bytes: u64) -> KimiK3 {
        self.model_with(block_bytes, KernelSet::detect())
    }

    fn model_with(&self, block_bytes: u64, kernels: &'static KernelSet) -> KimiK3 {
        let checkpoint = &self.checkpoint;
        let layout = checkpoint.bind(None).unwrap();
        let packed = checkpoint.trunk().and_then(Trunk::block_bytes);
        let block_bytes = packed.unwrap_or(block_bytes);
        let form = AttentionForm::Latent;
        let read = |tensor: &_, out: &mut [u8]| checkpoint.read_tensor(tensor, out);
        let mut model = KimiK3::new(layout, form, kernels, block_bytes, read).unwrap();
        checkpoint.place(model.program_mut()).unwrap();
        model
    }

    pub(crate) fn plan(
        &self,
        model: &KimiK3,
        total: u64,
        way: &Way,
    ) -> Result<BudgetPlan, PlanRefusal> {
        let inputs = PlanInputs {
            sequences: 1,
            guesses: 0,
            context_total: None,
            spill: None,
            context_positions: 16,
            chunk_positions: way.chunk as u64,
            logit_rows: way.chunk as u64,
            workers: way.threads as u64,
            vocabulary_bytes: 0,
            index_bytes: 0,
            in_flight_bytes: 64 << 10,
            layout: ArenaLayout::PAGES_4K,
            slots: way.slots,
            pins: way.pins,
            lookahead: way.lookahead,
        };
        let budget = MemoryBudget::given(Bytes(total), Origin::Default);
        plan_run(
            &model.footprint(),
            &|size| model.workspace_bytes(size),
            &budget,
            &inputs,
        )
    }

    /// The model, and a plan that is `way.budget_twelfths` of the way from the
    /// smallest budget to everything in memory.
    pub(crate) fn prepare(&self, way: &Way) -> (KimiK3, BudgetPlan) {
        let kernels = way.isa.map_or(KernelSet::detect(), |isa| {
            KernelSet::for_isa(isa).expect("asked for where it is available")
        });
        let model = self.model_with(way.block_bytes, kernels);
        let smallest = match self.plan(&model, 0, way) {
            Err(PlanRefusal::TooSmall(shortfall)) => shortfall.smallest_budget.unwrap().0,
            other => panic!("nothing fits in no memory: {other:?}"),
        };
        let generous = self.plan(&model, smallest + (1 << 30), way).unwrap();
        let whole = generous.planned.0 - smallest;
        let total = smallest + whole * way.budget_twelfths / 12;
        let plan = self.plan(&model, total, way).unwrap();
        (model, plan)
    }

    /// Starts the actors, with `faults` in what the engine answers.
    pub(crate) fn start(
        &self,
        model: &KimiK3,
        plan: &BudgetPlan,
        way: &Way,
        faults: Option<FaultyPlan>,
    ) -> Supervisor {
        let wrap = faults.map(|faults| {
            move |inner, table| -> Arc<dyn ReadEngine> {
                Arc::new(FaultyEngine::new(inner, table, faults.clone()))
            }
        });
        let wrap = wrap.as_ref().map(|wrap| wrap as &WrapEngine);
        self.start_on(model, plan, way, wrap)
    }

    /// Starts the actors on an engine wrapped by `wrap`.
    pub(crate) fn start_on(
        &self,
        model: &KimiK3,
        plan: &BudgetPlan,
        way: &Way,
        wrap: Option<&WrapEngine>,
    ) -> Supervisor {
        let settings = StreamSettings {
            engine: way.engine,
            engine_config: EngineConfig {
                in_flight_bytes: 64 << 10,
                piece_bytes: 16 << 10,
                ..EngineConfig::default()
            },
            direct: DirectPolicy::Probe,
            pages: PagePolicy::Small,
            policy: way.policy,
            spill: None,
        };
        Supervisor::start(model, &self.checkpoint, plan, &settings, wrap).unwrap()
    }

    /// Runs every position twice.
    pub(crate) fn run(&self, way: &Way) -> Run {
        let (model, plan) = self.prepare(way);
        let delays = way.delay.then(|| FaultyPlan {
            seed: 3,
            delay_max: Duration::from_micros(300),
            reorder: 3,
            ..FaultyPlan::default()
        });
        let supervisor = self.start(&model, &plan, way, delays);
        self.run_on(supervisor, &model, plan, way)
    }

    /// The same on actors that have been started.
    pub(crate) fn run_on(
        &self,
        mut supervisor: Supervisor,
        model: &KimiK3,
        plan: BudgetPlan,
        way: &Way,
    ) -> Run {
        let pool = ComputePool::new(way.threads)
            .unwrap()
            .splitting_everything();
        let settings = SessionSettings {
            context_positions: 16,
            chunk_positions: way.chunk,
            all_logits: true,
        };
        let mut reads = Vec::new();
        let mut logits = Vec::new();
        {
            let source = supervisor.source();
            let cancel = Cancel::default();
            let mut session = Session::new(model, source, &pool, settings, cancel);
            for _ in 0..2 {
                logits.clear();
                session.reset();
                for ids in self.ids.chunks(way.chunk) {
                    let keep = |_, rows: &[f32]| logits.extend_from_slice(rows);
                    session.append(ids, LogitRows::All, keep).unwrap();
                    reads.push(session.source().sweep_reads());
                }
            }
        }
        let report = supervisor.shutdown();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        Run {
            logits,
            reads,
            plan,
            cache: report.cache,
            engine: report.counters,
        }
    }
}
