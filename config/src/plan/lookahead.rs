//! What looking a layer ahead may use.

use serde::Serialize;

use super::experts::Slots;
use super::request::PlanRequest;

/// Sweeps of more positions do not look ahead: together they want so many
/// experts that guesses only take slots and the disk away from their demands.
pub const LOOKAHEAD_POSITIONS_MAX: u64 = 4;

/// How far experts of the next layer are read before it asks for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LookaheadPlan {
    /// Experts guessed for each position of a sweep, at most; 0 when it is off.
    pub experts_per_position: u64,
    /// Slots that guesses take at a time, at most. No more than half of those
    /// that experts pass through: the other half always serves demands.
    pub slot_count: u64,
}

impl LookaheadPlan {
    pub(super) fn new(request: &PlanRequest<'_>, slots: Slots) -> Self {
        // No layer with experts has one before it.
        if request.lookahead_blocks.is_empty() {
            return Self::default();
        }
        let picks = u64::from(request.footprint.experts_per_token);
        let experts_per_position = request.lookahead_count.min(picks);
        // Without transit slots every expert has a slot of its own.
        let passing = if slots.transit == 0 {
            slots.cache
        } else {
            slots.transit
        };
        let wanted = experts_per_position * LOOKAHEAD_POSITIONS_MAX;
        let plan = Self {
            experts_per_position,
            slot_count: wanted.min(passing / 2),
        };
        assert!(plan.slot_count < passing.max(1), "demands keep a slot");
        plan
    }
}
