//! Plans that do not fit, and what would help.

use std::fmt;

use serde::Serialize;

use crate::bytes::Bytes;

use super::lines::PlanLine;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanRefusal {
    /// The least plan is larger than the budget.
    #[error(transparent)]
    TooSmall(Box<Shortfall>),
    /// Fewer slots than experts can pass through.
    #[error(
        "--slots {given} is too few: experts pass through at least {least} slots; give --slots \
         {least} or more, or leave it out"
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
    /// The least plan. A line beyond 64 bits shows the largest number.
    pub lines: Vec<PlanLine>,
    /// The context that was asked for.
    pub context_positions: u64,
    /// The longest context that fits with everything else unchanged; `None`
    /// if none does.
    pub context_that_fits: Option<u64>,
    /// The positions per sweep that were asked for.
    pub chunk_positions: u64,
    /// The most positions per sweep that fit with everything else unchanged;
    /// `None` if no number does.
    pub chunk_that_fits: Option<u64>,
    /// Whether it fits without looking a layer ahead; `None` if it does not
    /// look ahead.
    pub fits_without_lookahead: Option<bool>,
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
                shortfall.0, smallest.0
            )?,
            _ => write!(
                f,
                "the smallest plan needs more than 2^64 bytes, and the budget is {budget}; no \
                 --memory is enough"
            )?,
        }
        remedy(
            f,
            "--context",
            self.context_positions,
            self.context_that_fits,
        )?;
        remedy(f, "--chunk", self.chunk_positions, self.chunk_that_fits)?;
        match self.fits_without_lookahead {
            Some(true) => f.write_str(", or leave out --lookahead"),
            Some(false) => f.write_str("; leaving out --lookahead is not enough by itself"),
            None => Ok(()),
        }
    }
}

fn remedy(f: &mut fmt::Formatter<'_>, flag: &str, now: u64, fits: Option<u64>) -> fmt::Result {
    match fits {
        Some(fits) => write!(f, ", or lower {flag} from {now} to {fits}"),
        None => write!(f, "; no lower {flag} than {now} is enough by itself"),
    }
}
