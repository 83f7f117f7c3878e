//! How tokens are chosen and where they end, from the command line.

use k3_runtime::SamplingSettings;

use crate::cli::args::{GenerateArgs, SamplingArgs};
use crate::cli::sampling::ShapingArgs;
use crate::commands::running::setup::{self, Setup};
use crate::error::CliError;
use crate::inputs::IdsError;

/// What ends generation besides its length.
#[derive(Debug)]
pub(crate) struct Stops {
    /// Ids after which it ends.
    pub ids: Vec<u32>,
    /// Text before which it ends.
    pub strings: Vec<String>,
}

/// The settings that `sampling` and `shaping` ask for.
pub(crate) fn settings(sampling: &SamplingArgs, shaping: &ShapingArgs) -> SamplingSettings {
    let base = setup::sampling(sampling);
    let biases = shaping.logit_bias.iter();
    let mut logit_bias: Vec<_> = biases.map(|bias| (bias.id, bias.value)).collect();
    logit_bias.sort_by_key(|(id, _)| *id);
    let or = |given: Option<f32>, default| given.unwrap_or(default);
    SamplingSettings {
        repetition_penalty: or(shaping.repetition_penalty, base.repetition_penalty),
        frequency_penalty: or(shaping.frequency_penalty, base.frequency_penalty),
        presence_penalty: or(shaping.presence_penalty, base.presence_penalty),
        logit_bias,
        ..base
    }
}

/// Where generation ends; `eos` are the ids that end a message.
///
/// # Errors
///
/// An id that the model does not have, text without a vocabulary.
pub(crate) fn stops(
    shaping: &ShapingArgs,
    setup: &Setup,
    eos: Vec<u32>,
) -> Result<Stops, CliError> {
    let strings = shaping.stop.clone();
    if setup.tokenizer.is_none() && !strings.is_empty() {
        return Err(CliError::NoVocabulary {
            path: setup.model_dir.clone(),
            need: "--stop needs".to_owned(),
            instead: " DIR, or name the ids to end at with --stop-id",
        });
    }
    let vocab_size = setup.checkpoint.config().vocab_size;
    let given = &shaping.stop_id;
    let is_known = |id: &u32| usize::try_from(*id).is_ok_and(|id| id < vocab_size);
    if let Some(index) = given.iter().position(|id| !is_known(id)) {
        return Err(IdsError::OutOfRange {
            origin: "--stop-id".to_owned(),
            index: index + 1,
            id: given[index].into(),
            vocab_size,
        }
        .into());
    }
    let mut ids = eos;
    ids.extend(given);
    Ok(Stops { ids, strings })
}

/// Settings that change nothing, one sentence each.
pub(super) fn notes(
    args: &GenerateArgs,
    sampling: &SamplingSettings,
    gen_count: usize,
) -> Vec<String> {
    let generation = &args.generation;
    let mut notes = Vec::new();
    if generation.incremental {
        notes.push("--incremental is the default; --recompute is the other way".to_owned());
    }
    let at_random = given(&[
        ("--top-k", generation.sampling.top_k.is_some()),
        ("--top-p", generation.sampling.top_p.is_some()),
        ("--min-p", generation.sampling.min_p.is_some()),
        ("--seed", generation.sampling.seed.is_some()),
    ]);
    if sampling.temperature == 0.0 && !at_random.is_empty() {
        notes.push(format!(
            "{at_random}: no effect at temperature 0, which takes the likeliest token"
        ));
    }
    let several = args.answer.choices.is_some_and(|choices| choices > 1);
    if several && gen_count > 0 && sampling.temperature == 0.0 {
        notes.push(
            "--choices: all answers are the same at temperature 0; raise --temperature".to_owned(),
        );
    }
    let shaping = &generation.shaping;
    let of_tokens = given(&[
        ("--repetition-penalty", shaping.repetition_penalty.is_some()),
        ("--frequency-penalty", shaping.frequency_penalty.is_some()),
        ("--presence-penalty", shaping.presence_penalty.is_some()),
        ("--logit-bias", !shaping.logit_bias.is_empty()),
        ("--stop", !shaping.stop.is_empty()),
        ("--stop-id", !shaping.stop_id.is_empty()),
        ("--logprobs", shaping.logprobs.is_some()),
        ("--choices", several),
    ]);
    let is_reported = args.output.json || args.output.out.is_some();
    if gen_count == 0 && !of_tokens.is_empty() {
        notes.push(format!("{of_tokens}: no effect, as no token is generated"));
    } else if shaping.logprobs.is_some() && !is_reported {
        notes.push(
            "--logprobs: no effect without --json or --out, whose report has them".to_owned(),
        );
    }
    notes
}

/// The options that were given, with commas between.
fn given(options: &[(&str, bool)]) -> String {
    let given = options.iter().filter(|(_, is_given)| *is_given);
    let names: Vec<_> = given.map(|(name, _)| *name).collect();
    names.join(", ")
}
