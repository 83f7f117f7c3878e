//! One conversation: prefill, single steps, teacher forcing.

use std::sync::Arc;

use k3_models::{ExpertDemand, LogitRows, ModelFamily, SequenceState, Sweep, WorkspaceSize};

use crate::error::RunError;
use crate::forward::{Cancel, SweepCounts, SweepObserver, SweepProgress, forward};
use crate::pool::ComputePool;
use crate::source::WeightSource;

/// Positions a session may be planned for: all products of sizes stay far below
/// 2^64 then.
pub const POSITIONS_MAX: usize = 1 << 24;

/// Sizes of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSettings {
    /// Positions the sequence may reach.
    pub context_positions: usize,
    /// Positions per sweep while the prompt is read, at least 1.
    pub chunk_positions: usize,
    /// Whether logits of every position of a sweep may be asked for.
    pub all_logits: bool,
}

/// What a session reserves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionBytes {
    /// What the sequence carries from sweep to sweep.
    pub state_bytes: u64,
    /// Activations and logits of one sweep.
    pub workspace_bytes: u64,
}

impl SessionSettings {
    /// What [`Session::new`] reserves for `model` with `workers` threads.
    ///
    /// # Errors
    ///
    /// [`RunError::ContextPositions`] for an empty or an impossible context.
    pub fn planned_bytes<M: ModelFamily>(
        &self,
        model: &M,
        workers: usize,
    ) -> Result<SessionBytes, RunError> {
        let count = self.context_positions;
        if count == 0 || count > POSITIONS_MAX {
            let max = POSITIONS_MAX;
            return Err(RunError::ContextPositions { count, max });
        }
        Ok(SessionBytes {
            state_bytes: model.footprint().state_bytes(count as u64),
            workspace_bytes: model.workspace_bytes(&self.workspace_size(workers)),
        })
    }

    /// Positions of the largest sweep.
    fn sweep_positions(&self) -> usize {
        self.chunk_positions.min(self.context_positions)
    }

    fn workspace_size(&self, workers: usize) -> WorkspaceSize {
        let positions = self.sweep_positions();
        WorkspaceSize {
            positions,
            held_positions: 0,
            logit_rows: if self.all_logits { positions } else { 1 },
            context_positions: self.context_positions,
            workers,
        }
    }
}

/// What the sweeps of a session consumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Sweeps finished.
    pub sweeps: u64,
    /// Positions computed.
    pub positions: u64,
    /// Positions whose states were found instead.
    pub reused_positions: u64,
    /// Tokens that were guessed.
    pub guessed: u64,
    /// Guesses that were right.
    pub accepted: u64,
    /// Sums over all sweeps.
    pub totals: SweepCounts,
}

/// One sequence and everything its sweeps need.
pub struct Session<'a, M: ModelFamily, S: WeightSource> {
    model: &'a M,
    source: &'a mut S,
    pool: &'a ComputePool,
    cancel: Cancel,
    state: M::State,
    workspace: M::Workspace,
    settings: SessionSettings,
    counts: SessionCounts,
    trace: Option<Vec<(u16, u16)>>,
    progress: Arc<SweepProgress>,
}

/// Files picks under their layer, and where the sweep stands.
struct Observer<'t> {
    trace: &'t mut Option<Vec<(u16, u16)>>,
    progress: &'t SweepProgress,
}

impl SweepObserver for Observer<'_> {
    fn demand(&mut self, demand: &ExpertDemand) {
        if let (Some(trace), Some(layer)) = (self.trace.as_mut(), demand.layer) {
            trace.extend(demand.picks.iter().map(|expert| (layer.0, *expert)));
        }
    }

    fn progress(&mut self, done: usize, total: usize) {
        self.progress.set(done, total);
    }
}

impl<'a, M: ModelFamily, S: WeightSource> Session<'a, M, S> {
    /// An empty sequence with all its memory reserved.
    ///
    /// # Panics
    ///
    /// If a size in `settings` is zero, or the context beyond
    /// [`POSITIONS_MAX`].
    pub fn new(
        model: &'a M,
        source: &'a mut S,
        pool: &'a ComputePool,
        settings: SessionSettings,
        cancel: Cancel,
    ) -> Self {
        assert!(settings.chunk_positions > 0 && settings.context_positions > 0);
        assert!(settings.context_positions <= POSITIONS_MAX);
        let size = settings.workspace_size(k3_models::Workers::count(pool));
        Self {
            model,
            source,
            pool,
            cancel,
            state: model.new_state(settings.context_positions),
            workspace: model.new_workspace(size),
            settings: SessionSettings {
                chunk_positions: settings.sweep_positions(),
                ..settings
            },
            counts: SessionCounts::default(),
            trace: None,
            progress: Arc::default(),
        }
    }

    /// Tells `progress` where each sweep stands.
    pub fn report_progress(&mut self, progress: Arc<SweepProgress>) {
        self.progress = progress;
    }

    /// Starts recording the experts of every sweep.
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

    /// What feeds the session, to look at.
    #[must_use]
    pub fn source(&self) -> &S {
        self.source
    }

    /// Positions consumed so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.state.position()
    }

    /// Forgets the sequence, keeping counts and trace.
    pub fn reset(&mut self) {
        self.state.reset();
    }

    /// Appends `tokens` in sweeps of at most the chunk size. `each` receives
    /// the logits of every sweep that has wanted rows: the index of its first
    /// row's position within `tokens`, and `[rows][vocab]`.
    ///
    /// # Errors
    ///
    /// What the sweeps report; the state is poisoned then.
    ///
    /// # Panics
    ///
    /// If `tokens` is empty, or all logits are wanted from a session that was
    /// not made for them.
    pub fn append(
        &mut self,
        tokens: &[u32],
        rows: LogitRows,
        mut each: impl FnMut(usize, &[f32]),
    ) -> Result<(), RunError> {
        assert!(!tokens.is_empty(), "there is something to append");
        assert!(
            rows != LogitRows::All || self.settings.all_logits,
            "planned for all logits"
        );
        let chunk = self.settings.chunk_positions;
        for (index, part) in tokens.chunks(chunk).enumerate() {
            let first = index * chunk;
            let is_last = first + part.len() == tokens.len();
            let rows = match rows {
                LogitRows::Last if !is_last => LogitRows::None,
                other => other,
            };
            let sweep = Sweep::single(part.to_vec(), rows);
            let _entered = self.pool.enter();
            let (finished, counts) = forward(
                self.model,
                self.source,
                &sweep,
                vec![&mut self.state],
                &mut self.workspace,
                self.pool,
                &mut Observer {
                    trace: &mut self.trace,
                    progress: &self.progress,
                },
                &self.cancel,
            )?;
            self.counts.add(part.len(), &counts);
            match rows {
                LogitRows::None => {}
                LogitRows::Last => each(first + part.len() - 1, finished.logits),
                LogitRows::All => each(first, finished.logits),
            }
        }
        Ok(())
    }

    /// Appends `tokens` and returns the logits of the last: `[vocab]`.
    ///
    /// # Errors
    ///
    /// As [`Session::append`].
    ///
    /// # Panics
    ///
    /// If `tokens` is empty.
    pub fn append_for_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, RunError> {
        let mut last = Vec::new();
        self.append(tokens, LogitRows::Last, |_, logits| {
            last.extend_from_slice(logits)
        })?;
        Ok(last)
    }
}

impl SessionCounts {
    pub(crate) fn add(&mut self, positions: usize, sweep: &SweepCounts) {
        self.sweeps += 1;
        self.positions += positions as u64;
        let totals = &mut self.totals;
        totals.trunk_bytes += sweep.trunk_bytes;
        totals.blocks += sweep.blocks;
        totals.expert_bytes += sweep.expert_bytes;
        totals.experts += sweep.experts;
        totals.embedding_bytes += sweep.embedding_bytes;
        totals.nan_scale_groups += sweep.nan_scale_groups;
    }
}
