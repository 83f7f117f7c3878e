//! What a run would reserve and read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k3_config::{
    AttentionChoice, BudgetPlan, Bytes, DiskForecast, MemoryBudget, ModelFootprint, Origin,
    PathList, PlanRefusal, SettingRow, SettingValues, Settings, Sourced,
};
use k3_formats::KimiK3Config;
use k3_formats::config::MAX_CONFIG_BYTES;
use k3_io::{CONFIG_NAME, IoError, read_small};
use k3_kernels::KernelSet;
use k3_models::kimi_k3::{AttentionForm, KimiK3, PlannedModel};
use k3_models::{ModelFamily, WorkspaceSize};
use k3_runtime::{Checkpoint, CheckpointPaths, Checksums, RunError, Trunk};
use serde::Serialize;

use super::{model_path, named_model_path};
use crate::cli::commands::PlanArgs;
use crate::cli::memory::positive;
use crate::error::{CliError, Positions};
use crate::exit::Exit;
use crate::planning::{self, Reading, Subject};
use crate::render::escape;
use crate::render::wrap::wrap;
use crate::stdout::Stdout;
use crate::{settings, vocabulary};

/// Disks that stand in for one that has not been measured, in 10^9 bytes per
/// second: a good SATA-attached array or PCIe 3 drive, and a PCIe 4 drive.
const EXAMPLE_RATES: [f64; 2] = [2.5, 7.0];
const GIGA: f64 = 1e9;

/// Said where `--no-checksums` is given and nothing has checksums.
pub(super) const IDLE_CHECKSUMS: &str =
    "--no-checksums changes nothing: there is no packed trunk (--trunk)";

/// A plan with everything it depends on, as data.
#[derive(Debug, Serialize)]
struct PlanReport {
    model: Model,
    plan: BudgetPlan,
    settings: Vec<SettingRow>,
    /// For the given disk rate, or for examples.
    forecasts: Vec<DiskForecast>,
    /// Whether the rate was given.
    disk_rate_given: bool,
    notes: Vec<String>,
}

/// What was planned.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Model {
    #[serde(serialize_with = "k3_config::lossy::path")]
    pub(super) path: PathBuf,
    /// Whether sizes are those of a checkpoint that is there.
    pub(super) weights_present: bool,
    pub(super) layers: usize,
}

/// The model to plan: its sizes, and the buffers it needs for a sweep.
pub(super) struct Found {
    pub(super) model: Model,
    pub(super) footprint: ModelFootprint,
    workspace: Box<dyn Fn(&WorkspaceSize) -> u64>,
    block_bytes: Sourced<Bytes>,
    vocabulary_bytes: u64,
    index_bytes: u64,
    pub(super) notes: Vec<String>,
}

impl Found {
    /// Plans a run of the model within `budget`.
    ///
    /// # Errors
    ///
    /// A budget that is too small, and settings that contradict each other.
    pub(super) fn plan(
        &self,
        budget: &MemoryBudget,
        settings: &Settings,
    ) -> Result<BudgetPlan, PlanRefusal> {
        let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let subject = Subject {
            footprint: &self.footprint,
            workspace: &*self.workspace,
            reading: &Reading::for_trunk(self.footprint.trunk_bytes()),
            context_positions: count(settings.context.value.get().into()),
            context_total: context_total(settings),
            spill: planning::spill(settings, sequences(settings)),
            chunk_positions: count(settings.chunk_for(budget.total).value),
            sequences: sequences(settings),
            guesses: planning::guesses(settings),
            all_logits: false,
            threads: planning::threads(settings),
            vocabulary_bytes: self.vocabulary_bytes,
            index_bytes: self.index_bytes,
        };
        planning::plan_with_settings(&subject, budget, settings)
    }
}

/// Positions that they share, if they do not have a whole context each.
fn context_total(settings: &Settings) -> Option<usize> {
    let asked = settings.context_total.as_ref();
    asked.map(|asked| usize::try_from(asked.value.get()).unwrap_or(usize::MAX))
}

/// Sequences to plan for.
fn sequences(settings: &Settings) -> usize {
    let asked = settings.sequences.as_ref();
    asked.map_or(1, |asked| {
        usize::try_from(asked.value.get()).unwrap_or(usize::MAX)
    })
}

/// Shows the plan.
///
/// # Errors
///
/// A model that cannot be read, settings that cannot be used, and a budget
/// that is too small.
pub(crate) fn run(args: &PlanArgs) -> Result<Exit, CliError> {
    let settings = settings::resolve(values(args), args.memory.settings.as_deref())?;
    settings::check_places(&settings)?;
    let form = form(settings.attention.value);
    let found = find(
        args.model.as_deref(),
        args.config.as_deref(),
        &settings,
        form,
    )?;
    let budget = planning::budget(&settings)?;
    let threads = planning::threads(&settings);
    let plan = found
        .plan(&budget, &settings)
        .map_err(|refusal| CliError::refused_plan(refusal, Positions::Context, &settings))?;
    let settings = planning::effective(&settings, &budget, threads, found.block_bytes.clone());
    let rates = args
        .disk_gbps
        .map_or(EXAMPLE_RATES.to_vec(), |rate| vec![rate]);
    let forecast = |rate: &f64| DiskForecast::worst(&plan.prediction, rate * GIGA);
    let picks = found.footprint.experts_per_token.into();
    let notes = [
        found.notes,
        settings.warnings.clone(),
        plan.surplus(&settings, picks),
        planning::idle_chunk(&settings).into_iter().collect(),
        idle_options(args, &settings),
    ]
    .concat();
    let report = PlanReport {
        model: found.model,
        forecasts: rates.iter().map(forecast).collect(),
        disk_rate_given: args.disk_gbps.is_some(),
        settings: settings.rows(),
        plan,
        notes,
    };
    let text = if args.json {
        serde_json::to_string_pretty(&report).expect("plain data serialises") + "\n"
    } else {
        render(&report, &settings)
    };
    Stdout.write(text.as_bytes())?;
    Ok(Exit::Done)
}

/// Options that are taken because a run takes them, and that change nothing here.
fn idle_options(args: &PlanArgs, settings: &Settings) -> Vec<String> {
    let mut notes = Vec::new();
    if args.no_checksums && settings::trunk(settings).is_empty() {
        notes.push(IDLE_CHECKSUMS.to_owned());
    }
    if args.no_disk_probe {
        notes.push("--no-disk-probe changes nothing: a plan measures no disk".to_owned());
    }
    notes
}

fn values(args: &PlanArgs) -> SettingValues {
    SettingValues {
        context: args.context.map(positive),
        chunk: args.chunk.map(positive),
        sequences: args.sequences.map(positive),
        context_total: args.context_total.map(positive),
        spill: args.spill.spill.clone(),
        spill_gb: args.spill.spill_gb,
        draft: args.draft.map(super::running::setup::small),
        threads: args.threads.map(positive),
        attention: args.attention.map(attention_choice),
        root: (!args.roots.is_empty()).then(|| PathList(args.roots.clone())),
        trunk: (!args.trunk.is_empty()).then(|| PathList(args.trunk.clone())),
        policy: args.policy,
        engine: args.engine,
        tokenizer: args.tokenizer.clone(),
        ..args.memory.values()
    }
}

/// A form of attention as a setting.
pub(super) fn attention_choice(form: AttentionForm) -> AttentionChoice {
    match form {
        AttentionForm::Latent => AttentionChoice::Latent,
        AttentionForm::Expanded => AttentionChoice::Expanded,
    }
}

/// The form of attention that a setting names.
pub(super) fn form(choice: AttentionChoice) -> AttentionForm {
    match choice {
        AttentionChoice::Latent => AttentionForm::Latent,
        AttentionChoice::Expanded => AttentionForm::Expanded,
    }
}

/// The checkpoint; without one, or with a part of one, the model that its
/// configuration describes.
pub(super) fn find(
    model: Option<&Path>,
    config: Option<&Path>,
    settings: &Settings,
    form: AttentionForm,
) -> Result<Found, CliError> {
    // A configuration alone is a model to plan for.
    let path = match config {
        Some(_) => named_model_path(model),
        None => model_path(model),
    };
    match (path, config) {
        (Ok(path), config) => match checkpoint(&path, config, settings, form) {
            Err(CliError::Run(RunError::Io(
                IoError::NoShards { .. } | IoError::MissingShards { .. },
            ))) => planned(config.unwrap_or(&path), settings, form),
            other => other,
        },
        (Err(CliError::NoModel), Some(config)) => planned(config, settings, form),
        (Err(error), _) => Err(error),
    }
}

fn checkpoint(
    path: &Path,
    config: Option<&Path>,
    settings: &Settings,
    form: AttentionForm,
) -> Result<Found, CliError> {
    let roots = settings.root.as_ref().map(|roots| roots.value.0.clone());
    let checkpoint = Checkpoint::open(&CheckpointPaths {
        model_dir: path.to_owned(),
        roots: roots.unwrap_or_default(),
        config: config.map(config_file),
    })?;
    let checkpoint = checkpoint.with_trunk(settings::trunk(settings), Checksums::Compared)?;
    let layout = checkpoint.bind(None)?;
    let layers = layout.layer_count();
    let block_bytes = planning::block_bytes_of(settings, &checkpoint, layers)?;
    // Whoever asked for the size the trunk has, is still the one who did.
    let asked = &settings.block_bytes.origin;
    let origin = match checkpoint.trunk().and_then(Trunk::block_bytes) {
        Some(_) if matches!(asked, Origin::Default) => Origin::Trunk,
        _ => asked.clone(),
    };
    // Only sizes are asked for: what the vectors hold does not matter.
    let zeros = |_: &_, target: &mut [u8]| -> Result<(), RunError> {
        target.fill(0);
        Ok(())
    };
    let kernels = KernelSet::detect();
    let mut model = KimiK3::new(layout, form, kernels, block_bytes, zeros)?;
    checkpoint.place(model.program_mut())?;
    let model = Arc::new(model);
    let place = settings.tokenizer.as_ref().map(|place| place.value.clone());
    let place = place.unwrap_or_else(|| path.to_owned());
    let tokenizer = vocabulary::open(&place, Some(checkpoint.config().vocab_size))?;
    Ok(Found {
        model: Model {
            path: path.to_owned(),
            weights_present: true,
            layers,
        },
        footprint: model.footprint(),
        workspace: Box::new(move |size| model.workspace_bytes(size)),
        block_bytes: Sourced::new(Bytes(block_bytes), origin),
        vocabulary_bytes: planning::vocabulary_bytes(tokenizer.as_ref()),
        index_bytes: planning::index_bytes(&checkpoint),
        notes: checkpoint
            .trunk()
            .and_then(Trunk::note)
            .into_iter()
            .collect(),
    })
}

/// The configuration in `named`, a file or the directory that holds it.
///
/// # Errors
///
/// A file that cannot be read or used.
pub(crate) fn planned_config(named: &Path) -> Result<KimiK3Config, CliError> {
    let path = config_file(named);
    let config = KimiK3Config::parse(&path, &read_small(&path, MAX_CONFIG_BYTES)?)?;
    Ok(config)
}

/// The model that the configuration `config` describes, by itself.
pub(super) fn planned(
    config: &Path,
    settings: &Settings,
    form: AttentionForm,
) -> Result<Found, CliError> {
    let path = config_file(config);
    let config = planned_config(config)?;
    let layers = config.num_hidden_layers;
    let block_bytes = planning::block_bytes(settings, planning::trunk_bytes(&config, layers));
    let model = PlannedModel::new(&config, form, block_bytes);
    let place = settings.tokenizer.as_ref().map(|place| place.value.clone());
    let tokenizer = match place {
        Some(place) => vocabulary::open(&place, Some(config.vocab_size))?,
        None => None,
    };
    let vocabulary_bytes = match &tokenizer {
        Some(tokenizer) => planning::vocabulary_bytes(Some(tokenizer)),
        None => planning::planned_vocabulary_bytes(&config),
    };
    Ok(Found {
        model: Model {
            path,
            weights_present: false,
            layers,
        },
        footprint: model.footprint(),
        workspace: Box::new(move |size| model.workspace_bytes(size)),
        block_bytes: Sourced::new(Bytes(block_bytes), settings.block_bytes.origin.clone()),
        vocabulary_bytes,
        index_bytes: planning::planned_index_bytes(&config),
        notes: vec![
            "the weights are not all here: sizes are those of the released types".to_owned(),
        ],
    })
}

/// The configuration file that `--config` names.
pub(crate) fn config_file(named: &Path) -> PathBuf {
    if named.is_dir() {
        named.join(CONFIG_NAME)
    } else {
        named.to_owned()
    }
}

fn render(report: &PlanReport, settings: &Settings) -> String {
    let mut text = String::new();
    let write = "writing to a string cannot fail";
    let Model { path, layers, .. } = &report.model;
    let path = escape::line(&path.display().to_string());
    writeln!(text, "{path}, {layers} layers\n").expect(write);
    let given = report.disk_rate_given.then(|| &report.forecasts[0]);
    text.push_str(&report.plan.table(given));
    if given.is_none() {
        text.push_str("\nno --disk-gbps given (`k3 doctor` measures it); at a few common rates:\n");
        for forecast in &report.forecasts {
            writeln!(
                text,
                "{:<17}  {:.2} s a token for the disk{}",
                format!("at {} GB/s", forecast.disk_bytes_per_second / GIGA),
                forecast.floor_seconds_per_token,
                if forecast.hit_share < 1.0 {
                    ", no expert found in memory"
                } else {
                    ""
                }
            )
            .expect(write);
        }
    }
    text.push_str("\nsettings\n");
    text.push_str(&settings.table());
    for note in &report.notes {
        text.push_str(&wrap(&format!("note: {}", escape::line(note))));
    }
    text
}
