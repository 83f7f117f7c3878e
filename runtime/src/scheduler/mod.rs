//! Many sequences, one walk: who takes part in which sweep.
//!
//! A sweep reads the trunk once, whatever number of positions it serves. The
//! scheduler therefore puts everything that is ready into the next one: the
//! pending token of every sequence that generates, and a chunk of the prompts
//! that are still to be read. What a sequence computes depends on its own
//! tokens alone, so its ids, logits and states are the same bytes whoever shares
//! its sweeps.
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | sizes, and what they reserve |
//! | [`request`] | what is asked for, and how it is called off |
//! | [`event`] | what becomes of it |
//! | `sequence` | one choice of a request, from prompt to last token |
//! | `guessing` | what a sequence guesses, and what it learns from it |
//! | `prefixes` | states that outlive their sequences |
//! | `forming` | positions of the next sweep |
//! | `attribution` | whose bytes a shared read was |
//! | `step` | one sweep and what follows from it |
//!
//! # Rules
//!
//! - Requests are admitted in the order they came, each when states and pages for
//!   all its choices are free: a large one is never overtaken.
//! - A sequence gets the pages of its prompt and of all it may generate when it is
//!   admitted, and gives them back when it ends: none lacks memory half-way. With
//!   [`SpillSizes`] a few of them are in memory and the others in a file; before a
//!   sweep the oldest leave for the file.
//! - Every sequence that generates is in every sweep. Prompts share the chunk in
//!   the order of admission.
//! - A request that is called off, or whose time is over, leaves at the end of
//!   the sweep. A sweep that nobody waits for any more ends at the next block.
//! - Each choice of each request gets exactly one last event.

mod attribution;
pub mod event;
mod forming;
mod guessing;
mod prefixes;
pub mod request;
mod sequence;
pub mod settings;
mod step;

use std::collections::VecDeque;
use std::sync::Arc;

use k3_config::ModelFootprint;
use k3_models::{ModelFamily, PagePool, PageStore, SequenceState as _, Spill, Workers as _};

use crate::forward::{Cancel, SweepProgress};
use crate::pool::ComputePool;
use crate::session::SessionCounts;
use crate::source::WeightSource;

pub use event::{Ended, Event, FinishReason, RequestCounts, Update};
pub use guessing::guessing_bytes;
pub use request::{
    Choice, GenerateRequest, PromptRows, RefusalReason, Refused, RequestId, TokenWatch,
};
pub use settings::{SchedulerBytes, SchedulerSettings, SpillSizes};
pub use step::StepReport;

use crate::error::RunError;
use crate::prefix::{ConversationIds, PrefixStore, SnapshotFile};
use guessing::Guessing;
use prefixes::Prefixes;
use sequence::Sequence;

/// The experts of one position and its embedding row, if none is in memory.
fn guess_bytes_max(footprint: &ModelFootprint) -> u64 {
    let picks = u64::from(footprint.moe_layer_count) * u64::from(footprint.experts_per_token);
    picks.saturating_mul(footprint.expert_bytes)
}

/// A request that waits for its states and pages.
struct Waiting {
    id: RequestId,
    request: GenerateRequest,
}

/// Runs requests side by side on one model and one source.
pub struct Scheduler<'a, M: ModelFamily, S: WeightSource> {
    model: &'a M,
    source: &'a mut S,
    pool: &'a ComputePool,
    cancel: Cancel,
    settings: SchedulerSettings,
    workspace: M::Workspace,
    /// One for each sequence that can run at a time.
    states: Vec<M::State>,
    /// Where their positions lie; those that nobody uses.
    pages: PagePool,
    /// Indices of the states nobody uses.
    free: Vec<usize>,
    queue: VecDeque<Waiting>,
    running: Vec<Sequence>,
    /// Those that ended in the last step and keep their states until the next.
    ended: Vec<Sequence>,
    next_id: u64,
    counts: SessionCounts,
    trace: Option<Vec<(u16, u16)>>,
    progress: Arc<SweepProgress>,
    /// Bytes that one more position can have read at most.
    guess_bytes_max: u64,
    prefixes: Option<Prefixes<'a>>,
}

impl<'a, M: ModelFamily, S: WeightSource> Scheduler<'a, M, S> {
    /// An idle scheduler with all its memory reserved. `cancel` ends a sweep at
    /// its next block, and every request with it.
    ///
    /// # Panics
    ///
    /// If a size in `settings` is zero that must not be: check them with
    /// [`SchedulerSettings::planned_bytes`].
    pub fn new(
        model: &'a M,
        source: &'a mut S,
        pool: &'a ComputePool,
        settings: SchedulerSettings,
        cancel: Cancel,
    ) -> Self {
        let size = settings.workspace_size(pool.count());
        let states = (0..settings.sequences_max).map(|_| model.empty_state());
        Self {
            model,
            source,
            pool,
            cancel,
            settings,
            workspace: model.new_workspace(size),
            states: states.collect(),
            pages: model.new_pool(settings.page_count()),
            free: (0..settings.sequences_max).rev().collect(),
            queue: VecDeque::new(),
            running: Vec::new(),
            ended: Vec::new(),
            next_id: 0,
            counts: SessionCounts::default(),
            trace: None,
            progress: Arc::default(),
            guess_bytes_max: guess_bytes_max(&model.footprint()),
            prefixes: None,
        }
    }

    /// Keeps the pages beyond those in memory in `store`, as many as the settings
    /// say, before anything is asked for.
    ///
    /// # Panics
    ///
    /// If the settings have no pages in a file, or a sequence has pages already.
    pub fn spill_to(&mut self, store: Arc<dyn PageStore>) {
        let sizes = self.settings.spill.expect("settings with pages in a file");
        assert!(sizes.memory_pages >= self.settings.touched_pages());
        self.pages.spill_to(Spill {
            store,
            place_count: sizes.file_pages,
            memory_pages: sizes.memory_pages,
            part_len: self.model.page_part_len(),
        });
    }

    /// Tells `progress` where each sweep stands.
    pub fn report_progress(&mut self, progress: Arc<SweepProgress>) {
        self.progress = progress;
    }

    /// Takes the states of prompts from `store` as far as they are there, and
    /// keeps those that may be wanted again: at certain lengths of a prompt, and
    /// at the end of an answer. The store's binding must be that of the model.
    pub fn keep_prefixes(&mut self, store: &'a PrefixStore) {
        self.prefixes = Some(Prefixes::new(store));
    }

    /// What a person should know of the states that were kept, one sentence each.
    #[must_use]
    pub fn prefix_notes(&self) -> Vec<String> {
        self.prefixes
            .as_ref()
            .map_or_else(Vec::new, Prefixes::notes)
    }

    /// Starts recording the experts of every sweep that finishes.
    pub fn record_trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// The recorded picks: (layer, expert) per sweep, layer, position, pick.
    #[must_use]
    pub fn trace(&self) -> Option<&[(u16, u16)]> {
        self.trace.as_deref()
    }

    /// What has been consumed so far.
    #[must_use]
    pub fn counts(&self) -> &SessionCounts {
        &self.counts
    }

    /// What feeds the sweeps, to look at.
    #[must_use]
    pub fn source(&self) -> &S {
        self.source
    }

    /// Where `choice` of `request` stands, if there is a state to save: between two
    /// sweeps, and if the request keeps its state, until the next step once it has
    /// ended.
    #[must_use]
    pub fn conversation(
        &self,
        request: RequestId,
        choice: u32,
    ) -> Option<(ConversationIds<'_>, &M::State)> {
        let all = self.running.iter().chain(&self.ended);
        let mut all = all.filter(|one| one.request() == request && one.choice() == choice);
        let sequence = all.next()?;
        let state = &self.states[sequence.slot()];
        let ids = sequence.ids();
        let is_whole = !state.is_poisoned() && !state.is_held();
        let is_there = ids.position > 0 && state.position() == ids.position;
        (is_whole && is_there).then_some((ids, state))
    }

    /// Requests that wait for their states and pages.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.queue.len()
    }

    /// Sequences that have states.
    #[must_use]
    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    /// Pages in memory that no sequence has, of all that the sequences share.
    #[must_use]
    pub fn free_pages(&self) -> (usize, usize) {
        (self.pages.free_count(), self.pages.page_count())
    }

    /// Pages in the file that no sequence has.
    #[must_use]
    pub fn free_file_pages(&self) -> usize {
        self.pages.free_place_count()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty()
    }

    /// Queues `request`.
    ///
    /// # Errors
    ///
    /// A request that could never run, or a full queue; it is handed back.
    pub fn submit(&mut self, request: GenerateRequest) -> Result<RequestId, Box<Refused>> {
        if let Some(why) = request.refusal(&self.settings, self.model.vocab_size()) {
            return Err(Box::new(Refused { why, request }));
        }
        if self.queue.len() >= self.settings.queue_max {
            let queue_max = self.settings.queue_max;
            let why = request::RefusalReason::QueueFull { queue_max };
            return Err(Box::new(Refused { why, request }));
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.queue.push_back(Waiting { id, request });
        Ok(id)
    }

    /// Gives states to those who wait, in the order they came.
    fn admit(&mut self, events: &mut Vec<Event>) {
        let now = std::time::Instant::now();
        self.queue.retain(|waiting| {
            let Some(reason) = waiting.request.end_before_start(now) else {
                return true;
            };
            events.extend(waiting.request.choice_indices().map(|choice| Event {
                request: waiting.id,
                choice,
                update: Update::Ended(Ended::early(reason)),
            }));
            false
        });
        while let Some(waiting) = self.queue.front() {
            let (request, count) = (&waiting.request, waiting.request.choices.len());
            let has_room = self.pages.has_room(request.position_count(), count);
            if count > self.free.len() || !has_room {
                break;
            }
            let Waiting { id, request } = self.queue.pop_front().expect("looked at it");
            self.start(id, request, events);
        }
    }

    /// Starts the sequences of `request`: the first reads the prompt, the others
    /// take its state from there.
    fn start(&mut self, id: RequestId, mut request: GenerateRequest, events: &mut Vec<Event>) {
        let file = request.from.take();
        let slots = self.free.split_off(self.free.len() - request.choices.len());
        for &slot in &slots {
            let reserved = self.states[slot].reserve(request.position_count(), &mut self.pages);
            reserved.expect("as many pages are free as it was admitted for");
        }
        let may_guess = self.settings.guesses_max > 0 && request.may_guess;
        let (context, bytes) = (self.settings.context_positions, self.guess_bytes_max);
        let guessing = || may_guess.then(|| Guessing::new(context, bytes));
        let sequences = Sequence::of_request(id, request, &slots, guessing);
        for mut sequence in sequences {
            if sequence.is_leader() {
                match self.restore(&mut sequence, file.as_deref()) {
                    Ok(reused_positions) => {
                        events.push(sequence.event(Update::Admitted { reused_positions }));
                    }
                    Err(error) => sequence.fail(error, events),
                }
            }
            self.running.push(sequence);
        }
    }

    /// Takes up `file`, or finds as much of the prompt of `sequence` as is stored.
    fn restore(
        &mut self,
        sequence: &mut Sequence,
        file: Option<&SnapshotFile>,
    ) -> Result<usize, RunError> {
        let state = &mut self.states[sequence.slot()];
        let reused = match (file, &mut self.prefixes) {
            (Some(file), _) => {
                let position = file.position();
                let loaded = file.load(|from| state.restore(position, from));
                if let Err(error) = loaded {
                    state.reset();
                    return Err(error.into());
                }
                sequence.taken_up(file)
            }
            (None, Some(prefixes)) => sequence.restore(|tokens| prefixes.restore(tokens, state)),
            (None, None) => 0,
        };
        self.counts.reused_positions += reused as u64;
        Ok(reused)
    }

    /// Frees what those kept that ended in the last step.
    fn forget_ended(&mut self) {
        for sequence in self.ended.drain(..) {
            self.states[sequence.slot()].release(&mut self.pages);
            self.free.push(sequence.slot());
        }
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Takes the sequences that have ended off the list and frees their states and
    /// pages, but for those whose states are to be saved.
    fn retire(&mut self) {
        let ended = self.running.extract_if(.., |one| one.has_ended());
        for sequence in ended {
            // One that failed has no state that anybody wants.
            if sequence.keeps_state() && sequence.error().is_none() {
                self.ended.push(sequence);
            } else {
                self.states[sequence.slot()].release(&mut self.pages);
                self.free.push(sequence.slot());
            }
        }
        // The lowest first, whatever the order they became free in.
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }
}
