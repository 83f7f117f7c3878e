//! From prompts to answers, sweep by sweep.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use k3_models::kimi_k3::KimiK3;
use k3_runtime::report::{CountsReport, PrefixReport};
use k3_runtime::scheduler::{Choice, Ended, Event, FinishReason, RequestId, StepReport, Update};
use k3_runtime::{GenerateRequest, RunError, Scheduler, TokenLogprobs};

use super::answer::Answer;
use super::output::Output;
use super::{Run, Started};
use crate::commands::running::stopping::{answer_text, stop_watch};
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
    /// What runs, by request and choice.
    running: BTreeMap<(RequestId, u32), Partial>,
    bar: Progress,
    /// Positions done, for the bar: those of a prompt that ended count whole.
    positions: u64,
    totals: Totals,
}

/// An answer that is being generated.
struct Partial {
    place: usize,
    ids: Vec<u32>,
    logprobs: Option<Vec<TokenLogprobs>>,
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
    /// Answers that wait for others.
    pub waiting: usize,
    /// Where they do; without it they are lost with the run.
    pub pending: Option<PathBuf>,
    /// Bytes of torn lines that were cut off.
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
        let closed = self.output.close();
        let (waiting, pending) = self.output.waiting();
        Ok(Driven {
            totals: self.totals,
            counts: scheduler.counts().into(),
            prefix_cache: store.as_ref().map(PrefixReport::new),
            notes: scheduler.prefix_notes(),
            seconds: begun.elapsed().as_secs_f64(),
            done_before: self.output.done_before,
            waiting,
            pending: pending.map(Path::to_owned),
            torn_bytes: self.output.torn_bytes,
            error: error.or(closed.err()),
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
            self.output.sync_if_due()?;
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
                watch: stop_watch(run.setup.tokenizer.as_ref(), &prompt.stops, &[]),
            });
            let request = GenerateRequest {
                stop_ids: prompt.stop_ids.clone(),
                logprobs: prompt.logprobs,
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
                let partial = Partial {
                    place,
                    ids: Vec::new(),
                    logprobs: prompt.logprobs.map(|_| Vec::new()),
                };
                self.running.insert((id, choice), partial);
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<(), CliError> {
        let key = (event.request, event.choice);
        match event.update {
            Update::Token { id, logprobs, .. } => {
                let partial = self.running.get_mut(&key).expect("it runs");
                partial.ids.push(id);
                if let Some(list) = &mut partial.logprobs {
                    list.extend(logprobs);
                }
                Ok(())
            }
            Update::Ended(ended) => self.end(key, ended),
            Update::Admitted { .. } | Update::PromptRows { .. } => Ok(()),
        }
    }

    fn end(&mut self, key: (RequestId, u32), ended: Ended) -> Result<(), CliError> {
        let run = self.started.run;
        let Partial {
            place,
            ids,
            logprobs,
        } = self.running.remove(&key).expect("it runs");
        let prompt = &run.prompts[run.wanted[place].prompt];
        let tokenizer = run.setup.tokenizer.as_deref();
        let text = tokenizer.map(|tokenizer| answer_text(tokenizer, &prompt.stops, &ids));
        let is_stopped = text.as_ref().is_some_and(|(_, is_stopped)| *is_stopped);
        let stop_reason = match ended.reason {
            FinishReason::Failed => "failed",
            // Bytes that never became a character may complete a stop string too.
            FinishReason::Watch => "stop-string",
            FinishReason::Length | FinishReason::StopId if is_stopped => "stop-string",
            FinishReason::Length => "length",
            FinishReason::StopId => "stop",
            // No answer: the run is called off, and the next goes on here.
            FinishReason::Cancelled | FinishReason::Deadline => return Ok(()),
        };
        let unused = prompt.gen_count.saturating_sub(ids.len()) as u64;
        // The last token is never computed, and what was found was not either.
        self.positions += unused + 1 + ended.counts.reused_positions;
        self.totals.failed += usize::from(ended.error.is_some());
        self.totals.answered += 1;
        self.output.add(
            place,
            &Answer {
                line: prompt.line,
                id: prompt.id.clone(),
                choice: (prompt.choices > 1).then_some(key.1),
                request: run.binding.request(prompt, key.1),
                prompt_tokens: prompt.ids.len(),
                generated_ids: ids,
                text: text.map(|(text, _)| text),
                logprobs,
                stop_reason,
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
