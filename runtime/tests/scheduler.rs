//! Requests side by side: each is what it is alone, whatever happens to the
//! others.

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Way, load, open, prompt, write, write_with};
use k3_formats::snapshot::{SnapshotBinding, StateForm};
use k3_kernels::Isa;
use k3_models::kimi_k3::{AttentionForm, KimiK3, NUMERICS_VERSION};
use k3_models::{BlockIndex, ExpertDemand, ExpertKey, Sweep};
use k3_runtime::scheduler::{
    Choice, Ended, Event, FinishReason, PromptRows, RefusalReason, RequestCounts, RequestId,
    StepReport, TokenWatch, Update,
};
use k3_runtime::{
    Cancel, ComputePool, GenerateRequest, PrefixStore, ReadBytes, ResidentSource, RunError,
    SamplingSettings, Scheduler, SchedulerSettings, WeightSource,
};
use k3_testkit::TinySpec;

const CONTEXT: usize = 64;

/// What became of one choice.
#[derive(Debug, Default)]
struct Answer {
    ids: Vec<u32>,
    rows: Vec<Vec<u32>>,
    prompt_rows: Vec<u32>,
    ended: Option<Ended>,
}

impl Answer {
    fn reason(&self) -> FinishReason {
        self.ended.as_ref().expect("it has ended").reason
    }
}

type Answers = BTreeMap<(RequestId, u32), Answer>;

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|value| value.to_bits()).collect()
}

fn take(answers: &mut Answers, events: &mut Vec<Event>) {
    for event in events.drain(..) {
        let answer = answers.entry((event.request, event.choice)).or_default();
        assert!(answer.ended.is_none(), "nothing follows the last event");
        match event.update {
            Update::Admitted { .. } => {}
            Update::PromptRows { rows, .. } => answer.prompt_rows.extend(bits(&rows)),
            Update::Token { id, row, .. } => {
                answer.ids.push(id);
                answer.rows.extend(row.as_deref().map(bits));
            }
            Update::Ended(ended) => answer.ended = Some(ended),
        }
    }
}

/// Runs until nothing is left to do.
fn finish<S: WeightSource>(
    scheduler: &mut Scheduler<'_, KimiK3, S>,
    answers: &mut Answers,
) -> Vec<StepReport> {
    let mut events = Vec::new();
    let mut reports = Vec::new();
    while let Some(report) = scheduler.step(&mut events).unwrap() {
        reports.push(report);
        take(answers, &mut events);
    }
    take(answers, &mut events);
    assert!(scheduler.is_idle());
    reports
}

/// A tiny model that anything can be asked of.
struct Bench {
    model: KimiK3,
    source: ResidentSource,
    pool: ComputePool,
}

impl Bench {
    fn new(checkpoint: &k3_runtime::Checkpoint, way: Way) -> Self {
        let (model, source) = load(checkpoint, AttentionForm::Latent, way);
        let pool = ComputePool::new(way.threads).unwrap();
        Self {
            model,
            source,
            pool: pool.splitting_everything(),
        }
    }

    fn run(&mut self, settings: SchedulerSettings, requests: Vec<GenerateRequest>) -> Vec<Answer> {
        let cancel = Cancel::default();
        let mut scheduler =
            Scheduler::new(&self.model, &mut self.source, &self.pool, settings, cancel);
        let mut answers = Answers::new();
        for request in requests {
            scheduler.submit(request).unwrap();
        }
        finish(&mut scheduler, &mut answers);
        answers.into_values().collect()
    }
}

fn settings(sequences_max: usize, chunk_positions: usize) -> SchedulerSettings {
    SchedulerSettings {
        sequences_max,
        queue_max: 64,
        prompt_logits: true,
        ..SchedulerSettings::single(CONTEXT, chunk_positions)
    }
}

/// Eight prompts of different lengths, greedy and sampled.
fn requests(vocab: usize) -> Vec<GenerateRequest> {
    let lengths = [1, 19, 7, 2, 11, 5, 3, 13];
    let requests = lengths.into_iter().enumerate().map(|(index, len)| {
        let sampling = SamplingSettings {
            temperature: if index % 3 == 0 { 0.0 } else { 0.9 },
            top_p: 0.95,
            seed: index as u64,
            ..SamplingSettings::default()
        };
        let gen_count = 4 + 3 * (index % 4);
        let ids = prompt(len, vocab, index as u64);
        GenerateRequest {
            token_rows: true,
            ..GenerateRequest::new(ids, gen_count, sampling)
        }
    });
    requests.collect()
}

fn same(got: &Answer, want: &Answer, what: &dyn std::fmt::Debug) {
    assert_eq!(got.ids, want.ids, "{what:?}");
    assert!(got.rows == want.rows, "{what:?}: logits differ");
    assert_eq!(got.reason(), want.reason(), "{what:?}");
}

#[test]
fn eight_together_are_what_each_is_alone() {
    for (name, spec) in [
        ("small", TinySpec::small(1)),
        ("odd", TinySpec::odd(2)),
        ("wide union", TinySpec::wide_union(3)),
    ] {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        let alone: Vec<Answer> = requests(vocab)
            .into_iter()
            .map(|request| {
                let mut bench = Bench::new(&checkpoint, Way::default());
                bench.run(settings(1, 64), vec![request]).remove(0)
            })
            .collect();
        let base = Way::default();
        let ways = [(1, Isa::Scalar), (2, base.isa), (3, base.isa)];
        for (sequences, chunk) in [(8, 64), (8, 1), (3, 5), (2, 64), (1, 3)] {
            for (threads, isa) in ways {
                let way = Way {
                    threads,
                    isa,
                    ..base
                };
                let mut bench = Bench::new(&checkpoint, way);
                let together = bench.run(settings(sequences, chunk), requests(vocab));
                for (index, (got, want)) in together.iter().zip(&alone).enumerate() {
                    same(got, want, &(name, sequences, chunk, threads, isa, index));
                }
            }
        }
        // Another order of arrival.
        let mut reversed = requests(vocab);
        reversed.reverse();
        let mut bench = Bench::new(&checkpoint, base);
        let together = bench.run(settings(4, 7), reversed);
        for (index, (got, want)) in together.iter().rev().zip(&alone).enumerate() {
            same(got, want, &(name, "reversed", index));
        }
    }
}

#[test]
fn requests_that_come_while_others_run_change_nothing() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let want = bench.run(settings(8, 64), requests(vocab));
    for gap in [1, 2, 5] {
        let cancel = Cancel::default();
        let mut scheduler = Scheduler::new(
            &bench.model,
            &mut bench.source,
            &bench.pool,
            settings(5, 4),
            cancel,
        );
        let mut answers = Answers::new();
        let mut events = Vec::new();
        for request in requests(vocab) {
            scheduler.submit(request).unwrap();
            for _ in 0..gap {
                scheduler.step(&mut events).unwrap();
                take(&mut answers, &mut events);
            }
        }
        finish(&mut scheduler, &mut answers);
        for (index, (got, want)) in answers.values().zip(&want).enumerate() {
            same(got, want, &(gap, index));
        }
    }
}

#[test]
fn choices_read_their_prompt_once_and_are_what_single_requests_are() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let base = || requests(vocab).remove(1);
    let choices = |indices: &[u32]| {
        let choices = indices.iter().map(|&index| Choice { index, watch: None });
        choices.collect::<Vec<_>>()
    };
    let single: Vec<_> = (0..3)
        .map(|index| GenerateRequest {
            choices: choices(&[index]),
            ..base()
        })
        .collect();
    let single = bench.run(settings(1, 64), single);
    assert!(single[0].ids != single[1].ids, "choices differ");
    let request = GenerateRequest {
        choices: choices(&[0, 1, 2]),
        ..base()
    };
    let prompt_len = request.prompt_ids.len() as u64;
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        settings(3, 64),
        cancel,
    );
    scheduler.submit(request).unwrap();
    let mut answers = Answers::new();
    let reports = finish(&mut scheduler, &mut answers);
    for (got, want) in answers.values().zip(&single) {
        same(got, want, &"choices");
    }
    let prompt_positions: u64 = reports.iter().map(|report| report.prompt_positions).sum();
    assert_eq!(prompt_positions, prompt_len);
}

#[test]
fn calling_one_off_disturbs_none() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let want = bench.run(settings(8, 6), requests(vocab));
    for (called_off, after) in [(0, 0), (1, 1), (4, 2), (7, 5), (3, 3)] {
        let mut requests = requests(vocab);
        let off = requests[called_off].cancel.clone();
        let late = requests.len() - 1;
        if called_off != late {
            requests[late].deadline = Some(Instant::now() + Duration::from_secs(3600));
        }
        let cancel = Cancel::default();
        let mut scheduler = Scheduler::new(
            &bench.model,
            &mut bench.source,
            &bench.pool,
            settings(6, 6),
            cancel,
        );
        for request in requests {
            scheduler.submit(request).unwrap();
        }
        let mut answers = Answers::new();
        let mut events = Vec::new();
        for _ in 0..after {
            scheduler.step(&mut events).unwrap();
        }
        off.request();
        take(&mut answers, &mut events);
        finish(&mut scheduler, &mut answers);
        for (index, (got, want)) in answers.values().zip(&want).enumerate() {
            if index == called_off {
                assert_eq!(got.reason(), FinishReason::Cancelled);
                assert_eq!(got.ids[..], want.ids[..got.ids.len()]);
            } else {
                same(got, want, &(called_off, after, index));
            }
        }
    }
}

/// Counts what is alive of it.
struct Token(#[allow(dead_code, reason = "counted by its references")] Arc<()>);

impl TokenWatch for Token {
    fn token(&mut self, _id: u32) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[test]
fn ten_thousand_queued_and_called_off_leave_nothing_behind() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let alive = Arc::new(());
    let cancel = Cancel::default();
    let mut settings = settings(2, 4);
    settings.queue_max = 100;
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        settings,
        cancel,
    );
    let mut events = Vec::new();
    let mut ended = 0;
    for round in 0..100 {
        let mut cancels = Vec::new();
        for index in 0..100 {
            let watch = Token(Arc::clone(&alive));
            let request = GenerateRequest {
                choices: vec![Choice {
                    index: 0,
                    watch: Some(Box::new(watch)),
                }],
                ..GenerateRequest::new(vec![1, 2, 3], 8, SamplingSettings::default())
            };
            cancels.push(request.cancel.clone());
            if round % 10 == 0 && index == 50 {
                // Two of them get as far as a sweep.
                scheduler.step(&mut events).unwrap();
            }
            scheduler.submit(request).unwrap();
        }
        assert!(Arc::strong_count(&alive) >= 100);
        for cancel in cancels {
            cancel.request();
        }
        assert_eq!(scheduler.step(&mut events).unwrap(), None);
        let last = |event: &Event| matches!(event.update, Update::Ended(_));
        ended += events.drain(..).filter(last).count();
        assert!(scheduler.is_idle());
        assert_eq!(Arc::strong_count(&alive), 1, "round {round}");
    }
    assert_eq!(ended, 10_000);
    // All states are free again.
    let both = vec![
        Choice::default(),
        Choice {
            index: 1,
            watch: None,
        },
    ];
    let request = GenerateRequest {
        choices: both,
        ..GenerateRequest::new(vec![1], 1, SamplingSettings::default())
    };
    scheduler.submit(request).unwrap();
    let mut answers = Answers::new();
    finish(&mut scheduler, &mut answers);
    assert_eq!(answers.len(), 2);
}

/// Stops a choice at its third token.
struct Third(usize);

impl TokenWatch for Third {
    fn token(&mut self, _id: u32) -> ControlFlow<()> {
        self.0 += 1;
        if self.0 == 3 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn a_choice_ends_at_its_count_its_ids_its_watch_or_its_time() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let request = || GenerateRequest::new(vec![1, 2, 3], 8, SamplingSettings::default());
    let full = bench.run(settings(1, 2), vec![request()]).remove(0);
    assert_eq!((full.ids.len(), full.reason()), (8, FinishReason::Length));
    let stop = full.ids[4];
    let first = full.ids.iter().position(|id| *id == stop).unwrap();
    let by_id = GenerateRequest {
        stop_ids: vec![stop],
        ..request()
    };
    let by_watch = GenerateRequest {
        choices: vec![Choice {
            index: 0,
            watch: Some(Box::new(Third(0))),
        }],
        ..request()
    };
    let by_time = GenerateRequest {
        deadline: Some(Instant::now()),
        ..request()
    };
    let prompt_only = GenerateRequest {
        gen_count: 0,
        prompt_rows: PromptRows::All,
        ..request()
    };
    let requests = vec![by_id, by_watch, by_time, prompt_only];
    let got = bench.run(settings(3, 2), requests);
    assert_eq!(got[0].ids, full.ids[..=first]);
    assert_eq!(got[0].reason(), FinishReason::StopId);
    assert_eq!(got[1].ids, full.ids[..3]);
    assert_eq!(got[1].reason(), FinishReason::Watch);
    assert!(got[2].ids.is_empty());
    assert_eq!(got[2].reason(), FinishReason::Deadline);
    let vocab = written.tiny.config.vocab_size;
    assert!(got[3].ids.is_empty());
    assert_eq!(got[3].reason(), FinishReason::Length);
    assert_eq!(got[3].prompt_rows.len(), 3 * vocab);
}

#[test]
fn what_could_never_run_is_refused_and_handed_back() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let vocab = written.tiny.config.vocab_size;
    let cancel = Cancel::default();
    let mut settings = settings(2, 4);
    (settings.queue_max, settings.prompt_logits) = (1, false);
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        settings,
        cancel,
    );
    let good = || GenerateRequest::new(vec![1], 1, SamplingSettings::default());
    let unknown = u32::try_from(vocab).unwrap();
    let three = (0..3).map(|index| Choice { index, watch: None });
    let cases = [
        (
            GenerateRequest {
                prompt_ids: vec![],
                ..good()
            },
            "empty",
        ),
        (
            GenerateRequest {
                prompt_ids: vec![1, unknown],
                ..good()
            },
            "vocabulary",
        ),
        (
            GenerateRequest {
                gen_count: CONTEXT,
                ..good()
            },
            "--context",
        ),
        (
            GenerateRequest {
                gen_count: usize::MAX,
                ..good()
            },
            "--context",
        ),
        (
            GenerateRequest {
                choices: vec![],
                ..good()
            },
            "choices",
        ),
        (
            GenerateRequest {
                choices: three.collect(),
                ..good()
            },
            "choices",
        ),
        (
            GenerateRequest {
                prompt_rows: PromptRows::All,
                ..good()
            },
            "every prompt position",
        ),
        (
            GenerateRequest {
                sampling: SamplingSettings {
                    top_p: 0.0,
                    ..SamplingSettings::default()
                },
                ..good()
            },
            "top-p",
        ),
    ];
    for (request, want) in cases {
        let prompt = request.prompt_ids.clone();
        let refused = scheduler.submit(request).unwrap_err();
        assert!(refused.to_string().contains(want), "{refused}");
        assert_eq!(refused.request.prompt_ids, prompt);
    }
    scheduler.submit(good()).unwrap();
    let refused = scheduler.submit(good()).unwrap_err();
    assert_eq!(refused.why, RefusalReason::QueueFull { queue_max: 1 });
}

#[test]
fn a_request_whose_model_fails_takes_nobody_with_it() {
    const BROKEN: u32 = 7;
    let written = write_with(&TinySpec::odd(2), |tensors| {
        let mut tensors = tensors.iter_mut();
        let embeddings = tensors.find(|tensor| tensor.name.ends_with("embed_tokens.weight"));
        if let Some(embeddings) = embeddings {
            let hidden = usize::try_from(embeddings.shape[1]).unwrap();
            let at = 2 * hidden * BROKEN as usize;
            embeddings.bytes[at..at + 2].copy_from_slice(&[0x80, 0x7F]);
        }
    });
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let request = |ids: &[u32]| GenerateRequest {
        token_rows: true,
        ..GenerateRequest::new(ids.to_vec(), 6, SamplingSettings::default())
    };
    let healthy = [request(&[1, 2, 3, 4]), request(&[5, 6])];
    let want = bench.run(settings(2, 64), healthy.into());
    let choices = (0..2).map(|index| Choice { index, watch: None });
    let broken = GenerateRequest {
        choices: choices.collect(),
        ..request(&[3, BROKEN, 3])
    };
    let requests = vec![request(&[1, 2, 3, 4]), broken, request(&[5, 6])];
    let got = bench.run(settings(4, 64), requests);
    same(&got[0], &want[0], &0);
    same(&got[3], &want[1], &3);
    for failed in &got[1..3] {
        assert_eq!(failed.reason(), FinishReason::Failed);
        let error = failed.ended.as_ref().unwrap().error.as_ref().unwrap();
        assert!(error.to_string().contains("position 1"), "{error}");
    }
}

/// Counts what it hands out as read.
struct Counting<'a> {
    inner: &'a mut ResidentSource,
    read: ReadBytes,
    /// Fails at the block with this number, counted over all sweeps.
    fails_at: Option<usize>,
    blocks: usize,
}

impl<'s> Counting<'s> {
    fn all(inner: &'s mut ResidentSource) -> Self {
        Self {
            inner,
            read: ReadBytes::default(),
            fails_at: None,
            blocks: 0,
        }
    }
}

impl WeightSource for Counting<'_> {
    type Lease<'a>
        = <ResidentSource as WeightSource>::Lease<'a>
    where
        Self: 'a;

    fn begin_sweep(&mut self, sweep: &Sweep) -> Result<(), RunError> {
        self.read = ReadBytes::default();
        self.inner.begin_sweep(sweep)
    }

    fn embedding_row(&mut self, token: u32) -> Result<Self::Lease<'_>, RunError> {
        let row = self.inner.embedding_row(token)?;
        self.read.row_bytes += row.len() as u64;
        Ok(row)
    }

    fn block(&mut self, index: BlockIndex) -> Result<Self::Lease<'_>, RunError> {
        self.blocks += 1;
        if self.fails_at == Some(self.blocks) {
            return Err(RunError::Source("the disk is gone".into()));
        }
        let block = self.inner.block(index)?;
        self.read.trunk_bytes += block.len() as u64;
        Ok(block)
    }

    fn demand(&mut self, demand: &ExpertDemand) -> Result<(), RunError> {
        self.inner.demand(demand)
    }

    fn next_expert(&mut self) -> Result<Option<(ExpertKey, Self::Lease<'_>)>, RunError> {
        let expert = self.inner.next_expert()?;
        self.read.expert_bytes += expert.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
        Ok(expert)
    }

    fn sweep_read_bytes(&self) -> ReadBytes {
        self.read
    }
}

#[test]
fn shares_of_the_bytes_add_up_to_what_was_read() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let mut source = Counting::all(&mut bench.source);
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut source,
        &bench.pool,
        settings(5, 6),
        cancel,
    );
    for request in requests(vocab) {
        scheduler.submit(request).unwrap();
    }
    let mut answers = Answers::new();
    let reports = finish(&mut scheduler, &mut answers);
    let read: u64 = reports.iter().map(|report| report.read.total_bytes()).sum();
    let ended = answers
        .values()
        .map(|answer| answer.ended.as_ref().unwrap());
    let counts: Vec<_> = ended.map(|ended| ended.counts).collect();
    let shared: u64 = counts.iter().map(|counts| counts.read_bytes).sum();
    assert_eq!((shared, read > 0), (read, true));
    let positions: u64 = reports.iter().map(|report| report.positions).sum();
    let computed: u64 = counts.iter().map(|counts| counts.positions).sum();
    assert_eq!(computed, positions);
    assert_eq!(scheduler.counts().positions, positions);
    // Everything a request computes: its prompt and all tokens but the last.
    for (counts, request) in counts.iter().zip(requests(vocab)) {
        let own = request.prompt_ids.len() + request.gen_count - 1;
        assert_eq!(counts.positions, own as u64);
    }
}

#[test]
fn a_sweep_that_fails_ends_its_own_and_the_next_goes_on() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, Way::default());
    let request = |id| GenerateRequest {
        token_rows: true,
        ..GenerateRequest::new(vec![id, 2], 4, SamplingSettings::default())
    };
    let want = bench.run(settings(1, 8), (1..5).map(request).collect());
    let mut source = Counting::all(&mut bench.source);
    source.fails_at = Some(40);
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut source,
        &bench.pool,
        settings(2, 8),
        cancel,
    );
    for id in 1..5 {
        scheduler.submit(request(id)).unwrap();
    }
    let mut answers = Answers::new();
    finish(&mut scheduler, &mut answers);
    let answers: Vec<_> = answers.into_values().collect();
    for (index, (got, want)) in answers.iter().zip(&want).enumerate() {
        if index < 2 {
            assert_eq!(got.reason(), FinishReason::Failed);
            let error = got.ended.as_ref().unwrap().error.as_ref().unwrap();
            assert!(error.to_string().contains("the disk is gone"), "{error}");
            assert_eq!(got.ids[..], want.ids[..got.ids.len()]);
        } else {
            same(got, want, &index);
        }
    }
}

#[test]
fn stopping_everything_gives_everybody_a_last_event() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        settings(3, 4),
        cancel.clone(),
    );
    for request in requests(vocab) {
        scheduler.submit(request).unwrap();
    }
    let mut events = Vec::new();
    for _ in 0..4 {
        scheduler.step(&mut events).unwrap();
    }
    cancel.request();
    assert!(matches!(
        scheduler.step(&mut events),
        Err(RunError::Cancelled)
    ));
    let mut answers = Answers::new();
    take(&mut answers, &mut events);
    assert_eq!(answers.len(), 8);
    assert!(answers.values().all(|answer| answer.ended.is_some()));
    assert!(scheduler.is_idle());
}

/// A model that says the same few tokens again and again, greedily: its last
/// layers are switched off, so that a token's logits follow from its embedding.
fn repeating() -> common::Written {
    write_with(&TinySpec::small(1), |tensors| {
        for tensor in tensors.iter_mut() {
            let is_output = ["o_proj.weight", "down_proj.weight", "up_proj.weight"]
                .iter()
                .any(|tail| tensor.name.ends_with(tail));
            if is_output {
                tensor.bytes.fill(0);
            }
        }
    })
}

#[test]
fn guesses_change_nothing_but_the_number_of_sweeps() {
    let mut saved = 0;
    for written in [
        repeating(),
        write(&TinySpec::odd(2)),
        write(&TinySpec::wide_union(3)),
    ] {
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        let ask = |index: usize| {
            let sampling = SamplingSettings {
                temperature: if index.is_multiple_of(2) { 0.0 } else { 0.7 },
                seed: index as u64,
                ..SamplingSettings::default()
            };
            let ids = prompt(2 + index, vocab, index as u64);
            GenerateRequest {
                token_rows: true,
                ..GenerateRequest::new(ids, 40, sampling)
            }
        };
        for threads in [1, 2] {
            let way = Way {
                threads,
                ..Way::default()
            };
            let mut bench = Bench::new(&checkpoint, way);
            let want = bench.run(settings(1, 64), (0..4).map(ask).collect());
            for (sequences, guesses_max) in [(1, 4), (1, 1), (3, 7), (4, 2)] {
                let mut settings = settings(sequences, 64);
                settings.guesses_max = guesses_max;
                let mut source = Counting::all(&mut bench.source);
                let cancel = Cancel::default();
                let mut scheduler =
                    Scheduler::new(&bench.model, &mut source, &bench.pool, settings, cancel);
                for index in 0..4 {
                    scheduler.submit(ask(index)).unwrap();
                }
                let mut answers = Answers::new();
                let reports = finish(&mut scheduler, &mut answers);
                for (index, (got, want)) in answers.values().zip(&want).enumerate() {
                    same(got, want, &(threads, sequences, guesses_max, index));
                }
                let accepted: u64 = reports.iter().map(|report| report.accepted).sum();
                let counted = answers
                    .values()
                    .map(|answer| answer.ended.as_ref().unwrap());
                let counted: u64 = counted.map(|ended| ended.counts.accepted).sum();
                assert_eq!(accepted, counted);
                saved += accepted;
            }
        }
    }
    assert!(saved > 100, "{saved} guesses were right");
}

/// A store for the states of `bench`.
fn store(bench: &Bench, checkpoint: &k3_runtime::Checkpoint, path: &Path) -> PrefixStore {
    let binding = SnapshotBinding {
        identity: checkpoint.identity(),
        numerics_version: NUMERICS_VERSION,
        form: StateForm::Latent,
        layer_count: u32::try_from(bench.model.layout().layer_count()).unwrap(),
    };
    PrefixStore::open(path, 64 << 20, binding).unwrap()
}

impl Bench {
    /// Runs `requests` beside what `store` has.
    fn run_kept(
        &mut self,
        settings: SchedulerSettings,
        store: &PrefixStore,
        requests: Vec<GenerateRequest>,
    ) -> Vec<Answer> {
        let cancel = Cancel::default();
        let source = &mut self.source;
        let mut scheduler = Scheduler::new(&self.model, source, &self.pool, settings, cancel);
        scheduler.keep_prefixes(store);
        for request in requests {
            scheduler.submit(request).unwrap();
        }
        let mut answers = Answers::new();
        finish(&mut scheduler, &mut answers);
        assert_eq!(scheduler.prefix_notes(), [] as [String; 0]);
        answers.into_values().collect()
    }
}

fn counts(answer: &Answer) -> RequestCounts {
    answer.ended.as_ref().unwrap().counts
}

/// Settings for prompts that reach beyond the first borders.
fn long(sequences_max: usize, chunk: usize) -> SchedulerSettings {
    SchedulerSettings {
        context_positions: 200,
        ..settings(sequences_max, chunk)
    }
}

#[test]
fn a_second_turn_computes_its_new_tokens_alone() {
    for (spec, guesses_max) in [(TinySpec::odd(2), 0), (TinySpec::small(1), 3)] {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        let mut bench = Bench::new(&checkpoint, Way::default());
        let directory = tempfile::tempdir().unwrap();
        let mut settings = long(2, 16);
        settings.guesses_max = guesses_max;
        let ask = |ids: &[u32]| GenerateRequest {
            token_rows: true,
            ..GenerateRequest::new(ids.to_vec(), 9, SamplingSettings::default())
        };
        let mut text = prompt(20, vocab, 1);
        for turn in 0..4 {
            // A new store each time: as after a restart.
            let store = store(&bench, &checkpoint, directory.path());
            let want = bench.run(long(1, 64), vec![ask(&text)]).remove(0);
            let got = bench.run_kept(settings, &store, vec![ask(&text)]).remove(0);
            same(&got, &want, &(turn, guesses_max));
            let counts = counts(&got);
            let (known, new) = if turn == 0 {
                (0, 20)
            } else {
                (text.len() - 6, 6)
            };
            assert_eq!(counts.reused_positions, known as u64, "turn {turn}");
            if guesses_max == 0 {
                assert_eq!(counts.positions, new + 8, "turn {turn}");
            }
            text.extend(&got.ids);
            // The last token of the answer is not in the state yet.
            text.extend(prompt(5, vocab, 10 + turn));
        }
    }
}

#[test]
fn prompts_that_begin_alike_share_what_they_have_in_common() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let directory = tempfile::tempdir().unwrap();
    let store = store(&bench, &checkpoint, directory.path());
    let system = prompt(130, vocab, 1);
    let ask = |common: usize, own: usize, seed: u64| {
        let ids = [&system[..common], &prompt(own, vocab, seed)].concat();
        GenerateRequest {
            token_rows: true,
            ..GenerateRequest::new(ids, 5, SamplingSettings::default())
        }
    };
    // One after the other, around the borders at 64 and 128.
    let asked = [
        (130, 10, 100, 0),
        (130, 10, 101, 128),
        (130, 0, 102, 128),
        (128, 1, 103, 128),
        (128, 0, 104, 64),
        (127, 9, 105, 64),
        (64, 1, 106, 64),
        (64, 0, 107, 0),
        (63, 7, 108, 0),
    ];
    for (common, own, seed, reused) in asked {
        let want = bench
            .run(long(1, 64), vec![ask(common, own, seed)])
            .remove(0);
        for chunk in [64, 7] {
            let answer = bench.run_kept(long(1, chunk), &store, vec![ask(common, own, seed)]);
            same(&answer[0], &want, &(common, own, chunk));
            let counts = counts(&answer[0]);
            assert!(
                counts.reused_positions >= reused,
                "{common} {own}: {counts:?}"
            );
            let all = (common + own + 4) as u64;
            assert_eq!(counts.reused_positions + counts.positions, all);
        }
    }
    // Together.
    let list = || {
        asked
            .iter()
            .map(|&(common, own, seed, _)| ask(common, own, seed))
    };
    let want = bench.run(long(1, 64), list().collect());
    let got = bench.run_kept(long(4, 11), &store, list().collect());
    for (index, (got, want)) in got.iter().zip(&want).enumerate() {
        same(got, want, &index);
    }
}

#[test]
fn a_damaged_state_is_computed_again() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let directory = tempfile::tempdir().unwrap();
    let ask = || GenerateRequest {
        token_rows: true,
        ..GenerateRequest::new(prompt(140, vocab, 1), 5, SamplingSettings::default())
    };
    let want = bench.run(long(1, 64), vec![ask()]).remove(0);
    let fill = store(&bench, &checkpoint, directory.path());
    bench.run_kept(long(1, 64), &fill, vec![ask()]);
    let mut damaged = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.len() > 1000 {
            let middle = bytes.len() * 3 / 4;
            bytes[middle] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged >= 2);
    let store = store(&bench, &checkpoint, directory.path());
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        long(1, 64),
        cancel,
    );
    scheduler.keep_prefixes(&store);
    scheduler.submit(ask()).unwrap();
    let mut answers = Answers::new();
    finish(&mut scheduler, &mut answers);
    let got = answers.into_values().next().unwrap();
    same(&got, &want, &"damaged");
    assert_eq!(counts(&got).reused_positions, 0);
    assert!(store.statistics().damaged >= 1);
    assert!(!scheduler.prefix_notes().is_empty());
}
