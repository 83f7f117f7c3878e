//! Prefill, steps and teacher forcing.

use std::sync::Arc;
use std::time::Instant;

use k3_kernels::argmax;
use k3_models::kimi_k3::KimiK3;
use k3_runtime::report::{
    ChoiceReport, CountsReport, PrefixReport, StateReport, StopReason, TeacherForcedReport,
    TimingReport,
};
use k3_runtime::scheduler::{
    Choice, Ended, Event, FinishReason, PromptRows, RequestId, StepReport, Update,
};
use k3_runtime::{Cancel, GenerateRequest, RunError, Scheduler, TokenLogprobs};

use super::answer::{Answer, show_heading, show_others};
use super::outputs::{Outputs, Saved};
use super::request::Request;
use super::summary;
use crate::cli::args::GenerateArgs;
use crate::commands::running::live::Live;
use crate::commands::running::stopping::stop_watch;
use crate::commands::running::streaming::{Reads, sweep_report};
use crate::error::{CliError, chain};
use crate::render::progress::Progress;
use crate::stdout::Stdout;

/// Disagreements that a report lists.
const DISAGREEMENTS_MAX: usize = 100;

/// Said when nothing could be saved.
const NOT_SAVED: &str = "--save-state: nothing was saved, as no sweep came to its end; a file that \
                         was there is as it was";

/// One run in progress.
pub(super) struct Generation<'a, S: Reads> {
    request: &'a Request,
    args: &'a GenerateArgs,
    scheduler: Scheduler<'a, KimiK3, S>,
    outputs: Outputs,
    answers: Vec<Answer<'a>>,
    /// The request at hand.
    submitted: Option<RequestId>,
    /// What the first answer that failed failed for.
    failure: Option<Arc<RunError>>,
    /// Asks for an end between two sweeps.
    cancel: &'a Cancel,
    timing: TimingReport,
    teacher_forced: Option<TeacherForcedReport>,
    /// What others see of the run.
    live: Live,
    /// While the prompt is read.
    prompt: Option<PromptProgress>,
    /// Picks of the sweeps that finished.
    trace_len: usize,
    /// Time of the sweeps since the last token.
    unshared_seconds: f64,
    output_closed: bool,
}

/// How much of the prompt has been read.
struct PromptProgress {
    started: Instant,
    bar: Progress,
    positions: u64,
}

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Done {
    /// The answers, at least one.
    pub answers: Vec<ChoiceReport>,
    /// Why it ended.
    pub stop: StopReason,
    /// What ended it, if it failed.
    pub error: Option<CliError>,
    /// What was consumed.
    pub counts: CountsReport,
    /// Where the time went, without loading.
    pub timing: TimingReport,
    /// The prefix cache, where there is one.
    pub prefix_cache: Option<PrefixReport>,
    /// The conversation that was saved.
    pub saved_state: Option<StateReport>,
    /// Teacher forcing, where asked for.
    pub teacher_forced: Option<TeacherForcedReport>,
    /// (layer, expert) of all sweeps that finished.
    pub trace: Vec<(u16, u16)>,
    /// Files to complete.
    pub outputs: Outputs,
    /// Whether whoever read standard output has gone.
    pub output_closed: bool,
    /// Things worth knowing.
    pub notes: Vec<String>,
}

impl<'a, S: Reads> Generation<'a, S> {
    pub(super) fn new(
        (request, args): (&'a Request, &'a GenerateArgs),
        scheduler: Scheduler<'a, KimiK3, S>,
        outputs: Outputs,
        answers: Vec<Answer<'a>>,
        (live, cancel): (Live, &'a Cancel),
    ) -> Self {
        let prompt_len = request.prompt_ids.len();
        let quiet = args.output.quiet || request.setup.chunk_positions >= prompt_len;
        Self {
            request,
            args,
            scheduler,
            outputs,
            answers,
            submitted: None,
            failure: None,
            cancel,
            timing: TimingReport::default(),
            teacher_forced: args.generation.tf_check.then(|| TeacherForcedReport {
                compared: 0,
                agreed: 0,
                first_disagreements: Vec::new(),
            }),
            live,
            prompt: Some(PromptProgress {
                started: Instant::now(),
                bar: Progress::positions("prompt", prompt_len as u64, quiet),
                positions: 0,
            }),
            trace_len: 0,
            unshared_seconds: 0.0,
            output_closed: false,
        }
    }

    /// Reads the prompt and generates until something ends it.
    ///
    /// # Errors
    ///
    /// A failed sweep, draw or write; an interruption before the first token.
    /// What came before it is kept by [`Generation::finish`].
    pub(super) fn run(&mut self) -> Result<StopReason, CliError> {
        let stop = self.generate();
        if self.prompt.is_some() {
            // Not even the prompt came through.
            return stop;
        }
        // The text that is there is complete also where an error ended it.
        let finished = self.finish_texts();
        let finished = self.closed(finished);
        let stop = stop?;
        finished?;
        Ok(match stop {
            // The end of its text may have told more.
            StopReason::Length => self.answers[0].stop().unwrap_or(stop),
            other => other,
        })
    }

    fn finish_texts(&mut self) -> Result<(), CliError> {
        for answer in &mut self.answers {
            answer.finish()?;
        }
        let is_shown = !self.args.output.json && self.request.gen_count > 0;
        if !is_shown || self.output_closed {
            return Ok(());
        }
        show_others(&mut self.answers)
    }

    fn generate(&mut self) -> Result<StopReason, CliError> {
        let count = self.request.gen_count;
        if !self.args.generation.recompute {
            return self.answer(self.request.prompt_ids.clone(), count);
        }
        loop {
            // Everything so far is the prompt of the next token.
            let generated_ids = self.answers[0].ids();
            let prompt = [&self.request.prompt_ids[..], generated_ids].concat();
            let due = count.min(generated_ids.len() + 1) - generated_ids.len();
            match self.answer(prompt, due)? {
                StopReason::Length if self.answers[0].ids().len() < count => {}
                stop => return Ok(stop),
            }
        }
    }

    /// Continues `prompt_ids` by `gen_count` tokens, sweep by sweep.
    fn answer(&mut self, prompt_ids: Vec<u32>, gen_count: usize) -> Result<StopReason, CliError> {
        let (request, output) = (self.request, &self.args.output);
        let is_first = self.prompt.is_some();
        let (tokenizer, stops) = (request.setup.tokenizer.as_ref(), &request.stops.strings);
        let choices = (0..).zip(&self.answers).map(|(index, answer)| Choice {
            index,
            watch: stop_watch(tokenizer, stops, answer.ids()),
        });
        let submitted = self.scheduler.submit(GenerateRequest {
            choices: choices.collect(),
            from: request.loaded.as_ref().map(|one| Arc::clone(&one.file)),
            keeps_state: self.args.answer.save_state.is_some(),
            stop_ids: request.stops.ids.clone(),
            logprobs: request.logprobs,
            output_len: request.output_len + prompt_ids.len() - request.prompt_ids.len(),
            prompt_rows: match self.teacher_forced {
                _ if !is_first => PromptRows::None,
                None if !output.all_positions => PromptRows::Last,
                _ => PromptRows::All,
            },
            ..GenerateRequest::new(prompt_ids, gen_count, request.sampling.clone())
        });
        let submitted = submitted.expect("the request fits what was planned for it");
        self.submitted = Some(submitted);
        self.answers.iter_mut().for_each(Answer::resume);
        let mut events = Vec::new();
        loop {
            let cancelled = || Err(RunError::Cancelled);
            let started = Instant::now();
            let step = match self.cancel.is_requested() {
                true => cancelled(),
                false => self.scheduler.step(&mut events),
            };
            let seconds = started.elapsed().as_secs_f64();
            let step = match step {
                Err(RunError::Cancelled) if self.prompt.is_none() => {
                    return Ok(StopReason::Interrupted);
                }
                other => other?.unwrap_or_default(),
            };
            if let Some(stop) = self.take(&step, seconds, &mut events)? {
                return Ok(stop);
            }
        }
    }

    /// What one sweep brought: why the run is over, if it is.
    fn take(
        &mut self,
        step: &StepReport,
        seconds: f64,
        events: &mut Vec<Event>,
    ) -> Result<Option<StopReason>, CliError> {
        self.count(step, seconds);
        // The sweeps of the prompt have no part in the first token.
        if self.prompt.is_none() {
            self.unshared_seconds += seconds;
        }
        let share = self.unshared_seconds / step.tokens.max(1) as f64;
        if step.tokens > 0 {
            self.unshared_seconds = 0.0;
        }
        for event in events.drain(..) {
            match event.update {
                Update::Admitted { reused_positions } => self.reused(reused_positions),
                Update::PromptRows {
                    first_position,
                    rows,
                } => self.take_prompt_rows(first_position, &rows),
                Update::Token { id, logprobs, .. } => {
                    self.end_prompt()?;
                    if self.take_token(event.choice, id, logprobs, share)? {
                        return Ok(Some(StopReason::Interrupted));
                    }
                }
                Update::Ended(ended) => self.end(event.choice, ended)?,
            }
        }
        if self.answers.iter().any(|answer| answer.stop().is_none()) {
            return Ok(None);
        }
        match self.failure.take() {
            None => Ok(self.answers[0].stop()),
            Some(failure) => {
                let error = Arc::into_inner(failure);
                match error.expect("all that is left of it is ours") {
                    RunError::Sample(error) => Err(error.into()),
                    error => Err(error.into()),
                }
            }
        }
    }

    /// Files and shows a token, with how likely it was where that was asked for.
    /// Whether nobody reads it any more.
    fn take_token(
        &mut self,
        choice: u32,
        id: u32,
        logprobs: Option<TokenLogprobs>,
        seconds: f64,
    ) -> Result<bool, CliError> {
        self.timing.token_seconds.push(seconds);
        self.live.token(seconds);
        let shown = self.answers[choice as usize].take(id, logprobs);
        self.closed(shown)
    }

    fn end(&mut self, choice: u32, ended: Ended) -> Result<(), CliError> {
        let stop = match ended.reason {
            FinishReason::Length if self.request.gen_count == 0 => {
                self.end_prompt()?;
                StopReason::Nothing
            }
            FinishReason::Length => StopReason::Length,
            FinishReason::StopId => StopReason::Stop,
            FinishReason::Watch => StopReason::StopString,
            FinishReason::Cancelled | FinishReason::Deadline => StopReason::Interrupted,
            FinishReason::Failed => StopReason::Failed,
        };
        let error = ended.error.as_deref().map(|error| chain(error));
        self.answers[choice as usize].end(stop, error);
        if self.failure.is_none() {
            self.failure = ended.error;
        }
        Ok(())
    }

    /// So much of the prompt need not be read.
    fn reused(&mut self, positions: usize) {
        if let Some(prompt) = &mut self.prompt {
            prompt.positions += positions as u64;
            prompt.bar.set(prompt.positions);
        }
    }

    /// Counts a sweep that has finished.
    fn count(&mut self, step: &StepReport, seconds: f64) {
        if step.positions == 0 {
            return;
        }
        let reads = self.scheduler.source().reads();
        let is_prompt = self.prompt.is_some();
        let positions = usize::try_from(step.positions).expect("sweeps fit memory");
        let row = reads.map(|reads| sweep_report(&reads, positions, is_prompt, seconds));
        self.live.sweep(row, self.scheduler.counts().into());
        if let Some(prompt) = &mut self.prompt {
            prompt.positions += step.prompt_positions;
            prompt.bar.set(prompt.positions);
        } else {
            self.trace_len = self.scheduler.trace().map_or(0, <[_]>::len);
        }
    }

    /// The prompt is in the state. Does nothing the second time.
    fn end_prompt(&mut self) -> Result<(), CliError> {
        let Some(prompt) = self.prompt.take() else {
            return Ok(());
        };
        drop(prompt.bar);
        self.trace_len = self.scheduler.trace().map_or(0, <[_]>::len);
        self.timing.prefill_seconds = prompt.started.elapsed().as_secs_f64();
        self.live.prefilled(self.timing.prefill_seconds);
        let is_shown = !self.args.output.json && self.request.gen_count > 0;
        if self.answers.len() > 1 && is_shown {
            let shown = show_heading(0, self.answers.len());
            self.closed(shown)?;
        }
        if let (Some(report), false) = (&self.teacher_forced, self.args.output.json) {
            let shown = Stdout.write(summary::teacher_forced(report).as_bytes());
            self.closed(shown)?;
        }
        Ok(())
    }

    /// Files the logits of a part of the prompt: `[rows][vocab]`, the last row
    /// or all of them.
    fn take_prompt_rows(&mut self, first: usize, rows: &[f32]) {
        let vocab = self.request.setup.checkpoint.config().vocab_size;
        let is_last = first + rows.len() / vocab == self.request.prompt_ids.len();
        if self.args.output.all_positions {
            self.outputs.write_logits(rows);
        } else if is_last {
            self.outputs.write_logits(&rows[rows.len() - vocab..]);
        }
        if let Some(report) = &mut self.teacher_forced {
            for (position, row) in (first..).zip(rows.chunks_exact(vocab)) {
                if let Some(next) = self.request.prompt_ids.get(position + 1) {
                    compare_next(report, position, *next, row);
                }
            }
        }
    }

    /// Whether `result` tells that the reader of standard output has gone.
    fn closed(&mut self, result: Result<(), CliError>) -> Result<bool, CliError> {
        match result {
            Ok(()) => Ok(false),
            Err(CliError::OutputClosed) => {
                self.output_closed = true;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// What is left of the run when it has `ended`, however that was.
    pub(super) fn finish(mut self, ended: Result<StopReason, CliError>) -> Done {
        let (stop, error) = match ended {
            Ok(stop) => (stop, None),
            Err(CliError::Run(RunError::Cancelled)) => (StopReason::Interrupted, None),
            Err(error) => (StopReason::Failed, Some(error)),
        };
        // Text that could not be shown takes nothing from what was computed.
        let only_output = matches!(error, None | Some(CliError::NotWritable { .. }));
        if !(only_output && self.prompt.is_none()) {
            self.outputs.drop_dumps();
        }
        let mut trace = self
            .scheduler
            .trace()
            .map(<[_]>::to_vec)
            .unwrap_or_default();
        trace.truncate(self.trace_len);
        let mut notes = self.request.notes.clone();
        notes.extend(self.answers.iter().filter_map(Answer::note));
        let saved = self.outputs.save_state(
            self.submitted
                .and_then(|request| self.scheduler.conversation(request, 0)),
        );
        let saved_state = match saved {
            Some(Saved::State(report)) => Some(report),
            Some(Saved::Nothing) => {
                notes.push(NOT_SAVED.to_owned());
                None
            }
            None => None,
        };
        notes.extend(self.scheduler.prefix_notes());
        Done {
            saved_state,
            answers: (0..)
                .zip(self.answers)
                .map(|(choice, answer)| answer.report(choice, stop))
                .collect(),
            stop,
            error,
            counts: self.scheduler.counts().into(),
            timing: self.timing,
            prefix_cache: None,
            teacher_forced: self.teacher_forced,
            trace,
            outputs: self.outputs,
            output_closed: self.output_closed,
            notes,
        }
    }
}

fn compare_next(report: &mut TeacherForcedReport, position: usize, next: u32, row: &[f32]) {
    let likeliest = argmax(row).expect("a sweep with a non-finite logit fails");
    let likeliest = u32::try_from(likeliest).expect("vocabularies are capped below 2^32");
    report.compared += 1;
    if likeliest == next {
        report.agreed += 1;
    } else if report.first_disagreements.len() < DISAGREEMENTS_MAX {
        report.first_disagreements.push((position, next, likeliest));
    }
}
