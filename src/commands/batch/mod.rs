//! Many prompts, as many at a time as pays.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@line`] | one line of the input as it is written |
//! | [`input`] | all of them, checked before a weight is read |
//! | [`answer`] | one answer, and what ties it to its request |
//! | [`output`] | the lines of the output: what is there, and what is added |
//! | [`pending`] | answers that wait for those before them, on the disk |
//! | [`needs`] | the memory for positions that they need |
//! | [`width`] | how many prompts run at a time |
//! | [`drive`] | from prompts to answers, sweep by sweep |
//! | [`error`] | why a batch cannot be run as it is |
//! | [`report`] | what the run tells about itself |

mod answer;
mod drive;
mod error;
mod input;
mod line;
mod needs;
mod output;
mod pending;
mod report;
mod width;

use std::time::Instant;

use k3_config::SettingValues;
use k3_models::kimi_k3::{KimiK3, NUMERICS_VERSION};
use k3_runtime::report::{StreamingReport, TrunkReport};
use k3_runtime::{Cancel, ComputePool, SamplingSettings, SchedulerSettings};

use crate::cli::args::DEFAULT_GEN;
use crate::cli::batch::BatchArgs;
use crate::cli::memory::positive;
use crate::commands::generate::guard::{self, Inputs};
use crate::commands::generate::sampling;
use crate::commands::running::exposed;
use crate::commands::running::live::{Live, RunFacts};
use crate::commands::running::setup::{Setup, SetupArgs, load_resident, size};
use crate::commands::running::streaming::Streaming;
use crate::commands::{named_model, named_model_path};
use crate::demo;
use crate::error::CliError;
use crate::exit::Exit;
use crate::inputs::read_text;
use crate::interrupt;
use crate::metrics::Metrics;
use crate::output_file::OutputFile;
use crate::planning;
pub(crate) use error::BatchError;

use answer::Binding;
use drive::{Drive, Driven};
use input::{Defaults, Prompt, Wanted};
use needs::Needs;
use output::{Expected, Output};
use report::BatchReport;

/// Answers every line.
///
/// # Errors
///
/// Whatever is refused before the first sweep, and what ends the run.
pub(crate) fn run(args: &BatchArgs) -> Result<Exit, CliError> {
    let started = Instant::now();
    let sampling = sampling::settings(&args.sampling, &args.shaping);
    sampling.validate()?;
    // Before a word is read that may come from a pipe.
    match named_model(args.model.model.as_deref()) {
        Some(_) => named_model_path(args.model.model.as_deref())?,
        None => demo::model_dir_of(args.quiet)?,
    };
    let text = read_text(&args.input)?;
    let setup = open(args)?;
    let prompts = prompts(args, &setup, sampling, &text)?;
    drop(text);
    refuse_inputs(args, &setup)?;
    needs::check(&prompts, context_total(&setup))?;
    let layers = setup
        .layers
        .unwrap_or(setup.checkpoint.config().num_hidden_layers);
    let numerics = (NUMERICS_VERSION, setup.form.name());
    let binding = Binding::new(&setup.identity, numerics, layers);
    let wanted = input::wanted(&prompts);
    let mut done = vec![false; wanted.len()];
    let expected = Expected {
        prompts: &prompts,
        wanted: &wanted,
        binding: &binding,
    };
    let is_new = args.output.symlink_metadata().is_err();
    let output = Output::open(&args.output, expected, !args.as_completed, &mut done)?;
    let out = args.out.as_deref();
    let out = out
        .map(|path| OutputFile::create_as("--out", path))
        .transpose()?;
    let run = Run {
        started,
        args,
        setup: &setup,
        prompts: &prompts,
        wanted: &wanted,
        binding,
    };
    let ended = run.go(output, &done, out);
    let is_empty = |metadata: std::fs::Metadata| metadata.len() == 0;
    if ended.is_err() && is_new && args.output.symlink_metadata().is_ok_and(is_empty) {
        // Nothing was answered: as if it had not been asked.
        let _ = std::fs::remove_file(&args.output);
    }
    ended
}

fn open(args: &BatchArgs) -> Result<Setup, CliError> {
    let common = SetupArgs {
        model: &args.model,
        memory: &args.memory,
        reading: &args.reading,
        execution: &args.execution,
        prefix: &args.prefix,
    };
    let values = SettingValues {
        sequences: args.sequences.map(positive),
        context_total: args.context_total.map(positive),
        ..SettingValues::default()
    };
    Setup::open(common, values)
}

fn prompts(
    args: &BatchArgs,
    setup: &Setup,
    sampling: SamplingSettings,
    text: &str,
) -> Result<Vec<Prompt>, CliError> {
    let end_ids = if args.ignore_eos {
        Vec::new()
    } else {
        setup.stop_ids()
    };
    // Checked as options, so that a fault of theirs is no fault of every line.
    let vocab_size = setup.checkpoint.config().vocab_size;
    sampling.check_vocabulary(vocab_size)?;
    let stops = sampling::stops(&args.shaping, setup, Vec::new())?;
    let defaults = Defaults {
        gen_count: args.gen_count.map_or(DEFAULT_GEN, size),
        sampling,
        end_ids,
        stop_ids: stops.ids,
        stops: stops.strings,
        logprobs: args.shaping.logprobs.map(size),
        tokenizer: setup.tokenizer.as_deref(),
        vocab_size,
        context_positions: size(setup.settings.context.value.get().into()),
    };
    input::prompts(&args.input, text, &defaults)
}

/// Positions that all prompts at a time may take, if it was said.
fn context_total(setup: &Setup) -> Option<usize> {
    let settings = &setup.settings;
    let asked = settings.context_total.as_ref();
    // What does not fit beside it lies in the file.
    let asked = asked.filter(|_| settings.spill.is_none() || setup.budget.is_none());
    asked.map(|asked| size(asked.value.get().into()))
}

/// Refuses an output that is one of the files the run reads.
fn refuse_inputs(args: &BatchArgs, setup: &Setup) -> Result<(), CliError> {
    let inputs = Inputs::of_setup(setup, &args.model, &args.memory);
    let inputs = inputs.and("the prompts", Some(args.input.clone()));
    let out = args.out.as_deref().map(|path| ("--out", path));
    let pending = pending::path_of(&args.output);
    let beside = pending.as_deref().map(|path| ("OUTPUT.pending", path));
    let outputs = [("OUTPUT", args.output.as_path())].into_iter();
    guard::check_all(outputs.chain(beside).chain(out), &inputs)
}

/// A run that has been checked but not started.
struct Run<'a> {
    started: Instant,
    args: &'a BatchArgs,
    setup: &'a Setup,
    prompts: &'a [Prompt],
    wanted: &'a [Wanted],
    binding: Binding,
}

/// Everything has stopped.
struct Ended {
    driven: Driven,
    trunk: Option<TrunkReport>,
    streaming: Option<StreamingReport>,
    notes: Vec<String>,
    /// Whether something died while stopping.
    failed: bool,
}

impl Run<'_> {
    fn go(&self, output: Output, done: &[bool], out: Option<OutputFile>) -> Result<Exit, CliError> {
        let left = || self.wanted.iter().zip(done).filter(|(_, done)| !**done);
        let left_count = left().count();
        if left_count == 0 && out.is_none() {
            return Ok(report::nothing_left(self));
        }
        let setup = self.setup;
        let live = Live::new(RunFacts {
            identity: setup.identity.clone(),
            isa: setup.isa.to_string(),
            attention: setup.form.to_string(),
            threads: setup.threads,
            source: report::source_name(self.args),
            prompt_tokens: {
                let ids = |(wanted, _): (&Wanted, _)| self.prompts[wanted.prompt].ids.len();
                left()
                    .filter(|(wanted, _)| wanted.choice == 0)
                    .map(ids)
                    .sum()
            },
        });
        let address = self.args.metrics.address(&setup.settings);
        let figures = exposed::collector(live.clone());
        let _metrics = Metrics::open(address, self.args.quiet, figures)?;
        let cancel = Cancel::default();
        interrupt::install(&cancel)?;
        let needs = Needs::new(
            self.prompts,
            left().map(|(wanted, _)| &self.prompts[wanted.prompt]),
            context_total(setup),
        );
        let model = setup.bind_sizes()?;
        let choices = self.prompts.iter().map(|prompt| prompt.choices).max();
        let choices = choices.map_or(1, |choices| size(choices.into()));
        let width = width::choose(setup, &model, &needs, [choices, left_count])?;
        let layout = setup.checkpoint.bind(setup.layers)?;
        let model = setup.load(layout, &cancel)?;
        let pool = planning::pool(&setup.settings, setup.threads)?;
        let settings = SchedulerSettings {
            sequences_max: width,
            guesses_max: planning::guesses(&setup.settings),
            queue_max: 2 * width,
            context_total: Some(needs.total_positions(width)),
            ..SchedulerSettings::single(needs.context_positions(), setup.chunk_positions)
        };
        let started = Started {
            run: self,
            model: &model,
            pool: &pool,
            settings,
            cancel: &cancel,
            live,
        };
        let ended = started.drive(output, done)?;
        let report = BatchReport::new(self, &started, &ended);
        report::end(self, &report, ended, out)
    }
}

/// A run whose model is loaded.
struct Started<'a> {
    run: &'a Run<'a>,
    model: &'a KimiK3,
    pool: &'a ComputePool,
    settings: SchedulerSettings,
    cancel: &'a Cancel,
    live: Live,
}

impl Started<'_> {
    fn drive(&self, output: Output, done: &[bool]) -> Result<Ended, CliError> {
        let drive = Drive::new(self, output, done);
        let (setup, args) = (self.run.setup, self.run.args);
        let reserved = self.settings.planned_bytes(self.model, setup.threads)?;
        if args.reading.resident {
            let reserved = reserved.into();
            let mut source = load_resident(setup, self.model, reserved, self.cancel, args.quiet)?;
            let trunk = source.trunk_report().cloned();
            self.live.resident(trunk.clone());
            return Ok(Ended {
                driven: drive.run(&mut source, None)?,
                trunk,
                streaming: None,
                notes: Vec::new(),
                failed: false,
            });
        }
        let live = self.live.clone();
        let mut streaming =
            Streaming::start(setup, &args.reading, self.model, self.settings, live)?;
        streaming.heed(self.cancel);
        let spill = streaming.spill();
        let driven = drive.run(streaming.source(), spill);
        let stopped = streaming.stop();
        let failures = stopped.failures();
        Ok(Ended {
            failed: !failures.is_empty(),
            notes: [failures, stopped.notes()].concat(),
            trunk: stopped.trunk(),
            streaming: Some(stopped.report()),
            driven: driven?,
        })
    }
}
