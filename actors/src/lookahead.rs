//! What compute keeps to look a layer ahead: the routers, once they have passed.

use k3_config::{BudgetPlan, LOOKAHEAD_POSITIONS_MAX};
use k3_io::ReadLease;
use k3_models::{BlockIndex, SweepProgram};
use rustc_hash::FxHashMap;

use crate::units::memory;

/// Leases of the router blocks. The plan pins these blocks, so keeping their
/// leases takes no memory from anybody.
///
/// A router is here from the first sweep that passes it: a first sweep never
/// looks ahead, all later ones do. That depends on nothing but the sweeps.
#[derive(Debug)]
pub(crate) struct Lookahead {
    routers: FxHashMap<BlockIndex, Option<ReadLease>>,
    /// Experts for each position; 0 when it is off.
    experts_per_position: usize,
    /// The same for the sweep at hand.
    count: usize,
}

impl Lookahead {
    pub(crate) fn new(program: &SweepProgram, plan: &BudgetPlan) -> Self {
        let experts_per_position = memory(plan.lookahead.experts_per_position);
        let blocks = program.lookahead_blocks();
        let routers: FxHashMap<_, _> = if experts_per_position > 0 {
            blocks.map(|index| (index, None)).collect()
        } else {
            FxHashMap::default()
        };
        let is_pinned = |index: &BlockIndex| plan.pinned.is_pinned(index.index());
        assert!(routers.keys().all(is_pinned), "the plan pins the routers");
        Self {
            routers,
            experts_per_position,
            count: 0,
        }
    }

    /// A sweep of `position_count` positions starts.
    pub(crate) fn begin(&mut self, position_count: usize) {
        self.count = if position_count as u64 > LOOKAHEAD_POSITIONS_MAX {
            0
        } else {
            self.experts_per_position
        };
    }

    /// Experts to guess for each position of the sweep at hand.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Block `index` has passed.
    pub(crate) fn keep(&mut self, index: BlockIndex, lease: &ReadLease) {
        if let Some(kept) = self.routers.get_mut(&index)
            && kept.is_none()
        {
            *kept = Some(lease.clone());
        }
    }

    /// Block `index`, if it has passed.
    pub(crate) fn block(&self, index: BlockIndex) -> Option<ReadLease> {
        self.routers.get(&index).cloned().flatten()
    }

    /// Gives every lease back.
    pub(crate) fn forget(&mut self) {
        self.routers.clear();
    }
}
