//! What a run tells about itself.

use std::fmt::Write as _;
use std::path::Path;

use k3_config::HostCpu;
use k3_models::kimi_k3::{KimiK3, NUMERICS_VERSION};
use k3_runtime::RunReport;
use k3_runtime::report::{
    ExecutionReport, ModelReport, NumericsReport, REPORT_VERSION, StreamingReport,
    TeacherForcedReport, TrunkReport,
};

use super::Run;
use super::state::Loaded;
use super::steps::Done;
use crate::cli::args::GenerateArgs;
use crate::error::chain;

/// Disagreements that are listed for a person.
const LISTED_MAX: usize = 10;

/// The report of a run that has ended.
pub(super) fn report(
    run: &Run<'_>,
    model: &KimiK3,
    done: &Done,
    (trunk, streaming): (Option<TrunkReport>, Option<StreamingReport>),
) -> RunReport {
    let (request, args) = (run.request, run.args);
    let first = &done.answers[0];
    RunReport {
        report_version: REPORT_VERSION,
        k3_version: env!("CARGO_PKG_VERSION").to_owned(),
        model: ModelReport {
            path: request.setup.model_dir.display().to_string(),
            identity: request.setup.identity.clone(),
            layers: model.layout().layer_count(),
            layers_total: model.config().num_hidden_layers,
        },
        numerics: NumericsReport {
            version: NUMERICS_VERSION,
            attention: model.form().to_string(),
        },
        execution: ExecutionReport {
            isa: request.setup.isa.to_string(),
            threads: request.setup.threads,
            placement: run.pool.placement(),
            memory_nodes: HostCpu::read(Path::new("/")).node_count,
            chunk_positions: request.setup.chunk_positions,
            context_positions: request.context_positions,
            recompute: args.generation.recompute,
            source: source_name(args).to_owned(),
        },
        sampling: request.sampling.clone(),
        prompt_ids: request.prompt_ids.clone(),
        generated_ids: first.generated_ids.clone(),
        generated_text: first.generated_text.clone(),
        logprobs: first.logprobs.clone(),
        choices: (done.answers.len() > 1).then(|| done.answers.clone()),
        stop_reason: done.stop,
        error: done.error.as_ref().map(|error| chain(error)),
        counts: done.counts,
        timing: done.timing.clone(),
        trunk,
        streaming,
        prefix_cache: done.prefix_cache.clone(),
        loaded_state: request.loaded.as_ref().map(Loaded::report),
        saved_state: done.saved_state.clone(),
        teacher_forced: done.teacher_forced.clone(),
        notes: done.notes.clone(),
    }
}

/// Where weights come from.
pub(super) fn source_name(args: &GenerateArgs) -> &'static str {
    if args.reading.resident {
        "resident"
    } else {
        "streaming"
    }
}

/// The report as it is stored and printed.
pub(super) fn json(report: &RunReport) -> String {
    let text = serde_json::to_string_pretty(report).expect("plain data serialises");
    text + "\n"
}

/// Teacher forcing, to read.
#[allow(clippy::cast_precision_loss, reason = "a share to four digits")]
pub(super) fn teacher_forced(report: &TeacherForcedReport) -> String {
    let (agreed, compared) = (report.agreed, report.compared);
    let percent = 100.0 * agreed as f64 / compared as f64;
    let mut text =
        format!("{agreed} of {compared} next tokens are the likeliest ({percent:.2} %)\n");
    for (position, given, likeliest) in report.first_disagreements.iter().take(LISTED_MAX) {
        let next = position + 1;
        let _ = writeln!(
            text,
            "position {next}: given {given}, likeliest {likeliest}"
        );
    }
    let disagreed = compared - agreed;
    if disagreed > LISTED_MAX {
        let _ = writeln!(text, "and {} more", disagreed - LISTED_MAX);
    }
    text
}
