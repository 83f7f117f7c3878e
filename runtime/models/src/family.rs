//! The seam between a model and whatever feeds it.
//!
//! The runtime walks [`SweepProgram::steps`] and calls the matching method of
//! [`SweepRun`] for each step. It holds one lease at a time and knows nothing
//! of the arithmetic; the family sees one block or one expert at a time and
//! knows nothing of files, arenas or threads beyond [`Workers`].

use k3_config::ModelFootprint;

use crate::error::ModelError;
use crate::ids::{ExpertKey, LayerIndex};
use crate::parallel::Workers;
use crate::program::{Block, SweepProgram};
use crate::sweep::Sweep;

/// The experts a layer needs for all positions of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpertDemand {
    /// The layer, or `None` before the first demand.
    pub layer: Option<LayerIndex>,
    /// Picks per position.
    pub top_k: usize,
    /// Expert ids: `[positions][top_k]`, in pick order.
    pub picks: Vec<u16>,
    /// The distinct experts of `picks`, in order of first pick.
    pub union: Vec<ExpertKey>,
}

impl ExpertDemand {
    /// Replaces the experts of every pick.
    ///
    /// # Panics
    ///
    /// If there are not as many picks as before, or no layer.
    pub fn replace_picks(&mut self, picks: &[u16]) {
        assert_eq!(picks.len(), self.picks.len(), "one expert for each pick");
        let layer = self.layer.expect("a demand has a layer");
        self.picks.copy_from_slice(picks);
        self.collect_union(layer);
    }

    /// Sets `union` to the distinct experts of `picks`, in order of first pick.
    pub(crate) fn collect_union(&mut self, layer: LayerIndex) {
        // A bit for every id there can be: 8 KiB on the stack.
        let mut seen = [0_u64; (u16::MAX as usize + 1) / 64];
        self.union.clear();
        for &expert in &self.picks {
            let (word, bit) = (usize::from(expert / 64), 1 << (expert % 64));
            if seen[word] & bit == 0 {
                seen[word] |= bit;
                self.union.push(ExpertKey { layer, expert });
            }
        }
    }
}

/// Largest sweep a workspace serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceSize {
    /// Positions in one sweep.
    pub positions: usize,
    /// Positions of one sweep that want logits.
    pub logit_rows: usize,
    /// Longest sequence, in positions.
    pub context_positions: usize,
    /// Workers that compute at the same time.
    pub workers: usize,
}

impl WorkspaceSize {
    /// `positions` alone, everything else zero: for differences of sizes.
    #[must_use]
    pub fn positions(positions: usize) -> Self {
        Self {
            positions,
            logit_rows: 0,
            context_positions: 0,
            workers: 0,
        }
    }
}

/// What one sequence carries from sweep to sweep.
pub trait SequenceState: Send {
    /// Positions consumed so far: the index of the next one.
    fn position(&self) -> usize;

    /// Positions this state has memory for.
    fn capacity(&self) -> usize;

    /// Whether an unfinished sweep has touched the state. Such a state is
    /// refused by [`ModelFamily::begin`] until [`SequenceState::reset`].
    fn is_poisoned(&self) -> bool;

    /// Back to an empty sequence.
    fn reset(&mut self);
}

/// A model family: what to read in which order, and the arithmetic.
pub trait ModelFamily: Send + Sync {
    /// What a sequence carries.
    type State: SequenceState;
    /// Buffers for the positions of one sweep, allocated once.
    type Workspace: Send;
    /// A sweep in progress.
    type Run<'a>: SweepRun<'a>
    where
        Self: 'a;

    /// Everything a sweep reads, in order.
    fn program(&self) -> &SweepProgram;

    /// Sizes for planning.
    fn footprint(&self) -> ModelFootprint;

    /// Ids below this number have an embedding row.
    fn vocab_size(&self) -> usize;

    /// An empty sequence with memory for `context_positions` positions.
    fn new_state(&self, context_positions: usize) -> Self::State;

    /// Buffers for sweeps up to `size`.
    fn new_workspace(&self, size: WorkspaceSize) -> Self::Workspace;

    /// Bytes [`ModelFamily::new_workspace`] reserves.
    fn workspace_bytes(&self, size: &WorkspaceSize) -> u64;

    /// Starts a sweep: segment `i` continues `states[i]`. The states count as
    /// poisoned until [`SweepRun::finish`] succeeds.
    ///
    /// # Errors
    ///
    /// A token outside the vocabulary, a poisoned state, a state without room,
    /// or a workspace that is too small: nothing has been touched then.
    fn begin<'a>(
        &'a self,
        sweep: &'a Sweep,
        states: Vec<&'a mut Self::State>,
        workspace: &'a mut Self::Workspace,
        workers: &'a dyn Workers,
    ) -> Result<Self::Run<'a>, ModelError>;
}

/// A sweep in progress. Methods are called in program order; dropping a run
/// before [`SweepRun::finish`] leaves its states poisoned.
pub trait SweepRun<'a> {
    /// Takes the embedding row of sweep position `index`.
    fn embed(&mut self, index: usize, row: &[u8]);

    /// Consumes one block for all positions.
    ///
    /// # Errors
    ///
    /// A non-finite value where the arithmetic has none to give, or a packed
    /// block that is none.
    fn block(&mut self, block: &Block, bytes: &[u8]) -> Result<(), ModelError>;

    /// The demand of the layer whose router has just run.
    ///
    /// # Errors
    ///
    /// A non-finite score, naming layer and position.
    fn route(&mut self, layer: LayerIndex) -> Result<&ExpertDemand, ModelError>;

    /// Replaces the experts of the demand that [`SweepRun::route`] has just made
    /// by `picks`, one for each pick and distinct for each position, with the
    /// weights left as they are. For measurements alone: it gives a sweep over
    /// other weights the experts of a recorded one.
    fn impose(&mut self, picks: &[u16]) -> &ExpertDemand;

    /// Consumes one demanded expert: its six tensors back to back.
    fn expert(&mut self, key: ExpertKey, bytes: &[u8]);

    /// All demanded experts have been given: sums them in pick order.
    fn finish_moe(&mut self, layer: LayerIndex);

    /// The layer is complete.
    ///
    /// # Errors
    ///
    /// A non-finite hidden value, naming layer and position.
    fn end_layer(&mut self, layer: LayerIndex) -> Result<(), ModelError>;

    /// Consumes one block of the next layer's router before its turn, for
    /// [`SweepRun::guess`]. Called between [`SweepRun::end_layer`] and the block
    /// after it, with the router's blocks in order. Touches nothing that
    /// reaches a result.
    ///
    /// # Errors
    ///
    /// A packed block that is none.
    fn look_ahead(&mut self, block: &Block, bytes: &[u8]) -> Result<(), ModelError>;

    /// The experts that `layer`, whose whole router has been given to
    /// [`SweepRun::look_ahead`], seems to need: the best `count` of every
    /// position, without repetition, the most likely first. `count` is at most
    /// the picks of a position. Empty when no guess can be made.
    fn guess(&mut self, layer: LayerIndex, count: usize) -> &[ExpertKey];

    /// Groups of weights skipped so far because their scale is NaN.
    fn nan_scale_groups(&self) -> u64;

    /// Ends the sweep and commits the states. Returns the wanted logits:
    /// `[rows][vocab]`, in the order of [`Sweep::logit_positions`].
    ///
    /// # Errors
    ///
    /// A non-finite logit; the states stay poisoned then.
    fn finish(self) -> Result<&'a [f32], ModelError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_union_holds_each_expert_once_in_order_of_first_pick() {
        let layer = LayerIndex(2);
        let mut demand = ExpertDemand {
            layer: Some(layer),
            top_k: 3,
            picks: vec![0; 9],
            union: Vec::new(),
        };
        demand.replace_picks(&[64, 0, u16::MAX, 0, 63, 64, 128, u16::MAX, 1]);
        let experts: Vec<u16> = demand.union.iter().map(|key| key.expert).collect();
        assert_eq!(experts, [64, 0, u16::MAX, 63, 128, 1]);
        assert!(demand.union.iter().all(|key| key.layer == layer));
    }
}
