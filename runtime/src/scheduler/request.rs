//! What is asked for.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use k3_models::{PAGE_POSITIONS, pages_for};

use super::event::FinishReason;
use super::settings::SchedulerSettings;
use crate::forward::Cancel;
use crate::prefix::SnapshotFile;
use crate::sampler::SamplingSettings;

/// Number of a request, in the order they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Looks at the tokens of one choice as they are drawn, on the thread that
/// computes: for endings that are not single ids, such as text.
pub trait TokenWatch: Send {
    /// The next token; `Break` ends the choice with
    /// [`FinishReason::Watch`], this token included.
    fn token(&mut self, id: u32) -> ControlFlow<()>;
}

/// Which logits of a prompt are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptRows {
    /// None.
    #[default]
    None,
    /// Those behind the first token.
    Last,
    /// Those of every position.
    All,
}

/// One answer to a prompt.
#[derive(Default)]
pub struct Choice {
    /// Its number in the random numbers; those of a request differ.
    pub index: u32,
    /// Ends it by more than its ids.
    pub watch: Option<Box<dyn TokenWatch>>,
}

impl fmt::Debug for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = formatter.debug_struct("Choice");
        out.field("index", &self.index).finish_non_exhaustive()
    }
}

/// A prompt and how to continue it.
#[derive(Debug)]
pub struct GenerateRequest {
    /// Ids to continue, at least one.
    pub prompt_ids: Vec<u32>,
    /// How many of the last of them were generated before: penalties count them
    /// as output.
    pub output_len: usize,
    /// Tokens to generate at most; 0 reads the prompt only.
    pub gen_count: usize,
    /// Ids that end a choice, themselves included in it.
    pub stop_ids: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingSettings,
    /// Answers to the same prompt, at least one. The prompt is read once.
    pub choices: Vec<Choice>,
    /// Whether guesses may share a sweep with the token that is due.
    pub may_guess: bool,
    /// Logits of the prompt to hand out.
    pub prompt_rows: PromptRows,
    /// Whether the logits behind each token go with it.
    pub token_rows: bool,
    /// How likely each token was, beside so many of the likeliest.
    pub logprobs: Option<usize>,
    /// A saved conversation whose ids the prompt begins with: its state is taken up
    /// instead of computed.
    pub from: Option<Arc<SnapshotFile>>,
    /// Whether the choices' states stay until the next step once they have ended, to
    /// be saved.
    pub keeps_state: bool,
    /// When the answer is worth nothing any more.
    pub deadline: Option<Instant>,
    /// Calls the request off.
    pub cancel: Cancel,
}

impl GenerateRequest {
    /// A request for `gen_count` tokens after `prompt_ids`, drawn as `sampling`
    /// says, with nothing else asked for.
    #[must_use]
    pub fn new(prompt_ids: Vec<u32>, gen_count: usize, sampling: SamplingSettings) -> Self {
        Self {
            prompt_ids,
            output_len: 0,
            gen_count,
            stop_ids: Vec::new(),
            sampling,
            choices: vec![Choice::default()],
            may_guess: true,
            prompt_rows: PromptRows::None,
            token_rows: false,
            logprobs: None,
            from: None,
            keeps_state: false,
            deadline: None,
            cancel: Cancel::default(),
        }
    }

    /// Numbers of the choices.
    pub(super) fn choice_indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.choices.iter().map(|choice| choice.index)
    }

    /// Positions that each of its choices may reach.
    #[must_use]
    pub fn position_count(&self) -> usize {
        self.prompt_ids.len().saturating_add(self.gen_count)
    }

    /// Pages that its choices take together: in memory, and in a file.
    fn pages_needed(&self, settings: &SchedulerSettings) -> [usize; 2] {
        let all = pages_for(self.position_count());
        let memory = settings
            .spill
            .map_or(all, |spill| all.min(spill.memory_pages));
        [memory, all - memory].map(|pages| pages.saturating_mul(self.choices.len()))
    }

    /// Why it is over before it began, if it is.
    pub(super) fn end_before_start(&self, now: Instant) -> Option<FinishReason> {
        if self.cancel.is_requested() {
            return Some(FinishReason::Cancelled);
        }
        let is_late = self.deadline.is_some_and(|deadline| now >= deadline);
        is_late.then_some(FinishReason::Deadline)
    }

    /// Why it could never run on a scheduler of `settings` over `vocab_size` ids.
    #[must_use]
    pub fn refusal(
        &self,
        settings: &SchedulerSettings,
        vocab_size: usize,
    ) -> Option<RefusalReason> {
        let is_unknown = |id: &&u32| **id as usize >= vocab_size;
        if self.prompt_ids.is_empty() {
            return Some(RefusalReason::EmptyPrompt);
        }
        if let Some(&id) = self.prompt_ids.iter().find(is_unknown) {
            return Some(RefusalReason::UnknownId { id, vocab_size });
        }
        if self.choices.is_empty() || self.choices.len() > settings.sequences_max {
            return Some(RefusalReason::Choices {
                count: self.choices.len(),
                max: settings.sequences_max,
            });
        }
        let (prompt, generated) = (self.prompt_ids.len(), self.gen_count);
        let context = settings.context_positions;
        if self.position_count() > context {
            return Some(RefusalReason::TooLong {
                prompt,
                generated,
                context,
            });
        }
        if let Some(file) = &self.from {
            let taken = &file.tokens()[..file.position()];
            // Logits come from computing: at least of the last token.
            let fits = prompt > taken.len() && self.prompt_ids.starts_with(taken);
            if !fits || self.prompt_rows == PromptRows::All {
                return Some(RefusalReason::OtherState {
                    position: taken.len(),
                });
            }
        }
        let file_pages = settings.spill.map_or(0, |spill| spill.file_pages);
        let [needed, in_file] = self.pages_needed(settings);
        for (needed, pages) in [(needed, settings.page_count()), (in_file, file_pages)] {
            if needed > pages {
                return Some(RefusalReason::Pages {
                    choices: self.choices.len(),
                    positions: self.position_count(),
                    needed,
                    pages,
                });
            }
        }
        if self.prompt_rows == PromptRows::All && !settings.prompt_logits {
            return Some(RefusalReason::PromptLogits);
        }
        let valid = self.sampling.validate();
        let valid = valid.and_then(|()| self.sampling.check_vocabulary(vocab_size));
        let invalid = valid.err();
        invalid.map(|error| RefusalReason::Sampling(error.to_string()))
    }
}

/// Why a request is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// Nothing to continue.
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    /// An id without an embedding row.
    #[error("token id {id} of the prompt is outside the vocabulary of {vocab_size} ids")]
    UnknownId {
        /// The id.
        id: u32,
        /// Ids there are.
        vocab_size: usize,
    },
    /// No choice, or more than can run together.
    #[error("{count} choices are outside 1..={max}, the sequences that run at a time")]
    Choices {
        /// What was asked.
        count: usize,
        /// Upper bound.
        max: usize,
    },
    /// More positions than a sequence has memory for.
    #[error(
        "a prompt of {prompt} tokens and {generated} to generate do not fit a context of {context} \
         positions; ask for fewer, or raise --context"
    )]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens to generate.
        generated: usize,
        /// Positions of a sequence.
        context: usize,
    },
    /// A saved conversation that the prompt does not go on with.
    #[error(
        "the saved state has consumed {position} ids, and the prompt does not begin with them \
         and go on, or asks for their logits"
    )]
    OtherState {
        /// Ids of the state.
        position: usize,
    },
    /// More pages for all choices than there are.
    #[error(
        "{choices} choices of up to {positions} positions take {needed} pages of {PAGE_POSITIONS}, \
         and all sequences share {pages}; ask for fewer, or raise --context-total to {}",
        needed * PAGE_POSITIONS
    )]
    Pages {
        /// Choices that run together.
        choices: usize,
        /// Positions of each.
        positions: usize,
        /// Pages of all of them.
        needed: usize,
        /// Pages of the pool.
        pages: usize,
    },
    /// No memory was planned for the logits of a whole chunk.
    #[error("no memory is planned for the logits of every prompt position")]
    PromptLogits,
    /// A setting outside its range.
    #[error("{0}")]
    Sampling(String),
    /// Nobody runs requests any more.
    #[error("the scheduler has stopped")]
    Stopped,
    /// Too many wait already.
    #[error("{queue_max} requests are waiting already; try again later")]
    QueueFull {
        /// Requests that may wait.
        queue_max: usize,
    },
}

/// A request that was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    /// Why.
    pub why: RefusalReason,
    /// The request, untouched.
    pub request: GenerateRequest,
}
