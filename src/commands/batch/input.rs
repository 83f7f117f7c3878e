//! The lines of the input: everything that can be refused before a weight is
//! read.

use std::path::{Path, PathBuf};

use k3_runtime::SamplingSettings;
use k3_tokenizer::{Mode, Tokenizer};
use serde::{Deserialize, Serialize};

use super::error::BatchError;
use crate::error::CliError;

/// Faulty lines that are listed.
const LISTED_MAX: usize = 10;

/// What all lines have in common.
pub(super) struct Defaults<'a> {
    /// Tokens to generate.
    pub gen_count: usize,
    /// How tokens are chosen.
    pub sampling: SamplingSettings,
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

/// Answers to one prompt at most.
const CHOICES_MAX: u32 = 64;

/// What a line is called: handed through as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Label {
    /// A number.
    Number(serde_json::Number),
    /// A text.
    Text(String),
}

/// One line as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<Label>,
    prompt: Option<String>,
    ids: Option<Vec<u32>>,
    #[serde(rename = "gen")]
    gen_count: Option<usize>,
    choices: Option<u32>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f32>,
    seed: Option<u64>,
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
    if !text.trim_start().starts_with('{') {
        // A struct may be written as an array otherwise.
        return Err("not a JSON object".into());
    }
    let line: Line = serde_json::from_str(text).map_err(|error| {
        // The line is known; what is left is the column.
        let message = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        format!(
            "{} (column {})",
            message.replace(&place, ""),
            error.column()
        )
    })?;
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
    let vocab = defaults.vocab_size;
    if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
        return Err(format!(
            "token id {id} is outside the vocabulary of {vocab} ids"
        ));
    }
    let sampling = SamplingSettings {
        temperature: line.temperature.unwrap_or(defaults.sampling.temperature),
        top_k: line.top_k.unwrap_or(defaults.sampling.top_k),
        top_p: line.top_p.unwrap_or(defaults.sampling.top_p),
        min_p: line.min_p.unwrap_or(defaults.sampling.min_p),
        seed: line.seed.unwrap_or(defaults.sampling.seed),
        ..defaults.sampling.clone()
    };
    sampling.validate().map_err(|error| error.to_string())?;
    let choices = line.choices.unwrap_or(1);
    if choices == 0 || choices > CHOICES_MAX {
        return Err(format!("{choices} choices are outside 1..={CHOICES_MAX}"));
    }
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
        choices,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Defaults<'static> {
        Defaults {
            gen_count: 16,
            sampling: SamplingSettings::default(),
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
    }

    #[test]
    fn every_faulty_line_is_named() {
        let text = "{\"ids\": [1]}\n{\"ids\": [100]}\n{\"prompt\": \"a\", \"ids\": [1]}\n{}\n\
                    {\"ids\": []}\n{\"ids\": [1], \"gen\": 64}\n{\"ids\": [1], \"sed\": 1}\n[1]\n\
                    {\"ids\": [1], \"top_p\": 2}\n{\"ids\": [1]";
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
        assert!(refused("{\"prompt\": \"a\"}").contains("vocabulary"));
        assert!(refused("\n \n").contains("no prompt"));
    }
}
