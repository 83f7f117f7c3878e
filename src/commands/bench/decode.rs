//! `k3 bench decode`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k3_actors::bench::BenchError;
use k3_actors::bench::decode::{self, DecodeFigures, DecodeRequest, PhaseFigures, Stage};
use k3_config::{Bytes, SettingValues};
use k3_formats::KimiK3Config;
use k3_formats::synth::released_config;
use k3_io::PagePolicy;
use k3_models::kimi_k3::layout::KimiK3Layout;
use k3_models::{ModelFamily, WorkspaceSize};
use k3_runtime::statistics::Spread;
use k3_runtime::{Cancel, RunError};
use serde::Serialize;

use super::opened::Opened;
use super::size;
use super::watch::{Stages, Watch};
use super::{Finished, decode_text};
use crate::cli::bench::DecodeArgs;
use crate::commands::plan::{config_file, planned_config};
use crate::commands::running::streaming::check_beside;
use crate::error::CliError;
use crate::planning;
use crate::{exit::Exit, interrupt};

/// Raised when a field changes its meaning or goes.
const REPORT_VERSION: u32 = 1;
/// Positions of a sweep that fills the context.
const CHUNK_POSITIONS_MAX: usize = 64;

/// The result, as data.
#[derive(Debug, Serialize)]
pub(super) struct DecodeReport {
    report_version: u32,
    #[serde(serialize_with = "k3_config::lossy::path")]
    pub(super) model: PathBuf,
    identity: String,
    /// Layers that were measured.
    pub(super) layers: usize,
    /// Layers of the model that a token's time is told for.
    pub(super) target_layers: usize,
    /// Its experts per layer.
    pub(super) target_experts: usize,
    pub(super) isa: String,
    pub(super) threads: usize,
    pub(super) rounds: u64,
    pub(super) context_positions: u64,
    /// Weights that took turns.
    pub(super) buffer_bytes: u64,
    /// Most core-seconds a token may take.
    pub(super) limit_core_seconds: f64,
    pub(super) passed: bool,
    /// A sweep as measured.
    pub(super) wall_seconds: Spread,
    /// Processor time of a sweep as measured.
    pub(super) cpu_seconds: Spread,
    /// Bytes for each processor second while weights are only read.
    pub(super) stream_bytes_per_core_second: Spread,
    /// Core-seconds of a token of the target.
    pub(super) token_core_seconds: f64,
    /// The same by part of the model.
    pub(super) parts: Vec<PartReport>,
    /// Those that take most first.
    pub(super) phases: Vec<PhaseReport>,
    pub(super) fallbacks: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// All phases of one part.
#[derive(Debug, Serialize)]
pub(super) struct PartReport {
    pub(super) part: &'static str,
    pub(super) token_core_seconds: f64,
}

/// One phase.
#[derive(Debug, Serialize)]
pub(super) struct PhaseReport {
    pub(super) part: &'static str,
    pub(super) phase: &'static str,
    occurrences: u64,
    pub(super) weight_bytes: u64,
    pub(super) wall_seconds: Spread,
    pub(super) cpu_seconds: Spread,
    /// What a token of the target has of it, against what was measured.
    scale: f64,
    pub(super) token_core_seconds: f64,
}

/// Everything that can be refused before a weight is read.
struct Prepared {
    opened: Opened,
    target: KimiK3Layout,
    notes: Vec<String>,
    pages: PagePolicy,
}

/// Measures, and tells what came out.
///
/// # Errors
///
/// Whatever ends it without a measurement to keep.
pub(super) fn run(args: &DecodeArgs, watch: &Watch) -> Result<Exit, CliError> {
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let prepared = Prepared::new(args)?;
    let target = args.target.as_deref().map(config_file);
    let target = target.map(|path| ("the target's configuration", path));
    let file = prepared.opened.output(&args.result, target)?;
    let report = measure(args, &prepared, watch, &cancel)?;
    Finished {
        text: decode_text::render(&report),
        passed: report.passed,
        interrupted: false,
        report: &report,
    }
    .hand_over(&args.result, Some(args.check), file)
}

impl Prepared {
    fn new(args: &DecodeArgs) -> Result<Self, CliError> {
        let file = args.settings.as_deref();
        let opened = Opened::new(&args.measured, SettingValues::default(), file)?;
        let mut notes = opened.settings.warnings.clone();
        let target = target(args.target.as_deref(), opened.model.layout(), &mut notes)?;
        let trunk = opened.model.footprint().trunk_bytes();
        let pages = planning::Reading::for_trunk(trunk).pages;
        let prepared = Self {
            opened,
            target,
            notes,
            pages,
        };
        check_beside([prepared.memory(args), args.buffer], "--buffer", pages)?;
        Ok(prepared)
    }

    /// What the arithmetic reserves for itself.
    fn memory(&self, args: &DecodeArgs) -> Bytes {
        let context = size(args.context + args.rounds + 1);
        let work = self.opened.model.workspace_bytes(&WorkspaceSize {
            held_positions: 0,
            positions: CHUNK_POSITIONS_MAX.min(context),
            logit_rows: 1,
            context_positions: context,
            workers: self.opened.threads,
        });
        let state = self.opened.model.footprint().state_bytes(context as u64);
        Bytes(work.saturating_add(state))
    }
}

/// The model that a token's time is told for: the one in `path`, else the
/// released one where `measured` has its widths, else the whole of the
/// checkpoint's, else the measured layers. Each only if every part of it is
/// measured; what had to be left out is noted.
fn target(
    path: Option<&Path>,
    measured: &KimiK3Layout,
    notes: &mut Vec<String>,
) -> Result<KimiK3Layout, CliError> {
    let config = measured.config();
    if let Some(path) = path {
        return named_target(&config_file(path), measured);
    }
    let released = released_config();
    let whole = [
        ("the released model", &released),
        ("the whole model", config),
    ];
    for (name, config) in whole.into_iter().filter(|(_, of)| same_widths(of, config)) {
        let target = KimiK3Layout::planned(config);
        let parts = target.parts_beyond(measured);
        if parts.is_empty() {
            return Ok(target);
        }
        let parts = parts.join(", ");
        notes.push(format!(
            "not told for {name}: none of the measured layers has {parts}"
        ));
    }
    Ok(measured.clone())
}

fn named_target(path: &Path, measured: &KimiK3Layout) -> Result<KimiK3Layout, CliError> {
    let config = planned_config(path)?;
    let path = path.to_owned();
    if !same_widths(&config, measured.config()) {
        return Err(CliError::OtherWidths { path });
    }
    let target = KimiK3Layout::planned(&config);
    let parts = target.parts_beyond(measured);
    if parts.is_empty() {
        Ok(target)
    } else {
        Err(CliError::PartsNotMeasured { path, parts })
    }
}

/// Whether layers and experts of both take the same time each.
fn same_widths(one: &KimiK3Config, other: &KimiK3Config) -> bool {
    // All that may differ, and what is only for show.
    let alike = KimiK3Config {
        architectures: one.architectures.clone(),
        model_type: one.model_type.clone(),
        num_hidden_layers: one.num_hidden_layers,
        mla_layers: one.mla_layers.clone(),
        num_experts: one.num_experts,
        first_k_dense_replace: one.first_k_dense_replace,
        eos_token_ids: one.eos_token_ids.clone(),
        ..other.clone()
    };
    alike == *one
}

fn measure(
    args: &DecodeArgs,
    prepared: &Prepared,
    watch: &Watch,
    cancel: &Cancel,
) -> Result<DecodeReport, CliError> {
    let pool = planning::pool(&prepared.opened.settings, prepared.opened.threads)?;
    let request = DecodeRequest {
        model: &prepared.opened.model,
        checkpoint: &prepared.opened.checkpoint,
        pool: &pool,
        read_sums: prepared.opened.model.kernels().read_sums,
        buffer_bytes: args.buffer.0,
        pages: prepared.pages,
        context_positions: size(args.context),
        chunk_positions: CHUNK_POSITIONS_MAX,
        cancel,
    };
    let mut stages = Stages::new(watch, args.result.quiet);
    let mut told = |stage, done| {
        let name = match stage {
            Stage::Fill => "weights",
            Stage::Context => "context",
            Stage::Measure => "tokens",
        };
        stages.set(name, done);
    };
    let figures = decode::measure(&request, size(args.rounds), &mut told);
    drop(stages);
    let figures = figures.map_err(|error| match error {
        BenchError::Run(RunError::Cancelled) => CliError::MeasuringInterrupted,
        other => other.into(),
    })?;
    let report = describe(args, prepared, &figures);
    watch.ratio("token core-seconds".to_owned(), report.token_core_seconds);
    Ok(report)
}

fn describe(args: &DecodeArgs, prepared: &Prepared, figures: &DecodeFigures) -> DecodeReport {
    let phases = figures.phases.iter();
    let mut phases: Vec<PhaseReport> = phases.map(|phase| scaled(prepared, phase)).collect();
    phases.sort_by(|a, b| b.token_core_seconds.total_cmp(&a.token_core_seconds));
    let mut parts: BTreeMap<&'static str, f64> = BTreeMap::new();
    for phase in &phases {
        *parts.entry(phase.part).or_default() += phase.token_core_seconds;
    }
    let parts = parts
        .into_iter()
        .map(|(part, token_core_seconds)| PartReport {
            part,
            token_core_seconds,
        });
    let mut parts: Vec<PartReport> = parts.collect();
    parts.sort_by(|a, b| b.token_core_seconds.total_cmp(&a.token_core_seconds));
    let token_core_seconds: f64 = parts.iter().map(|part| part.token_core_seconds).sum();
    DecodeReport {
        report_version: REPORT_VERSION,
        model: prepared.opened.checkpoint.path().to_owned(),
        identity: prepared.opened.checkpoint.identity().to_string(),
        layers: prepared.opened.model.layout().layer_count(),
        target_layers: prepared.target.layer_count(),
        target_experts: prepared.target.config().num_experts,
        isa: prepared.opened.model.kernels().isa.to_string(),
        threads: prepared.opened.threads,
        rounds: args.rounds,
        context_positions: args.context,
        buffer_bytes: figures.buffer_bytes,
        limit_core_seconds: args.limit,
        passed: token_core_seconds <= args.limit,
        wall_seconds: figures.wall_seconds,
        cpu_seconds: figures.cpu_seconds,
        stream_bytes_per_core_second: figures.stream_bytes_per_core_second,
        token_core_seconds,
        parts,
        phases,
        fallbacks: figures.fallbacks.clone(),
        notes: prepared.notes.clone(),
    }
}

/// A phase, and what a token of the target has of it.
fn scaled(prepared: &Prepared, figures: &PhaseFigures) -> PhaseReport {
    let amount = |layout: &KimiK3Layout| layout.amount_of(figures.phase);
    #[allow(clippy::cast_precision_loss, reason = "counts of layers and experts")]
    let scale =
        amount(&prepared.target) as f64 / amount(prepared.opened.model.layout()).max(1) as f64;
    PhaseReport {
        part: figures.phase.part,
        phase: figures.phase.name,
        occurrences: figures.occurrences,
        weight_bytes: figures.weight_bytes,
        wall_seconds: figures.wall_seconds,
        cpu_seconds: figures.cpu_seconds,
        scale,
        token_core_seconds: figures.cpu_seconds.median * scale,
    }
}
