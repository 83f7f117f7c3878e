//! The same run with a tenth, two fifths and all of the model in memory, from
//! the shards and from a packed trunk.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use k3_config::{BudgetPlan, Bytes, Gigabytes, PositiveCount};
use k3_pack::PackError;
use k3_pack::trunk::{Hooks, SourcePaths, TrunkPlan, TrunkSettings, TrunkSource, pack};
use k3_runtime::Cancel;
use k3_runtime::ladder::{LadderRun, RunFigures, RunOutcome};
use k3_tokenizer::Render;
use serde::Serialize;

use super::show;
use crate::cli::args::{Cli, GenerateArgs};
use crate::cli::demo::DemoLadderArgs;
use crate::commands::{generate, ladder};
use crate::demo::{self, Scratch};
use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupt;
use crate::render;
use crate::render::progress::Runs;
use crate::stdout::Stdout;
use crate::vocabulary;

/// Shares of trunk and experts that stay in memory, in hundredths.
const SHARES_PERCENT: [u64; 3] = [10, 40, 100];
/// Raised when a field changes its meaning or goes.
const REPORT_VERSION: u32 = 1;

/// The result, as data.
#[derive(Debug, Serialize)]
pub(super) struct DemoLadder {
    report_version: u32,
    model: String,
    pub(super) prompt: String,
    /// What every run generated, if they all generated the same.
    pub(super) generated_text: Option<String>,
    /// Whether every run finished and generated the same ids.
    pub(super) same_ids: bool,
    pub(super) interrupted: bool,
    pub(super) rows: Vec<Row>,
}

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Share of the trunk that was to stay in memory, in hundredths.
    pub(super) pinned_percent: u64,
    /// Whether the trunk was packed.
    pub(super) is_packed: bool,
    /// Expert slots, of how many experts.
    pub(super) slots: u64,
    pub(super) experts: u64,
    /// What it had planned to reserve.
    pub(super) planned_bytes: u64,
    /// Of all sweeps together.
    pub(super) trunk_read_bytes: u64,
    pub(super) expert_read_bytes: u64,
    /// Experts found in memory, as a share.
    pub(super) hit_rate: f64,
    /// Time of the sweeps.
    pub(super) seconds: f64,
    pub(super) generated_ids: Vec<u32>,
    /// Why it did not finish.
    pub(super) error: Option<String>,
}

/// Runs it.
///
/// # Errors
///
/// Whatever a run would be refused for, a trunk that cannot be packed, and an
/// interrupt before the first run's end.
pub(super) fn run(args: &DemoLadderArgs) -> Result<Exit, CliError> {
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let model = demo::model_dir_of(args.quiet)?;
    let base = base(args, &model)?;
    // What the packed trunk lies in goes when this function returns.
    let cache = demo::cache_dir()?;
    let trunk_in = |directory: &Path| directory.join("trunk");
    let pack = |directory: &Path| pack_trunk(&model, &trunk_in(directory));
    let (scratch, note) = Scratch::filled(&cache, &std::env::temp_dir(), pack)?;
    if let (Some(note), false) = (note, args.quiet) {
        render::report::print_note(&note);
    }
    let packed = trunk_in(scratch.path());
    let mut ladder = DemoLadder {
        report_version: REPORT_VERSION,
        model: model.display().to_string(),
        prompt: base.prompt.prompt.clone().unwrap_or_default(),
        generated_text: None,
        same_ids: false,
        interrupted: false,
        rows: Vec::new(),
    };
    climb(&mut ladder, &base, &packed, args.quiet, &cancel)?;
    if ladder.rows.is_empty() {
        return Err(CliError::Interrupted);
    }
    let first = &ladder.rows[0];
    let is_same = |row: &Row| row.error.is_none() && row.generated_ids == first.generated_ids;
    ladder.same_ids = ladder.rows.iter().all(is_same);
    if ladder.same_ids {
        let ids = &ladder.rows[0].generated_ids;
        ladder.generated_text = Some(text(&model, ids)?);
    }
    let shown = if args.json {
        serde_json::to_string_pretty(&ladder).expect("plain data serialises") + "\n"
    } else {
        show::render(&ladder)
    };
    Stdout.write(shown.as_bytes())?;
    Ok(match (ladder.same_ids, ladder.interrupted) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::InterruptedKept,
        (true, false) => Exit::Done,
    })
}

/// The generation that all rungs share.
fn base(args: &DemoLadderArgs, model: &Path) -> Result<GenerateArgs, CliError> {
    // As if nothing had been given: new options need no place here.
    let mut base = Cli::parse_from(["k3"]).generate;
    base.prompt.prompt.clone_from(&args.prompt);
    base.generation.gen_count = args.gen_count;
    base.generation.sampling.seed = args.seed;
    base.reading.no_disk_probe = true;
    demo::fill(&mut base.prompt, &mut base.generation);
    base.model.model = Some(model.to_owned());
    Ok(base)
}

fn climb(
    ladder: &mut DemoLadder,
    base: &GenerateArgs,
    packed: &Path,
    quiet: bool,
    cancel: &Cancel,
) -> Result<(), CliError> {
    let mut progress = Runs::new(quiet);
    let mut number = 0;
    for trunk in [None, Some(packed)] {
        let mut args = base.clone();
        args.model.trunk.extend(trunk.map(Path::to_owned));
        let whole = generate::preview(&args)?;
        let whole_plan = whole.plan?;
        for percent in SHARES_PERCENT {
            let slots = share(&mut args, &whole_plan, percent);
            number += 1;
            let trunk_is = if trunk.is_some() {
                "packed"
            } else {
                "as released"
            };
            let what = format!("run {number} of {RUNS}: {percent} % in memory, trunk {trunk_is}");
            progress.begin(&what, None);
            let Some(run) = ladder::unheld(&args, &whole.prompt_ids, cancel)? else {
                progress.end(&format!("{what}: interrupted"));
                ladder.interrupted = true;
                return Ok(());
            };
            progress.end(&what);
            let row = Row::new(percent, trunk.is_some(), slots, &whole_plan, &run);
            ladder.rows.push(row);
        }
    }
    Ok(())
}

/// Sets `percent` of the trunk and of the experts. The slots.
fn share(args: &mut GenerateArgs, plan: &BudgetPlan, percent: u64) -> u64 {
    let part = |whole: u64| (whole * percent).div_ceil(100);
    let trunk = Gigabytes(Bytes(part(plan.pins.bytes_total)));
    // All of it takes a little more than its bytes: blocks begin at whole pages.
    args.memory.trunk_gb = (percent < 100).then_some(trunk);
    let slots = part(plan.slots.expert_count).max(SLOTS_MIN);
    let count = u32::try_from(slots).ok().and_then(PositiveCount::new);
    args.memory.slots = Some(count.expect("the built-in model has few experts"));
    slots
}

/// Every share, as released and packed.
const RUNS: usize = 2 * SHARES_PERCENT.len();

/// The fewest slots that a run takes.
const SLOTS_MIN: u64 = 4;

impl Row {
    fn new(percent: u64, is_packed: bool, slots: u64, plan: &BudgetPlan, run: &LadderRun) -> Self {
        let error = match &run.outcome {
            RunOutcome::Finished(_) => None,
            RunOutcome::Refused(reason) | RunOutcome::Failed(reason) => Some(reason.clone()),
            RunOutcome::OutOfMemory => Some("out of memory".to_owned()),
        };
        let figures = run.figures();
        let streaming = figures.map(|figures| &figures.streaming);
        let sweeps = || streaming.into_iter().flat_map(|s| &s.sweeps);
        Self {
            pinned_percent: percent,
            is_packed,
            slots,
            experts: plan.slots.expert_count,
            planned_bytes: streaming.map_or(0, |s| s.memory.planned_bytes),
            trunk_read_bytes: sweeps().map(|sweep| sweep.trunk_read_bytes).sum(),
            expert_read_bytes: sweeps().map(|sweep| sweep.expert_read_bytes).sum(),
            hit_rate: streaming.map_or(0.0, |s| s.cache.hit_rate),
            seconds: streaming.map_or(0.0, |s| s.time.wall_seconds),
            generated_ids: figures.map_or_else(Vec::new, ids),
            error,
        }
    }
}

fn ids(figures: &RunFigures) -> Vec<u32> {
    figures.generated_ids.clone()
}

fn pack_trunk(model: &Path, out: &Path) -> Result<(), PackError> {
    fs::create_dir(out).map_err(|source| PackError::NotWritable {
        path: out.to_owned(),
        action: "be made",
        source,
    })?;
    let paths = SourcePaths {
        model: model.to_owned(),
        roots: Vec::new(),
        config: None,
    };
    let source = TrunkSource::open(&paths, None)?;
    let settings = TrunkSettings {
        reserve_bytes: 0,
        ..TrunkSettings::new(vec![PathBuf::from(out)])
    };
    let plan = TrunkPlan::new(&source, &settings)?;
    pack(&source, &plan, &false.into(), &Hooks::NONE)?;
    Ok(())
}

/// What ids mean, for a person: bytes that are no text are shown as such.
fn text(model: &Path, ids: &[u32]) -> Result<String, CliError> {
    let tokenizer = vocabulary::open(model, None)?.expect("the built-in model has one");
    let bytes = tokenizer.decode(ids, Render::Markup)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
