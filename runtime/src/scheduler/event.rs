//! What becomes of a request.

use std::sync::Arc;

use super::request::RequestId;
use crate::error::RunError;
use crate::sampler::TokenLogprobs;

/// News of one choice of a request.
#[derive(Debug)]
pub struct Event {
    /// The request.
    pub request: RequestId,
    /// The choice.
    pub choice: u32,
    /// The news.
    pub update: Update,
}

/// What has happened.
#[derive(Debug)]
pub enum Update {
    /// The request has its states. Once per request, for its first choice.
    Admitted {
        /// Positions whose states were found and need no computing.
        reused_positions: usize,
    },
    /// Logits of prompt positions, where they were asked for.
    PromptRows {
        /// Position of the first row.
        first_position: usize,
        /// `[rows][vocab]`.
        rows: Vec<f32>,
    },
    /// A token was drawn.
    Token {
        /// Its id.
        id: u32,
        /// Its position in the sequence.
        position: usize,
        /// The logits behind it, `[vocab]`, where they were asked for.
        row: Option<Vec<f32>>,
        /// How likely it was, where that was asked for.
        logprobs: Option<TokenLogprobs>,
    },
    /// The last event of the choice.
    Ended(Ended),
}

/// How a choice ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Why.
    pub reason: FinishReason,
    /// What it took.
    pub counts: RequestCounts,
    /// What went wrong, if it failed; tokens before it are right.
    pub error: Option<Arc<RunError>>,
}

impl Ended {
    /// Before anything was computed.
    #[must_use]
    pub fn early(reason: FinishReason) -> Self {
        Self {
            reason,
            counts: RequestCounts::default(),
            error: None,
        }
    }
}

/// Why a choice ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// As many tokens as were asked for.
    Length,
    /// A stop id was drawn.
    StopId,
    /// Whoever watched the tokens ended it.
    Watch,
    /// It was called off.
    Cancelled,
    /// Its time was over.
    Deadline,
    /// An error.
    Failed,
}

/// What a choice took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Sweeps it took part in.
    pub sweeps: u64,
    /// Positions computed for it, guesses included.
    pub positions: u64,
    /// Positions whose states were found instead.
    pub reused_positions: u64,
    /// Tokens that were guessed for it.
    pub guessed: u64,
    /// Guesses that were right.
    pub accepted: u64,
    /// Its share of the bytes read.
    pub read_bytes: u64,
}
