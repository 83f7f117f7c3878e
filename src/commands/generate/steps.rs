//! Prefill, steps and teacher forcing.

use std::time::Instant;

use k3_kernels::argmax;
use k3_models::LogitRows;
use k3_models::kimi_k3::KimiK3;
use k3_runtime::report::{CountsReport, StopReason, TeacherForcedReport, TimingReport};
use k3_runtime::{History, RunError, Sampler, Session, TokenLogprobs, logprobs};

use super::live::Live;
use super::outputs::Outputs;
use super::request::Request;
use super::stream::TokenStream;
use super::streaming::{Reads, sweep_report};
use super::summary;
use crate::cli::args::GenerateArgs;
use crate::error::CliError;
use crate::render::progress::Progress;
use crate::stdout::Stdout;

/// Disagreements that a report lists.
const DISAGREEMENTS_MAX: usize = 100;

/// One run in progress.
pub(super) struct Generation<'a, S: Reads> {
    request: &'a Request,
    args: &'a GenerateArgs,
    session: Session<'a, KimiK3, S>,
    sampler: Sampler,
    /// Ids that penalties look at.
    history: History,
    outputs: Outputs,
    stream: TokenStream<'a>,
    /// Logits behind the next token.
    logits: Vec<f32>,
    generated_ids: Vec<u32>,
    logprobs: Option<Vec<TokenLogprobs>>,
    timing: TimingReport,
    teacher_forced: Option<TeacherForcedReport>,
    /// What others see of the run.
    live: Live,
    /// Whether the whole prompt has been read.
    prompt_is_done: bool,
    /// Picks of the sweeps that finished.
    trace_len: usize,
    output_closed: bool,
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
        session: Session<'a, KimiK3, S>,
        outputs: Outputs,
        stream: TokenStream<'a>,
        live: Live,
    ) -> Result<Self, CliError> {
        Ok(Self {
            request,
            args,
            session,
            sampler: Sampler::new(request.sampling.clone())?,
            history: History::new(&request.prompt_ids),
            outputs,
            stream,
            logits: Vec::new(),
            generated_ids: Vec::new(),
            logprobs: request.logprobs.map(|_| Vec::new()),
            timing: TimingReport::default(),
            teacher_forced: args.generation.tf_check.then(|| TeacherForcedReport {
                compared: 0,
                agreed: 0,
                first_disagreements: Vec::new(),
            }),
            live,
            prompt_is_done: false,
            trace_len: 0,
            output_closed: false,
        })
    }

    /// Reads the prompt and generates until something ends it.
    ///
    /// # Errors
    ///
    /// A failed sweep, draw or write; an interruption before the first token.
    /// What came before it is kept by [`Generation::finish`].
    pub(super) fn run(&mut self) -> Result<StopReason, CliError> {
        self.prefill()?;
        self.prompt_is_done = true;
        if let (Some(report), false) = (&self.teacher_forced, self.args.output.json) {
            let shown = Stdout.write(summary::teacher_forced(report).as_bytes());
            if self.closed(shown)? {
                return Ok(StopReason::Interrupted);
            }
        }
        if self.request.gen_count == 0 {
            return Ok(StopReason::Nothing);
        }
        let stop = self.generate();
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

    /// Appends the prompt sweep by sweep, so that progress can be shown.
    fn prefill(&mut self) -> Result<(), CliError> {
        let started = Instant::now();
        let prompt = &self.request.prompt_ids;
        let all = self.args.output.all_positions || self.teacher_forced.is_some();
        let chunk = self.request.chunk_positions.min(prompt.len());
        let quiet = self.args.output.quiet || chunk == prompt.len();
        let progress = Progress::positions("prompt", prompt.len() as u64, quiet);
        for (index, part) in prompt.chunks(chunk).enumerate() {
            let start = index * chunk;
            let is_last = start + part.len() == prompt.len();
            let rows = match (all, is_last) {
                (true, _) => LogitRows::All,
                (false, true) => LogitRows::Last,
                (false, false) => LogitRows::None,
            };
            let logits = self.sweep(part, rows, true)?;
            if rows != LogitRows::None {
                self.take_prompt_rows(start, part.len(), is_last, &logits);
            }
            progress.set((start + part.len()) as u64);
        }
        self.trace_len = self.session.trace().map_or(0, <[_]>::len);
        self.timing.prefill_seconds = started.elapsed().as_secs_f64();
        self.live.prefilled(self.timing.prefill_seconds);
        Ok(())
    }

    /// Files the logits of a part of the prompt: `[rows][vocab]`, the last row
    /// or all of them.
    fn take_prompt_rows(&mut self, start: usize, positions: usize, is_last: bool, rows: &[f32]) {
        let vocab = self.request.checkpoint.config().vocab_size;
        let first = start + positions - rows.len() / vocab;
        let last = &rows[rows.len() - vocab..];
        if self.args.output.all_positions {
            self.outputs.write_logits(rows);
        } else if is_last {
            self.outputs.write_logits(last);
        }
        if is_last {
            self.logits.extend_from_slice(last);
        }
        if let Some(report) = &mut self.teacher_forced {
            for (position, row) in (first..).zip(rows.chunks_exact(vocab)) {
                if let Some(next) = self.request.prompt_ids.get(position + 1) {
                    compare_next(report, position, *next, row);
                }
            }
        }
    }

    fn generate(&mut self) -> Result<StopReason, CliError> {
        loop {
            let started = Instant::now();
            if !self.generated_ids.is_empty() {
                match self.step() {
                    Err(RunError::Cancelled) => return Ok(StopReason::Interrupted),
                    other => other?,
                }
                self.trace_len = self.session.trace().map_or(0, <[_]>::len);
            }
            let id = self.draw()?;
            let seconds = started.elapsed().as_secs_f64();
            self.timing.token_seconds.push(seconds);
            self.live.token(seconds);
            let shown = self.stream.push(id);
            if self.closed(shown)? {
                return Ok(StopReason::Interrupted);
            }
            if self.stream.is_stopped() {
                return Ok(StopReason::StopString);
            }
            if self.request.stops.ids.contains(&id) {
                return Ok(StopReason::Stop);
            }
            if self.generated_ids.len() == self.request.gen_count {
                return Ok(StopReason::Length);
            }
        }
    }

    /// Draws the next token from the logits at hand and files it.
    fn draw(&mut self) -> Result<u32, CliError> {
        let position = self.request.prompt_ids.len() + self.generated_ids.len();
        let history = &self.history;
        let id = self
            .sampler
            .draw(&self.logits, history, position as u64, 0)?;
        if let (Some(list), Some(top_n)) = (&mut self.logprobs, self.request.logprobs) {
            let drawn = logprobs(&self.logits, top_n)?.of_drawn(id);
            list.push(drawn.expect("a drawn id has a logit"));
        }
        self.history.push(id);
        self.generated_ids.push(id);
        Ok(id)
    }

    /// One sweep more: over the last token, or over everything again.
    fn step(&mut self) -> Result<(), RunError> {
        let ids = &self.generated_ids;
        let tokens = if self.args.generation.recompute {
            self.session.reset();
            [self.request.prompt_ids.as_slice(), ids].concat()
        } else {
            vec![*ids.last().expect("the prefill gave the first one")]
        };
        let chunk = self.request.chunk_positions;
        for (index, part) in tokens.chunks(chunk).enumerate() {
            let is_last = index * chunk + part.len() == tokens.len();
            let rows = if is_last {
                LogitRows::Last
            } else {
                LogitRows::None
            };
            self.logits = self.sweep(part, rows, false)?;
        }
        Ok(())
    }

    /// One sweep over `part`, at most a chunk: the wanted logits,
    /// `[rows][vocab]`.
    fn sweep(
        &mut self,
        part: &[u32],
        rows: LogitRows,
        is_prompt: bool,
    ) -> Result<Vec<f32>, RunError> {
        let started = Instant::now();
        let mut logits = Vec::new();
        self.session
            .append(part, rows, |_, rows| logits.extend_from_slice(rows))?;
        let seconds = started.elapsed().as_secs_f64();
        let reads = self.session.source().reads();
        let row = reads.map(|reads| sweep_report(&reads, part.len(), is_prompt, seconds));
        self.live.sweep(row, self.session.counts().into());
        Ok(logits)
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
        if !(only_output && self.prompt_is_done) {
            self.outputs.drop_dumps();
        }
        let mut trace = self.session.trace().map(<[_]>::to_vec).unwrap_or_default();
        trace.truncate(self.trace_len);
        let mut notes = self.request.notes.clone();
        notes.extend(self.stream.note());
        Done {
            text: self.stream.text().map(str::to_owned),
            logprobs: self.logprobs,
            generated_ids: self.generated_ids,
            stop,
            error,
            counts: self.session.counts().into(),
            timing: self.timing,
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
