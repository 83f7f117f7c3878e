//! Pages that do not stay in memory: nothing of it shows in what is computed.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod same;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use common::{BASE, Case};
use k3_actors::planning::{PlanInputs, plan_run};
use k3_actors::supervisor::WrapEngine;
use k3_actors::{StreamSettings, Supervisor};
use k3_config::{ArenaLayout, BudgetPlan, Bytes, MemoryBudget, Origin, PlanRefusal, SpillRequest};
use k3_formats::snapshot::{SnapshotBinding, StateForm};
use k3_io::{DirectPolicy, EngineConfig, EnginePreference, FaultyEngine, FaultyPlan, PagePolicy};
use k3_models::kimi_k3::{KimiK3, NUMERICS_VERSION};
use k3_models::{ModelFamily as _, PageStore};
use k3_runtime::scheduler::{Choice, Ended, Event, FinishReason, RequestId, StepReport, Update};
use k3_runtime::{
    Cancel, ComputePool, GenerateRequest, PrefixStore, SamplingSettings, Scheduler,
    SchedulerSettings, SpillSizes,
};
use k3_testkit::{Rng, Tensor, TinySpec};
use tempfile::TempDir;

/// Six pages.
const CONTEXT: usize = 330;

fn case() -> Case {
    // Three layers with latents, the last one among them.
    Case::new(&TinySpec::small(4).layers(5, &[1, 3, 5]))
}

/// The same with little influence of what is attended to: it says the same few
/// tokens again and again, greedily, so that guesses are right at times.
fn repeating() -> Case {
    let quieter = |tensors: &mut Vec<Tensor>| {
        let outputs = ["o_proj.weight", "down_proj.weight", "up_proj.weight"];
        let is_output = |tensor: &&mut Tensor| {
            let mut tails = outputs.iter();
            tails.any(|tail| tensor.name.ends_with(tail))
        };
        for tensor in tensors.iter_mut().filter(is_output) {
            // Its exponent, less six.
            for value in tensor.bytes.as_chunks_mut().0 {
                let bits = u16::from_le_bytes(*value);
                let is_small = (bits >> 7) & 0xff <= 6;
                *value = if is_small { 0 } else { bits - (6 << 7) }.to_le_bytes();
            }
        }
    };
    let tiny = TinySpec::small(4)
        .layers(5, &[1, 3, 5])
        .generate_with(quieter);
    Case::of(tiny)
}

/// How requests are run.
#[derive(Clone, Copy, Debug)]
struct Side {
    chunk: usize,
    sequences: usize,
    guesses: usize,
    /// Pages in memory of each sequence; `None`: all of them.
    memory_pages: Option<u64>,
    threads: usize,
    engine: EnginePreference,
    /// Answers of the engine that are held back and let go in any order.
    reorder: Option<usize>,
}

const ALL: Side = Side {
    chunk: 64,
    sequences: 1,
    guesses: 0,
    memory_pages: None,
    threads: 1,
    engine: EnginePreference::Pread,
    reorder: None,
};

impl Side {
    fn inputs(&self) -> PlanInputs {
        PlanInputs {
            context_positions: CONTEXT as u64,
            context_total: None,
            spill: self.memory_pages.map(|pages| SpillRequest {
                bytes_max: None,
                memory_pages: Some(pages),
            }),
            chunk_positions: self.chunk as u64,
            sequences: self.sequences as u64,
            guesses: self.guesses as u64,
            logit_rows: (self.sequences * (1 + self.guesses)) as u64,
            workers: self.threads as u64,
            vocabulary_bytes: 0,
            index_bytes: 0,
            in_flight_bytes: 64 << 10,
            layout: ArenaLayout::PAGES_4K,
            slots: None,
            pins: BASE.pins,
            lookahead: 0,
        }
    }

    /// The least plan there is.
    fn plan(&self, model: &KimiK3) -> BudgetPlan {
        let plan = |total: u64| {
            let budget = MemoryBudget::given(Bytes(total), Origin::Default);
            let workspace = |size: &_| model.workspace_bytes(size);
            plan_run(&model.footprint(), &workspace, &budget, &self.inputs())
        };
        match plan(0) {
            Err(PlanRefusal::TooSmall(shortfall)) => {
                plan(shortfall.smallest_budget.unwrap().0).unwrap()
            }
            other => panic!("nothing fits in no memory: {other:?}"),
        }
    }

    fn settings(&self, plan: &BudgetPlan) -> SchedulerSettings {
        SchedulerSettings {
            sequences_max: self.sequences,
            guesses_max: self.guesses,
            queue_max: 64,
            spill: SpillSizes::of(&plan.pages),
            ..SchedulerSettings::single(CONTEXT, self.chunk)
        }
    }

    fn stream(&self, dir: &Path) -> StreamSettings {
        StreamSettings {
            engine: self.engine,
            engine_config: EngineConfig {
                in_flight_bytes: 64 << 10,
                piece_bytes: 16 << 10,
                ..EngineConfig::default()
            },
            direct: DirectPolicy::Probe,
            pages: PagePolicy::Small,
            policy: BASE.policy,
            spill: Some(dir.to_owned()),
        }
    }
}

/// What became of one choice.
#[derive(Debug, Default, Clone, PartialEq)]
struct Answer {
    ids: Vec<u32>,
    bits: Vec<u32>,
    reused: usize,
    ended: Option<(FinishReason, String)>,
    read_bytes: u64,
}

type Answers = BTreeMap<(RequestId, u32), Answer>;

fn take(answers: &mut Answers, event: Event) {
    let answer = answers.entry((event.request, event.choice)).or_default();
    match event.update {
        Update::Admitted { reused_positions } => answer.reused = reused_positions,
        Update::PromptRows { .. } => {}
        Update::Token { id, row, .. } => {
            answer.ids.push(id);
            let row = row.unwrap();
            answer.bits.extend(row.iter().map(|value| value.to_bits()));
        }
        Update::Ended(Ended {
            reason,
            counts,
            error,
        }) => {
            let error = error.map_or_else(String::new, |error| error.to_string());
            answer.ended = Some((reason, error));
            answer.read_bytes = counts.read_bytes;
        }
    }
}

/// What came of a run.
struct Outcome {
    answers: Vec<Answer>,
    sweeps: Vec<StepReport>,
    plan: BudgetPlan,
    written_bytes: u64,
    read_bytes: u64,
    guessed: [u64; 2],
}

type WrapPages = dyn Fn(Arc<dyn PageStore>) -> Arc<dyn PageStore>;

/// What a run has beside its requests.
#[derive(Default)]
struct Beside<'a> {
    store: Option<&'a PrefixStore>,
    wrap: Option<&'a WrapEngine>,
    /// Instead of the store of pages.
    pages: Option<&'a WrapPages>,
}

fn run(case: &Case, side: Side, requests: Vec<GenerateRequest>, beside: &Beside<'_>) -> Outcome {
    let model = case.model(BASE.block_bytes);
    let plan = side.plan(&model);
    let dir = TempDir::new().unwrap();
    let delays = FaultyPlan {
        seed: 3,
        delay_max: std::time::Duration::from_micros(200),
        reorder: side.reorder.unwrap_or(0),
        ..FaultyPlan::default()
    };
    let delayed: &WrapEngine =
        &move |inner, table| Arc::new(FaultyEngine::new(inner, table, delays.clone()));
    let wrap = beside.wrap.or(side.reorder.map(|_| delayed));
    let stream = side.stream(dir.path());
    let mut supervisor = Supervisor::start(&model, &case.checkpoint, &plan, &stream, wrap).unwrap();
    // A file has no name, from the start.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let pool = ComputePool::new(side.threads)
        .unwrap()
        .splitting_everything();
    let pages = supervisor.page_store();
    assert_eq!(pages.is_some(), plan.pages.file_page_count > 0);
    let settings = side.settings(&plan);
    let mut answers = Answers::new();
    let (mut events, mut sweeps) = (Vec::new(), Vec::new());
    {
        let cancel = Cancel::default();
        let mut scheduler = Scheduler::new(&model, supervisor.source(), &pool, settings, cancel);
        if let Some(pages) = pages {
            let wrap = beside.pages.unwrap_or(&|pages| pages);
            scheduler.spill_to(wrap(pages));
        }
        if let Some(store) = beside.store {
            scheduler.keep_prefixes(store);
        }
        for request in requests {
            scheduler.submit(request).unwrap();
        }
        while let Some(report) = scheduler.step(&mut events).unwrap() {
            sweeps.push(report);
            for event in events.drain(..) {
                take(&mut answers, event);
            }
        }
        let (free, all) = scheduler.free_pages();
        assert_eq!((free, all as u64), (all, plan.pages.page_count));
        let free = scheduler.free_file_pages();
        assert_eq!(
            free as u64, plan.pages.file_page_count,
            "all pages came back"
        );
    }
    let moved = supervisor.gauges().spill();
    let (written_bytes, read_bytes) =
        moved.map_or((0, 0), |moved| (moved.written_bytes(), moved.read_bytes()));
    let report = supervisor.shutdown();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let sum = |each: fn(&StepReport) -> u64| sweeps.iter().map(each).sum();
    Outcome {
        guessed: [sum(|step| step.guessed), sum(|step| step.accepted)],
        answers: answers.into_values().collect(),
        sweeps,
        plan,
        written_bytes,
        read_bytes,
    }
}

/// `len` ids; the second half repeats, so that some guesses are right.
fn prompt(len: usize, vocab: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    let fresh: Vec<u32> = (0..len.min(23))
        .map(|_| u32::try_from(rng.below(vocab)).unwrap())
        .collect();
    fresh.iter().copied().cycle().take(len).collect()
}

fn ask(ids: Vec<u32>, gen_count: usize, choices: u32) -> GenerateRequest {
    let seed = ids.len() as u64;
    let sampling = SamplingSettings {
        temperature: if seed.is_multiple_of(2) { 0.0 } else { 0.8 },
        seed,
        ..SamplingSettings::default()
    };
    let choice = |index| Choice { index, watch: None };
    GenerateRequest {
        token_rows: true,
        choices: (0..choices).map(choice).collect(),
        ..GenerateRequest::new(ids, gen_count, sampling)
    }
}

/// Prompts around the ends of pages, with answers that cross them.
fn requests(case: &Case) -> Vec<GenerateRequest> {
    let vocab = case.tiny.config.vocab_size;
    let all = [
        (300, 30, 1),
        (127, 3, 1),
        (64, 70, 1),
        (250, 10, 2),
        (190, 5, 1),
        (1, 66, 1),
        (129, 1, 1),
        (318, 12, 1),
    ];
    let requests = all
        .into_iter()
        .map(|(len, gen_count, choices)| ask(prompt(len, vocab, len as u64), gen_count, choices));
    requests.collect()
}

#[track_caller]
fn assert_same(got: &Outcome, want: &Outcome, what: &dyn std::fmt::Debug) {
    assert_eq!(got.answers.len(), want.answers.len(), "{what:?}");
    for (index, (got, want)) in got.answers.iter().zip(&want.answers).enumerate() {
        assert_eq!(got.ended, want.ended, "{what:?} {index}");
        assert_eq!(got.ids, want.ids, "{what:?} {index}");
        assert!(got.bits == want.bits, "{what:?} {index}");
    }
}
