//! How many prompts run at a time.
//!
//! More of them share what a sweep reads of the trunk, but each takes memory for
//! its state, which then pins no trunk and caches no expert. The plan's own
//! model weighs both.

use k3_config::BudgetPlan;
use k3_models::ModelFamily as _;
use k3_models::kimi_k3::KimiK3;
use k3_runtime::SchedulerSettings;

use super::error::BatchError;
use super::needs::Needs;
use crate::commands::running::setup::Setup;
use crate::commands::running::streaming;
use crate::error::CliError;
use crate::planning::{self, Reading};

/// Prompts at a time, at most, unless more are asked for: beyond that a sweep's
/// experts are nearly all there are, and arithmetic is what takes the time.
const WIDTH_MAX: usize = 64;
/// Where nothing is read: from here on the products of a sweep gain little.
const RESIDENT_WIDTH: usize = 8;

/// The number of sequences at a time: what was asked for, or what the plan expects
/// to read least for each token. `left` answers are wanted, `together` of them at
/// least at a time: choices of one prompt. They have the memory of `needs`.
///
/// # Errors
///
/// A budget that is too small for what was asked for, or for the least; fewer
/// sequences than choices.
pub(super) fn choose(
    setup: &Setup,
    model: &KimiK3,
    needs: &Needs,
    [together, left]: [usize; 2],
) -> Result<usize, CliError> {
    let most = left.clamp(together, WIDTH_MAX);
    if let Some(asked) = &setup.settings.sequences {
        let asked = usize::try_from(asked.value.get()).unwrap_or(usize::MAX);
        if asked < together {
            return Err(BatchError::Choices { asked, together }.into());
        }
        return Ok(asked.min(left.max(together)));
    }
    if setup.budget.is_none() {
        return Ok(most.min(RESIDENT_WIDTH).max(together));
    }
    let reading = Reading::for_trunk(model.footprint().trunk_bytes());
    let plan = |width: usize| {
        let settings = SchedulerSettings {
            sequences_max: width,
            guesses_max: planning::guesses(&setup.settings),
            context_total: Some(needs.total_positions(width)),
            ..SchedulerSettings::single(needs.context_positions(), setup.chunk_positions)
        };
        streaming::plan(setup, model, settings, &reading)
    };
    let mut best = (expected(&plan(together)?), together);
    for width in widths(most).filter(|width| *width > together) {
        // More do not fit either.
        let Ok(plan) = plan(width) else { break };
        let bytes = expected(&plan);
        if bytes < best.0 {
            best = (bytes, width);
        }
    }
    Ok(best.1)
}

/// 2, 3, 4, 6, 8, 12, ... up to `most`, and `most`.
fn widths(most: usize) -> impl Iterator<Item = usize> {
    let powers = (1..).map(|power| 1_usize << power);
    let steps = powers.flat_map(|power| [power, power + power / 2]);
    let below = steps.take_while(move |width| *width < most);
    below.chain((most > 1).then_some(most))
}

/// Bytes read for each token, if no expert is found in memory.
fn expected(plan: &BudgetPlan) -> f64 {
    plan.prediction.bytes_per_token(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_grow_by_halves_and_end_with_the_most() {
        let list = |most| widths(most).collect::<Vec<_>>();
        assert_eq!(list(1), [] as [usize; 0]);
        assert_eq!(list(2), [2]);
        assert_eq!(list(5), [2, 3, 4, 5]);
        assert_eq!(list(64), [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
    }
}
