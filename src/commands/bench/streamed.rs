//! A model that is streamed for a measurement: opened, planned, not yet started.

use k3_actors::StreamSettings;
use k3_config::{
    BudgetPlan, Bytes, EngineChoice, MemoryRequest, Origin, Preset, SettingValues, Sourced,
};
use k3_io::{DirectPolicy, EnginePreference};
use k3_models::ModelFamily as _;

use super::opened::Opened;
use super::size;
use crate::cli::bench::StreamedArgs;
use crate::commands::running::streaming::{check_beside, check_headroom};
use crate::error::{CliError, Positions};
use crate::planning::{self, Reading, Subject};

/// Everything that can be refused before a weight is read.
pub(super) struct Prepared {
    pub(super) opened: Opened,
    pub(super) plan: BudgetPlan,
    pub(super) reading: Reading,
}

impl Prepared {
    /// A plan for sweeps of up to `chunk` positions in a context of `context`, which
    /// `positions` says how to lower; `beside` says what is reserved besides the plan.
    ///
    /// # Errors
    ///
    /// What cannot be planned, read or held.
    pub(super) fn new(
        args: &StreamedArgs,
        [context, chunk]: [u64; 2],
        positions: Positions,
        beside: &dyn Fn(&BudgetPlan) -> u64,
    ) -> Result<Self, CliError> {
        let values = SettingValues {
            engine: args.engine,
            policy: args.policy,
            ..args.memory.values()
        };
        let file = args.memory.settings.as_deref();
        let mut opened = Opened::new(&args.measured, values, file)?;
        let settings = &mut opened.settings;
        if settings.memory.origin == Origin::Default {
            // With all the memory there is, nothing might be left to read.
            let floor = MemoryRequest::Preset(Preset::Floor);
            settings.memory = Sourced::default_value(floor);
        }
        if settings.lookahead.value > 0 {
            // What guesses read in vain is no part of a sweep's requests.
            let none = Sourced::default_value(0);
            let origin = std::mem::replace(&mut settings.lookahead, none).origin;
            let note = format!("lookahead ({origin}) is off while sweeps are measured");
            settings.warnings.push(note);
        }
        let model = &opened.model;
        let footprint = model.footprint();
        let reading = Reading::for_trunk(footprint.trunk_bytes());
        let budget = planning::budget(settings)?;
        let subject = Subject {
            footprint: &footprint,
            workspace: &|size| model.workspace_bytes(size),
            reading: &reading,
            context_positions: size(context),
            context_total: None,
            spill: None,
            chunk_positions: size(chunk),
            sequences: 1,
            guesses: 0,
            all_logits: false,
            threads: opened.threads,
            vocabulary_bytes: 0,
            index_bytes: planning::index_bytes(&opened.checkpoint),
        };
        let plan = planning::plan(&subject, &budget, settings)
            .map_err(|refusal| CliError::refused_plan(refusal, positions, settings))?;
        let surplus = plan.surplus(settings, footprint.experts_per_token.into());
        settings.warnings.extend(surplus);
        check_headroom(plan.planned, settings, reading.pages)?;
        let beside = Bytes(beside(&plan));
        check_beside([plan.planned, beside], "--buffer", reading.pages)?;
        Ok(Self {
            opened,
            plan,
            reading,
        })
    }

    /// How weights are read.
    pub(super) fn stream_settings(&self) -> StreamSettings {
        StreamSettings {
            engine: match self.opened.settings.engine.value {
                EngineChoice::Auto | EngineChoice::Uring => EnginePreference::Uring,
                EngineChoice::Pread => EnginePreference::Pread,
            },
            engine_config: self.reading.engine.clone(),
            direct: DirectPolicy::Probe,
            pages: self.reading.pages,
            policy: self.opened.settings.policy.value,
            spill: None,
        }
    }
}
