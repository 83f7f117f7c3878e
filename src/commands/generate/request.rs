//! Everything that can be refused before a weight is read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k3_config::{
    AttentionChoice, DEFAULT_CHUNK_POSITIONS, IsaChoice, MemoryBudget, PathList, SettingValues,
    Settings, Sourced,
};
use k3_kernels::{Isa, KernelSet};
use k3_models::kimi_k3::AttentionForm;
use k3_runtime::{Checkpoint, CheckpointPaths, Checksums, SamplingSettings};
use k3_tokenizer::{Mode, Tokenizer};

use super::sampling::{self, Stops};
use crate::cli::args::{DEFAULT_GEN, GenerateArgs, GenerationArgs, ModelArgs, PromptArgs};
use crate::cli::memory::positive;
use crate::commands::model_path;
use crate::error::CliError;
use crate::inputs::{GivenIds, given_ids, read_text};
use crate::{demo, planning, settings, vocabulary};

/// A run that has been checked against the command line and the checkpoint's
/// configuration.
#[derive(Debug)]
pub(super) struct Request {
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
    pub tokenizer: Option<Tokenizer>,
    /// Ids to continue, at least one.
    pub prompt_ids: Vec<u32>,
    /// Tokens to generate.
    pub gen_count: usize,
    /// What ends generation.
    pub stops: Stops,
    /// How tokens are chosen.
    pub sampling: SamplingSettings,
    /// Alternatives that are told of each token beside its logprob.
    pub logprobs: Option<usize>,
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
    /// Positions the sequence gets memory for.
    pub context_positions: usize,
    /// Things worth knowing, one line each.
    pub notes: Vec<String>,
}

/// The prompt before the model is known.
enum Given {
    Text(String),
    Ids(GivenIds),
}

impl Request {
    /// Checks `args` and opens the checkpoint.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be done as asked.
    pub(super) fn resolve(args: &GenerateArgs) -> Result<Self, CliError> {
        let model_dir = model_path(args.model.model.as_deref())?;
        let sampling = sampling::settings(&args.generation);
        sampling.validate()?;
        let settings = settings::resolve(values(args), args.memory.settings.as_deref())?;
        settings::check_places(&settings)?;
        let isa = chosen_isa(&settings.isa)?;
        let given = Given::read(&args.prompt)?;
        let checkpoint = open_checkpoint(&model_dir, &settings, &args.model)?;
        let vocab_size = checkpoint.config().vocab_size;
        let tokenizer = open_vocabulary(settings.tokenizer.as_ref(), &model_dir, vocab_size)?;
        let prompt_ids = given.encode(tokenizer.as_ref(), &model_dir, vocab_size)?;
        sampling.check_vocabulary(vocab_size)?;
        let gen_count = gen_count(&args.generation);
        let context_positions = positions(args, &settings, &prompt_ids, gen_count)?;
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
        let notes = [
            sampling::notes(args, &sampling, gen_count),
            settings.warnings.clone(),
            planning::idle_chunk(&settings).into_iter().collect(),
            trunk_note(&checkpoint, &args.model).into_iter().collect(),
            demo_note(&model_dir).into_iter().collect(),
            idle_beside_resident(args, &settings),
        ]
        .concat();
        let eos = &checkpoint.config().eos_token_ids;
        let stops = sampling::stops(
            &args.generation,
            tokenizer.as_ref(),
            &model_dir,
            eos,
            vocab_size,
        )?;
        Ok(Self {
            identity: checkpoint.identity().to_string(),
            model_dir,
            budget,
            checkpoint: Arc::new(checkpoint),
            tokenizer,
            prompt_ids,
            gen_count,
            stops,
            sampling,
            logprobs: args.generation.shaping.logprobs.map(size),
            layers: args.model.layers.map(size),
            threads: planning::threads(&settings),
            isa,
            form: super::super::plan::form(settings.attention.value),
            chunk_positions: size(chunk),
            context_positions,
            settings,
            notes,
        })
    }
}

impl Given {
    fn read(args: &PromptArgs) -> Result<Self, CliError> {
        if let Some(ids) = given_ids(args.ids.as_deref(), args.ids_file.as_deref())? {
            return Ok(Self::Ids(ids));
        }
        match (&args.prompt, &args.prompt_file) {
            (Some(text), _) => Ok(Self::Text(text.clone())),
            (None, Some(file)) => Ok(Self::Text(read_text(file)?)),
            (None, None) => Err(CliError::NoPrompt),
        }
    }

    fn encode(
        &self,
        tokenizer: Option<&Tokenizer>,
        model_dir: &Path,
        vocab_size: usize,
    ) -> Result<Vec<u32>, CliError> {
        let ids = match (self, tokenizer) {
            (Self::Ids(given), _) => given.check(vocab_size)?,
            (Self::Text(text), Some(tokenizer)) => tokenizer.encode(text, Mode::Content),
            (Self::Text(_), None) => {
                return Err(CliError::NoVocabulary {
                    path: model_dir.to_owned(),
                    need: "a text prompt needs".to_owned(),
                    instead: " DIR, or give the prompt as --ids",
                });
            }
        };
        if ids.is_empty() {
            return Err(CliError::EmptyPrompt);
        }
        Ok(ids)
    }
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

fn gen_count(args: &GenerationArgs) -> usize {
    let default = if args.tf_check { 0 } else { DEFAULT_GEN };
    args.gen_count.map_or(default, size)
}

/// Positions to reserve: what the run needs, if that is allowed.
fn positions(
    args: &GenerateArgs,
    settings: &Settings,
    prompt: &[u32],
    generated: usize,
) -> Result<usize, CliError> {
    if args.generation.tf_check && prompt.len() < 2 {
        return Err(CliError::NothingToCheck);
    }
    let context = size(settings.context.value.get().into());
    let prompt = prompt.len();
    if prompt + generated > context {
        return Err(CliError::ContextTooSmall {
            prompt,
            generated,
            context,
            named: settings.context.origin.spelled("context"),
        });
    }
    Ok(prompt + generated)
}

fn idle_beside_resident(args: &GenerateArgs, settings: &Settings) -> Vec<String> {
    let idle = args.reading.resident.then_some(settings);
    idle.and_then(planning::idle_beside_resident)
        .into_iter()
        .collect()
}

/// The options given, as a layer of settings.
fn values(args: &GenerateArgs) -> SettingValues {
    let (execution, model) = (&args.execution, &args.model);
    SettingValues {
        context: execution.context.map(positive),
        chunk: execution.chunk.map(positive),
        threads: execution.threads.map(positive),
        pin_threads: execution.placement.pins(),
        isa: execution.isa.map(isa_choice),
        attention: execution.attention.map(|form| match form {
            AttentionForm::Latent => AttentionChoice::Latent,
            AttentionForm::Expanded => AttentionChoice::Expanded,
        }),
        engine: args.reading.engine,
        policy: args.reading.policy,
        root: (!model.roots.is_empty()).then(|| PathList(model.roots.clone())),
        trunk: (!model.trunk.is_empty()).then(|| PathList(model.trunk.clone())),
        tokenizer: model.tokenizer.clone(),
        ..args.memory.values()
    }
}

/// An instruction set as a setting.
pub(crate) fn isa_choice(isa: Isa) -> IsaChoice {
    match isa {
        Isa::Scalar => IsaChoice::Scalar,
        Isa::Avx2 => IsaChoice::Avx2,
        Isa::Avx512 => IsaChoice::Avx512,
    }
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

/// A count that parsers have bounded by 32 bits.
pub(super) fn size(count: u64) -> usize {
    usize::try_from(count).expect("bounded by the parser")
}
