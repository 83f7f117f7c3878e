//! What the run tells about itself.

use std::io::Write as _;
use std::path::Path;

use k3_config::HostCpu;
use k3_models::PAGE_POSITIONS;
use k3_models::kimi_k3::NUMERICS_VERSION;
use k3_runtime::placement::PlacementReport;
use k3_runtime::report::{
    CountsReport, ModelReport, NumericsReport, PrefixReport, REPORT_VERSION, StreamingReport,
    TrunkReport,
};
use serde::Serialize;

use super::drive::Driven;
use super::{Ended, Run, Started};
use crate::cli::batch::BatchArgs;
use crate::error::{CliError, chain};
use crate::exit::Exit;
use crate::output_file::OutputFile;
use crate::render::style::Style;
use crate::render::{escape, short_bytes, table};

/// A run over many prompts.
#[derive(Debug, Serialize)]
pub(super) struct BatchReport {
    report_version: u32,
    k3_version: String,
    model: ModelReport,
    numerics: NumericsReport,
    execution: ExecutionReport,
    /// Lines of the input.
    prompts: usize,
    /// Answers to them: one for each choice.
    answers: usize,
    /// Answers of an earlier run.
    answered_before: usize,
    /// Answers of this run.
    answered: usize,
    /// Answers, of this run or an earlier one, that wait for those before them.
    answers_waiting: usize,
    /// Those of this run that failed.
    failed: usize,
    /// What ended the run early.
    error: Option<String>,
    /// Tokens of prompts read.
    prompt_tokens: u64,
    /// Tokens generated.
    generated_tokens: u64,
    /// Payload bytes read.
    read_bytes: u64,
    /// From the first sweep to the last answer.
    seconds: f64,
    counts: CountsReport,
    prefix_cache: Option<PrefixReport>,
    trunk: Option<TrunkReport>,
    streaming: Option<StreamingReport>,
    notes: Vec<String>,
}

/// How the run was carried out.
#[derive(Debug, Serialize)]
struct ExecutionReport {
    isa: String,
    threads: usize,
    placement: PlacementReport,
    memory_nodes: Option<u64>,
    sequences: usize,
    guesses: usize,
    chunk_positions: usize,
    context_positions: usize,
    /// Positions that all sequences have memory for.
    context_total_positions: usize,
    source: &'static str,
}

/// Where weights come from.
pub(super) fn source_name(args: &BatchArgs) -> &'static str {
    if args.reading.resident {
        "resident"
    } else {
        "streaming"
    }
}

impl BatchReport {
    pub(super) fn new(run: &Run<'_>, started: &Started<'_>, ended: &Ended) -> Self {
        let (setup, driven) = (run.setup, &ended.driven);
        let (settings, totals) = (started.settings, driven.totals);
        let mut notes = setup.notes.clone();
        notes.extend(ended.notes.iter().chain(&driven.notes).cloned());
        if driven.torn_bytes > 0 {
            notes.push(format!(
                "{} bytes of a line without its end were cut off",
                driven.torn_bytes
            ));
        }
        if driven.waiting > 0 {
            notes.push(waiting_note(driven));
        }
        Self {
            report_version: REPORT_VERSION,
            k3_version: env!("CARGO_PKG_VERSION").to_owned(),
            model: ModelReport {
                path: setup.model_dir.display().to_string(),
                identity: setup.identity.clone(),
                layers: started.model.layout().layer_count(),
                layers_total: started.model.config().num_hidden_layers,
            },
            numerics: NumericsReport {
                version: NUMERICS_VERSION,
                attention: setup.form.to_string(),
            },
            execution: ExecutionReport {
                isa: setup.isa.to_string(),
                threads: setup.threads,
                placement: started.pool.placement(),
                memory_nodes: HostCpu::read(Path::new("/")).node_count,
                sequences: settings.sequences_max,
                guesses: settings.guesses_max,
                chunk_positions: settings.chunk_positions,
                context_positions: settings.context_positions,
                context_total_positions: settings.page_count() * PAGE_POSITIONS,
                source: source_name(run.args),
            },
            prompts: run.prompts.len(),
            answers: run.wanted.len(),
            answered_before: driven.done_before,
            answered: totals.answered,
            answers_waiting: driven.waiting,
            failed: totals.failed,
            error: driven.error.as_ref().map(|error| chain(error)),
            prompt_tokens: totals.prompt_tokens,
            generated_tokens: totals.tokens,
            read_bytes: totals.read_bytes,
            seconds: driven.seconds,
            counts: driven.counts,
            prefix_cache: driven.prefix_cache.clone(),
            trunk: ended.trunk.clone(),
            streaming: ended.streaming.clone(),
            notes,
        }
    }

    fn render(&self, style: Style) -> String {
        let mut facts = vec![
            ("answers", self.answers()),
            (
                "generated",
                format!(
                    "{} after {} of prompts",
                    counted(self.generated_tokens, "token"),
                    self.prompt_tokens
                ),
            ),
            ("computed", self.computed()),
            ("time", self.time()),
        ];
        if self.streaming.is_some() {
            facts.push(("read", self.read()));
        }
        if self.execution.guesses > 0 {
            let guesses = format!(
                "{} of {} guesses were right",
                self.counts.accepted_tokens, self.counts.guessed_tokens
            );
            facts.push(("guessed", guesses));
        }
        if self.prefix_cache.is_some() {
            let reused = self.counts.reused_positions;
            facts.push((
                "reused",
                format!("{reused} positions from the prefix cache"),
            ));
        }
        let mut text = String::from("\n");
        text.push_str(&table::fitting_facts(&facts));
        let streaming = self.streaming.iter();
        let fallbacks = streaming.flat_map(|streaming| &streaming.fallbacks);
        for note in self.notes.iter().chain(fallbacks) {
            let line = format!("{} {}\n", style.hint("note:"), escape::line(note));
            text.push_str(&match style.is_terminal() {
                true => crate::render::wrap::wrap(&line),
                false => line,
            });
        }
        text
    }

    fn answers(&self) -> String {
        let done = self.answered_before + self.answered;
        let mut text = format!("{done} of {}", self.answers);
        if self.answered_before > 0 {
            text.push_str(&format!(
                ", {} of them by an earlier run",
                self.answered_before
            ));
        }
        if self.failed > 0 {
            text.push_str(&format!(", {} failed", self.failed));
        }
        text
    }

    fn computed(&self) -> String {
        format!(
            "{} in {}, {} at a time",
            counted(self.counts.positions, "position"),
            counted(self.counts.sweeps, "sweep"),
            counted(self.execution.sequences as u64, "prompt")
        )
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate to three digits")]
    fn time(&self) -> String {
        let rate = self.generated_tokens as f64 / self.seconds.max(1e-9);
        let digits = if rate < 10.0 { 3 } else { 1 };
        format!("{:.1} s, {rate:.digits$} tokens a second", self.seconds)
    }

    fn read(&self) -> String {
        let each = self.read_bytes / self.generated_tokens.max(1);
        format!(
            "{}, {} a generated token",
            short_bytes(self.read_bytes),
            short_bytes(each)
        )
    }
}

fn counted(count: u64, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

/// What becomes of answers that wait.
fn waiting_note(driven: &Driven) -> String {
    let count = driven.waiting;
    match &driven.pending {
        Some(path) => format!(
            "{count} answers wait for those before them, in {}; the same command goes on with them",
            path.display()
        ),
        None => format!(
            "{count} answers waited for those before them and will be computed again; \
             --as-completed writes each at once"
        ),
    }
}

/// Ends a run that has nothing to do.
pub(super) fn nothing_left(run: &Run<'_>) -> Exit {
    if !run.args.quiet {
        let count = run.prompts.len();
        let text = format!("all {count} prompts were answered by earlier runs\n");
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    Exit::Done
}

/// Tells how it went, and ends the run.
pub(super) fn end(
    run: &Run<'_>,
    report: &BatchReport,
    ended: Ended,
    out: Option<OutputFile>,
) -> Result<Exit, CliError> {
    let json = serde_json::to_string_pretty(report).expect("plain data serialises") + "\n";
    let written = out.map(|mut file| {
        file.write(json.as_bytes())?;
        file.commit()
    });
    if !run.args.quiet {
        let text = report.render(Style::detect());
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    let driven = ended.driven;
    let is_kept = driven.done_before + driven.totals.answered > 0;
    let error = match driven.error {
        Some(CliError::Interrupted) if is_kept => Some(CliError::KeptInterrupted(
            "run the same command again to go on from there".to_owned(),
        )),
        other => other,
    };
    let errors = error.into_iter().chain(written.and_then(Result::err));
    if let Some(error) = CliError::together(errors.collect()) {
        return Err(error);
    }
    if ended.failed || driven.totals.failed > 0 {
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}
