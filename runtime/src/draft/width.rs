//! How many guesses a sweep carries.

use super::acceptance::Acceptance;
use super::cost::CostModel;
use super::ledger::Ledger;

/// Guesses that one sweep carries at most.
pub const GUESSES_MAX: usize = 64;

/// What one sweep of one sequence did: its last known token and the guesses behind
/// it. The sweeps that read a prompt are not told: what they read would pay for
/// guesses that fail.
///
/// With several sequences in a sweep, bytes are those attributed to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepCost {
    /// Guesses carried: the sequence had one position more.
    pub carried: usize,
    /// Of those, guesses that were right, the first ones.
    pub accepted: usize,
    /// [`Draft::evidence`](super::Draft::evidence) of the proposal.
    pub evidence: u32,
    /// If all carried guesses were right (or there were none) and the proposal had
    /// one more: whether that one was right too. It costs nothing to look, and is
    /// how a width of 0 learns that guesses would pay.
    pub beyond: Option<bool>,
    /// Bytes of trunk read from storage.
    pub trunk_read_bytes: u64,
    /// Bytes of experts read from storage.
    pub expert_read_bytes: u64,
    /// Of `expert_read_bytes`, those of experts that only rejected guesses asked
    /// for. None where that was not counted: then it is taken to be as much as it
    /// can be.
    pub rejected_read_bytes: Option<u64>,
}

/// Decides how many guesses the next sweep of one sequence carries: what costs the
/// fewest bytes per token by [what was measured](super#formulas), within what [the
/// ledger](super#the-ledger) allows.
#[derive(Debug, Clone)]
pub struct DraftWidth {
    guess_bytes_max: u64,
    costs: CostModel,
    acceptance: Acceptance,
    ledger: Ledger,
}

impl DraftWidth {
    /// Nothing read yet. `guess_bytes_max`: the most bytes that one more position can
    /// have read, all experts it asks for in all layers. The ledger's promise is as
    /// good as this number.
    #[must_use]
    pub fn new(guess_bytes_max: u64) -> Self {
        Self {
            guess_bytes_max,
            costs: CostModel::default(),
            acceptance: Acceptance::default(),
            ledger: Ledger::default(),
        }
    }

    /// Guesses for the next sweep, 0 to `limit` (and [`GUESSES_MAX`]), of a
    /// proposal of `limit` guesses with this evidence.
    #[must_use]
    pub fn width(&self, evidence: u32, limit: usize) -> usize {
        let limit = limit.min(GUESSES_MAX);
        let allowed = self.ledger.guesses_max(self.guess_bytes_max).min(limit);
        let Some(expected) = self.costs.expected() else {
            return 0;
        };
        expected.best_guesses(self.acceptance.chance(evidence), allowed)
    }

    /// Learns from a sweep.
    ///
    /// # Panics
    ///
    /// If more guesses were accepted than carried, or more bytes rejected than read.
    pub fn observe(&mut self, cost: &SweepCost) {
        let rejected = cost.carried.checked_sub(cost.accepted);
        let rejected = rejected.expect("guesses accepted were carried");
        let wasted_bytes = self.wasted_bytes(cost, rejected);
        assert!(wasted_bytes <= cost.expert_read_bytes);
        let saved_bytes = cost.trunk_read_bytes.saturating_mul(cost.accepted as u64);
        let read_bytes = cost.trunk_read_bytes.saturating_add(cost.expert_read_bytes);
        self.ledger.enter(read_bytes, wasted_bytes, saved_bytes);
        self.costs
            .observe(cost.carried, cost.trunk_read_bytes, cost.expert_read_bytes);
        for _ in 0..cost.accepted {
            self.acceptance.judge(cost.evidence, true);
        }
        if rejected > 0 {
            self.acceptance.judge(cost.evidence, false);
        } else if let Some(is_right) = cost.beyond {
            self.acceptance.judge(cost.evidence, is_right);
        }
    }

    /// What was read, wasted and saved so far.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn wasted_bytes(&self, cost: &SweepCost, rejected: usize) -> u64 {
        if rejected == 0 {
            return 0;
        }
        cost.rejected_read_bytes.unwrap_or_else(|| {
            let most = self.guess_bytes_max.saturating_mul(rejected as u64);
            most.min(cost.expert_read_bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(beyond: Option<bool>) -> SweepCost {
        SweepCost {
            carried: 0,
            accepted: 0,
            evidence: 8,
            beyond,
            trunk_read_bytes: 4_000,
            expert_read_bytes: 1_000,
            rejected_read_bytes: None,
        }
    }

    #[test]
    fn nothing_is_guessed_before_a_failure_is_paid_for() {
        let mut width = DraftWidth::new(1_000);
        assert_eq!(width.width(8, 16), 0);
        for _ in 0..9 {
            width.observe(&plain(Some(true)));
            assert_eq!(width.width(8, 16), 0);
        }
        width.observe(&plain(Some(true)));
        assert_eq!(width.width(8, 16), 1, "50,000 read, 1,000 may be wasted");
        assert_eq!(width.width(8, 0), 0);
    }

    #[test]
    fn a_guess_that_was_right_pays_for_several() {
        let mut width = DraftWidth::new(1_000);
        for _ in 0..10 {
            width.observe(&plain(Some(true)));
        }
        let right = SweepCost {
            carried: 1,
            accepted: 1,
            expert_read_bytes: 1_600,
            ..plain(Some(true))
        };
        width.observe(&right);
        assert_eq!(width.ledger().saved_bytes, 4_000);
        assert_eq!(width.width(8, 16), 5);
        assert_eq!(width.width(8, 3), 3);
    }

    #[test]
    fn guesses_seen_to_fail_are_not_carried_though_paid_for() {
        let mut width = DraftWidth::new(1_000);
        for _ in 0..100 {
            width.observe(&plain(Some(false)));
        }
        assert_eq!(width.width(8, 16), 0);
        assert_eq!(
            width.width(3, 16),
            2,
            "another level of evidence is unknown yet"
        );
        for _ in 0..3 {
            width.observe(&plain(Some(true)));
        }
        assert!(
            width.width(8, 16) > 0,
            "looking beyond the width costs nothing"
        );
    }

    #[test]
    fn rejected_guesses_narrow_the_width_before_the_credit_is_gone() {
        let mut width = DraftWidth::new(1_000);
        for _ in 0..1_000 {
            width.observe(&plain(None));
        }
        let mut widths = Vec::new();
        while widths.last() != Some(&0) && widths.len() < 100 {
            let carried = width.width(8, 16);
            widths.push(carried);
            width.observe(&SweepCost {
                carried,
                expert_read_bytes: 1_000 + 600 * carried as u64,
                ..plain(None)
            });
        }
        assert!(
            widths.is_sorted_by(|wider, narrower| wider >= narrower),
            "{widths:?}"
        );
        assert!((2..20).contains(&widths.len()), "{widths:?}");
        assert!(width.ledger().credit_bytes() > 50_000);
    }

    #[test]
    fn waste_is_what_was_counted_or_the_most_it_can_be() {
        let mut width = DraftWidth::new(1_000);
        let failed = SweepCost {
            carried: 3,
            accepted: 1,
            expert_read_bytes: 2_500,
            rejected_read_bytes: Some(700),
            ..plain(None)
        };
        width.observe(&failed);
        assert_eq!(width.ledger().wasted_bytes, 700);
        width.observe(&SweepCost {
            rejected_read_bytes: None,
            ..failed
        });
        assert_eq!(width.ledger().wasted_bytes, 700 + 2_000);
        width.observe(&SweepCost {
            accepted: 0,
            rejected_read_bytes: None,
            ..failed
        });
        assert_eq!(width.ledger().wasted_bytes, 700 + 2_000 + 2_500);
        let read_bytes = 3 * (4_000 + 2_500);
        assert_eq!(width.ledger().read_bytes, read_bytes);
        assert_eq!(width.ledger().saved_bytes, 8_000);
    }

    #[test]
    fn with_all_weights_in_memory_nothing_is_guessed() {
        let mut width = DraftWidth::new(0);
        for _ in 0..100 {
            width.observe(&SweepCost {
                trunk_read_bytes: 0,
                expert_read_bytes: 0,
                ..plain(Some(true))
            });
            assert_eq!(width.width(8, 16), 0);
        }
    }

    #[test]
    #[should_panic(expected = "were carried")]
    fn more_accepted_than_carried_is_a_bug() {
        DraftWidth::new(1).observe(&SweepCost {
            accepted: 1,
            ..plain(None)
        });
    }
}
