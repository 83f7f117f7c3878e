//! A run whose weights are read as they are needed.

use std::path::Path;
use std::sync::Arc;

use k3_actors::{ShutdownReport, StreamSettings, StreamingSource, Supervisor, SweepReads};
use k3_config::{BudgetPlan, Bytes, EngineChoice, HostMemory, Settings};
use k3_io::{DirectPolicy, EnginePreference, PagePolicy};
use k3_models::kimi_k3::KimiK3;
use k3_models::{ModelFamily, PageStore};
use k3_runtime::report::{ReadCeiling, StreamingReport, SweepReport, TrunkReport, share};
use k3_runtime::{Cancel, ResidentSource, Scheduler, SchedulerSettings, SpillSizes, WeightSource};

use super::ceiling;
use super::figures::{self, Figures, StreamFacts};
use super::live::Live;
use super::setup::Setup;
use crate::cli::memory::ReadingArgs;
use crate::error::{Asked, CliError, Positions};
use crate::planning::{self, Reading, Subject};
use crate::process::ProcessMemory;

/// A source that may tell what a sweep has read.
pub(crate) trait Reads: WeightSource {
    /// What the last sweep read; `None` if nothing is read after the start.
    fn reads(&self) -> Option<SweepReads>;
}

impl Reads for ResidentSource {
    fn reads(&self) -> Option<SweepReads> {
        None
    }
}

impl Reads for StreamingSource {
    fn reads(&self) -> Option<SweepReads> {
        Some(self.sweep_reads())
    }
}

/// One sweep's row of the report.
pub(crate) fn sweep_report(
    reads: &SweepReads,
    positions: usize,
    is_prompt: bool,
    seconds: f64,
) -> SweepReport {
    SweepReport {
        positions: positions as u64,
        is_prompt,
        seconds,
        wait_seconds: reads.wait_seconds(),
        trunk_read_bytes: reads.trunk.read_bytes,
        trunk_pinned_bytes: reads.trunk.pinned_bytes,
        expert_read_bytes: reads.experts.read_bytes,
        embedding_bytes: reads.row_bytes,
        page_read_bytes: reads.past_bytes,
        hits: reads.experts.hits,
        misses: reads.experts.misses,
    }
}

/// The actors of a run, and the plan they keep to.
pub(crate) struct Streaming {
    plan: BudgetPlan,
    supervisor: Supervisor,
    live: Live,
    notes: Vec<String>,
}

/// Pages that do not stay in memory, and where they go.
pub(crate) struct Spill {
    sizes: SpillSizes,
    store: Arc<dyn PageStore>,
}

impl Spill {
    /// A scheduler made by `new`, of `settings`, that puts pages there if any of
    /// them have to leave.
    pub(crate) fn scheduler<'a, S: WeightSource>(
        spill: Option<Self>,
        settings: SchedulerSettings,
        new: impl FnOnce(SchedulerSettings) -> Scheduler<'a, KimiK3, S>,
    ) -> Scheduler<'a, KimiK3, S> {
        let Some(Self { sizes, store }) = spill else {
            return new(settings);
        };
        let mut scheduler = new(SchedulerSettings {
            spill: Some(sizes),
            ..settings
        });
        scheduler.spill_to(store);
        scheduler
    }
}

/// Everything has stopped.
pub(crate) struct Stopped {
    plan: BudgetPlan,
    figures: Figures,
    live: Live,
    notes: Vec<String>,
    down: ShutdownReport,
}

impl Streaming {
    /// Plans the run and starts what it needs.
    ///
    /// # Errors
    ///
    /// A plan that does not fit the budget or the machine, and what
    /// [`Supervisor::start`] reports.
    pub(crate) fn start(
        setup: &Setup,
        args: &ReadingArgs,
        model: &KimiK3,
        session: SchedulerSettings,
        live: Live,
    ) -> Result<Self, CliError> {
        let footprint = model.footprint();
        let reading = Reading::for_trunk(footprint.trunk_bytes());
        let plan = plan(setup, model, session, &reading)?;
        check_headroom(plan.planned, &setup.settings, reading.pages)?;
        let engine = match setup.settings.engine.value {
            EngineChoice::Auto | EngineChoice::Uring => EnginePreference::Uring,
            EngineChoice::Pread => EnginePreference::Pread,
        };
        let checkpoint = &setup.checkpoint;
        let trunk_bytes = footprint.trunk_bytes();
        let ceiling = ceiling::find(args, checkpoint, trunk_bytes, &reading, engine);
        let (ceiling, mut notes) = match ceiling {
            Ok(ceiling) => (ceiling, Vec::new()),
            Err(reason) => (None, vec![reason]),
        };
        let picks = footprint.experts_per_token.into();
        notes.extend(plan.surplus(&setup.settings, picks));
        let settings = StreamSettings {
            engine,
            engine_config: reading.engine,
            direct: DirectPolicy::Probe,
            pages: reading.pages,
            policy: setup.settings.policy.value,
            spill: setup.settings.spill.as_ref().map(|dir| dir.value.clone()),
        };
        let supervisor = Supervisor::start(model, checkpoint, &plan, &settings, None)?;
        let trunk = checkpoint
            .trunk()
            .map(|trunk| trunk.report(model.program()));
        let facts = facts(&plan, &supervisor, footprint.vector_bytes, trunk, ceiling);
        live.streaming(facts, supervisor.gauges().clone());
        Ok(Self {
            plan,
            supervisor,
            live,
            notes,
        })
    }

    /// Does nothing ahead once `cancel` is requested.
    pub(crate) fn heed(&self, cancel: &Cancel) {
        self.supervisor.heed(cancel);
    }

    /// Pages that do not stay in memory, and where they go; `None` if all do.
    pub(crate) fn spill(&self) -> Option<Spill> {
        let sizes = SpillSizes::of(&self.plan.pages)?;
        let store = self.supervisor.page_store()?;
        Some(Spill { sizes, store })
    }

    /// What feeds the forward loop.
    pub(crate) fn source(&mut self) -> &mut StreamingSource {
        self.supervisor.source()
    }

    /// Measures, then stops everything in order.
    pub(crate) fn stop(self) -> Stopped {
        Stopped {
            plan: self.plan,
            figures: self.live.end_streaming(),
            live: self.live,
            notes: self.notes,
            down: self.supervisor.shutdown(),
        }
    }
}

/// The plan of a run of `setup`.
///
/// # Errors
///
/// It does not fit the budget.
pub(crate) fn plan(
    setup: &Setup,
    model: &KimiK3,
    session: SchedulerSettings,
    reading: &Reading,
) -> Result<BudgetPlan, CliError> {
    let budget = setup.budget.as_ref().expect("a streamed run has a budget");
    let subject = Subject {
        footprint: &model.footprint(),
        workspace: &|size| model.workspace_bytes(size),
        reading,
        context_positions: session.context_positions,
        context_total: session.context_total,
        spill: planning::spill(&setup.settings, session.sequences_max),
        chunk_positions: session.chunk_positions,
        sequences: session.sequences_max,
        guesses: session.guesses_max,
        all_logits: session.prompt_logits,
        threads: setup.threads,
        vocabulary_bytes: planning::vocabulary_bytes(setup.tokenizer.as_deref()),
        index_bytes: planning::index_bytes(&setup.checkpoint),
    };
    planning::plan_with_settings(&subject, budget, &setup.settings)
        .map_err(|refusal| CliError::refused_plan(refusal, Positions::Generation, &setup.settings))
}

fn facts(
    plan: &BudgetPlan,
    supervisor: &Supervisor,
    vector_bytes: u64,
    trunk: Option<TrunkReport>,
    ceiling: Option<ReadCeiling>,
) -> StreamFacts {
    let lines = plan.lines.iter();
    StreamFacts {
        budget_bytes: plan.budget.total.0,
        planned_bytes: plan.planned.0,
        lines: lines
            .map(|line| (line.kind.to_string(), line.bytes.0))
            .collect(),
        arenas: supervisor.pages().iter().map(figures::arena).collect(),
        engine: match supervisor.caps().kind {
            k3_io::EngineKind::Pread => "pread",
            k3_io::EngineKind::Uring => "io_uring",
        },
        vector_bytes,
        pinned_share: share(plan.pins.bytes, plan.pins.bytes_total),
        trunk,
        ceiling,
        major_faults_before: ProcessMemory::read().major_faults,
    }
}

impl Stopped {
    /// What died instead of stopping, one sentence each.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.down.failures.iter().map(ToString::to_string).collect()
    }

    /// What a person should know, one sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        [self.notes.clone(), self.figures.notes()].concat()
    }

    /// The trunk in files of its own, where there is one.
    pub(crate) fn trunk(&self) -> Option<TrunkReport> {
        self.figures.trunk.clone()
    }

    /// The run's report.
    pub(crate) fn report(self) -> StreamingReport {
        let figures = self.figures;
        let (sweeps, sweeps_left_out) = self.live.rows();
        StreamingReport {
            plan: self.plan,
            memory: figures.memory,
            engine: figures.engine,
            bytes: figures.bytes,
            cache: figures.cache,
            time: figures.time,
            sweeps,
            sweeps_left_out,
            fallbacks: figures.fallbacks,
        }
    }
}

/// Refuses what `named` makes a measurement reserve beside a plan.
pub(crate) fn check_beside(
    [planned, beside]: [Bytes; 2],
    named: &'static str,
    pages: PagePolicy,
) -> Result<(), CliError> {
    let all = Bytes(planned.0.saturating_add(beside.0));
    match planning::headroom(&HostMemory::read(Path::new("/")), pages) {
        Some(headroom) if all > headroom.bytes => Err(CliError::MeasureTooLarge {
            beside,
            named,
            planned,
            headroom,
        }),
        _ => Ok(()),
    }
}

/// Refuses a plan that this machine would end half-way.
pub(crate) fn check_headroom(
    planned: Bytes,
    settings: &Settings,
    pages: PagePolicy,
) -> Result<(), CliError> {
    match planning::headroom(&HostMemory::read(Path::new("/")), pages) {
        Some(headroom) if planned > headroom.bytes => Err(CliError::OverPlan {
            planned,
            budget: Asked::of(settings).budget().to_owned(),
            headroom,
        }),
        // A kernel that does not tell is no reason to refuse.
        _ => Ok(()),
    }
}
