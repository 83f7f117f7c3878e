//! A model that is streamed for a measurement: opened, planned, not yet started.

use std::path::PathBuf;
use std::sync::Arc;

use k3_actors::StreamSettings;
use k3_config::{
    BudgetPlan, Bytes, EngineChoice, MemoryRequest, Origin, PathList, Preset, SettingValues,
    Settings, Sourced,
};
use k3_io::{DirectPolicy, EnginePreference};
use k3_kernels::KernelSet;
use k3_models::ModelFamily;
use k3_models::kimi_k3::{AttentionForm, KimiK3};
use k3_runtime::{Checkpoint, CheckpointPaths};

use crate::cli::bench::{ResultArgs, StreamedArgs};
use crate::cli::memory::positive;
use crate::commands::generate::{check_beside, check_headroom, guard};
use crate::commands::model_path;
use crate::error::{CliError, Positions};
use crate::output_file::OutputFile;
use crate::planning::{self, Reading, Subject};
use crate::settings;

/// Everything that can be refused before a weight is read.
pub(super) struct Prepared {
    pub(super) settings: Settings,
    settings_file: Option<PathBuf>,
    config_file: Option<PathBuf>,
    pub(super) checkpoint: Arc<Checkpoint>,
    pub(super) model: KimiK3,
    pub(super) plan: BudgetPlan,
    pub(super) reading: Reading,
    pub(super) threads: usize,
    pub(super) isa: String,
}

fn values(args: &StreamedArgs) -> SettingValues {
    SettingValues {
        threads: args.threads.map(positive),
        pin_threads: args.placement.pins(),
        engine: args.engine,
        policy: args.policy,
        root: (!args.roots.is_empty()).then(|| PathList(args.roots.clone())),
        ..args.memory.values()
    }
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
        let path = model_path(args.model.as_deref())?;
        let mut settings = settings::resolve(values(args), args.memory.settings.as_deref())?;
        settings::check_places(&settings)?;
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
        let roots = settings.root.as_ref().map(|roots| roots.value.0.clone());
        let checkpoint = Checkpoint::open(&CheckpointPaths {
            model_dir: path,
            roots: roots.unwrap_or_default(),
            config: args.config.clone(),
        })?;
        let layout = checkpoint.bind(args.layers.map(size))?;
        let kernels = KernelSet::detect();
        let trunk = planning::trunk_bytes(checkpoint.config(), layout.layer_count());
        let block_bytes = planning::block_bytes(&settings, trunk);
        let read = |tensor: &_, target: &mut [u8]| checkpoint.read_tensor(tensor, target);
        let model = KimiK3::new(layout, AttentionForm::Latent, kernels, block_bytes, read)?;
        let footprint = model.footprint();
        let reading = Reading::for_trunk(footprint.trunk_bytes());
        let budget = planning::budget(&settings)?;
        let threads = planning::threads(&settings);
        let subject = Subject {
            footprint: &footprint,
            workspace: &|size| model.workspace_bytes(size),
            reading: &reading,
            context_positions: size(context),
            chunk_positions: size(chunk),
            all_logits: false,
            threads,
            vocabulary_bytes: 0,
            index_bytes: planning::index_bytes(checkpoint.index()),
        };
        let plan = planning::plan(&subject, &budget, &settings)
            .map_err(|refusal| CliError::refused_plan(refusal, positions, &settings))?;
        let surplus = plan.surplus(&settings, footprint.experts_per_token.into());
        settings.warnings.extend(surplus);
        check_headroom(plan.planned, &settings, reading.pages)?;
        let beside = Bytes(beside(&plan));
        check_beside([plan.planned, beside], "--buffer", reading.pages)?;
        Ok(Self {
            settings,
            settings_file: settings::file(args.memory.settings.as_deref()),
            config_file: args.config.clone(),
            checkpoint: Arc::new(checkpoint),
            model,
            plan,
            reading,
            threads,
            isa: kernels.isa.to_string(),
        })
    }

    /// The file that was asked for, if it is none of the checkpoint's.
    ///
    /// # Errors
    ///
    /// A file of the checkpoint's, or one that cannot be made.
    pub(super) fn output(&self, args: &ResultArgs) -> Result<Option<OutputFile>, CliError> {
        let Some(out) = &args.out else {
            return Ok(None);
        };
        let inputs = guard::Inputs::of_checkpoint(&self.checkpoint, &self.settings)
            .and("the settings", self.settings_file.clone())
            .and("the configuration", self.config_file.clone());
        guard::check_one("--out", out, &inputs)?;
        OutputFile::create(out).map(Some)
    }

    /// How weights are read.
    pub(super) fn stream_settings(&self) -> StreamSettings {
        StreamSettings {
            engine: match self.settings.engine.value {
                EngineChoice::Auto | EngineChoice::Uring => EnginePreference::Uring,
                EngineChoice::Pread => EnginePreference::Pread,
            },
            engine_config: self.reading.engine.clone(),
            direct: DirectPolicy::Probe,
            pages: self.reading.pages,
            policy: self.settings.policy.value,
        }
    }
}

/// A count that the command line's parser has bounded.
fn size(count: u64) -> usize {
    usize::try_from(count).expect("bounded by the parser")
}
