//! From a budget to a plan: every reservation, before anything is reserved.
//!
//! Memory is given out in this order, each step only when the one before is
//! complete:
//!
//! 1. what no run does without: process, vocabulary, index, vectors, states,
//!    buffers, logs, lookahead blocks, and the least ring and transit slots;
//! 2. transit slots up to one layer's picks, so that all of a layer's experts
//!    can be on their way at once;
//! 3. the read-ahead ring up to its default of 64 blocks (a sixteenth of a
//!    small trunk), so that the disk works on while experts are multiplied;
//! 4. pinned trunk: each byte saves one byte per sweep;
//! 5. cache slots: each byte saves a third of that or less.
//!
//! The least ring holds the block in use, the next one and the bytes in
//! flight. A trunk that is pinned whole needs no ring, and a model whose
//! experts all have a cache slot needs no transit slots: a plan never holds
//! more than the model. What is then left of the budget stays unused.
//!
//! `--trunk-gb`, `--cache-gb` and `--slots` replace steps 4 and 5 by a fixed
//! size that counts among what the run does not do without.

mod arena;
mod by_budget;
mod experts;
mod lines;
mod lookahead;
mod pages;
mod pins;
mod predict;
mod refusal;
mod render;
mod request;
mod splits;
mod surplus;
mod trunk;

use serde::Serialize;

use crate::budget::MemoryBudget;
use crate::bytes::Bytes;
use experts::{Experts, Slots};
use lines::{Need, fixed_needs, saturating_bytes, variable_needs};
use trunk::{Trunk, TrunkShare};

pub use arena::ArenaLayout;
pub use by_budget::{RefusedBetween, plan_by_budget};
pub use lines::{LineKind, PlanLine};
pub use lookahead::{LOOKAHEAD_POSITIONS_MAX, LookaheadPlan};
pub use pages::PagePlan;
pub use pins::{PinMap, pinned_blocks};
pub use predict::{DiskForecast, Prediction};
pub use refusal::{PlanRefusal, Shortfall};
pub use request::{PlanRequest, SpillRequest, WorkspaceShape};
pub use splits::{ForcedSplit, SplitKind};

/// The ring that streamed blocks pass through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RingPlan {
    /// Places; 0 exactly when every block is pinned.
    pub place_count: u64,
    /// Size of a place: the aligned window of the largest block that may
    /// stream, wherever it starts.
    pub place_bytes: u64,
}

/// The places experts are read into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SlotPlan {
    /// Slots for any layer; 0 exactly when every expert has a cache slot.
    pub transit_count: u64,
    /// Slots that keep experts from sweep to sweep.
    pub cache_count: u64,
    /// Size of a slot: the aligned window of an expert, wherever it starts.
    pub slot_bytes: u64,
    /// Experts the model has.
    pub expert_count: u64,
}

/// The trunk blocks that stay in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PinSummary {
    /// Blocks that stay in memory, those for looking ahead among them.
    pub block_count: u64,
    /// Blocks there are.
    pub block_total: u64,
    /// Payload bytes of the blocks that stay.
    pub bytes: u64,
    /// Payload bytes of all blocks.
    pub bytes_total: u64,
}

/// Every reservation of a run.
///
/// The lines add up to [`Self::planned`], and with [`Self::left_over`] to the
/// budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BudgetPlan {
    /// What there is to spend.
    pub budget: MemoryBudget,
    /// Positions a sequence may reach.
    pub context_positions: u64,
    /// Positions of the largest sweep.
    pub chunk_positions: u64,
    /// Positions of the largest sweep: the chunk, and what other sequences bring.
    pub sweep_positions: u64,
    /// One line for every [`LineKind`], in its order.
    pub lines: Vec<PlanLine>,
    /// Sum of the lines.
    pub planned: Bytes,
    /// What the model has no use for.
    pub left_over: Bytes,
    /// The smallest budget the same request is accepted with.
    pub smallest_budget: Bytes,
    /// What holds the positions of sequences.
    pub pages: PagePlan,
    /// The ring.
    pub ring: RingPlan,
    /// The expert slots.
    pub slots: SlotPlan,
    /// What looking a layer ahead may use.
    pub lookahead: LookaheadPlan,
    /// How much of the trunk is pinned.
    pub pins: PinSummary,
    /// Which blocks are pinned, those for looking ahead among them.
    #[serde(skip)]
    pub pinned: PinMap,
    /// What the disk will have to deliver.
    pub prediction: Prediction,
}

impl BudgetPlan {
    /// The line of `kind`.
    #[must_use]
    pub fn line(&self, kind: LineKind) -> &PlanLine {
        let line = self.lines.iter().find(|line| line.kind == kind);
        line.expect("a plan has a line of every kind")
    }
}

/// Plans `request`.
///
/// # Errors
///
/// [`PlanRefusal`] if the budget is too small or the request contradicts
/// itself. Nothing is ever shrunk below what was asked for.
///
/// # Panics
///
/// If the request breaks what its fields promise.
pub fn plan(request: &PlanRequest<'_>) -> Result<BudgetPlan, PlanRefusal> {
    request.check();
    let asked = request;
    let request = &pages::decided(asked)?;
    let context = request.context_positions;
    let total = request.context_total.filter(|_| request.spill.is_none());
    if let Some(total) = total.filter(|total| *total < context) {
        return Err(PlanRefusal::TotalBelowContext { total, context });
    }
    let model = Model::new(request)?;
    let budget = u128::from(request.budget.total.0);
    let shape = request.shape(request.context_positions, request.chunk_positions);
    let fixed = fixed_needs(request, shape, &model.trunk);
    let fixed_bytes: u128 = fixed.iter().map(|need| need.bytes).sum();
    let smallest = fixed_bytes + model.least_bytes();
    if smallest > budget {
        return Err(PlanRefusal::TooSmall(Box::new(
            model.shortfall(request, fixed, smallest),
        )));
    }
    let (share, slots) = model.allocate(budget - fixed_bytes);
    let lines: Vec<PlanLine> = fixed
        .into_iter()
        .chain(variable_needs(&model.trunk, &share, &model.experts, slots))
        .map(Need::into_line)
        .collect();
    let planned: u64 = lines.iter().map(|line| line.bytes.0).sum();
    assert!(
        planned <= request.budget.total.0,
        "the lines stay within the budget"
    );
    assert_eq!(lines.len(), LineKind::ALL.len(), "one line of every kind");
    let pinned = model.trunk.all_pinned(&share);
    let all_cached = slots.cache == model.experts.expert_count;
    Ok(BudgetPlan {
        budget: request.budget.clone(),
        context_positions: request.context_positions,
        chunk_positions: {
            let most = request.context_positions.saturating_mul(request.sequences);
            request.chunk_positions.min(most)
        },
        sweep_positions: shape.positions,
        lines,
        planned: Bytes(planned),
        left_over: Bytes(request.budget.total.0 - planned),
        smallest_budget: saturating_bytes(
            pages::smallest_budget(asked, &model).unwrap_or(smallest),
        ),
        pages: request.pages(context),
        ring: RingPlan {
            place_count: share.ring_places,
            place_bytes: model.trunk.place_bytes,
        },
        slots: SlotPlan {
            transit_count: slots.transit,
            cache_count: slots.cache,
            slot_bytes: model.experts.slot_bytes,
            expert_count: model.experts.expert_count,
        },
        lookahead: LookaheadPlan::new(request, slots),
        pins: summary(request, &pinned),
        prediction: Prediction {
            past_bytes_per_sweep: request.pages(context).read_bytes_per_sweep(),
            ..Prediction::new(request.footprint, &pinned, all_cached, request.sequences)
        },
        pinned,
    })
}

fn summary(request: &PlanRequest<'_>, pinned: &PinMap) -> PinSummary {
    let blocks = &request.footprint.blocks;
    assert_eq!(blocks.len(), pinned.block_count());
    let summary = PinSummary {
        block_count: pinned.pinned_count() as u64,
        block_total: blocks.len() as u64,
        bytes: pinned.pinned().map(|index| blocks[index].bytes).sum(),
        bytes_total: blocks.iter().map(|block| block.bytes).sum(),
    };
    assert!(summary.bytes <= summary.bytes_total);
    summary
}

/// The parts of a model that compete for what the fixed lines leave.
struct Model {
    trunk: Trunk,
    experts: Experts,
}

impl Model {
    fn new(request: &PlanRequest<'_>) -> Result<Self, PlanRefusal> {
        Ok(Self {
            trunk: Trunk::new(request)?,
            experts: Experts::new(request)?,
        })
    }

    fn least_bytes(&self) -> u128 {
        self.trunk.least_bytes() + self.experts.bytes(self.experts.least())
    }

    /// The least with which reading is not slowed down.
    fn usual_bytes(&self) -> u128 {
        let experts = self.experts.bytes(self.experts.usual());
        self.trunk.usual_bytes() + experts
    }

    /// Divides `room`, which is at least [`Self::least_bytes`].
    fn allocate(&self, room: u128) -> (TrunkShare, Slots) {
        assert!(room >= self.least_bytes(), "the least allocation fits");
        let slots = self.experts.transit_within(room - self.trunk.least_bytes());
        let for_trunk = room - self.experts.bytes(slots);
        // While transit slots are missing the trunk gets its least: a larger
        // share would have to shrink again when memory for a slot is there.
        let share = if self.experts.is_short_of_transit(slots) {
            self.trunk.least()
        } else {
            self.trunk.share_of(for_trunk)
        };
        let left = for_trunk - share.ring_bytes - share.pinned_bytes;
        let slots = if share.is_complete {
            self.experts.grown(slots, left)
        } else {
            slots
        };
        let used = share.ring_bytes + share.pinned_bytes + self.experts.bytes(slots);
        assert!(used <= room, "no more is given out than there is");
        (share, slots)
    }

    fn shortfall(&self, request: &PlanRequest<'_>, fixed: Vec<Need>, smallest: u128) -> Shortfall {
        let budget = u128::from(request.budget.total.0);
        assert!(smallest > budget, "a shortfall is what is missing");
        let (context, chunk) = (request.context_positions, request.chunk_positions);
        let fits_total = |context, chunk, context_total| {
            let request = PlanRequest {
                context_total,
                ..*request
            };
            let needs = fixed_needs(&request, request.shape(context, chunk), &self.trunk);
            let fixed: u128 = needs.iter().map(|need| need.bytes).sum();
            fixed + self.least_bytes() <= budget
        };
        let fits = |context, chunk| fits_total(context, chunk, request.context_total);
        let all = context.saturating_mul(request.sequences);
        let total = request.context_total.unwrap_or(all);
        let is_shared = request.sequences > 1 && request.spill.is_none();
        let total = is_shared.then_some(total);
        let least = variable_needs(
            &self.trunk,
            &self.trunk.least(),
            &self.experts,
            self.experts.least(),
        );
        let shortfall = Shortfall {
            budget: request.budget.total,
            smallest_budget: u64::try_from(smallest).ok().map(Bytes),
            shortfall: u64::try_from(smallest - budget).ok().map(Bytes),
            refused_between: None,
            lines: fixed
                .into_iter()
                .chain(least)
                .map(Need::into_line)
                .collect(),
            context_positions: context,
            context_that_fits: largest_fitting(1, context, |lower| fits(lower, chunk)),
            total_positions: total,
            total_that_fits: total.and_then(|total| {
                largest_fitting(context, total, |lower| {
                    fits_total(context, chunk, Some(lower))
                })
            }),
            chunk_positions: chunk,
            chunk_that_fits: largest_fitting(1, chunk, |lower| fits(context, lower)),
            fits_without_lookahead: fits_without_lookahead(request),
            splits: splits::forced(request),
            fits_without_splits: splits::fits_without_both(request),
        };
        assert!(
            shortfall.context_that_fits != Some(context),
            "the request itself does not fit"
        );
        shortfall
    }
}

/// Whether `request` is accepted once it looks no layer ahead; `None` if it
/// does not.
fn fits_without_lookahead(request: &PlanRequest<'_>) -> Option<bool> {
    if request.lookahead_blocks.is_empty() {
        return None;
    }
    let without = PlanRequest {
        lookahead_blocks: &[],
        lookahead_count: 0,
        ..*request
    };
    Some(is_accepted(&without))
}

/// Whether there is a plan for `request`.
fn is_accepted(request: &PlanRequest<'_>) -> bool {
    let Ok(model) = Model::new(request) else {
        return false;
    };
    let shape = request.shape(request.context_positions, request.chunk_positions);
    let needs = fixed_needs(request, shape, &model.trunk);
    let fixed: u128 = needs.iter().map(|need| need.bytes).sum();
    fixed + model.least_bytes() <= u128::from(request.budget.total.0)
}

/// The largest number within `low..=high` that `fits`, if `low` does. Nothing
/// above a number that does not fit may fit, except `high` itself.
fn largest_fitting(low: u64, high: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    assert!(low <= high, "{low} to {high} is no range");
    if fits(high) {
        return Some(high);
    }
    if !fits(low) {
        return None;
    }
    let (mut good, mut bad) = (low, high);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    assert!(good < high && fits(good));
    Some(good)
}
