//! Everything about a run but its prompts, checked before a weight is read.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k3_config::{
    DEFAULT_CHUNK_POSITIONS, IsaChoice, MemoryBudget, SettingValues, Settings, Sourced,
};
use k3_formats::TensorRef;
use k3_formats::snapshot::{SnapshotBinding, StateForm};
use k3_kernels::{Isa, KernelSet};
use k3_models::kimi_k3::{AttentionForm, KimiK3, KimiK3Layout, NUMERICS_VERSION};
use k3_runtime::{
    Cancel, Checkpoint, CheckpointPaths, Checksums, PrefixStore, ResidentSource, RunError,
    SamplingSettings, SessionBytes,
};
use k3_tokenizer::Tokenizer;

use crate::cli::args::{ExecutionArgs, ModelArgs, PrefixArgs, SamplingArgs};
use crate::cli::memory::{MemoryArgs, ReadingArgs, positive};
use crate::commands::model_path;
use crate::error::CliError;
use crate::render::progress::Progress;
use crate::{demo, planning, settings, vocabulary};

/// The options that a run has in common with every other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetupArgs<'a> {
    /// Where the checkpoint is.
    pub model: &'a ModelArgs,
    /// How much memory to use.
    pub memory: &'a MemoryArgs,
    /// How to read.
    pub reading: &'a ReadingArgs,
    /// How to compute.
    pub execution: &'a ExecutionArgs,
    /// What to keep for later runs.
    pub prefix: &'a PrefixArgs,
}

/// A model and how to run it.
#[derive(Debug)]
pub(crate) struct Setup {
    /// MODEL, as given.
    pub model_dir: PathBuf,
    /// The settings in force.
    pub settings: Settings,
    /// What the run may use; `None` when every weight is to be in memory.
    pub budget: Option<MemoryBudget>,
    /// The open checkpoint.
    pub checkpoint: Arc<Checkpoint>,
    /// Its identity, in hex.
    pub identity: String,
    /// The vocabulary, where there is one.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Layers to run, or all.
    pub layers: Option<usize>,
    /// Compute threads.
    pub threads: usize,
    /// Instruction set, one this processor runs.
    pub isa: Isa,
    /// Form of attention.
    pub form: AttentionForm,
    /// Prompt positions per sweep.
    pub chunk_positions: usize,
    /// Things worth knowing, one line each.
    pub notes: Vec<String>,
}

impl Setup {
    /// Checks `args`, with `values` beside them, and opens the checkpoint.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be done as asked.
    pub(crate) fn open(args: SetupArgs<'_>, values: SettingValues) -> Result<Self, CliError> {
        let model_dir = model_path(args.model.model.as_deref())?;
        let values = args.values(values);
        let mut settings = settings::resolve(values, args.memory.settings.as_deref())?;
        if args.prefix.no_prefix_cache {
            settings.prefix_cache = None;
        }
        settings::check_places(&settings)?;
        let isa = chosen_isa(&settings.isa)?;
        let checkpoint = open_checkpoint(&model_dir, &settings, args.model)?;
        let vocab_size = checkpoint.config().vocab_size;
        let tokenizer = open_vocabulary(settings.tokenizer.as_ref(), &model_dir, vocab_size)?;
        let tokenizer = tokenizer.map(Arc::new);
        let budget = if args.reading.resident {
            None
        } else {
            Some(planning::budget(&settings)?)
        };
        let chunk = match &budget {
            Some(budget) => settings.chunk_for(budget.total).value,
            None => settings
                .chunk
                .as_ref()
                .map_or(DEFAULT_CHUNK_POSITIONS, |chunk| chunk.value.get().into()),
        };
        let idle = args.reading.resident.then_some(&settings);
        let notes = [
            settings.warnings.clone(),
            planning::idle_chunk(&settings).into_iter().collect(),
            trunk_note(&checkpoint, args.model).into_iter().collect(),
            demo_note(&model_dir).into_iter().collect(),
            idle.and_then(planning::idle_beside_resident)
                .into_iter()
                .collect(),
        ]
        .concat();
        Ok(Self {
            identity: checkpoint.identity().to_string(),
            model_dir,
            budget,
            checkpoint: Arc::new(checkpoint),
            tokenizer,
            layers: args.model.layers.map(size),
            threads: planning::threads(&settings),
            isa,
            form: crate::commands::plan::form(settings.attention.value),
            chunk_positions: size(chunk),
            settings,
            notes,
        })
    }

    /// Ids that end an answer.
    pub(crate) fn stop_ids(&self) -> Vec<u32> {
        let eos = &self.checkpoint.config().eos_token_ids;
        match &self.tokenizer {
            Some(tokenizer) => tokenizer.stop_ids(eos),
            None => eos.clone(),
        }
    }

    /// The store of states that the settings name, for `model`.
    ///
    /// # Errors
    ///
    /// A directory that can be neither made nor listed.
    pub(crate) fn prefix_store(&self, model: &KimiK3) -> Result<Option<PrefixStore>, CliError> {
        let Some(directory) = &self.settings.prefix_cache else {
            return Ok(None);
        };
        let binding = self.state_binding();
        debug_assert_eq!(binding.layer_count as usize, model.layout().layer_count());
        let limit = self.settings.prefix_cache_gb.value.0.0;
        let store = PrefixStore::open(&directory.value, limit, binding)?;
        Ok(Some(store))
    }

    /// What a state depends on beside its ids.
    pub(crate) fn state_binding(&self) -> SnapshotBinding {
        let all = self.checkpoint.config().num_hidden_layers;
        let layers = self.layers.map_or(all, |layers| layers.min(all));
        SnapshotBinding {
            identity: self.checkpoint.identity(),
            numerics_version: NUMERICS_VERSION,
            form: match self.form {
                AttentionForm::Latent => StateForm::Latent,
                AttentionForm::Expanded => StateForm::Expanded,
            },
            layer_count: u32::try_from(layers).expect("capped by the config reader"),
        }
    }

    /// Binds the model, whose resident vectors `read` provides.
    ///
    /// # Errors
    ///
    /// Weights that contradict the configuration, and what `read` reports.
    pub(crate) fn bind(
        &self,
        layout: KimiK3Layout,
        read: impl FnMut(&TensorRef, &mut [u8]) -> Result<(), RunError>,
    ) -> Result<KimiK3, CliError> {
        let kernels = KernelSet::for_isa(self.isa).expect("it was checked");
        let (settings, checkpoint) = (&self.settings, &self.checkpoint);
        let block_bytes = planning::block_bytes_of(settings, checkpoint, layout.layer_count())?;
        let mut model = KimiK3::new(layout, self.form, kernels, block_bytes, read)?;
        checkpoint.place(model.program_mut())?;
        Ok(model)
    }

    /// The same with sizes alone: what its vectors hold does not matter.
    ///
    /// # Errors
    ///
    /// Weights that contradict the configuration.
    pub(crate) fn bind_sizes(&self) -> Result<KimiK3, CliError> {
        let layout = self.checkpoint.bind(self.layers)?;
        self.bind(layout, |_: &_, target: &mut [u8]| {
            target.fill(0);
            Ok(())
        })
    }

    /// Binds the model and reads its resident vectors, until `cancel`.
    ///
    /// # Errors
    ///
    /// As [`Self::bind`], and [`RunError::Cancelled`].
    pub(crate) fn load(&self, layout: KimiK3Layout, cancel: &Cancel) -> Result<KimiK3, CliError> {
        self.bind(layout, |tensor: &_, target: &mut [u8]| {
            if cancel.is_requested() {
                return Err(RunError::Cancelled);
            }
            self.checkpoint.read_tensor(tensor, target)
        })
    }
}

impl SetupArgs<'_> {
    /// The options given, as a layer of settings on `others`.
    fn values(&self, others: SettingValues) -> SettingValues {
        let (execution, model) = (self.execution, self.model);
        let memory = self.memory.values();
        SettingValues {
            context: execution.context.map(positive),
            chunk: execution.chunk.map(positive),
            draft: execution.draft.map(small),
            threads: execution.threads.map(positive),
            pin_threads: execution.placement.pins(),
            isa: execution.isa,
            attention: execution
                .attention
                .map(super::super::plan::attention_choice),
            engine: self.reading.engine,
            policy: self.reading.policy,
            root: (!model.roots.is_empty()).then(|| k3_config::PathList(model.roots.clone())),
            trunk: (!model.trunk.is_empty()).then(|| k3_config::PathList(model.trunk.clone())),
            tokenizer: model.tokenizer.clone(),
            sequences: others.sequences,
            context_total: others.context_total,
            prefix_cache: self.prefix.prefix_cache.clone(),
            prefix_cache_gb: self.prefix.prefix_cache_gb,
            spill: execution.spill.spill.clone(),
            spill_gb: execution.spill.spill_gb,
            ..memory
        }
    }
}

/// Reads every weight into memory beside a session of `beside`, until `cancel`.
///
/// # Errors
///
/// Too little memory, failed reads, [`RunError::Cancelled`].
pub(crate) fn load_resident(
    setup: &Setup,
    model: &KimiK3,
    beside: SessionBytes,
    cancel: &Cancel,
    quiet: bool,
) -> Result<ResidentSource, CliError> {
    let mut bar = None;
    let progress = |done, total| {
        bar.get_or_insert_with(|| Progress::bytes("weights", total, quiet))
            .set(done);
        if cancel.is_requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let (layer_count, checkpoint) = (model.layout().layer_count(), &setup.checkpoint);
    let source = ResidentSource::load(model, checkpoint, layer_count, beside, progress)?;
    Ok(source)
}

/// The checkpoint, with the packed trunk where one is named.
fn open_checkpoint(
    model_dir: &Path,
    settings: &Settings,
    args: &ModelArgs,
) -> Result<Checkpoint, CliError> {
    let roots = settings.root.as_ref().map(|roots| roots.value.0.clone());
    let checkpoint = Checkpoint::open(&CheckpointPaths {
        model_dir: model_dir.to_owned(),
        roots: roots.unwrap_or_default(),
        config: args.config.clone(),
    })?;
    let checksums = if args.no_checksums {
        Checksums::Ignored
    } else {
        Checksums::Compared
    };
    Ok(checkpoint.with_trunk(settings::trunk(settings), checksums)?)
}

/// That nobody named this model.
fn demo_note(model_dir: &Path) -> Option<String> {
    demo::is_demo(model_dir).then(|| {
        "this is the small built-in model; name the directory of another as MODEL".to_owned()
    })
}

/// What is to be known about the packed trunk, or that there is none.
fn trunk_note(checkpoint: &Checkpoint, args: &ModelArgs) -> Option<String> {
    match checkpoint.trunk() {
        Some(trunk) => trunk.note(),
        None => args
            .no_checksums
            .then(|| crate::commands::plan::IDLE_CHECKSUMS.to_owned()),
    }
}

/// The named vocabulary, which must be there, or the checkpoint's, which may.
fn open_vocabulary(
    named: Option<&Sourced<PathBuf>>,
    model_dir: &Path,
    vocab_size: usize,
) -> Result<Option<Tokenizer>, CliError> {
    let Some(named) = named else {
        return vocabulary::open(model_dir, Some(vocab_size));
    };
    let tokenizer = vocabulary::open(&named.value, Some(vocab_size))?;
    if tokenizer.is_none() {
        return Err(CliError::NoVocabulary {
            path: named.value.clone(),
            need: format!("{} names", named.origin.spelled("tokenizer")),
            instead: " DIR",
        });
    }
    Ok(tokenizer)
}

/// The instruction set that a setting names, if this processor has it.
pub(crate) fn chosen_isa(choice: &Sourced<IsaChoice>) -> Result<Isa, CliError> {
    let isa = match choice.value {
        IsaChoice::Auto => return Ok(KernelSet::detect().isa),
        IsaChoice::Scalar => Isa::Scalar,
        IsaChoice::Avx2 => Isa::Avx2,
        IsaChoice::Avx512 => Isa::Avx512,
    };
    if isa.is_available() {
        return Ok(isa);
    }
    Err(CliError::IsaUnavailable {
        isa,
        origin: choice.origin.clone(),
    })
}

/// A count that parsers have bounded by 32 bits, as a setting.
pub(crate) fn small(count: u64) -> u32 {
    u32::try_from(count).expect("bounded by the parser")
}

/// How tokens are chosen.
pub(crate) fn sampling(args: &SamplingArgs) -> SamplingSettings {
    let default = SamplingSettings::default();
    SamplingSettings {
        temperature: args.temperature.unwrap_or(default.temperature),
        top_k: args.top_k.map_or(default.top_k, size),
        top_p: args.top_p.unwrap_or(default.top_p),
        min_p: args.min_p.unwrap_or(default.min_p),
        seed: args.seed.unwrap_or(default.seed),
        ..default
    }
}

/// A count that parsers have bounded by 32 bits.
pub(crate) fn size(count: u64) -> usize {
    usize::try_from(count).expect("bounded by the parser")
}
