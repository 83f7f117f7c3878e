//! One answer, and what ties it to its request.

use k3_runtime::TokenLogprobs;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::input::Prompt;
use super::line::Label;

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Answer {
    /// Line of the prompt, from 1.
    pub line: usize,
    /// What the prompt is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Label>,
    /// Number of the choice, where the prompt asks for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<u32>,
    /// Digest of everything the answer depends on.
    pub request: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Ids generated.
    pub generated_ids: Vec<u32>,
    /// Their text, where there is a vocabulary; only what stands before a stop
    /// string.
    pub text: Option<String>,
    /// How likely each of them was, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<TokenLogprobs>>,
    /// Why it ended: length, stop, stop-string or failed.
    pub stop_reason: &'static str,
    /// What went wrong, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What tells an answer that is there from anything else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// Line of the prompt.
    pub line: usize,
    /// Number of the choice.
    pub choice: Option<u32>,
    /// Digest of the request.
    pub request: String,
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "prompt_tokens")]
    _prompt_tokens: IgnoredAny,
    #[serde(rename = "generated_ids")]
    _generated_ids: IgnoredAny,
    #[serde(rename = "text")]
    _text: Option<IgnoredAny>,
    #[serde(rename = "logprobs")]
    _logprobs: Option<IgnoredAny>,
    #[serde(rename = "stop_reason")]
    _stop_reason: IgnoredAny,
    #[serde(rename = "error")]
    _error: Option<IgnoredAny>,
}

/// What everything in an output has in common.
#[derive(Debug, Clone)]
pub(super) struct Binding(blake3::Hasher);

impl Binding {
    /// The model and its numerics.
    pub(super) fn new(identity: &str, numerics: (u32, &str), layers: usize) -> Self {
        let mut hasher = blake3::Hasher::new();
        let head = serde_json::json!(["k3 batch 2", identity, numerics.0, numerics.1, layers]);
        hasher.update(head.to_string().as_bytes());
        Self(hasher)
    }

    /// The digest of one answer's request: 16 hexadecimal digits.
    pub(super) fn request(&self, prompt: &Prompt, choice: u32) -> String {
        let mut hasher = self.0.clone();
        let rest = serde_json::json!([
            prompt.ids,
            prompt.gen_count,
            prompt.sampling,
            prompt.stop_ids,
            prompt.stops,
            prompt.logprobs,
            choice
        ]);
        hasher.update(rest.to_string().as_bytes());
        hasher.finalize().to_hex()[..16].to_owned()
    }
}
