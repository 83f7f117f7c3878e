//! The same bytes from the smallest budget up, however weights are read.

use std::sync::Arc;
use std::time::Duration;

use k3_actors::planning::{PlanInputs, plan_run};
use k3_actors::{StreamSettings, Supervisor};
use k3_config::{
    ArenaLayout, BudgetPlan, Bytes, CachePolicy, MemoryBudget, Origin, Pins, PlanRefusal,
};
use k3_io::{DirectPolicy, EngineConfig, EnginePreference, FaultyEngine, FaultyPlan, PagePolicy};
use k3_kernels::KernelSet;
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_models::{LogitRows, ModelFamily};
use k3_runtime::{Cancel, Checkpoint, CheckpointPaths, ComputePool, Session, SessionSettings};
use k3_testkit::{TinyCheckpoint, TinySpec, reference};
use tempfile::TempDir;

/// How one streamed run differs from another.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Bytes above the smallest budget, out of what the whole model needs.
    budget_twelfths: u64,
    engine: EnginePreference,
    pins: Pins,
    policy: CachePolicy,
    slots: Option<u64>,
    block_bytes: u64,
    threads: usize,
    chunk: usize,
    delay: bool,
}

const BASE: Way = Way {
    budget_twelfths: 0,
    engine: EnginePreference::Pread,
    pins: Pins::Spread,
    policy: CachePolicy::DeepLayers,
    slots: None,
    block_bytes: 4 << 10,
    threads: 1,
    chunk: 4,
    delay: false,
};

struct Case {
    tiny: TinyCheckpoint,
    _dir: TempDir,
    checkpoint: Arc<Checkpoint>,
    ids: Vec<u32>,
    want: Vec<f32>,
}

impl Case {
    fn new(spec: &TinySpec) -> Self {
        let dir = TempDir::new().unwrap();
        let mut tiny = spec.generate();
        tiny.write_to(dir.path()).unwrap();
        let checkpoint = Checkpoint::open(&CheckpointPaths {
            model_dir: dir.path().to_owned(),
            roots: Vec::new(),
            config: None,
        });
        let vocab = tiny.config.vocab_size;
        let mut rng = k3_testkit::Rng::new(5);
        let ids: Vec<u32> = (0..11)
            .map(|_| u32::try_from(rng.below(vocab)).unwrap())
            .collect();
        let form = reference::AttentionForm::Latent;
        let want = tiny.reference().forward(&ids, form, None).logits().to_vec();
        Self {
            tiny,
            _dir: dir,
            checkpoint: Arc::new(checkpoint.unwrap()),
            ids,
            want,
        }
    }

    fn model(&self, block_bytes: u64) -> KimiK3 {
        let layout = self.checkpoint.bind(None).unwrap();
        let kernels = KernelSet::detect();
        KimiK3::new(
            layout,
            AttentionForm::Latent,
            kernels,
            block_bytes,
            |tensor, out| self.checkpoint.read_tensor(tensor, out),
        )
        .unwrap()
    }

    fn plan(&self, model: &KimiK3, total: u64, way: &Way) -> Result<BudgetPlan, PlanRefusal> {
        let inputs = PlanInputs {
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
        };
        let budget = MemoryBudget::given(Bytes(total), Origin::Default);
        plan_run(
            &model.footprint(),
            &|size| model.workspace_bytes(size),
            &budget,
            &inputs,
        )
    }

    /// Runs every position twice and returns the second run's logits, and
    /// trunk and expert bytes of each sweep.
    fn run(&self, way: &Way) -> (Vec<f32>, Vec<k3_actors::SweepReads>, BudgetPlan) {
        let model = self.model(way.block_bytes);
        let smallest = match self.plan(&model, 0, way) {
            Err(PlanRefusal::TooSmall(shortfall)) => shortfall.smallest_budget.unwrap().0,
            other => panic!("nothing fits in no memory: {other:?}"),
        };
        let generous = self.plan(&model, smallest + (1 << 30), way).unwrap();
        let whole = generous.planned.0 - smallest;
        let total = smallest + whole * way.budget_twelfths / 12;
        let plan = self.plan(&model, total, way).unwrap();
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
        };
        let delays = FaultyPlan {
            seed: 3,
            delay_max: Duration::from_micros(300),
            reorder: 3,
            ..FaultyPlan::default()
        };
        let wrap = move |inner, table| -> Arc<dyn k3_io::ReadEngine> {
            Arc::new(FaultyEngine::new(inner, table, delays.clone()))
        };
        let wrap: Option<&k3_actors::supervisor::WrapEngine> =
            if way.delay { Some(&wrap) } else { None };
        let mut supervisor =
            Supervisor::start(&model, &self.checkpoint, &plan, &settings, wrap).unwrap();
        let pool = ComputePool::new(way.threads).unwrap();
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
            let mut session = Session::new(&model, source, &pool, settings, cancel);
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
        (logits, reads, plan)
    }

    fn check(&self, way: &Way) {
        let (logits, reads, plan) = self.run(way);
        assert_eq!(logits.len(), self.want.len());
        let differing = logits
            .iter()
            .zip(&self.want)
            .filter(|(a, b)| a.to_bits() != b.to_bits())
            .count();
        assert_eq!(differing, 0, "{way:?}");
        let expert_bytes = self.model(way.block_bytes).footprint().expert_bytes;
        for (index, sweep) in reads.iter().enumerate() {
            let misses = sweep.experts.misses;
            assert_eq!(
                sweep.experts.read_bytes,
                misses * expert_bytes,
                "{way:?}, sweep {index}"
            );
            // The first sweep fills the pins.
            let want = if index == 0 {
                plan.pins.bytes_total
            } else {
                plan.prediction.trunk_bytes_per_sweep
            };
            assert_eq!(sweep.trunk.read_bytes, want, "{way:?}, sweep {index}");
        }
    }
}

fn specs() -> [TinySpec; 2] {
    [TinySpec::odd(2), TinySpec::wide_union(3)]
}

#[test]
fn budgets_from_the_smallest_up() {
    for spec in specs() {
        let case = Case::new(&spec);
        for budget_twelfths in 0..=12 {
            for pins in [Pins::Spread, Pins::Prefix] {
                case.check(&Way {
                    budget_twelfths,
                    pins,
                    ..BASE
                });
            }
        }
    }
}

#[test]
fn engines_threads_chunks_and_delays() {
    for spec in specs() {
        let case = Case::new(&spec);
        for engine in [EnginePreference::Pread, EnginePreference::Uring] {
            for delay in [false, true] {
                for (threads, chunk) in [(1, 1), (2, 3), (1, 16)] {
                    let budget_twelfths = 4;
                    case.check(&Way {
                        engine,
                        delay,
                        threads,
                        chunk,
                        budget_twelfths,
                        ..BASE
                    });
                }
            }
        }
    }
}

#[test]
fn policies_and_slots_from_four_to_all() {
    for spec in specs() {
        let case = Case::new(&spec);
        let config = &case.tiny.config;
        let all = (config.moe_layer_count() * config.num_experts) as u64;
        for &policy in CachePolicy::ALL {
            for slots in [4, 5, 9, all / 2, all - 1, all] {
                // Delays where every read counts: few slots.
                for delay in [false, true] {
                    if delay && slots > 5 {
                        continue;
                    }
                    let slots = Some(slots.max(4));
                    case.check(&Way {
                        policy,
                        slots,
                        delay,
                        ..BASE
                    });
                }
            }
        }
    }
}

#[test]
fn blocks_from_the_longest_row_up() {
    for spec in specs() {
        let case = Case::new(&spec);
        for block_bytes in [1, 700, 10_000, 1 << 20] {
            for budget_twelfths in [0, 5] {
                case.check(&Way {
                    block_bytes,
                    budget_twelfths,
                    ..BASE
                });
            }
        }
    }
}
