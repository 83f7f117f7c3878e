//! Prefill, steps and teacher forcing.

use std::sync::Arc;
use std::time::Instant;

use k3_kernels::argmax;
use k3_models::kimi_k3::KimiK3;
use k3_runtime::report::{
    CountsReport, PrefixReport, StopReason, TeacherForcedReport, TimingReport,
};
use k3_runtime::scheduler::{Ended, Event, FinishReason, PromptRows, StepReport, Update};
use k3_runtime::{GenerateRequest, RunError, Scheduler, TokenLogprobs};

use super::outputs::Outputs;
use super::request::Request;
use super::stream::TokenStream;
use super::summary;
use crate::cli::args::GenerateArgs;
use crate::commands::running::live::Live;
use crate::commands::running::streaming::{Reads, sweep_report};
use crate::error::CliError;
use crate::render::progress::Progress;
use crate::stdout::Stdout;

/// Disagreements that a report lists.
const DISAGREEMENTS_MAX: usize = 100;

/// One run in progress.
pub(super) struct Generation<'a, S: Reads> {
    request: &'a Request,
    args: &'a GenerateArgs,
    scheduler: Scheduler<'a, KimiK3, S>,
    outputs: Outputs,
    stream: TokenStream<'a>,
    generated_ids: Vec<u32>,
    logprobs: Option<Vec<TokenLogprobs>>,
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
    /// Ids generated.
    pub generated_ids: Vec<u32>,
    /// Their text, where there is a vocabulary.
    pub text: Option<String>,
    /// How likely they were, where it was asked for.
    pub logprobs: Option<Vec<TokenLogprobs>>,
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
        request: &'a Request,
        args: &'a GenerateArgs,
        scheduler: Scheduler<'a, KimiK3, S>,
        outputs: Outputs,
        stream: TokenStream<'a>,
        live: Live,
    ) -> Self {
        let prompt_len = request.prompt_ids.len();
        let quiet = args.output.quiet || request.setup.chunk_positions >= prompt_len;
        Self {
            request,
            args,
            scheduler,
            outputs,
            stream,
            generated_ids: Vec::new(),
            logprobs: request.logprobs.map(|_| Vec::new()),
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
        let finished = self.stream.finish();
        let finished = self.closed(finished);
        let stop = stop?;
        finished?;
        Ok(match stop {
            // Bytes that never became a character may complete a stop string.
            StopReason::Length if self.stream.is_stopped() => StopReason::StopString,
            other => other,
        })
    }

    fn generate(&mut self) -> Result<StopReason, CliError> {
        let count = self.request.gen_count;
        if !self.args.generation.recompute {
            return self.answer(self.request.prompt_ids.clone(), count);
        }
        loop {
            // Everything so far is the prompt of the next token.
            let prompt = [&self.request.prompt_ids[..], &self.generated_ids].concat();
            let due = count.min(self.generated_ids.len() + 1) - self.generated_ids.len();
            match self.answer(prompt, due)? {
                StopReason::Length if self.generated_ids.len() < count => {}
                stop => return Ok(stop),
            }
        }
    }

    /// Continues `prompt_ids` by `gen_count` tokens, sweep by sweep.
    fn answer(&mut self, prompt_ids: Vec<u32>, gen_count: usize) -> Result<StopReason, CliError> {
        let output = &self.args.output;
        let is_first = self.prompt.is_some();
        let submitted = self.scheduler.submit(GenerateRequest {
            stop_ids: self.request.stops.ids.clone(),
            logprobs: self.request.logprobs,
            output_len: prompt_ids.len() - self.request.prompt_ids.len(),
            prompt_rows: match self.teacher_forced {
                _ if !is_first => PromptRows::None,
                None if !output.all_positions => PromptRows::Last,
                _ => PromptRows::All,
            },
            ..GenerateRequest::new(prompt_ids, gen_count, self.request.sampling.clone())
        });
        submitted.expect("the request fits what was planned for it");
        let mut events = Vec::new();
        loop {
            let started = Instant::now();
            let step = self.scheduler.step(&mut events);
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
                    if let Some(stop) = self.take_token(id, logprobs, share)? {
                        return Ok(Some(stop));
                    }
                }
                Update::Ended(ended) => return self.end(ended).map(Some),
            }
        }
        Ok(None)
    }

    /// Files and shows a token, with how likely it was where that was asked for: why
    /// the run is over, if it is.
    fn take_token(
        &mut self,
        id: u32,
        logprobs: Option<TokenLogprobs>,
        seconds: f64,
    ) -> Result<Option<StopReason>, CliError> {
        if let Some(list) = &mut self.logprobs {
            list.extend(logprobs);
        }
        self.generated_ids.push(id);
        self.timing.token_seconds.push(seconds);
        self.live.token(seconds);
        let shown = self.stream.push(id);
        if self.closed(shown)? {
            return Ok(Some(StopReason::Interrupted));
        }
        Ok(self.stream.is_stopped().then_some(StopReason::StopString))
    }

    fn end(&mut self, ended: Ended) -> Result<StopReason, CliError> {
        match ended.reason {
            FinishReason::Length if self.request.gen_count == 0 => {
                self.end_prompt()?;
                Ok(StopReason::Nothing)
            }
            FinishReason::Length => Ok(StopReason::Length),
            FinishReason::StopId => Ok(StopReason::Stop),
            FinishReason::Watch => Ok(StopReason::StopString),
            FinishReason::Cancelled | FinishReason::Deadline => Ok(StopReason::Interrupted),
            FinishReason::Failed => {
                let error = ended.error.and_then(Arc::into_inner);
                match error.expect("a failure has one error, and it is ours") {
                    RunError::Sample(error) => Err(error.into()),
                    error => Err(error.into()),
                }
            }
        }
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
        notes.extend(self.stream.note());
        notes.extend(self.scheduler.prefix_notes());
        Done {
            text: self.stream.text().map(str::to_owned),
            logprobs: self.logprobs,
            generated_ids: self.generated_ids,
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
