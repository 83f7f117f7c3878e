//! The lines of the input: everything that can be refused before a weight is
//! read.

use std::path::{Path, PathBuf};

use super::error::BatchError;
use super::line::{self, Label, Line};
use crate::error::CliError;
use k3_runtime::SamplingSettings;
use k3_tokenizer::{Mode, Tokenizer};

/// Faulty lines that are listed.
const LISTED_MAX: usize = 10;

/// What all lines have in common.
pub(super) struct Defaults<'a> {
    /// Tokens to generate.
    pub gen_count: usize,
    /// How tokens are chosen.
    pub sampling: SamplingSettings,
    /// Ids that end every answer.
    pub end_ids: Vec<u32>,
    /// Further ids that end an answer.
    pub stop_ids: Vec<u32>,
    /// Texts that end it.
    pub stops: Vec<String>,
    /// Alternatives that are told of each token.
    pub logprobs: Option<usize>,
    /// The vocabulary, where there is one.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Ids of the model.
    pub vocab_size: usize,
    /// Positions that a prompt and its answer may have.
    pub context_positions: usize,
}

/// One prompt.
#[derive(Debug, Clone)]
pub(super) struct Prompt {
    /// Its line, from 1.
    pub line: usize,
    /// What it is called.
    pub id: Option<Label>,
    /// Ids to continue.
    pub ids: Vec<u32>,
    /// Tokens to generate.
    pub gen_count: usize,
    /// How they are chosen.
    pub sampling: SamplingSettings,
    /// Ids that end an answer.
    pub stop_ids: Vec<u32>,
    /// Texts before which it ends.
    pub stops: Vec<String>,
    /// Alternatives that are told of each token beside its logprob.
    pub logprobs: Option<usize>,
    /// Answers to it.
    pub choices: u32,
}

/// One answer to be: a prompt, by its place in the input, and the number of a
/// choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Index of the prompt.
    pub prompt: usize,
    /// Number of the choice.
    pub choice: u32,
}

/// Every answer to `prompts`, in the order of the output.
pub(super) fn wanted(prompts: &[Prompt]) -> Vec<Wanted> {
    let all = prompts.iter().enumerate();
    let all =
        all.flat_map(|(prompt, one)| (0..one.choices).map(move |choice| Wanted { prompt, choice }));
    all.collect()
}

/// The prompts of `text`, which came from `path`. Empty lines are none.
///
/// # Errors
///
/// [`BatchError::Lines`] lists what is wrong, line by line.
pub(super) fn prompts(
    path: &Path,
    text: &str,
    defaults: &Defaults<'_>,
) -> Result<Vec<Prompt>, CliError> {
    let mut prompts = Vec::new();
    let mut faults = Vec::new();
    let mut fault_count = 0;
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match prompt(index + 1, line, defaults) {
            Ok(prompt) => prompts.push(prompt),
            Err(fault) => {
                fault_count += 1;
                if faults.len() < LISTED_MAX {
                    faults.push(format!("line {}: {fault}", index + 1));
                }
            }
        }
    }
    let path: PathBuf = path.to_owned();
    if fault_count > 0 {
        return Err(BatchError::Lines {
            path,
            count: fault_count,
            faults,
        }
        .into());
    }
    if prompts.is_empty() {
        return Err(BatchError::Empty { path }.into());
    }
    Ok(prompts)
}

fn prompt(number: usize, text: &str, defaults: &Defaults<'_>) -> Result<Prompt, String> {
    let line = line::parse(text)?;
    let sampling = sampling(&line, &defaults.sampling);
    sampling.validate().map_err(|error| error.to_string())?;
    let vocab_size = defaults.vocab_size;
    let known = sampling.check_vocabulary(vocab_size);
    known.map_err(|error| error.to_string())?;
    let stops = line.stop.unwrap_or_else(|| defaults.stops.clone());
    if !stops.is_empty() && defaults.tokenizer.is_none() {
        return Err(
            "\"stop\" needs a vocabulary, and there is none here; name it with \
                    --tokenizer, or give \"stop_ids\""
                .into(),
        );
    }
    let given = line.stop_ids.as_ref().unwrap_or(&defaults.stop_ids);
    check_ids("\"stop_ids\": token", given, vocab_size)?;
    let stop_ids = [&defaults.end_ids[..], given].concat();
    let ids = match (line.prompt, line.ids) {
        (Some(_), Some(_)) => return Err("has both \"prompt\" and \"ids\"; leave one out".into()),
        (None, None) => return Err("has neither \"prompt\" nor \"ids\"".into()),
        (None, Some(ids)) => ids,
        (Some(text), None) => match defaults.tokenizer {
            Some(tokenizer) => tokenizer.encode(&text, Mode::Content),
            None => {
                return Err(
                    "\"prompt\" needs a vocabulary, and there is none here; name it with \
                            --tokenizer, or give \"ids\""
                        .into(),
                );
            }
        },
    };
    if ids.is_empty() {
        return Err("the prompt is empty; give at least one token".into());
    }
    check_ids("token", &ids, vocab_size)?;
    let gen_count = line.gen_count.unwrap_or(defaults.gen_count);
    let context = defaults.context_positions;
    if ids.len().saturating_add(gen_count) > context {
        return Err(format!(
            "{} prompt tokens and {gen_count} to generate do not fit a context of {context} \
             positions; raise --context",
            ids.len()
        ));
    }
    Ok(Prompt {
        line: number,
        id: line.id,
        ids,
        gen_count,
        sampling,
        stop_ids,
        stops,
        logprobs: line.logprobs.or(defaults.logprobs),
        choices: line.choices,
    })
}

/// How the tokens of `line` are chosen.
fn sampling(line: &Line, defaults: &SamplingSettings) -> SamplingSettings {
    let or = |given: Option<f32>, default| given.unwrap_or(default);
    SamplingSettings {
        temperature: or(line.temperature, defaults.temperature),
        top_k: line.top_k.unwrap_or(defaults.top_k),
        top_p: line.top_p.unwrap_or(defaults.top_p),
        min_p: or(line.min_p, defaults.min_p),
        seed: line.seed.unwrap_or(defaults.seed),
        repetition_penalty: or(line.repetition_penalty, defaults.repetition_penalty),
        frequency_penalty: or(line.frequency_penalty, defaults.frequency_penalty),
        presence_penalty: or(line.presence_penalty, defaults.presence_penalty),
        logit_bias: line
            .logit_bias
            .clone()
            .unwrap_or_else(|| defaults.logit_bias.clone()),
    }
}

fn check_ids(what: &str, ids: &[u32], vocab_size: usize) -> Result<(), String> {
    match ids.iter().find(|id| **id as usize >= vocab_size) {
        Some(id) => Err(format!(
            "{what} id {id} is outside the vocabulary of {vocab_size} ids"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Defaults<'static> {
        Defaults {
            gen_count: 16,
            sampling: SamplingSettings::default(),
            end_ids: vec![99],
            stop_ids: vec![5],
            stops: Vec::new(),
            logprobs: None,
            tokenizer: None,
            vocab_size: 100,
            context_positions: 64,
        }
    }

    fn refused(text: &str) -> String {
        let error = prompts(Path::new("in.jsonl"), text, &defaults()).unwrap_err();
        error.to_string()
    }

    #[test]
    fn lines_override_the_defaults() {
        let text = "{\"ids\": [1, 2]}\n\n{\"id\": \"b\", \"ids\": [3], \"gen\": 4, \"seed\": 9}\n\
                    {\"id\": 7, \"ids\": [3], \"temperature\": 0.5}";
        let prompts = prompts(Path::new("in.jsonl"), text, &defaults()).unwrap();
        let lines: Vec<_> = prompts.iter().map(|prompt| prompt.line).collect();
        assert_eq!(lines, [1, 3, 4]);
        assert_eq!((prompts[0].gen_count, prompts[1].gen_count), (16, 4));
        assert_eq!(prompts[1].id, Some(Label::Text("b".into())));
        assert_eq!(prompts[2].id, Some(Label::Number(7.into())));
        assert_eq!(prompts[1].sampling.seed, 9);
        assert_eq!(prompts[2].sampling.temperature, 0.5);
        assert_eq!(
            (&prompts[0].stop_ids[..], prompts[0].logprobs),
            (&[99, 5][..], None)
        );
    }

    #[test]
    fn what_shapes_an_answer_comes_from_the_line_or_from_the_options() {
        let text = "{\"ids\": [1], \"stop_ids\": [7, 8], \"logprobs\": 2, \"logit_bias\": \
                    {\"3\": 1}, \"presence_penalty\": 0.5}\n{\"ids\": [1], \"stop_ids\": []}";
        let options = Defaults {
            sampling: SamplingSettings {
                logit_bias: vec![(4, -1.0)],
                frequency_penalty: 0.25,
                ..SamplingSettings::default()
            },
            logprobs: Some(1),
            ..defaults()
        };
        let prompts = prompts(Path::new("in.jsonl"), text, &options).unwrap();
        let sampling = &prompts[0].sampling;
        assert_eq!(sampling.logit_bias, [(3, 1.0)]);
        assert_eq!(
            (sampling.presence_penalty, sampling.frequency_penalty),
            (0.5, 0.25)
        );
        assert_eq!(
            (&prompts[0].stop_ids[..], prompts[0].logprobs),
            (&[99, 7, 8][..], Some(2))
        );
        assert_eq!(
            (&prompts[1].stop_ids[..], prompts[1].logprobs),
            (&[99][..], Some(1))
        );
        assert_eq!(prompts[1].sampling.logit_bias, [(4, -1.0)]);
    }

    #[test]
    fn every_faulty_line_is_named() {
        let text = "{\"ids\": [1]}\n{\"ids\": [100]}\n{\"prompt\": \"a\", \"ids\": [1]}\n{}\n\
                    {\"ids\": []}\n{\"ids\": [1], \"gen\": 64}\n{\"ids\": [1], \"sed\": 1}\n[1]\n\
                    {\"ids\": [1], \"top_p\": 2}\n{\"ids\": [1]";
        assert!(refused("\u{feff}{\"ids\": [1]}").contains("byte order mark"));
        let said = refused(text);
        for part in [
            "9 of the lines",
            "line 2: token id 100",
            "line 3: has both",
            "line 4: has neither",
            "line 5: the prompt is empty",
            "line 6: 1 prompt tokens and 64 to generate",
            "line 7: unknown field `sed`",
            "line 8: not a JSON object",
            "line 9: --top-p 2",
            "line 10: EOF",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("line 1:"), "{said}");
        let said = refused(
            "{\"ids\": [1], \"presence_penalty\": 1e39}\n{\"ids\": [1], \"stop\": \"a\"}\n\
             {\"ids\": [1], \"stop_ids\": [100]}\n{\"ids\": [1], \"logit_bias\": {\"100\": 1}}",
        );
        for part in [
            "line 1: --presence-penalty inf",
            "line 2: \"stop\" needs a vocabulary",
            "line 3: \"stop_ids\": token id 100",
            "line 4: --logit-bias names id 100",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(refused("{\"prompt\": \"a\"}").contains("vocabulary"));
        assert!(refused("\n \n").contains("no prompt"));
    }
}
