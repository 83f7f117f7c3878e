//! Everything that can be refused before a weight is read.

use std::path::Path;

use k3_config::{SettingValues, Settings};
use k3_runtime::SamplingSettings;
use k3_tokenizer::{Mode, Tokenizer};

use super::sampling::{self, Stops};
use super::state::Loaded;
use crate::cli::args::{DEFAULT_GEN, GenerateArgs, GenerationArgs, PromptArgs};
use crate::commands::model_path;
use crate::commands::running::setup::{Setup, SetupArgs, size};
use crate::error::CliError;
use crate::inputs::{GivenIds, given_ids, read_text};

/// A run that has been checked against the command line and the checkpoint's
/// configuration.
#[derive(Debug)]
pub(super) struct Request {
    /// The model and how it is run.
    pub setup: Setup,
    /// The conversation to go on with.
    pub loaded: Option<Loaded>,
    /// Ids to continue, at least one, from the first of the conversation.
    pub prompt_ids: Vec<u32>,
    /// How many of the last of them were generated before, in the same answer.
    pub output_len: usize,
    /// Tokens to generate.
    pub gen_count: usize,
    /// What ends generation.
    pub stops: Stops,
    /// How tokens are chosen.
    pub sampling: SamplingSettings,
    /// Answers to generate.
    pub choices: usize,
    /// Alternatives that are told of each token beside its logprob.
    pub logprobs: Option<usize>,
    /// Positions the sequence gets memory for.
    pub context_positions: usize,
    /// Things worth knowing, one line each.
    pub notes: Vec<String>,
}

/// The prompt before the model is known.
enum Given {
    Text(String),
    Ids(GivenIds),
    /// Only what a saved conversation holds.
    Nothing,
}

impl Request {
    /// Checks `args` and opens the checkpoint.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be done as asked.
    pub(super) fn resolve(args: &GenerateArgs) -> Result<Self, CliError> {
        let sampling = sampling::settings(&args.generation.sampling, &args.generation.shaping);
        sampling.validate()?;
        // A mistyped command lands here as MODEL, and lacks a prompt only because of that.
        model_path(args.model.model.as_deref())?;
        let load_state = args.answer.load_state.as_deref();
        let given = match Given::read(&args.prompt) {
            Err(CliError::NoPrompt) if load_state.is_some() => Given::Nothing,
            other => other?,
        };
        let common = SetupArgs {
            model: &args.model,
            memory: &args.memory,
            reading: &args.reading,
            execution: &args.execution,
            prefix: &args.prefix,
        };
        let setup = Setup::open(common, SettingValues::default())?;
        let vocab_size = setup.checkpoint.config().vocab_size;
        let tokenizer = setup.tokenizer.as_deref();
        let new_ids = given.encode(tokenizer, &setup.model_dir, vocab_size)?;
        let binding = setup.state_binding();
        let loaded = load_state.map(|path| Loaded::open(path, &binding, vocab_size));
        let loaded = loaded.transpose()?;
        let (prompt_ids, output_len) = match &loaded {
            Some(loaded) => loaded.ids(&new_ids)?,
            None => (new_ids, 0),
        };
        sampling.check_vocabulary(vocab_size)?;
        let gen_count = gen_count(&args.generation);
        let context_positions = positions(args, &setup.settings, &prompt_ids, gen_count)?;
        let eos = if args.generation.ignore_eos {
            Vec::new()
        } else {
            setup.stop_ids()
        };
        let stops = sampling::stops(&args.generation.shaping, &setup, eos)?;
        Ok(Self {
            notes: [
                sampling::notes(args, &sampling, gen_count),
                setup.notes.clone(),
            ]
            .concat(),
            setup,
            loaded,
            prompt_ids,
            output_len,
            gen_count,
            stops,
            sampling,
            choices: args.answer.choices.map_or(1, size),
            logprobs: args.generation.shaping.logprobs.map(size),
            context_positions,
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
            (Self::Nothing, _) => return Ok(Vec::new()),
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
