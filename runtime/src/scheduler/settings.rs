//! Sizes of a scheduler, and what they reserve.

use k3_config::{PagePlan, pool_page_count, touched_pages};
use k3_models::{ModelFamily, PAGE_POSITIONS, WorkspaceSize};

use super::guessing::guessing_bytes;
use crate::error::RunError;
use crate::session::{POSITIONS_MAX, SessionBytes};

/// Sequences that can run at a time.
const SEQUENCES_MAX: usize = k3_config::SEQUENCES_MAX as usize;

/// Sizes of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// Sequences that run at a time, at least 1: each has a state of its own.
    pub sequences_max: usize,
    /// Positions each sequence may reach, at least 1.
    pub context_positions: usize,
    /// Positions that all sequences have memory for together, at least one
    /// context; `None`: each has its whole context beside all others.
    pub context_total: Option<usize>,
    /// Pages in a file, for sequences longer than their memory; `context_total`
    /// counts for nothing beside it.
    pub spill: Option<SpillSizes>,
    /// Prompt positions per sweep, at least 1, over all sequences.
    pub chunk_positions: usize,
    /// Guesses per sequence and sweep; 0 never guesses.
    pub guesses_max: usize,
    /// Requests that wait for a state.
    pub queue_max: usize,
    /// Whether requests may ask for the logits of every prompt position.
    pub prompt_logits: bool,
}

/// What a scheduler reserves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedulerBytes {
    /// What all sequences carry from sweep to sweep.
    pub state_bytes: u64,
    /// Activations and logits of one sweep.
    pub workspace_bytes: u64,
    /// What it takes to make guesses and to take them back.
    pub log_bytes: u64,
}

impl From<SchedulerBytes> for SessionBytes {
    fn from(bytes: SchedulerBytes) -> Self {
        Self {
            state_bytes: bytes.state_bytes,
            workspace_bytes: bytes.workspace_bytes.saturating_add(bytes.log_bytes),
        }
    }
}

/// Pages of sequences that do not all stay in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpillSizes {
    /// Pages that each sequence has in memory, at least those that a sweep can
    /// touch: see [`SchedulerSettings::touched_pages`].
    pub memory_pages: usize,
    /// Pages that all sequences have in the file together.
    pub file_pages: usize,
}

impl SpillSizes {
    /// Those of a plan; `None` if all pages stay in memory.
    #[must_use]
    pub fn of(plan: &PagePlan) -> Option<Self> {
        let count = |pages: u64| usize::try_from(pages).expect("planned pages fit memory");
        (plan.file_page_count > 0).then(|| Self {
            memory_pages: count(plan.memory_page_count),
            file_pages: count(plan.file_page_count),
        })
    }
}

impl SchedulerSettings {
    /// One sequence that never guesses and has nobody to wait for.
    #[must_use]
    pub fn single(context_positions: usize, chunk_positions: usize) -> Self {
        Self {
            sequences_max: 1,
            context_positions,
            context_total: None,
            spill: None,
            chunk_positions,
            guesses_max: 0,
            queue_max: 1,
            prompt_logits: false,
        }
    }

    /// What [`Scheduler::new`](super::Scheduler::new) reserves for `model` with
    /// `workers` threads.
    ///
    /// # Errors
    ///
    /// [`RunError::ContextPositions`] for an empty or an impossible context,
    /// [`RunError::Sequences`] for an impossible number of sequences,
    /// [`RunError::ContextTotal`] for less than one context in all.
    pub fn planned_bytes<M: ModelFamily>(
        &self,
        model: &M,
        workers: usize,
    ) -> Result<SchedulerBytes, RunError> {
        let count = self.context_positions;
        if count == 0 || count > POSITIONS_MAX {
            let max = POSITIONS_MAX;
            return Err(RunError::ContextPositions { count, max });
        }
        if self.sequences_max == 0 || self.sequences_max > SEQUENCES_MAX {
            return Err(RunError::Sequences {
                count: self.sequences_max,
                max: SEQUENCES_MAX,
            });
        }
        let total = self.context_total.filter(|_| self.spill.is_none());
        if let Some(total) = total.filter(|total| *total < count) {
            return Err(RunError::ContextTotal {
                total,
                context: count,
            });
        }
        let size = self.workspace_size(workers);
        let without_log = WorkspaceSize {
            held_positions: 0,
            ..size
        };
        let workspace_bytes = model.workspace_bytes(&without_log);
        let footprint = model.footprint();
        let fixed = footprint
            .state_bytes_fixed
            .saturating_mul(self.sequences_max as u64);
        let pages = footprint
            .page_bytes()
            .saturating_mul(self.page_count() as u64);
        Ok(SchedulerBytes {
            state_bytes: fixed.saturating_add(pages),
            workspace_bytes,
            log_bytes: model
                .workspace_bytes(&size)
                .saturating_sub(workspace_bytes)
                .saturating_add(self.lookup_bytes()),
        })
    }

    /// Most pages of one sequence that one sweep changes.
    #[must_use]
    pub fn touched_pages(&self) -> usize {
        let most = self.chunk_positions.max(1 + self.guesses_max);
        touched_pages(
            PAGE_POSITIONS as u64,
            most.min(self.context_positions) as u64,
        )
        .try_into()
        .expect("fewer than positions")
    }

    /// Pages in memory that the sequences share.
    #[must_use]
    pub fn page_count(&self) -> usize {
        if let Some(spill) = self.spill {
            return spill.memory_pages * self.sequences_max;
        }
        let count = pool_page_count(
            PAGE_POSITIONS as u64,
            self.sequences_max as u64,
            self.context_positions as u64,
            self.context_total.map(|total| total as u64),
        );
        usize::try_from(count).expect("sizes are checked before they are used")
    }

    /// What it takes to find guesses.
    fn lookup_bytes(&self) -> u64 {
        match self.guesses_max {
            0 => 0,
            _ => guessing_bytes(self.context_positions) * self.sequences_max as u64,
        }
    }

    /// Positions of one sequence that generates: its pending token and guesses.
    fn step_positions(&self) -> usize {
        (1 + self.guesses_max).min(self.context_positions)
    }

    /// Positions of the largest sweep: every sequence generates, or one reads
    /// its prompt beside the others.
    #[must_use]
    pub fn sweep_positions(&self) -> usize {
        let steps = self.sequences_max * self.step_positions();
        let chunk = self.chunk_positions;
        let most = self.sequences_max * self.context_positions;
        let beside = (self.sequences_max - 1) * self.step_positions();
        (chunk + beside).max(steps).min(most)
    }

    /// Size of the workspace.
    pub(crate) fn workspace_size(&self, workers: usize) -> WorkspaceSize {
        assert!(
            self.sequences_max > 0 && self.chunk_positions > 0 && self.context_positions > 0,
            "sizes are checked before they are used"
        );
        let positions = self.sweep_positions();
        let steps = self.sequences_max * self.step_positions();
        WorkspaceSize {
            positions,
            held_positions: if self.guesses_max == 0 { 0 } else { steps },
            logit_rows: if self.prompt_logits { positions } else { steps },
            context_positions: self.context_positions,
            workers,
        }
    }
}
