//! Plans whose chunk follows the budget: what would be enough is another
//! question there, for a larger budget may bring a larger chunk.

use serde::Serialize;

use crate::bytes::Bytes;
use crate::preset::{
    DEFAULT_CHUNK_POSITIONS, SMALL_BUDGET, SMALL_CHUNK_POSITIONS, default_chunk_positions,
};

use super::{BudgetPlan, PlanRefusal, Shortfall};

/// Budgets between two that are accepted, refused because their own chunk is
/// larger than that of the lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RefusedBetween {
    /// The least that is refused.
    pub from: Bytes,
    /// From here on everything is accepted; `None` if that takes more than
    /// 64 bits to write.
    pub to: Option<Bytes>,
}

/// The plan of a budget of `total`, whose sweeps have as many positions as suit
/// the budget ([`default_chunk_positions`]). `plan` makes one for a number of
/// positions, within `total`.
///
/// The smallest budget of a plan is the smallest that is accepted with the chunk
/// which that very budget brings; that of a refusal, the smallest above `total`.
///
/// # Errors
///
/// Those of `plan`.
pub fn plan_by_budget(
    total: Bytes,
    plan: impl Fn(u64) -> Result<BudgetPlan, PlanRefusal>,
) -> Result<BudgetPlan, PlanRefusal> {
    match plan(default_chunk_positions(total)) {
        Ok(mut accepted) if total >= SMALL_BUDGET => {
            let smaller = smallest(plan(SMALL_CHUNK_POSITIONS));
            if let Some(least) = smaller.filter(|least| *least < SMALL_BUDGET) {
                accepted.smallest_budget = least;
            }
            Ok(accepted)
        }
        Err(PlanRefusal::TooSmall(shortfall)) if total < SMALL_BUDGET => {
            let larger = plan(DEFAULT_CHUNK_POSITIONS);
            Err(PlanRefusal::TooSmall(Box::new(grown(*shortfall, larger))))
        }
        other => other,
    }
}

/// `shortfall`, of a small budget's chunk, seen with `larger`, what the same
/// budget comes to with the chunk of those that are not small.
fn grown(shortfall: Shortfall, larger: Result<BudgetPlan, PlanRefusal>) -> Shortfall {
    let is_small = |bytes: Option<Bytes>| bytes.is_some_and(|bytes| bytes < SMALL_BUDGET);
    let Err(PlanRefusal::TooSmall(larger)) = larger else {
        return shortfall;
    };
    if !is_small(shortfall.smallest_budget) {
        return Shortfall {
            smallest_budget: larger.smallest_budget,
            shortfall: larger.shortfall,
            lines: larger.lines,
            ..shortfall
        };
    }
    let to = larger.smallest_budget;
    let is_gap = to.is_none_or(|to| to > SMALL_BUDGET);
    Shortfall {
        refused_between: is_gap.then_some(RefusedBetween {
            from: SMALL_BUDGET,
            to,
        }),
        ..shortfall
    }
}

/// The smallest budget that a plan or a refusal names.
fn smallest(outcome: Result<BudgetPlan, PlanRefusal>) -> Option<Bytes> {
    match outcome {
        Ok(plan) => Some(plan.smallest_budget),
        Err(PlanRefusal::TooSmall(shortfall)) => shortfall.smallest_budget,
        Err(_) => None,
    }
}
