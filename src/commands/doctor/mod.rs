//! What this machine is good for, and what is less than it could be.
//!
//! | module | holds |
//! |---|---|
//! | [`target`] | the files that are measured |
//! | [`machine`] | what the kernel says, and what an arena really gets |
//! | [`disk`] | the read engine as it starts here, and the rates of the disks |
//! | [`arithmetic`] | the rates of the two kernels that read the weights |
//! | [`choices`] | every preset against the machine and the rates |
//! | [`findings`] | what is amiss, each with the way out |
//! | [`show`] | all of it, to read |

mod arithmetic;
mod choices;
mod disk;
mod findings;
mod machine;
mod show;
mod target;

use std::path::Path;

use k3_config::{EngineChoice, HostCpu, HostKernel, HostMemory, PathList, SettingValues, Settings};
use k3_io::EnginePreference;
use k3_runtime::Cancel;
use serde::Serialize;

use super::plan;
use crate::cli::commands::DoctorArgs;
use crate::cli::memory::positive;
use crate::error::CliError;
use crate::exit::Exit;
use crate::planning::{self, Reading};
use crate::stdout::Stdout;
use crate::typed::quoted;
use crate::{interrupt, settings};

use arithmetic::Arithmetic;
use choices::{Choice, Rates};
use disk::{Disk, Reader};
use findings::{Finding, Severity};
use machine::{Memory, Pages, Processors};
use target::Target;

/// Version of the JSON form; raised when a field changes its meaning or goes.
const DOCTOR_VERSION: u32 = 1;

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Report {
    doctor_version: u32,
    k3_version: &'static str,
    /// Whether nothing makes a run impossible.
    usable: bool,
    kernel: HostKernel,
    processors: Processors,
    memory: Memory,
    pages: Pages,
    reader: Reader,
    /// One for each device that holds files.
    disks: Vec<Disk>,
    arithmetic: Arithmetic,
    /// The model that was planned for; none was named otherwise.
    model: Option<plan::Model>,
    /// Positions of context that were planned for.
    context_positions: u64,
    /// Every preset, in the order of `k3 presets`.
    choices: Vec<Choice>,
    recommended: Option<Recommended>,
    findings: Vec<Finding>,
}

/// What to run.
#[derive(Debug, Clone, Serialize)]
struct Recommended {
    preset: &'static str,
    command: String,
}

/// Examines the machine.
///
/// # Errors
///
/// Paths that do not exist, settings that cannot be used, a scratch file that
/// cannot be written, and Ctrl-C. What is wrong with machine or model is part of
/// the report.
pub(crate) fn run(args: &DoctorArgs) -> Result<Exit, CliError> {
    let settings = settings::resolve(values(args), args.settings.as_deref())?;
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let report = examine(args, &settings, &cancel)?;
    let text = if args.json {
        serde_json::to_string_pretty(&report).expect("plain data serialises") + "\n"
    } else {
        show::render(&report)
    };
    Stdout.write(text.as_bytes())?;
    Ok(if report.usable {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn values(args: &DoctorArgs) -> SettingValues {
    SettingValues {
        context: args.context.map(positive),
        threads: args.threads.map(positive),
        engine: args.engine,
        root: (!args.roots.is_empty()).then(|| PathList(args.roots.clone())),
        ..SettingValues::default()
    }
}

fn idle_trunk(settings: &Settings) -> Option<Finding> {
    let way_out = "k3 plan --trunk tells what it needs and reads";
    settings::idle_trunk(settings).map(|idle| Finding::less_than_ideal(idle, way_out))
}

fn examine(args: &DoctorArgs, settings: &Settings, cancel: &Cancel) -> Result<Report, CliError> {
    settings::check_places(settings)?;
    let roots = settings.root.as_ref().map(|roots| roots.value.0.as_slice());
    let mut findings = Vec::new();
    let target = Target::resolve(args, roots.unwrap_or_default(), cancel)?;
    findings.extend(target.missing.iter().cloned().chain(idle_trunk(settings)));
    let model = model(args, &target, settings, &mut findings)?;

    let host = HostMemory::read(Path::new("/"));
    let kernel = HostKernel::read(Path::new("/"));
    let threads = planning::threads(settings);
    let pool = planning::pool(settings, threads)?;
    let processors = Processors::new(&HostCpu::read(Path::new("/")), &kernel, &pool);
    let policy = Reading::for_trunk(u64::MAX).pages;
    let memory = Memory::new(&host, policy);
    let pages = Pages::try_out(&host, &kernel, policy)?;
    let preference = match settings.engine.value {
        EngineChoice::Pread => EnginePreference::Pread,
        EngineChoice::Auto | EngineChoice::Uring => EnginePreference::Uring,
    };
    let table = target.open()?;
    let reader = Reader::try_out(&table, preference)?;
    let disks = if target.files.is_empty() {
        Vec::new()
    } else {
        disk::measure(&table, preference, cancel, args.json)?
    };
    drop(table);
    let arithmetic = Arithmetic::measure(&pool, cancel)?;
    if cancel.is_requested() {
        return Err(CliError::MeasuringInterrupted);
    }

    let rates = Rates {
        disk_bytes_per_second: disk::joint_rate(&disks),
        arithmetic: &arithmetic,
    };
    let choices = choices::all(model.as_ref(), settings, &host, policy, &rates)?;
    let best = choices::recommended(&choices);
    let mut report = Report {
        doctor_version: DOCTOR_VERSION,
        k3_version: env!("CARGO_PKG_VERSION"),
        usable: true,
        recommended: best.map(|choice| Recommended {
            preset: choice.preset.name(),
            command: command(args, &target, choice),
        }),
        kernel,
        processors,
        memory,
        pages,
        reader,
        disks,
        arithmetic,
        model: model.map(|found| found.model),
        context_positions: settings.context.value.get().into(),
        choices,
        findings,
    };
    report.findings.extend(findings::of(&report));
    report.findings.sort_by_key(|finding| finding.severity);
    report.usable = report
        .findings
        .iter()
        .all(|finding| finding.severity != Severity::Impossible);
    if !report.usable {
        report.recommended = None;
    }
    Ok(report)
}

/// The model to predict for; one that cannot be run is a finding.
fn model(
    args: &DoctorArgs,
    target: &Target,
    settings: &Settings,
    findings: &mut Vec<Finding>,
) -> Result<Option<plan::Found>, CliError> {
    let form = plan::form(settings.attention.value);
    if let Some(config) = &args.config {
        return plan::planned(config, settings, form).map(Some);
    }
    let Some(directory) = target.model_directory() else {
        return Ok(None);
    };
    match plan::find(Some(directory), None, settings, form) {
        Ok(found) => Ok(Some(found)),
        Err(error) => {
            findings.push(Finding::impossible(
                error.to_string(),
                error
                    .way_out()
                    .unwrap_or_else(|| "`k3 inspect` tells what is there".to_owned()),
            ));
            Ok(None)
        }
    }
}

/// The command line of a run that is recommended.
fn command(args: &DoctorArgs, target: &Target, choice: &Choice) -> String {
    let mut words = vec!["k3".to_owned()];
    let path = target.path.as_deref().filter(|_| target.is_model(args));
    words.push(path.map_or_else(|| "MODEL".to_owned(), quoted));
    for root in &args.roots {
        words.extend(["--root".to_owned(), quoted(root)]);
    }
    if let Some(config) = &args.config {
        words.extend(["--config".to_owned(), quoted(config)]);
    }
    words.extend(["--preset".to_owned(), choice.preset.name().to_owned()]);
    if let Some(context) = args.context {
        words.extend(["--context".to_owned(), context.to_string()]);
    }
    if let Some(threads) = args.threads {
        words.extend(["--threads".to_owned(), threads.to_string()]);
    }
    if let Some(engine) = args.engine {
        words.extend(["--engine".to_owned(), engine.to_string()]);
    }
    words.extend(["--prompt-file".to_owned(), "question.txt".to_owned()]);
    words.join(" ")
}
