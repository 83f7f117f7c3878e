//! One choice of a request, from prompt to last token.

use std::sync::Arc;
use std::time::Instant;

use k3_models::{Advance, LogitRows, Segment};

use super::event::{Ended, Event, FinishReason, RequestCounts, Update};
use super::forming::Ready;
use super::guessing::Guessing;
use super::prefixes::{is_border, next_border};
use super::request::{GenerateRequest, PromptRows, RequestId, TokenWatch};
use crate::error::RunError;
use crate::forward::Cancel;
use crate::prefix::{ConversationIds, SnapshotFile};
use crate::sampler::{History, Sampler, logprobs};
use crate::source::ReadBytes;

/// What all choices of a request have in common.
struct Common {
    id: RequestId,
    prompt_len: usize,
    output_len: usize,
    gen_count: usize,
    stop_ids: Vec<u32>,
    prompt_rows: PromptRows,
    token_rows: bool,
    logprobs: Option<usize>,
    keeps_state: bool,
    deadline: Option<Instant>,
    cancel: Cancel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Reads the prompt.
    Reads,
    /// Waits for the one that reads it.
    Waits,
    /// Has a token that is not in its state yet.
    Generates,
    /// Has had its last event.
    Ended,
}

/// One choice of a request.
pub(super) struct Sequence {
    common: Arc<Common>,
    choice: u32,
    /// Order of admission: by request, then by choice.
    age: u64,
    /// Index of its state.
    slot: usize,
    phase: Phase,
    is_leader: bool,
    /// Prompt and answer.
    tokens: Vec<u32>,
    /// How many of them the state has taken.
    taken: usize,
    /// Behind the pending token in the sweep at hand.
    guesses: Vec<u32>,
    /// Where they come from; `None` for a sequence that never guesses.
    guessing: Option<Guessing>,
    sampler: Sampler,
    /// What penalties look at, where there are any.
    history: Option<History>,
    watch: Option<Box<dyn TokenWatch>>,
    counts: RequestCounts,
    /// What ended it, if that was an error.
    error: Option<Arc<RunError>>,
    /// Whether it has come to an end of its own.
    is_complete: bool,
}

/// A segment's part of a finished sweep.
pub(super) struct Outcome<'a> {
    /// Its rows: `[rows][vocab]`.
    pub(super) rows: &'a [f32],
    /// Ids of the vocabulary.
    pub(super) vocab: usize,
    /// Its fault: the first position concerned, and what is wrong.
    pub(super) fault: Option<(usize, RunError)>,
}

impl Sequence {
    /// The choices of `request`, one for each of `slots`; the first reads the
    /// prompt. `guessing` makes what each guesses with.
    pub(super) fn of_request(
        id: RequestId,
        request: GenerateRequest,
        slots: &[usize],
        guessing: impl Fn() -> Option<Guessing>,
    ) -> Vec<Self> {
        let common = Arc::new(Common {
            id,
            prompt_len: request.prompt_ids.len(),
            output_len: request.output_len,
            gen_count: request.gen_count,
            stop_ids: request.stop_ids,
            prompt_rows: request.prompt_rows,
            token_rows: request.token_rows,
            logprobs: request.logprobs,
            keeps_state: request.keeps_state,
            deadline: request.deadline,
            cancel: request.cancel,
        });
        let looks_back = request.sampling.looks_back();
        let history = looks_back.then(|| {
            let prompt_len = request.prompt_ids.len().saturating_sub(request.output_len);
            let (prompt, output) = request.prompt_ids.split_at(prompt_len);
            History::rebuilt(prompt, output)
        });
        let sampler = Sampler::new(request.sampling).expect("checked when it was submitted");
        let choices = request.choices.into_iter().zip(slots).enumerate();
        let sequences = choices.map(|(index, (choice, &slot))| Self {
            common: Arc::clone(&common),
            choice: choice.index,
            age: id.0,
            slot,
            phase: if index == 0 {
                Phase::Reads
            } else {
                Phase::Waits
            },
            is_leader: index == 0,
            tokens: request.prompt_ids.clone(),
            taken: 0,
            guesses: Vec::new(),
            guessing: guessing(),
            sampler: sampler.clone(),
            history: history.clone(),
            watch: choice.watch,
            counts: RequestCounts::default(),
            error: None,
            is_complete: false,
        });
        sequences.collect()
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    pub(super) fn age(&self) -> u64 {
        self.age
    }

    pub(super) fn request(&self) -> RequestId {
        self.common.id
    }

    pub(super) fn is_leader(&self) -> bool {
        self.is_leader
    }

    /// Whether its state is wanted once it has ended.
    pub(super) fn keeps_state(&self) -> bool {
        self.common.keeps_state
    }

    pub(super) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// What ended it, if that was an error.
    pub(super) fn error(&self) -> Option<&Arc<RunError>> {
        self.error.as_ref()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waits
    }

    pub(super) fn is_reading(&self) -> bool {
        self.phase == Phase::Reads
    }

    /// Takes part in one more sweep, as `add` counts.
    pub(super) fn count(&mut self, add: impl FnOnce(&mut RequestCounts)) {
        add(&mut self.counts);
    }

    pub(super) fn event(&self, update: Update) -> Event {
        Event {
            request: self.common.id,
            choice: self.choice,
            update,
        }
    }

    /// The state of `file` is its own now.
    pub(super) fn taken_up(&mut self, file: &SnapshotFile) -> usize {
        self.taken = file.position();
        self.counts.reused_positions = self.taken as u64;
        self.taken
    }

    /// Its ids, how many of them its state has taken, and how many of the last were
    /// generated.
    pub(super) fn ids(&self) -> ConversationIds<'_> {
        let drawn = self.tokens.len() - self.common.prompt_len;
        ConversationIds {
            tokens: &self.tokens,
            position: self.taken,
            answer_len: drawn + self.common.output_len,
        }
    }

    /// Which choice of its request it is.
    pub(super) fn choice(&self) -> u32 {
        self.choice
    }

    /// Lets `find` bring the state along the prompt; the positions found.
    pub(super) fn restore(&mut self, find: impl FnOnce(&[u32]) -> usize) -> usize {
        if self.common.prompt_rows == PromptRows::All {
            // Rows come from computing.
            return 0;
        }
        self.taken = find(&self.tokens);
        self.counts.reused_positions = self.taken as u64;
        self.taken
    }

    /// What its state has taken, if that is worth keeping: so much of a prompt,
    /// or a whole answer.
    pub(super) fn to_keep(&self) -> Option<&[u32]> {
        let is_worth_it = match self.phase {
            Phase::Reads => is_border(self.taken),
            Phase::Ended => self.is_complete,
            Phase::Waits | Phase::Generates => false,
        };
        is_worth_it.then(|| &self.tokens[..self.taken])
    }

    /// What it could do next. With `borders` a prompt is not read beyond the next
    /// one at a time.
    pub(super) fn ready(&self, borders: bool) -> Ready {
        match self.phase {
            Phase::Reads => {
                let left = self.common.prompt_len - self.taken;
                let to_border = next_border(self.taken) - self.taken;
                Ready::Prompt {
                    left: if borders { left.min(to_border) } else { left },
                }
            }
            Phase::Generates => Ready::Step {
                guesses: self.guesses.len(),
            },
            Phase::Waits | Phase::Ended => Ready::Waits,
        }
    }

    /// Why it has to leave, if it has.
    pub(super) fn must_leave(&self, now: Instant) -> Option<FinishReason> {
        if self.common.cancel.is_requested() {
            return Some(FinishReason::Cancelled);
        }
        let is_late = self.common.deadline.is_some_and(|deadline| now >= deadline);
        is_late.then_some(FinishReason::Deadline)
    }

    /// Whether anything but the end of a sweep can make it leave.
    pub(super) fn leaves(&self) -> (Cancel, Option<Instant>) {
        (self.common.cancel.clone(), self.common.deadline)
    }

    /// Guesses what follows the pending token, `limit` tokens at most and never
    /// more than could be drawn.
    pub(super) fn guess(&mut self, limit: usize) {
        self.guesses.clear();
        let (Phase::Generates, Some(guessing)) = (self.phase, &mut self.guessing) else {
            return;
        };
        let drawn = self.tokens.len() - self.common.prompt_len;
        let left = self.common.gen_count - drawn;
        let guesses = guessing.guess(&self.tokens, limit.min(left - 1));
        self.guesses.extend_from_slice(guesses);
    }

    /// Learns from the step whose tokens have just been drawn.
    pub(super) fn learn(&mut self, drawn: usize, share: ReadBytes) {
        if let Some(guessing) = &mut self.guessing {
            let first = self.tokens.len() - drawn;
            guessing.learn(&self.tokens[first..], share);
        }
    }

    /// Its segment of a sweep, of `positions` positions.
    pub(super) fn segment(&self, positions: usize) -> Segment {
        if self.phase == Phase::Generates {
            let pending = self.tokens[self.taken];
            let held = !self.guesses.is_empty();
            return Segment {
                tokens: [&[pending], &self.guesses[..]].concat(),
                logits: if held {
                    LogitRows::All
                } else {
                    LogitRows::Last
                },
                advance: if held { Advance::Held } else { Advance::All },
            };
        }
        let end = self.taken + positions;
        let common = &self.common;
        let is_last = end == common.prompt_len;
        let needs_last = common.gen_count > 0 || common.prompt_rows == PromptRows::Last;
        Segment {
            tokens: self.tokens[self.taken..end].to_vec(),
            logits: match common.prompt_rows {
                PromptRows::All => LogitRows::All,
                _ if is_last && needs_last => LogitRows::Last,
                _ => LogitRows::None,
            },
            advance: Advance::All,
        }
    }

    /// Ends the choice.
    pub(super) fn end(
        &mut self,
        reason: FinishReason,
        error: Option<Arc<RunError>>,
        events: &mut Vec<Event>,
    ) {
        self.phase = Phase::Ended;
        self.watch = None;
        self.error.clone_from(&error);
        self.is_complete = matches!(
            reason,
            FinishReason::Length | FinishReason::StopId | FinishReason::Watch
        );
        events.push(self.event(Update::Ended(Ended {
            reason,
            counts: self.counts,
            error,
        })));
    }

    pub(super) fn fail(&mut self, error: RunError, events: &mut Vec<Event>) {
        self.end(FinishReason::Failed, Some(Arc::new(error)), events);
    }

    /// `positions` more of the prompt are in the state. Whether all are, with
    /// the first token to be drawn from the last row.
    pub(super) fn after_prompt(
        &mut self,
        positions: usize,
        outcome: Outcome<'_>,
        events: &mut Vec<Event>,
    ) -> bool {
        if let Some((_, error)) = outcome.fault {
            self.fail(error, events);
            return false;
        }
        let first_position = self.taken;
        self.taken += positions;
        let is_last = self.taken == self.common.prompt_len;
        let rows = match self.common.prompt_rows {
            PromptRows::All => Some((first_position, outcome.rows)),
            PromptRows::Last if is_last => Some((self.taken - 1, outcome.rows)),
            _ => None,
        };
        if let Some((first_position, rows)) = rows {
            let rows = rows.to_vec();
            events.push(self.event(Update::PromptRows {
                first_position,
                rows,
            }));
        }
        if is_last && self.common.gen_count == 0 {
            self.end(FinishReason::Length, None, events);
            return true;
        }
        is_last
    }

    /// The prompt is in the state, read by this sequence or by another: draws
    /// the first token from `row`.
    pub(super) fn begin_answer(&mut self, row: &[f32], events: &mut Vec<Event>) {
        self.taken = self.common.prompt_len;
        if self.common.gen_count == 0 {
            self.end(FinishReason::Length, None, events);
            return;
        }
        self.phase = Phase::Generates;
        self.draw(row, events);
    }

    /// Draws what follows from a step's rows: the next token, and one more for
    /// every guess that was right. Returns how many positions of the segment
    /// count.
    pub(super) fn after_step(&mut self, outcome: Outcome<'_>, events: &mut Vec<Event>) -> usize {
        let guesses = std::mem::take(&mut self.guesses);
        let Outcome { rows, vocab, fault } = outcome;
        let (fault_at, error) = match fault {
            Some((at, error)) => (at, Some(error)),
            None => (usize::MAX, None),
        };
        // Before the draws: one of them may be the last event.
        self.counts.guessed += guesses.len() as u64;
        let mut counted = 0;
        for (index, row) in rows.chunks_exact(vocab).enumerate() {
            if index == fault_at {
                self.fail(error.expect("it comes with its place"), events);
                break;
            }
            counted += 1;
            let drawn = self.draw(row, events);
            if drawn.is_none() || drawn != guesses.get(index).copied() {
                break;
            }
            self.counts.accepted += 1;
        }
        self.taken += counted;
        counted
    }

    /// The next token, drawn from `row`; `None` if it was the last.
    fn draw(&mut self, row: &[f32], events: &mut Vec<Event>) -> Option<u32> {
        let position = self.tokens.len();
        let nothing = History::default();
        let history = self.history.as_ref().unwrap_or(&nothing);
        let drawn = self
            .sampler
            .draw(row, history, position as u64, self.choice);
        let id = match drawn {
            Ok(id) => id,
            Err(error) => {
                self.fail(error.into(), events);
                return None;
            }
        };
        self.tokens.push(id);
        if let Some(history) = &mut self.history {
            history.push(id);
        }
        events.push(self.event(Update::Token {
            id,
            position,
            row: self.common.token_rows.then(|| row.to_vec()),
            logprobs: self.common.logprobs.map(|top_n| {
                let of_row = logprobs(row, top_n).expect("it was drawn from");
                of_row.of_drawn(id).expect("a drawn id has a logit")
            }),
        }));
        let is_over = self
            .watch
            .as_mut()
            .is_some_and(|watch| watch.token(id).is_break());
        let reason = if self.common.stop_ids.contains(&id) {
            FinishReason::StopId
        } else if is_over {
            FinishReason::Watch
        } else if self.tokens.len() - self.common.prompt_len == self.common.gen_count {
            FinishReason::Length
        } else {
            return Some(id);
        };
        self.end(reason, None, events);
        None
    }
}
