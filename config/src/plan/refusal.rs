//! Plans that do not fit, and what would help.

use std::fmt;

use serde::Serialize;

use crate::bytes::Bytes;

use super::by_budget::RefusedBetween;
use super::lines::PlanLine;
use super::splits::ForcedSplit;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanRefusal {
    /// The least plan is larger than the budget.
    #[error(transparent)]
    TooSmall(Box<Shortfall>),
    /// Fewer slots than experts can pass through.
    #[error(
        "{given} expert slots are too few: experts pass through at least {least}; ask for \
         {least} or more, or for no number"
    )]
    TooFewSlots {
        /// What was asked for.
        given: u64,
        /// The fewest that work.
        least: u64,
    },
    /// Two ways to ask for cache slots at once.
    #[error("--slots and --cache-gb both decide the number of cache slots: give one of them")]
    SlotsAndCache,
    /// Fewer positions for all sequences than one may reach.
    #[error(
        "--context-total {total} is less than the {context} positions one sequence may reach: ask \
         for {context} or more, or for a shorter --context"
    )]
    TotalBelowContext {
        /// Positions of all sequences.
        total: u64,
        /// Positions of one.
        context: u64,
    },
    /// A file for pages that would be larger than it may be.
    #[error(
        "positions that do not fit into memory take {needed} of the disk, but --spill-gb is \
         {most}: raise it, raise --memory, or lower --context or --sequences"
    )]
    SpillTooLarge {
        /// Size of the file.
        needed: Bytes,
        /// What it may have.
        most: Bytes,
    },
    /// A trunk no machine could hold or read.
    #[error("the trunk has {bytes} bytes, more than any checkpoint: its sizes cannot be right")]
    TrunkTooLarge {
        /// Sum of all blocks.
        bytes: u128,
    },
}

/// By how much a budget falls short, and the ways out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    /// What there is to spend.
    pub budget: Bytes,
    /// The smallest budget that is accepted; `None` if it takes more than
    /// 64 bits to write.
    pub smallest_budget: Option<Bytes>,
    /// What is missing; `None` as above.
    pub shortfall: Option<Bytes>,
    /// Budgets above the smallest that are refused all the same; see
    /// [`plan_by_budget`](super::plan_by_budget).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_between: Option<RefusedBetween>,
    /// The least plan. A line beyond 64 bits shows the largest number.
    pub lines: Vec<PlanLine>,
    /// The context that was asked for.
    pub context_positions: u64,
    /// The longest context that fits with everything else unchanged; `None`
    /// if none does.
    pub context_that_fits: Option<u64>,
    /// The positions of all sequences together; `None` where there is but one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_positions: Option<u64>,
    /// The most positions of all sequences together that fit with everything else
    /// unchanged; `None` if one context is too much already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_that_fits: Option<u64>,
    /// The positions per sweep that were asked for.
    pub chunk_positions: u64,
    /// The most positions per sweep that fit with everything else unchanged;
    /// `None` if no number does.
    pub chunk_that_fits: Option<u64>,
    /// Whether it fits without looking a layer ahead; `None` if it does not
    /// look ahead.
    pub fits_without_lookahead: Option<bool>,
    /// Sizes that were asked for instead of what fits, and less of each.
    pub splits: Vec<ForcedSplit>,
    /// Whether it fits without any of them; `None` unless there are several.
    pub fits_without_splits: Option<bool>,
}

impl std::error::Error for Shortfall {}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let budget = self.budget;
        match (self.smallest_budget, self.shortfall) {
            (Some(smallest), Some(shortfall)) => write!(
                f,
                "the smallest plan needs {smallest}, but the budget is {budget}: {shortfall} \
                 ({} bytes) are missing; raise --memory to {}",
                shortfall.0,
                self.enough(smallest)
            )?,
            _ => write!(
                f,
                "the smallest plan needs more than 2^64 bytes, so no --memory is enough, and the \
                 budget is {budget}"
            )?,
        }
        // Without the first way out, more memory, there is nothing to be "or" to.
        let mut before = if self.smallest_budget.is_some() {
            ", or "
        } else {
            "; "
        };
        for way in self.ways() {
            write!(f, "{before}{way}")?;
            before = ", or ";
        }
        let vain = self.vain();
        if vain.is_empty() {
            return Ok(());
        }
        write!(f, "; not enough alone: {}", vain.join(", "))
    }
}

impl Shortfall {
    /// What helps besides more memory, flags as their names.
    fn ways(&self) -> Vec<String> {
        let lower = |flag, now: u64, fits: Option<u64>| {
            fits.map(|fits| format!("lower {flag} from {now} to {fits}"))
        };
        let context = lower("--context", self.context_positions, self.context_that_fits);
        let chunk = lower("--chunk", self.chunk_positions, self.chunk_that_fits);
        let total = self.total_positions;
        let total = total.and_then(|now| lower("--context-total", now, self.total_that_fits));
        let lookahead = self.fits_without_lookahead == Some(true);
        let lookahead = lookahead.then(|| "leave out --lookahead".to_owned());
        let splits = self.splits.iter();
        let splits = splits.filter_map(|split| split.way_out(split.kind.flag()));
        let both = self.fits_without_splits == Some(true) && self.splits_help_together_only();
        let both = both.then(|| "leave out --trunk-gb and the cache's size both".to_owned());
        [context, total, chunk, lookahead]
            .into_iter()
            .flatten()
            .chain(splits)
            .chain(both)
            .collect()
    }

    /// Flags that could be lowered, and are not enough alone.
    fn vain(&self) -> Vec<&'static str> {
        let context = self.context_that_fits.is_none().then_some("--context");
        let chunk = self.chunk_that_fits.is_none().then_some("--chunk");
        let total = self.total_positions.is_some() && self.total_that_fits.is_none();
        let total = total.then_some("--context-total");
        let lookahead = self.fits_without_lookahead == Some(false);
        let splits = self.splits.iter().filter(|split| !split.helps());
        [context, total, chunk, lookahead.then_some("--lookahead")]
            .into_iter()
            .flatten()
            .chain(splits.map(|split| split.kind.flag()))
            .collect()
    }

    /// The budgets from `smallest` on that are accepted.
    #[must_use]
    pub fn enough(&self, smallest: Bytes) -> String {
        match self.refused_between {
            None => format!("{} or more", smallest.0),
            Some(RefusedBetween { from, to }) => {
                let below = format!("{} to {}", smallest.0, from.0 - 1);
                match to {
                    Some(to) => format!("{below}, or to {} or more", to.0),
                    None => below,
                }
            }
        }
    }

    /// Whether none of several forced sizes helps alone.
    #[must_use]
    pub fn splits_help_together_only(&self) -> bool {
        self.splits.len() > 1 && !self.splits.iter().any(ForcedSplit::helps)
    }
}
