//! The seam between a model and whatever feeds it.
//!
//! The runtime walks [`SweepProgram::steps`] and calls the matching method of
//! [`SweepRun`] for each step. It holds one lease at a time and knows nothing
//! of the arithmetic; the family sees one block or one expert at a time and
//! knows nothing of files, arenas or threads beyond [`Workers`].

use std::io;

use k3_config::ModelFootprint;

use crate::error::ModelError;
use crate::ids::{ExpertKey, LayerIndex};
use crate::pages::{PagePool, PagesShort, PastPart, StoreError, pages_for};
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
    /// Positions of one sweep whose states wait for a commit.
    pub held_positions: usize,
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
            held_positions: 0,
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

    /// Positions this state has memory for: those it has reserved.
    fn capacity(&self) -> usize;

    /// Takes the pages of `positions` positions from `pool`, beside those it has:
    /// all it will need, before its first sweep, so that none fails for want of
    /// memory.
    ///
    /// # Errors
    ///
    /// Too few are free; nothing has been taken then.
    fn reserve(&mut self, positions: usize, pool: &mut PagePool) -> Result<(), PagesShort>;

    /// Brings the pages of `positions` more positions into memory, before a sweep
    /// over them: older ones leave for the pool's file, if it has one.
    ///
    /// # Errors
    ///
    /// What the file's store reports; the sequence is what it was.
    ///
    /// # Panics
    ///
    /// If the state is held back, or so many positions touch more pages than the
    /// sequence has in memory.
    fn make_room(&mut self, positions: usize) -> Result<(), StoreError>;

    /// Where its oldest pages lie, in order: those that are not in memory.
    fn outside(&self) -> &[u32];

    /// Becomes an empty sequence without pages; `pool`, which they came from, gets
    /// them back.
    fn release(&mut self, pool: &mut PagePool);

    /// Whether an unfinished sweep has touched the state. Such a state is
    /// refused by [`ModelFamily::begin`] until [`SequenceState::reset`].
    fn is_poisoned(&self) -> bool;

    /// Whether a sweep has held the state back. Such a state is refused by
    /// [`ModelFamily::begin`] until [`ModelFamily::commit`] or
    /// [`SequenceState::reset`].
    fn is_held(&self) -> bool;

    /// Back to an empty sequence, which keeps its pages.
    fn reset(&mut self);

    /// Becomes the same sequence as `other`, at the same position.
    ///
    /// # Errors
    ///
    /// What the store reports where pages lie in a file; the state is poisoned
    /// then.
    ///
    /// # Panics
    ///
    /// If there is less room than `other` has positions, or if `other` is
    /// poisoned, held back or of another model.
    fn copy_from(&mut self, other: &Self) -> Result<(), StoreError>;

    /// Bytes that [`SequenceState::save`] writes at `position`.
    fn saved_bytes(&self, position: usize) -> u64;

    /// Writes everything the sequence carries, little-endian, for
    /// [`SequenceState::restore`]: the same bytes on every machine, whatever
    /// way the positions were divided into sweeps.
    ///
    /// # Errors
    ///
    /// What `out` or the store of its pages reports.
    ///
    /// # Panics
    ///
    /// If the state is poisoned or held back.
    fn save(&self, out: &mut dyn io::Write) -> io::Result<()>;

    /// Takes back what [`SequenceState::save`] wrote at `position`, into an empty
    /// state.
    ///
    /// # Errors
    ///
    /// What `from` or the store of its pages reports; the state is poisoned then.
    ///
    /// # Panics
    ///
    /// If there is no room for `position` positions.
    fn restore(&mut self, position: usize, from: &mut dyn io::Read) -> io::Result<()>;
}

/// What went wrong for one segment of a sweep that the others got through.
#[derive(Debug)]
pub struct Fault {
    /// Index of the segment.
    pub segment: usize,
    /// First of its positions that is concerned, counted in the segment. Those
    /// before it are what they would be without it.
    pub offset: usize,
    /// What is wrong.
    pub error: ModelError,
}

/// What a sweep leaves.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The wanted logits: `[rows][vocab]`, in the order of
    /// [`Sweep::logit_positions`]. Rows from a fault on mean nothing.
    pub logits: &'a [f32],
    /// Segments that came upon a non-finite value, ascending, one each.
    pub faults: Vec<Fault>,
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

    /// An empty sequence with all that does not grow with its length, and no
    /// pages yet.
    fn empty_state(&self) -> Self::State;

    /// Elements of f32 in one page: what [`PAGE_POSITIONS`](crate::PAGE_POSITIONS)
    /// positions take in all layers.
    fn page_len(&self) -> usize;

    /// Elements of the part that one layer has of a page; a page is made of them.
    fn page_part_len(&self) -> usize;

    /// Pages for sequences of this model, all reserved.
    fn new_pool(&self, page_count: usize) -> PagePool {
        PagePool::new(page_count, self.page_len())
    }

    /// An empty sequence with pages of its own for `context_positions` positions.
    fn new_state(&self, context_positions: usize) -> Self::State {
        let mut state = self.empty_state();
        let mut pool = self.new_pool(pages_for(context_positions));
        let reserved = state.reserve(context_positions, &mut pool);
        reserved.expect("a pool of as many pages");
        state
    }

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

    /// Moves `state`, which segment `segment` of the last sweep of `workspace`
    /// has held back, past the first `accepted` of the segment's positions. The
    /// state is then what a sweep over those alone would have left.
    ///
    /// # Panics
    ///
    /// If the state is not held back, the workspace has begun another sweep
    /// since, or the segment has fewer positions.
    fn commit(
        &self,
        workspace: &mut Self::Workspace,
        segment: usize,
        state: &mut Self::State,
        accepted: usize,
        workers: &dyn Workers,
    );
}

/// A sweep in progress. Methods are called in program order; dropping a run
/// before [`SweepRun::finish`] leaves its states poisoned.
pub trait SweepRun<'a> {
    /// Takes the embedding row of sweep position `index`.
    fn embed(&mut self, index: usize, row: &[u8]);

    /// Takes `layer`'s parts of the pages that are not in memory, before the
    /// layer's attention: for every state of the sweep, in order, those of
    /// [`SequenceState::outside`]. They are given back once nothing needs them. A
    /// part that could not be read is a fault of its segment. Not called if all
    /// pages are in memory.
    ///
    /// # Errors
    ///
    /// The first fault, if no segment is left.
    fn past(
        &mut self,
        layer: LayerIndex,
        parts: Vec<Result<PastPart, StoreError>>,
    ) -> Result<(), ModelError>;

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

    /// Ends the sweep: states move past their positions or wait for a commit, as
    /// their segments say. A segment with a fault leaves its state poisoned, but
    /// for one that is held back and whose fault is beyond its first position:
    /// that fault is among the guesses.
    ///
    /// # Errors
    ///
    /// The first fault, if no segment got through; all states stay poisoned.
    fn finish(self) -> Result<Finished<'a>, ModelError>;
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
