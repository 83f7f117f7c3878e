//! Measurements of a tiny checkpoint: what they do, not how fast.

use std::ops::ControlFlow;
use std::sync::Arc;

use k3_config::{
    ArenaLayout, BlockKind, BudgetPlan, Bytes, CachePolicy, MemoryBudget, Origin, Pins,
};
use k3_io::{DirectPolicy, EngineConfig, EnginePreference, PagePolicy};
use k3_kernels::KernelSet;
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_models::{LogitRows, ModelFamily, Sweep, WorkspaceSize};
use k3_runtime::{
    Cancel, Checkpoint, CheckpointPaths, ComputePool, ResidentSource, RunError, SessionBytes,
    SweepObserver, WeightSource, forward,
};
use k3_testkit::TinySpec;
use tempfile::TempDir;

use super::cycle::CyclingSource;
use super::error::BenchError;
use super::impose::Imposed;
use super::overlap::{OverlapBench, OverlapRequest, Stage};
use super::record::Recorder;
use crate::planning::{PlanInputs, plan_run};
use crate::supervisor::{StreamSettings, Supervisor};
use crate::tags::Party;

const POSITIONS: usize = 6;

struct Fixture {
    _dir: TempDir,
    checkpoint: Arc<Checkpoint>,
    model: KimiK3,
    pool: ComputePool,
    cancel: Cancel,
}

impl Fixture {
    fn new(spec: &TinySpec) -> Self {
        let dir = TempDir::new().unwrap();
        spec.generate().write_to(dir.path()).unwrap();
        let checkpoint = Checkpoint::open(&CheckpointPaths {
            model_dir: dir.path().to_owned(),
            roots: Vec::new(),
            config: None,
        });
        let checkpoint = Arc::new(checkpoint.unwrap());
        let layout = checkpoint.bind(None).unwrap();
        let read = |tensor: &_, out: &mut [u8]| checkpoint.read_tensor(tensor, out);
        let form = AttentionForm::Latent;
        let model = KimiK3::new(layout, form, KernelSet::detect(), 4 << 10, read).unwrap();
        Self {
            _dir: dir,
            checkpoint,
            model,
            pool: ComputePool::new(2).unwrap().splitting_everything(),
            cancel: Cancel::default(),
        }
    }

    /// A plan with `spare` bytes above the least.
    fn plan(&self, spare: u64, slots: Option<u64>) -> BudgetPlan {
        let inputs = PlanInputs {
            sequences: 1,
            guesses: 0,
            context_total: None,
            spill: None,
            context_positions: POSITIONS as u64,
            chunk_positions: POSITIONS as u64,
            logit_rows: 1,
            workers: 2,
            vocabulary_bytes: 0,
            index_bytes: 0,
            in_flight_bytes: 64 << 10,
            layout: ArenaLayout::PAGES_4K,
            slots,
            pins: Pins::Spread,
            lookahead: 0,
        };
        let plan = |total| {
            let budget = MemoryBudget::given(Bytes(total), Origin::Default);
            let workspace = |size: &_| self.model.workspace_bytes(size);
            plan_run(&self.model.footprint(), &workspace, &budget, &inputs)
        };
        let least = match plan(0).unwrap_err() {
            k3_config::PlanRefusal::TooSmall(shortfall) => shortfall.smallest_budget.unwrap().0,
            other => panic!("{other}"),
        };
        plan(least + spare).unwrap()
    }

    fn request<'a>(
        &'a self,
        plan: &'a BudgetPlan,
        settings: &'a StreamSettings,
    ) -> OverlapRequest<'a, KimiK3> {
        OverlapRequest {
            model: &self.model,
            checkpoint: &self.checkpoint,
            plan,
            settings,
            pool: &self.pool,
            buffer_bytes: 200_000,
            always_head: false,
            cancel: &self.cancel,
        }
    }

    fn sweep(&self) -> Sweep {
        let vocab = u32::try_from(self.model.vocab_size()).unwrap();
        let tokens = (0..4).map(|index| (index * 37 + 5) % vocab).collect();
        Sweep::single(tokens, LogitRows::Last)
    }

    fn resident(&self) -> ResidentSource {
        let layers = self.model.layout().layer_count();
        let nothing = SessionBytes::default();
        let go_on = |_, _| ControlFlow::Continue(());
        ResidentSource::load(&self.model, &self.checkpoint, layers, nothing, go_on).unwrap()
    }

    /// Bits of the logits of one sweep, and its demands.
    fn run<M: ModelFamily, S: WeightSource>(
        &self,
        model: &M,
        source: &mut S,
    ) -> (Vec<u32>, Vec<Vec<u16>>) {
        let mut state = model.new_state(POSITIONS);
        let mut workspace = model.new_workspace(WorkspaceSize {
            held_positions: 0,
            positions: POSITIONS,
            logit_rows: 1,
            context_positions: POSITIONS,
            workers: 2,
        });
        let mut demands = Demands::default();
        let sweep = self.sweep();
        let states = vec![&mut state];
        let (finished, _) = forward(
            model,
            source,
            &sweep,
            states,
            &mut workspace,
            &self.pool,
            &mut demands,
            &self.cancel,
        )
        .unwrap();
        let bits = finished
            .logits
            .iter()
            .map(|logit| logit.to_bits())
            .collect();
        (bits, demands.0)
    }
}

#[derive(Default)]
struct Demands(Vec<Vec<u16>>);

impl SweepObserver for Demands {
    fn demand(&mut self, demand: &k3_models::ExpertDemand) {
        self.0.push(demand.picks.clone());
    }
}

fn settings(engine: EnginePreference) -> StreamSettings {
    StreamSettings {
        engine,
        engine_config: EngineConfig {
            in_flight_bytes: 64 << 10,
            piece_bytes: 16 << 10,
            ..EngineConfig::default()
        },
        direct: DirectPolicy::Probe,
        pages: PagePolicy::Small,
        policy: CachePolicy::DeepLayers,
        spill: None,
    }
}

#[test]
fn a_record_holds_every_block_once_and_every_expert_that_was_read() {
    let fixture = Fixture::new(&TinySpec::wide_union(3));
    for (spare, slots) in [(0, None), (40_000, None), (120_000, Some(9))] {
        for engine in [EnginePreference::Pread, EnginePreference::Uring] {
            let plan = fixture.plan(spare, slots);
            let settings = settings(engine);
            for (always_head, positions) in
                [(false, 1), (false, POSITIONS), (true, 1), (true, POSITIONS)]
            {
                let mut request = fixture.request(&plan, &settings);
                request.always_head = always_head;
                let mut bench = OverlapBench::start(request, &mut |_, _| {}).unwrap();
                let record = bench.record(positions, &mut |_| {}).unwrap();
                let with_head = always_head || positions == 1;
                assert_eq!(record.has_head, with_head);
                let blocks = fixture.model.program().blocks.iter().enumerate();
                let unpinned = blocks.filter(|(index, block)| {
                    let is_passed = with_head || block.kind != BlockKind::Head;
                    is_passed && !plan.pinned.is_pinned(*index)
                });
                let mut want: Vec<_> = unpinned
                    .map(|(_, block)| (u32::from(block.shard), block.offset, block.bytes))
                    .collect();
                let trunk = record
                    .reads
                    .iter()
                    .filter(|read| read.party == Party::Trunk);
                let mut got: Vec<_> = trunk
                    .map(|read| {
                        let segment = read.segments[0];
                        (segment.file.0, segment.offset, segment.bytes)
                    })
                    .collect();
                want.sort_unstable();
                got.sort_unstable();
                assert_eq!(got, want, "{spare} {slots:?} {engine:?} {positions}");
                let of = |party| record.reads.iter().filter(move |read| read.party == party);
                let misses = record.counts.experts.misses;
                assert_eq!(of(Party::Experts).count() as u64, misses);
                assert_eq!(of(Party::Rows).count(), positions);
                assert!(bench.shutdown().failures.is_empty());
            }
        }
    }
}

#[test]
fn triples_take_the_bytes_and_the_experts_of_the_record() {
    let fixture = Fixture::new(&TinySpec::odd(2));
    for (spare, slots) in [(0, None), (120_000, Some(9))] {
        let plan = fixture.plan(spare, slots);
        let settings = settings(EnginePreference::Uring);
        let mut request = fixture.request(&plan, &settings);
        request.always_head = true;
        let mut stages = Vec::new();
        let mut last = 0.0;
        let mut watch = |stage, done: f64| {
            assert!((0.0..=1.0).contains(&done), "{stage:?} {done}");
            if stages.last() == Some(&stage) {
                assert!(done >= last, "{stage:?} goes from {last} to {done}");
            } else {
                stages.push(stage);
            }
            last = done;
        };
        let mut bench = OverlapBench::start(request, &mut watch).unwrap();
        let fixed = bench.measure(2, 3, &mut watch).unwrap();
        let closest = bench
            .closest(std::slice::from_ref(&fixed), &mut watch)
            .unwrap();
        assert!((1..=POSITIONS).contains(&closest));
        assert!(bench.shutdown().failures.is_empty());
        assert_eq!(stages[..2], [Stage::Fill, Stage::WarmUp]);
        assert!(stages.contains(&Stage::Measure { positions: 2 }));
        // That reads and demands are the record's is asserted where they are
        // made; here that all of it is reported.
        assert_eq!(fixed.triples.len(), 3);
        assert_eq!(fixed.trunk_bytes, plan.prediction.trunk_bytes_per_sweep);
        assert!(fixed.reads_are_equal);
        for triple in &fixed.triples {
            let longer = triple.io_seconds.max(triple.compute_seconds);
            assert_eq!(triple.ratio(), triple.wall_seconds / longer);
            assert!(triple.serial_ratio() > 1.0 && triple.serial_ratio() <= 2.0);
            assert_eq!(triple.wall_read_bytes, fixed.read_bytes());
            let waits = triple.trunk_wait_seconds + triple.expert_wait_seconds;
            assert!(waits <= triple.wall_seconds, "{triple:?}");
            assert!(triple.busy_seconds > 0.0, "{triple:?}");
        }
    }
}

#[test]
fn under_a_recorder_and_imposed_upon_a_model_gives_the_resident_bits() {
    let fixture = Fixture::new(&TinySpec::wide_union(3));
    let (want, demands) = fixture.run(&fixture.model, &mut fixture.resident());
    assert!(!demands.is_empty());

    let recorder = Recorder::default();
    let wrapper = recorder.clone();
    let wrap = move |engine, _| wrapper.wrap(engine);
    let plan = fixture.plan(0, None);
    let settings = settings(EnginePreference::Uring);
    let (model, checkpoint) = (&fixture.model, &fixture.checkpoint);
    let mut supervisor =
        Supervisor::start(model, checkpoint, &plan, &settings, Some(&wrap)).unwrap();
    recorder.start();
    for _ in 0..2 {
        let (bits, streamed) = fixture.run(model, supervisor.source());
        assert!(bits == want && streamed == demands);
    }
    assert!(supervisor.shutdown().failures.is_empty());

    let imposed = Imposed {
        model,
        demands: &demands,
    };
    let (bits, taken) = fixture.run(&imposed, &mut fixture.resident());
    assert!(bits == want && taken == demands, "its own experts");

    let others: Vec<Vec<u16>> = demands.iter().map(|picks| rotated(picks, model)).collect();
    let imposed = Imposed {
        model,
        demands: &others,
    };
    let (bits, taken) = fixture.run(&imposed, &mut fixture.resident());
    assert!(bits != want && taken == others, "other experts");
}

/// Each expert replaced by the next.
fn rotated(picks: &[u16], model: &KimiK3) -> Vec<u16> {
    let count = u16::try_from(model.footprint().experts_per_layer).unwrap();
    picks.iter().map(|expert| (expert + 1) % count).collect()
}

#[test]
fn weights_that_take_turns_choose_other_experts_unless_some_are_imposed() {
    let fixture = Fixture::new(&TinySpec::wide_union(3));
    let (model, checkpoint) = (&fixture.model, &fixture.checkpoint);
    let (_, demands) = fixture.run(model, &mut fixture.resident());
    // Less than the model has: blocks are not at their own place.
    let bytes = model.footprint().trunk_bytes() / 3;
    let load = |bytes| {
        let go_on = |_, _| ControlFlow::Continue(());
        CyclingSource::load(model, checkpoint, bytes, PagePolicy::Small, go_on).unwrap()
    };
    let mut source = load(bytes);
    assert!(source.buffer_bytes() < model.footprint().trunk_bytes());
    let (_, own) = fixture.run(model, &mut source);
    assert_ne!(own, demands);
    let imposed = Imposed {
        model,
        demands: &demands,
    };
    let (_, taken) = fixture.run(&imposed, &mut source);
    assert_eq!(taken, demands);
    // Asked for everything, it holds everything once.
    let experts = checkpoint.index().experts().total_bytes();
    let all = model.footprint().trunk_bytes() + experts;
    assert_eq!(load(10 * all).buffer_bytes(), all);
}

#[test]
fn a_model_in_memory_has_nothing_to_hide() {
    let fixture = Fixture::new(&TinySpec::odd(2));
    let plan = fixture.plan(1 << 30, None);
    let settings = settings(EnginePreference::Pread);
    let request = fixture.request(&plan, &settings);
    let mut bench = OverlapBench::start(request, &mut |_, _| {}).unwrap();
    let error = bench.measure(2, 1, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, BenchError::NothingStreams), "{error}");
    assert!(error.to_string().contains("--memory"), "{error}");
}

#[test]
fn a_stop_ends_every_stage() {
    let settings = settings(EnginePreference::Uring);
    let is_cancelled = |error: &BenchError| matches!(error, BenchError::Run(RunError::Cancelled));
    for (stop, parts_done) in [(0, 0.0), (1, 0.0), (2, 0.0), (2, 0.7)] {
        let fixture = Fixture::new(&TinySpec::odd(2));
        let plan = fixture.plan(0, None);
        let request = fixture.request(&plan, &settings);
        let mut watch = |stage, done| {
            let number = match stage {
                Stage::Fill => 0,
                Stage::WarmUp => 1,
                _ => 2,
            };
            if number == stop && done >= parts_done {
                fixture.cancel.request();
            }
        };
        let error = match OverlapBench::start(request, &mut watch) {
            Err(error) => error,
            Ok(mut bench) => {
                let error = bench.measure(2, 2, &mut watch).unwrap_err();
                assert!(bench.shutdown().failures.is_empty());
                error
            }
        };
        assert!(is_cancelled(&error), "{error}");
    }
}
