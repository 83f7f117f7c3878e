//! Sequences that share a streamed sweep: what each gets, and what is read for
//! all of them.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::{BASE, Case, Way};
use k3_actors::planning::{PlanInputs, plan_run};
use k3_actors::{StreamingSource, Supervisor};
use k3_config::{ArenaLayout, BlockKind, BudgetPlan, Bytes, MemoryBudget, Origin, PlanRefusal};
use k3_formats::gates;
use k3_io::FaultyPlan;
use k3_models::ModelFamily as _;
use k3_models::kimi_k3::KimiK3;
use k3_runtime::scheduler::{Event, FinishReason, RequestId, StepReport, Update};
use k3_runtime::{
    Cancel, ComputePool, GenerateRequest, SamplingSettings, Scheduler, SchedulerSettings,
};
use k3_testkit::TinySpec;

const CONTEXT: usize = 160;

/// How requests are run.
#[derive(Clone, Copy, Debug)]
struct Side {
    way: Way,
    sequences: usize,
    guesses: usize,
}

impl Side {
    fn settings(&self) -> SchedulerSettings {
        SchedulerSettings {
            sequences_max: self.sequences,
            guesses_max: self.guesses,
            queue_max: 64,
            ..SchedulerSettings::single(CONTEXT, self.way.chunk)
        }
    }

    fn inputs(&self) -> PlanInputs {
        PlanInputs {
            context_positions: CONTEXT as u64,
            context_total: None,
            spill: None,
            chunk_positions: self.way.chunk as u64,
            sequences: self.sequences as u64,
            guesses: self.guesses as u64,
            logit_rows: (self.sequences * (1 + self.guesses)) as u64,
            workers: self.way.threads as u64,
            vocabulary_bytes: 0,
            index_bytes: 0,
            in_flight_bytes: 64 << 10,
            layout: ArenaLayout::PAGES_4K,
            slots: self.way.slots,
            pins: self.way.pins,
            lookahead: self.way.lookahead,
        }
    }

    /// A plan that is `budget_twelfths` of the way from the smallest budget to
    /// everything in memory.
    fn plan(&self, model: &KimiK3) -> BudgetPlan {
        let plan = |total: u64| {
            let budget = MemoryBudget::given(Bytes(total), Origin::Default);
            let workspace = |size: &_| model.workspace_bytes(size);
            plan_run(&model.footprint(), &workspace, &budget, &self.inputs())
        };
        let smallest = match plan(0) {
            Err(PlanRefusal::TooSmall(shortfall)) => shortfall.smallest_budget.unwrap().0,
            other => panic!("nothing fits in no memory: {other:?}"),
        };
        let whole = plan(smallest + (1 << 30)).unwrap().planned.0 - smallest;
        plan(smallest + whole * self.way.budget_twelfths / 12).unwrap()
    }
}

/// What came of the requests.
struct Outcome {
    /// Ids and the bits of the logits behind them, by request.
    answers: Vec<(Vec<u32>, Vec<u32>)>,
    /// Of every sweep: what was reported, what the experts' part of it hit, and
    /// how many experts its layers asked for.
    sweeps: Vec<(StepReport, u64, u64)>,
    plan: BudgetPlan,
    seconds: f64,
}

impl Outcome {
    fn tokens(&self) -> u64 {
        self.sweeps.iter().map(|(report, _, _)| report.tokens).sum()
    }

    fn read_bytes(&self) -> u64 {
        let sweeps = self.sweeps.iter();
        sweeps.map(|(report, _, _)| report.read.total_bytes()).sum()
    }

    /// Sweeps that are not of a prompt alone.
    fn steps(&self) -> u64 {
        let steps = self.sweeps.iter();
        steps.filter(|(report, _, _)| report.tokens > 0).count() as u64
    }
}

fn requests(vocab: usize, lengths: &[usize], gen_count: usize) -> Vec<GenerateRequest> {
    let requests = lengths.iter().enumerate().map(|(index, &len)| {
        let mut rng = k3_testkit::Rng::new(index as u64);
        let ids = (0..len).map(|_| u32::try_from(rng.below(vocab)).unwrap());
        let sampling = SamplingSettings {
            temperature: if index.is_multiple_of(2) { 0.0 } else { 0.8 },
            seed: index as u64,
            ..SamplingSettings::default()
        };
        GenerateRequest {
            token_rows: true,
            ..GenerateRequest::new(ids.collect(), gen_count, sampling)
        }
    });
    requests.collect()
}

/// Distinct experts per layer, summed over the layers of one sweep.
fn union(picks: &[(u16, u16)]) -> u64 {
    picks.iter().collect::<BTreeSet<_>>().len() as u64
}

fn run(
    case: &Case,
    side: Side,
    faults: Option<FaultyPlan>,
    requests: Vec<GenerateRequest>,
) -> Outcome {
    let model = case.model(side.way.block_bytes);
    let plan = side.plan(&model);
    let mut supervisor = case.start(&model, &plan, &side.way, faults);
    let pool = ComputePool::new(side.way.threads).unwrap();
    let (answers, sweeps, seconds) = drive(&model, &mut supervisor, &pool, side, requests);
    let report = supervisor.shutdown();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    Outcome {
        answers,
        sweeps,
        plan,
        seconds,
    }
}

type Driven = (Vec<(Vec<u32>, Vec<u32>)>, Vec<(StepReport, u64, u64)>, f64);

fn drive(
    model: &KimiK3,
    supervisor: &mut Supervisor,
    pool: &ComputePool,
    side: Side,
    requests: Vec<GenerateRequest>,
) -> Driven {
    let source: &mut StreamingSource = supervisor.source();
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(model, source, pool, side.settings(), cancel);
    scheduler.record_trace();
    let mut answers = vec![Default::default(); requests.len()];
    for request in requests {
        scheduler.submit(request).unwrap();
    }
    let (mut events, mut sweeps, mut traced) = (Vec::new(), Vec::new(), 0);
    let started = Instant::now();
    while let Some(report) = scheduler.step(&mut events).unwrap() {
        let trace = scheduler.trace().unwrap();
        let experts = union(&trace[traced..]);
        traced = trace.len();
        sweeps.push((
            report,
            scheduler.source().sweep_reads().experts.hits,
            experts,
        ));
        for event in events.drain(..) {
            take(&mut answers, event);
        }
    }
    (answers, sweeps, started.elapsed().as_secs_f64())
}

fn take(answers: &mut [(Vec<u32>, Vec<u32>)], event: Event) {
    let RequestId(id) = event.request;
    let (ids, bits) = &mut answers[usize::try_from(id).unwrap()];
    match event.update {
        Update::Token { id, row, .. } => {
            ids.push(id);
            bits.extend(row.unwrap().iter().map(|value| value.to_bits()));
        }
        Update::Ended(ended) => assert_eq!(ended.reason, FinishReason::Length),
        _ => {}
    }
}

const LENGTHS: [usize; 8] = [3, 11, 1, 7, 5, 2, 9, 4];

/// Everything that may differ between two runs, and must not show.
#[test]
fn eight_together_are_what_each_is_alone_at_every_budget() {
    for spec in [TinySpec::small(4), TinySpec::wide_union(3)] {
        let case = Case::new(&spec);
        let vocab = case.tiny.config.vocab_size;
        let alone = Side {
            way: BASE,
            sequences: 1,
            guesses: 0,
        };
        let want = run(&case, alone, None, requests(vocab, &LENGTHS, 12)).answers;
        for (budget_twelfths, sequences, guesses, chunk, threads, delay) in [
            (0, 8, 0, 4, 1, false),
            (0, 8, 4, 16, 2, true),
            (3, 3, 2, 1, 2, false),
            (6, 8, 0, 64, 1, true),
            (9, 2, 7, 5, 2, false),
            (12, 5, 3, 8, 1, false),
        ] {
            let side = Side {
                way: Way {
                    budget_twelfths,
                    chunk,
                    threads,
                    delay,
                    ..BASE
                },
                sequences,
                guesses,
            };
            let faults = delay.then(|| FaultyPlan {
                seed: 3,
                delay_max: Duration::from_micros(200),
                reorder: 3,
                ..FaultyPlan::default()
            });
            let got = run(&case, side, faults, requests(vocab, &LENGTHS, 12)).answers;
            assert!(got == want, "{side:?}");
        }
    }
}

/// What one sweep reads, to the byte: the blocks that are not pinned, and each
/// expert that any position asked for once.
fn check_bytes(case: &Case, side: Side, lengths: &[usize], gen_count: usize) -> Outcome {
    let vocab = case.tiny.config.vocab_size;
    let outcome = run(case, side, None, requests(vocab, lengths, gen_count));
    let model = case.model(side.way.block_bytes);
    let footprint = model.footprint();
    let row_bytes = model.program().embedding_row_bytes();
    for (index, (report, hits, experts)) in outcome.sweeps.iter().enumerate() {
        let blocks = footprint.blocks.iter().enumerate();
        let wanted = blocks.filter(|(block, footprint)| {
            // The first sweep also fills the pins.
            let is_read = index == 0 || !outcome.plan.pinned.is_pinned(*block);
            is_read && (report.tokens > 0 || footprint.kind != BlockKind::Head)
        });
        let trunk: u64 = wanted.map(|(_, block)| block.bytes).sum();
        assert_eq!(report.read.trunk_bytes, trunk, "sweep {index}, {side:?}");
        let misses = experts - hits;
        assert_eq!(
            report.read.expert_bytes,
            misses * footprint.expert_bytes,
            "sweep {index}, {side:?}"
        );
        assert_eq!(report.read.row_bytes, report.positions * row_bytes);
    }
    outcome
}

#[test]
fn a_sweep_reads_its_blocks_once_and_the_union_of_its_experts() {
    for spec in [TinySpec::small(4), TinySpec::wide_union(3)] {
        let case = Case::new(&spec);
        for budget_twelfths in [0, 6] {
            let way = Way {
                budget_twelfths,
                chunk: 64,
                ..BASE
            };
            let eight = Side {
                way,
                sequences: 8,
                guesses: 0,
            };
            check_bytes(&case, eight, &[1; 8], 10);
            let prefill = Side {
                sequences: 1,
                ..eight
            };
            let outcome = check_bytes(&case, prefill, &[64], 4);
            assert_eq!(outcome.sweeps[0].0.prompt_positions, 64);
        }
    }
}

/// A model that says the same few tokens again and again: no layer adds
/// anything, so a token follows from the one before it.
fn repeating() -> Case {
    Case::of(TinySpec::small(1).generate_with(|tensors| {
        for tensor in tensors.iter_mut() {
            let tails = ["o_proj.weight", "down_proj.weight", "up_proj.weight"];
            if tails.iter().any(|tail| tensor.name.ends_with(tail)) {
                tensor.bytes.fill(0);
            }
        }
    }))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// On a disk that takes its time, fewer sweeps are less time.
#[allow(clippy::print_stdout, reason = "figures for a person")]
#[test]
fn a_text_that_repeats_itself_takes_half_the_sweeps() {
    let case = repeating();
    let vocab = case.tiny.config.vocab_size;
    let rounds = if gates::slow() { 7 } else { 1 };
    let side = |guesses| Side {
        way: BASE,
        sequences: 1,
        guesses,
    };
    let faults = || FaultyPlan {
        delay_max: Duration::from_micros(600),
        ..FaultyPlan::default()
    };
    let ask = || {
        let mut requests = requests(vocab, &[5], 128);
        requests[0].sampling.temperature = 0.0;
        requests
    };
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let plain = run(&case, side(0), Some(faults()), ask());
        let guessing = run(&case, side(8), Some(faults()), ask());
        assert!(guessing.answers == plain.answers);
        let sweeps = guessing.steps() as f64 / plain.steps() as f64;
        assert!(sweeps <= 0.55, "{sweeps} sweeps a token");
        assert!(guessing.read_bytes() < plain.read_bytes());
        ratios.push(plain.seconds / guessing.seconds);
        println!(
            "{sweeps:.3} of the sweeps, {:.3} of the bytes, {:.2} times as fast",
            guessing.read_bytes() as f64 / plain.read_bytes() as f64,
            plain.seconds / guessing.seconds
        );
    }
    if gates::slow() {
        let faster = median(ratios);
        assert!(faster >= 1.6, "{faster} times as fast");
    }
}

/// Where nothing can be guessed, guessing costs next to nothing.
#[allow(clippy::print_stdout, reason = "figures for a person")]
#[test]
fn a_text_without_order_takes_no_more_bytes() {
    for spec in [TinySpec::small(4), TinySpec::wide_union(3)] {
        let case = Case::new(&spec);
        let vocab = case.tiny.config.vocab_size;
        let side = |guesses| Side {
            way: BASE,
            sequences: 1,
            guesses,
        };
        let ask = || {
            let mut requests = requests(vocab, &[40], 110);
            // Far from what the model would say: no order at all.
            requests[0].sampling.temperature = 100.0;
            requests
        };
        let plain = run(&case, side(0), None, ask());
        let guessing = run(&case, side(8), None, ask());
        assert!(guessing.answers == plain.answers);
        assert_eq!(guessing.tokens(), plain.tokens());
        let more = guessing.read_bytes() as f64 / plain.read_bytes() as f64;
        println!("{more:.4} of the bytes");
        assert!(more <= 1.03, "{more}");
    }
}
