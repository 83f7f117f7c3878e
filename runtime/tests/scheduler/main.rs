//! Requests side by side: each is what it is alone, whatever happens to the
//! others.

#[path = "../common/mod.rs"]
mod common;
mod ends;
mod guesses;
mod pages;
mod prefixes;
mod reads;
mod together;

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
