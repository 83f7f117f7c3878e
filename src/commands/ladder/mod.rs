//! The same run at several budgets, each held to it by the kernel.
//!
//! | module | holds |
//! |---|---|
//! | [`limits`] | what holds a run: a control group, a scope, or nothing |
//! | [`enter`](mod@enter) | how a process gets into its group before it is a run |
//! | [`argv`] | a run as a command line |
//! | [`run`](mod@run) | one run, watched until it has ended |
//! | [`show`] | the whole, to read |
//! | [`watch`] | how far it is, for metrics |
//! | [`message`] | why a run did not finish |
//!
//! Runs are processes of this very program, so that nothing of one is left in
//! the memory of the next. Every rung is planned here first: what cannot fit is
//! known before anything runs.

mod argv;
mod enter;
mod limits;
mod message;
mod run;
mod show;
mod watch;

use std::path::Path;

use k3_config::{Bytes, HostMemory};
use k3_runtime::Cancel;
use k3_runtime::ladder::{LadderHeader, LadderReport, LadderRun, RunOutcome, RungPlan};

use super::{generate, model_path};
use crate::cli::args::GenerateArgs;
use crate::cli::ladder::LadderArgs;
use crate::demo;
use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupt;
use crate::metrics::Metrics;
use crate::output_file::OutputFile;
use crate::render::progress::Runs;
use crate::settings;
use crate::stdout::Stdout;
use limits::Limits;
use run::{Made, Runner};
use watch::Watch;

pub(crate) use enter::{enter, entry};

/// Runs the ladder.
///
/// # Errors
///
/// Whatever ends it without a result: no rung fits, or nothing can hold runs to
/// their budget.
pub(crate) fn run(args: &LadderArgs) -> Result<Exit, CliError> {
    let model = model_path(args.model.model.as_deref())?;
    let watch = Watch::default();
    // The ladder is watched, its runs are not.
    let settings = settings::resolve(args.memory.values(), args.memory.settings.as_deref())?;
    let address = args.metrics.address(&settings);
    let _metrics = Metrics::open(address, args.quiet, watch.collector())?;
    let Planned {
        prompt_ids,
        rungs,
        notes,
    } = plan(args)?;
    let output = args
        .out
        .as_deref()
        .map(|out| OutputFile::create_as("--out", out))
        .transpose()?;
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let program = std::env::current_exe().map_err(CliError::Watch)?;
    let choice = Limits::choose(args.limits, &program)?;
    let runner = Runner {
        program,
        limits: &choice.limits,
        prompt: list(&prompt_ids),
        cancel: &cancel,
        started: 0,
    };
    let climbed = Climb::new(args, rungs, watch)?.climb(runner);
    let header = LadderHeader {
        k3_version: env!("CARGO_PKG_VERSION").to_owned(),
        model: model.display().to_string(),
        limits: choice.limits.name(),
        group: choice
            .limits
            .parent()
            .map(|path| path.display().to_string()),
        repeats: repeats(args),
        prompt_ids,
        notes: [notes, choice.notes, climbed.notes].concat(),
    };
    let report = LadderReport::new(header, &climbed.rungs, climbed.interrupted);
    if report.interrupted && !report.has_results() {
        return Err(CliError::Interrupted);
    }
    finish(args, &report, output)
}

/// One run of `args` that nothing holds to a budget, a process of its own; `None`
/// if it was interrupted.
///
/// # Errors
///
/// Only that this program cannot be found: a run that fails says so itself.
pub(crate) fn unheld(
    args: &GenerateArgs,
    prompt_ids: &[u32],
    cancel: &Cancel,
) -> Result<Option<LadderRun>, CliError> {
    let mut runner = Runner {
        program: std::env::current_exe().map_err(CliError::Watch)?,
        limits: &Limits::None,
        prompt: list(prompt_ids),
        cancel,
        started: 0,
    };
    Ok(runner.run(args, Bytes(0), 1).map(|made| made.run))
}

/// Prints and stores what there is.
fn finish(
    args: &LadderArgs,
    report: &LadderReport,
    output: Option<OutputFile>,
) -> Result<Exit, CliError> {
    let text = if args.json {
        serde_json::to_string_pretty(report).expect("plain data serialises") + "\n"
    } else {
        show::render(report)
    };
    // Each gets what it was promised, whatever becomes of the other.
    let stored = output.map_or(Ok(()), |mut file| {
        file.write(report.tsv().as_bytes())?;
        file.commit()
    });
    let shown = Stdout.write(text.as_bytes());
    stored?;
    shown?;
    Ok(if report.is_fault() {
        Exit::Failed
    } else if report.interrupted {
        Exit::InterruptedKept
    } else if report.all_refused() {
        Exit::Refused
    } else {
        Exit::Done
    })
}

/// What every rung would do.
struct Planned {
    prompt_ids: Vec<u32>,
    rungs: Vec<(Bytes, RungPlan)>,
    notes: Vec<String>,
}

/// Plans every rung.
///
/// # Errors
///
/// What a run would be refused for at any budget; if every budget is too small,
/// the refusal of the largest.
fn plan(args: &LadderArgs) -> Result<Planned, CliError> {
    let mut prompt_ids = None;
    let (mut rungs, mut notes) = (Vec::new(), Vec::new());
    let mut too_small: Option<(Bytes, CliError)> = None;
    let mut run = demo::with_defaults(&args.run(Bytes(0)))?;
    for &budget in &args.rungs {
        run.memory = args.run(budget).memory;
        let preview = generate::preview(&run)?;
        for note in preview.notes {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        // Standard input can be read once only, and all runs get the same ids.
        if prompt_ids.is_none() {
            run.prompt.take_ids(&preview.prompt_ids);
            prompt_ids = Some(preview.prompt_ids);
        }
        rungs.push((
            budget,
            match preview.plan {
                Ok(plan) => RungPlan::Fits {
                    planned: plan.planned,
                },
                Err(error) => {
                    let smallest = error.smallest_budget();
                    if too_small.as_ref().is_none_or(|(most, _)| *most < budget) {
                        too_small = Some((budget, error));
                    }
                    RungPlan::TooSmall { smallest }
                }
            },
        ));
    }
    let fits = |(_, plan): &(_, RungPlan)| matches!(plan, RungPlan::Fits { .. });
    match too_small {
        Some((_, error)) if !rungs.iter().any(fits) => Err(error),
        _ => Ok(Planned {
            prompt_ids: prompt_ids.expect("there is at least one rung"),
            rungs,
            notes,
        }),
    }
}

fn repeats(args: &LadderArgs) -> u32 {
    u32::try_from(args.repeats).expect("bounded by the parser")
}

fn list(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(",")
}

/// All runs, in turns.
struct Climb {
    rungs: Vec<(Bytes, RungPlan, Vec<LadderRun>)>,
    runs: Vec<GenerateArgs>,
    repeats: u32,
    notes: Vec<String>,
    interrupted: bool,
    progress: Runs,
    watch: Watch,
}

impl Climb {
    fn new(
        args: &LadderArgs,
        rungs: Vec<(Bytes, RungPlan)>,
        watch: Watch,
    ) -> Result<Self, CliError> {
        let runs = rungs.iter();
        let runs = runs.map(|(budget, _)| demo::with_defaults(&args.run(*budget)));
        let runs = runs.collect::<Result<_, _>>()?;
        let rungs: Vec<_> = rungs
            .into_iter()
            .map(|(budget, plan)| (budget, plan, Vec::new()))
            .collect();
        Ok(Self {
            rungs,
            runs,
            repeats: repeats(args),
            notes: Vec::new(),
            interrupted: false,
            progress: Runs::new(args.quiet),
            watch,
        })
    }

    fn climb(mut self, mut runner: Runner<'_>) -> Self {
        let fitting: Vec<usize> = (0..self.rungs.len())
            .filter(|&at| matches!(self.rungs[at].1, RungPlan::Fits { .. }))
            .collect();
        let turns: Vec<(u32, usize)> = (1..=self.repeats)
            .flat_map(|repeat| fitting.iter().map(move |&at| (repeat, at)))
            .collect();
        self.watch.planned(turns.len());
        for (done, &(repeat, at)) in turns.iter().enumerate() {
            let budget = self.rungs[at].0;
            let what = format!(
                "run {} of {}: {}, repeat {repeat}",
                done + 1,
                turns.len(),
                show::budget(budget.0)
            );
            let remaining = turns[done..].iter().map(|(_, at)| *at);
            let remaining = self.remaining_seconds(remaining);
            self.progress.begin(&what, remaining);
            self.watch.begin(budget, repeat);
            let made = if runner.cancel.is_requested() {
                None
            } else {
                runner.run(&self.runs[at], budget, repeat)
            };
            let Some(Made { run, swap_is_off }) = made else {
                self.progress.end(&format!("{what}: interrupted"));
                self.interrupted = true;
                break;
            };
            self.progress.end(&format!("{what}: {}", told(&run)));
            self.watch.end(&run);
            self.note_swap(swap_is_off);
            self.rungs[at].2.push(run);
        }
        self
    }

    /// What the runs of `rungs` will take, going by those that were made;
    /// `None` before the first.
    fn remaining_seconds(&self, rungs: impl Iterator<Item = usize>) -> Option<f64> {
        let times = |at: usize| self.rungs[at].2.iter().map(|run| run.seconds);
        let all: Vec<f64> = (0..self.rungs.len()).flat_map(times).collect();
        let any = k3_runtime::statistics::median(&all)?;
        let of = |at: usize| {
            let own: Vec<f64> = times(at).collect();
            k3_runtime::statistics::median(&own).unwrap_or(any)
        };
        Some(rungs.map(of).sum())
    }

    fn note_swap(&mut self, is_off: Option<bool>) {
        let has_swap = || {
            let host = HostMemory::read(Path::new("/"));
            host.swap_total.is_some_and(|total| total > Bytes(0))
        };
        let note = "the kernel gave no way to shut swap off for the runs";
        let is_known = self.notes.iter().any(|known| known == note);
        if is_off == Some(false) && !is_known && has_swap() {
            self.notes.push(note.to_owned());
        }
    }
}

/// A run in a few words.
fn told(run: &LadderRun) -> String {
    let spent = show::seconds(run.seconds);
    let ended = match &run.outcome {
        RunOutcome::Finished(figures) => {
            match k3_runtime::statistics::median(figures.token_seconds()) {
                Some(token) => format!("{} s/token", show::seconds(token)),
                None => "finished".to_owned(),
            }
        }
        RunOutcome::Refused(reason) => format!("refused: {reason}"),
        RunOutcome::OutOfMemory => "out of memory".to_owned(),
        RunOutcome::Failed(reason) => format!("failed: {reason}"),
    };
    format!("{spent} s, {ended}")
}
