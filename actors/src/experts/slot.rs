//! One place for an expert.

use k3_models::{ExpertKey, LayerIndex};

/// Index of a slot in the expert arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

impl SlotId {
    /// The index as a `usize`, for arenas and slices.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Slot number `index`.
    ///
    /// # Panics
    ///
    /// When `index` exceeds 32 bits; no arena has that many slots.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("slot counts fit 32 bits"))
    }
}

/// What a slot's memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing of use.
    Empty,
    /// An expert whose read has not completed.
    InFlight,
    /// A whole expert.
    Resident,
}

/// Who needs a slot's expert, besides the policy and the leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Nobody.
    None,
    /// The demand being served: it will be leased.
    Awaited,
    /// Lookahead: the demand of its layer has not arrived.
    Ahead,
    /// Nobody any more: lookahead asked in vain and the read is still running.
    Wasted,
}

/// The books of one slot.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) state: SlotState,
    /// Whose memory it is; meaningless while empty.
    pub(super) key: ExpertKey,
    pub(super) claim: Claim,
    /// Leases that live.
    pub(super) lease_count: u32,
}

impl Slot {
    pub(super) const EMPTY: Self = Self {
        state: SlotState::Empty,
        key: ExpertKey {
            layer: LayerIndex(0),
            expert: 0,
        },
        claim: Claim::None,
        lease_count: 0,
    };

    /// Starts a read of `key` into an empty slot.
    pub(super) fn fill(&mut self, key: ExpertKey, claim: Claim) {
        assert_eq!(self.state, SlotState::Empty);
        assert!(self.lease_count == 0 && self.claim == Claim::None);
        *self = Self {
            state: SlotState::InFlight,
            key,
            claim,
            lease_count: 0,
        };
    }
}
