//! Generation: from the command line to the last token.
//!
//! | module | holds |
//! |---|---|
//! | [`state`] | conversations in files |
//! | [`request`] | everything that can be refused before weights are read |
//! | [`sampling`] | how tokens are chosen and where they end |
//! | [`outputs`] | the files a run writes |
//! | [`guard`] | that they are none of those it reads |
//! | [`answer`] | one answer as it comes, and all of them to read |
//! | [`stream`] | tokens to standard output as they come |
//! | [`steps`] | prefill, steps, teacher forcing |
//! | [`summary`] | what the run tells about itself |

mod answer;
pub(crate) mod guard;
mod outputs;
mod request;
pub(crate) mod sampling;
mod state;
mod steps;
mod stream;
mod summary;

use std::time::Instant;

use k3_config::BudgetPlan;
use k3_models::ModelFamily as _;
use k3_models::kimi_k3::KimiK3;
use k3_runtime::report::{PrefixReport, StopReason, StreamingReport, TrunkReport};
use k3_runtime::{Cancel, ComputePool, RunError, Scheduler, SchedulerSettings};
use k3_terminal::Stream;

use crate::cli::args::{GenerateArgs, OutputArgs};
use crate::commands::running::exposed;
use crate::commands::running::live::{Live, RunFacts};
use crate::commands::running::setup::load_resident;
use crate::commands::running::streaming::{self, Reads, Spill, Streaming};
use crate::demo;
use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupt;
use crate::metrics::Metrics;
use crate::planning::{self, Reading};
use crate::render;
use crate::render::style::Style;
use crate::stdout::Stdout;
use answer::Answer;
use guard::Inputs;
use outputs::Outputs;
use request::Request;
pub(crate) use state::StateError;
use steps::{Done, Generation};
use stream::TokenStream;

/// What the text of the first run begins with, so that it has its beginning. Several
/// answers have it where they are read, each its own.
fn beginning(given: &GenerateArgs, args: &GenerateArgs, request: &Request) -> &'static str {
    let is_text = !args.output.quiet && !args.output.json;
    let has_place = request.choices == 1 || is_one_screen();
    if demo::is_first_run(given) && is_text && has_place {
        demo::PROMPT
    } else {
        ""
    }
}

/// Whether what goes to standard output and to standard error stands on one screen.
fn is_one_screen() -> bool {
    [Stream::Stdout, Stream::Stderr]
        .into_iter()
        .all(k3_terminal::is_terminal)
}

/// Generates.
///
/// # Errors
///
/// Whatever ends the run without a result to keep.
pub(crate) fn run(given: &GenerateArgs) -> Result<Exit, CliError> {
    let started = Instant::now();
    let args = &demo::with_defaults(given)?;
    let request = Request::resolve(args)?;
    let live = Live::new(run_facts(&request, args));
    // Until the report is out: the last figures are those of the report.
    let address = args.metrics.address(&request.setup.settings);
    let figures = exposed::collector(live.clone());
    let _metrics = Metrics::open(address, args.output.quiet, figures)?;
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let pool = planning::pool(&request.setup.settings, request.setup.threads)?;
    let layout = request.setup.checkpoint.bind(request.setup.layers)?;
    let save_state = args.answer.save_state.as_deref();
    let save = save_state.map(|path| (path, request.setup.state_binding()));
    let outputs = Outputs::create(&args.output, save, &Inputs::of(&request, args))?;
    let session = session(&request, args);
    let beginning = beginning(given, args, &request);
    let run = Run {
        started,
        request: &request,
        args,
        live,
        cancel,
        pool: &pool,
        session,
        beginning,
    };
    let loaded = request.setup.load(layout, &run.cancel);
    let model = loaded.map_err(nothing_to_keep)?;
    let Ended {
        mut done,
        trunk,
        streaming,
        failed,
    } = run.whole(&model, outputs).map_err(nothing_to_keep)?;
    let unwritten = done.outputs.commit_dumps(&done.trace);
    done.notes.extend(unwritten.iter().cloned());
    let exit = exit_of(&done, &args.output);
    let mut report = summary::report(&run, &model, &done, (trunk, streaming));
    let shown = if args.output.json && !done.output_closed {
        Stdout.write(summary::json(&report).as_bytes())
    } else {
        Ok(())
    };
    let failures = done.outputs.commit_report(&report);
    if !args.output.quiet {
        // What could not be written is an error below, and no note beside it.
        report.notes.retain(|note| !unwritten.contains(note));
        render::report::print(&report, args.output.per_token, Style::detect());
        if demo::is_first_run(given) {
            render::report::print_text(&format!("\n{}", demo::next_steps()));
        }
    }
    // What the run ended with, then each output that could not be written.
    let errors = done
        .error
        .take()
        .into_iter()
        .chain(failures)
        .chain(shown.err());
    if let Some(error) = CliError::together(errors.collect()) {
        return Err(error);
    }
    if failed {
        return Ok(Exit::Failed);
    }
    exit
}

/// How a run ends that has done this.
fn exit_of(done: &Done, output: &OutputArgs) -> Result<Exit, CliError> {
    let has_tokens = done.answers.iter().any(|one| !one.generated_ids.is_empty());
    let has_report = output.json || output.out.is_some();
    let is_kept = has_tokens || has_report || done.saved_state.is_some();
    match done.stop {
        StopReason::Interrupted if done.output_closed => Ok(Exit::Done),
        StopReason::Interrupted if is_kept => Ok(Exit::InterruptedKept),
        StopReason::Interrupted => Err(CliError::Interrupted),
        _ => Ok(Exit::Done),
    }
}

fn run_facts(request: &Request, args: &GenerateArgs) -> RunFacts {
    RunFacts {
        identity: request.setup.identity.clone(),
        isa: request.setup.isa.to_string(),
        attention: request.setup.form.to_string(),
        threads: request.setup.threads,
        source: summary::source_name(args),
        prompt_tokens: request.prompt_ids.len(),
    }
}

/// A run that has been checked but not started.
#[derive(Debug)]
pub(crate) struct Preview {
    /// What it would continue.
    pub prompt_ids: Vec<u32>,
    /// What it would reserve, or by how much it does not fit.
    pub plan: Result<BudgetPlan, CliError>,
    /// Settings that change nothing, one sentence each.
    pub notes: Vec<String>,
}

/// Checks `args` as a run does before it reads a weight.
///
/// # Errors
///
/// Whatever such a run would be refused for, except a budget that is too small
/// or for which the machine has no room at the moment.
pub(crate) fn preview(args: &GenerateArgs) -> Result<Preview, CliError> {
    let request = Request::resolve(args)?;
    let save_state = args.answer.save_state.as_deref();
    guard::check(&args.output, save_state, &Inputs::of(&request, args))?;
    let model = request.setup.bind_sizes()?;
    let session = session(&request, args);
    session.planned_bytes(&model, request.setup.threads)?;
    let reading = Reading::for_trunk(model.footprint().trunk_bytes());
    match streaming::plan(&request.setup, &model, session, &reading) {
        Err(error) if !matches!(error, CliError::TooSmall { .. }) => Err(error),
        plan => {
            let mut notes = request.notes;
            if let Ok(plan) = &plan {
                let picks = model.footprint().experts_per_token.into();
                notes.extend(plan.surplus(&request.setup.settings, picks));
            }
            Ok(Preview {
                prompt_ids: request.prompt_ids,
                plan,
                notes,
            })
        }
    }
}

fn session(request: &Request, args: &GenerateArgs) -> SchedulerSettings {
    SchedulerSettings {
        sequences_max: request.choices,
        guesses_max: planning::guesses(&request.setup.settings),
        prompt_logits: args.output.all_positions || args.generation.tf_check,
        ..SchedulerSettings::single(request.context_positions, request.setup.chunk_positions)
    }
}

/// Of a load that was cut short nothing is worth keeping.
fn nothing_to_keep(error: CliError) -> CliError {
    match error {
        CliError::Run(RunError::Cancelled) => CliError::Interrupted,
        other => other,
    }
}

/// Everything a run needs besides its weights.
struct Run<'a> {
    started: Instant,
    request: &'a Request,
    args: &'a GenerateArgs,
    live: Live,
    cancel: Cancel,
    pool: &'a ComputePool,
    session: SchedulerSettings,
    /// Text that goes to standard error before the first token of an answer.
    beginning: &'static str,
}

/// A run that has ended, with everything stopped.
struct Ended {
    done: Done,
    trunk: Option<TrunkReport>,
    streaming: Option<StreamingReport>,
    /// Whether something died while stopping. The tokens are right all the
    /// same: an error before them would have ended the run.
    failed: bool,
}

impl Run<'_> {
    fn whole(&self, model: &KimiK3, outputs: Outputs) -> Result<Ended, CliError> {
        if self.args.reading.resident {
            self.resident(model, outputs)
        } else {
            self.streamed(model, outputs)
        }
    }

    /// Runs with every weight in memory, if there is room for them and for the
    /// session.
    fn resident(&self, model: &KimiK3, outputs: Outputs) -> Result<Ended, CliError> {
        let request = self.request;
        let session = self
            .session
            .planned_bytes(model, request.setup.threads)?
            .into();
        let quiet = self.args.output.quiet;
        let mut source = load_resident(&request.setup, model, session, &self.cancel, quiet)?;
        let trunk = source.trunk_report().cloned();
        self.live.resident(trunk.clone());
        Ok(Ended {
            trunk,
            done: self.generate(model, &mut source, outputs, None)?,
            streaming: None,
            failed: false,
        })
    }

    /// Runs within the budget, reading as it goes.
    fn streamed(&self, model: &KimiK3, outputs: Outputs) -> Result<Ended, CliError> {
        // What the session reserves is part of the plan, its limits are its own.
        self.session
            .planned_bytes(model, self.request.setup.threads)?;
        let reading = &self.args.reading;
        let live = self.live.clone();
        let mut streaming =
            Streaming::start(&self.request.setup, reading, model, self.session, live)?;
        streaming.heed(&self.cancel);
        let spill = streaming.spill();
        let done = self.generate(model, streaming.source(), outputs, spill);
        // Whatever has happened, everything is stopped in order.
        let stopped = streaming.stop();
        let mut done = done?;
        let failures = stopped.failures();
        let failed = !failures.is_empty();
        done.notes.extend(failures);
        done.notes.extend(stopped.notes());
        Ok(Ended {
            trunk: stopped.trunk(),
            streaming: Some(stopped.report()),
            done,
            failed,
        })
    }

    fn generate<S: Reads>(
        &self,
        model: &KimiK3,
        source: &mut S,
        outputs: Outputs,
        spill: Option<Spill>,
    ) -> Result<Done, CliError> {
        let (request, args) = (self.request, self.args);
        // A sweep that was cut short leaves no state to save.
        let cancel = match args.answer.save_state {
            Some(_) => Cancel::default(),
            None => self.cancel.clone(),
        };
        let new = |session| Scheduler::new(model, source, self.pool, session, cancel);
        let mut scheduler = Spill::scheduler(spill, self.session, new);
        if args.output.dump_trace.is_some() {
            scheduler.record_trace();
        }
        let store = request.setup.prefix_store(model)?;
        if let Some(store) = &store {
            scheduler.keep_prefixes(store);
        }
        scheduler.report_progress(self.live.progress());
        let load_seconds = self.started.elapsed().as_secs_f64();
        self.live.loaded(load_seconds);
        let stops = request.stops.strings.clone();
        let tokenizer = request.setup.tokenizer.as_deref();
        let answers = (0..request.choices).map(|choice| {
            let silent = choice > 0 || args.output.json;
            let stream = TokenStream::new(tokenizer, stops.clone(), silent, self.beginning);
            Answer::new(stream, request.logprobs.is_some())
        });
        let (live, cancel) = (self.live.clone(), &self.cancel);
        let mut generation = Generation::new(
            (request, args),
            scheduler,
            outputs,
            answers.collect(),
            (live, cancel),
        );
        let ended = generation.run();
        let mut done = generation.finish(ended);
        done.timing.load_seconds = load_seconds;
        done.prefix_cache = store.as_ref().map(PrefixReport::new);
        Ok(done)
    }
}
