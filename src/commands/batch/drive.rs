//! From prompts to answers, sweep by sweep.

use std::collections::BTreeMap;
use std::time::Instant;

use k3_models::kimi_k3::KimiK3;
use k3_runtime::report::{CountsReport, PrefixReport};
use k3_runtime::scheduler::{Choice, Ended, Event, FinishReason, RequestId, StepReport, Update};
use k3_runtime::{GenerateRequest, RunError, Scheduler};
use k3_tokenizer::{Render, StreamDecoder, Tokenizer};

use super::output::{Answer, Output};
use super::{Run, Started};
use crate::commands::running::streaming::{Reads, Spill, sweep_report};
use crate::error::{CliError, chain};
use crate::render::progress::Progress;

/// A run in progress.
pub(super) struct Drive<'a> {
    started: &'a Started<'a>,
    output: Output,
    /// Prompts that are still to be submitted with the places of their answers, the
    /// next one last.
    left: Vec<(usize, Vec<usize>)>,
    /// What runs, by request and choice: the answer's place and what it has so far.
    running: BTreeMap<(RequestId, u32), (usize, Vec<u32>)>,
    bar: Progress,
    /// Positions done, for the bar: those of a prompt that ended count whole.
    positions: u64,
    totals: Totals,
}

/// What has come of the run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    /// Prompts answered.
    pub answered: usize,
    /// Prompts that failed.
    pub failed: usize,
    /// Tokens of the prompts read.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub tokens: u64,
    /// Payload bytes read.
    pub read_bytes: u64,
}

/// A run that has ended.
pub(super) struct Driven {
    /// What has come of it.
    pub totals: Totals,
    /// What was consumed.
    pub counts: CountsReport,
    /// The prefix cache, where there is one.
    pub prefix_cache: Option<PrefixReport>,
    /// What a person should know, one sentence each.
    pub notes: Vec<String>,
    /// Seconds from the first sweep to the last answer.
    pub seconds: f64,
    /// Answers that were there before.
    pub done_before: usize,
    /// Answers that wait for others and are lost with the run.
    pub unwritten: usize,
    /// Bytes of a torn line that was cut off.
    pub torn_bytes: u64,
    /// Why it ended early: an interruption, or something worse.
    pub error: Option<CliError>,
}

impl<'a> Drive<'a> {
    pub(super) fn new(started: &'a Started<'a>, output: Output, done: &[bool]) -> Self {
        let Run {
            args,
            prompts,
            wanted,
            ..
        } = started.run;
        let mut left: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, wanted) in wanted.iter().enumerate() {
            if !done[place] {
                left.entry(wanted.prompt).or_default().push(place);
            }
        }
        let left: Vec<_> = left.into_iter().rev().collect();
        let positions = left.iter().map(|(prompt, places)| {
            let prompt = &prompts[*prompt];
            (prompt.ids.len() + places.len() * prompt.gen_count) as u64
        });
        let total = positions.sum();
        Self {
            started,
            output,
            left,
            running: BTreeMap::new(),
            bar: Progress::positions("positions", total, args.quiet),
            positions: 0,
            totals: Totals::default(),
        }
    }

    /// Answers everything that is left, or as much as it can.
    ///
    /// # Errors
    ///
    /// None of a single prompt: what ends the run early is told beside what came
    /// before it.
    pub(super) fn run<S: Reads>(
        mut self,
        source: &mut S,
        spill: Option<Spill>,
    ) -> Result<Driven, CliError> {
        let store = self.started.run.setup.prefix_store(self.started.model)?;
        let begun = Instant::now();
        let started = self.started;
        let (model, settings) = (started.model, started.settings);
        let cancel = started.cancel.clone();
        let new = |settings| Scheduler::new(model, source, started.pool, settings, cancel);
        let mut scheduler = Spill::scheduler(spill, settings, new);
        if let Some(store) = &store {
            scheduler.keep_prefixes(store);
        }
        scheduler.report_progress(started.live.progress());
        started
            .live
            .loaded(started.run.started.elapsed().as_secs_f64());
        let error = match self.answer_all(&mut scheduler) {
            Ok(()) => None,
            Err(CliError::Run(RunError::Cancelled)) => Some(CliError::Interrupted),
            Err(error) => Some(error),
        };
        let synced = self.output.sync();
        Ok(Driven {
            totals: self.totals,
            counts: scheduler.counts().into(),
            prefix_cache: store.as_ref().map(PrefixReport::new),
            notes: scheduler.prefix_notes(),
            seconds: begun.elapsed().as_secs_f64(),
            done_before: self.output.done_before,
            unwritten: self.output.waiting_count(),
            torn_bytes: self.output.torn_bytes,
            error: error.or(synced.err()),
        })
    }

    fn answer_all<S: Reads>(
        &mut self,
        scheduler: &mut Scheduler<'_, KimiK3, S>,
    ) -> Result<(), CliError> {
        let mut events = Vec::new();
        loop {
            self.submit(scheduler);
            let started = Instant::now();
            let step = scheduler.step(&mut events);
            let seconds = started.elapsed().as_secs_f64();
            for event in events.drain(..) {
                self.take(event)?;
            }
            match step? {
                Some(step) => self.count(scheduler, &step, seconds),
                None if self.left.is_empty() && scheduler.is_idle() => return Ok(()),
                None => {}
            }
        }
    }

    /// Fills the scheduler's queue.
    fn submit<S: Reads>(&mut self, scheduler: &mut Scheduler<'_, KimiK3, S>) {
        let run = self.started.run;
        while scheduler.waiting_count() < self.started.settings.queue_max {
            let Some((prompt, places)) = self.left.pop() else {
                return;
            };
            let prompt = &run.prompts[prompt];
            let choices = places.iter().map(|place| Choice {
                index: run.wanted[*place].choice,
                watch: None,
            });
            let request = GenerateRequest {
                stop_ids: run.stop_ids.clone(),
                choices: choices.collect(),
                ..GenerateRequest::new(
                    prompt.ids.clone(),
                    prompt.gen_count,
                    prompt.sampling.clone(),
                )
            };
            let id = scheduler.submit(request);
            let id = id.expect("prompts are checked against what was planned");
            for place in places {
                let choice = run.wanted[place].choice;
                self.running.insert((id, choice), (place, Vec::new()));
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<(), CliError> {
        let key = (event.request, event.choice);
        match event.update {
            Update::Token { id, .. } => {
                let (_, ids) = self.running.get_mut(&key).expect("it runs");
                ids.push(id);
                Ok(())
            }
            Update::Ended(ended) => self.end(key, ended),
            Update::Admitted { .. } | Update::PromptRows { .. } => Ok(()),
        }
    }

    fn end(&mut self, key: (RequestId, u32), ended: Ended) -> Result<(), CliError> {
        let run = self.started.run;
        let (place, generated_ids) = self.running.remove(&key).expect("it runs");
        let stop_reason = match ended.reason {
            FinishReason::Length => "length",
            FinishReason::StopId | FinishReason::Watch => "stop",
            FinishReason::Failed => "failed",
            // No answer: the run is called off, and the next goes on here.
            FinishReason::Cancelled | FinishReason::Deadline => return Ok(()),
        };
        let prompt = &run.prompts[run.wanted[place].prompt];
        let unused = prompt.gen_count.saturating_sub(generated_ids.len()) as u64;
        // The last token is never computed, and what was found was not either.
        self.positions += unused + 1 + ended.counts.reused_positions;
        self.totals.failed += usize::from(ended.error.is_some());
        self.totals.answered += 1;
        let tokenizer = run.setup.tokenizer.as_ref();
        self.output.add(
            place,
            Answer {
                line: prompt.line,
                id: prompt.id.clone(),
                choice: (prompt.choices > 1).then_some(key.1),
                request: run.binding.request(prompt, key.1),
                prompt_tokens: prompt.ids.len(),
                text: tokenizer.map(|tokenizer| text_of(tokenizer, &generated_ids)),
                generated_ids,
                stop_reason: stop_reason.to_owned(),
                error: ended.error.map(|error| chain(&*error)),
            },
        )
    }

    /// Counts a sweep that has finished.
    fn count<S: Reads>(
        &mut self,
        scheduler: &Scheduler<'_, KimiK3, S>,
        step: &StepReport,
        seconds: f64,
    ) {
        self.totals.prompt_tokens += step.prompt_positions;
        self.totals.tokens += step.tokens;
        self.totals.read_bytes += step.read.total_bytes();
        self.positions += step.positions;
        self.bar.set(self.positions);
        let live = &self.started.live;
        let reads = scheduler.source().reads();
        let positions = usize::try_from(step.positions).expect("sweeps fit memory");
        let is_prompt = step.tokens == 0;
        let row = reads.map(|reads| sweep_report(&reads, positions, is_prompt, seconds));
        live.sweep(row, scheduler.counts().into());
        let share = seconds / step.tokens.max(1) as f64;
        (0..step.tokens).for_each(|_| live.token(share));
    }
}

/// The text of `ids`; those without a token in the vocabulary have none.
fn text_of(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut decoder = StreamDecoder::new(tokenizer, Render::Plain);
    let mut text = String::new();
    for id in ids {
        if let Ok(piece) = decoder.push(*id) {
            text.push_str(piece);
        }
    }
    text.push_str(decoder.finish());
    text
}
