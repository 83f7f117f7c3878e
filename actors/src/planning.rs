//! From a model and a budget to a plan.

use k3_config::{
    ArenaLayout, BudgetPlan, MemoryBudget, ModelFootprint, Pins, PlanRefusal, PlanRequest,
    SpillRequest, WorkspaceShape, plan,
};
use k3_models::WorkspaceSize;
use k3_runtime::scheduler::guessing_bytes;

/// An allowance for code, stacks, runtime and the allocator's slack. A whole
/// run of a tiny checkpoint peaks far below it (its report says where); the
/// rest is for what grows with a model and is not worth a line of its own.
pub const BASELINE_BYTES: u64 = 48 << 20;

/// What a plan depends on besides the model and the budget.
#[derive(Debug, Clone, Copy)]
pub struct PlanInputs {
    /// Positions a sequence may reach.
    pub context_positions: u64,
    /// Positions that all sequences have memory for together; see
    /// [`PlanRequest::context_total`].
    pub context_total: Option<u64>,
    /// Where pages go that do not fit into memory, if they may.
    pub spill: Option<SpillRequest>,
    /// Prompt positions of one sweep.
    pub chunk_positions: u64,
    /// Sequences that run at a time.
    pub sequences: u64,
    /// Guesses that a sequence may bring to a sweep beside its next token.
    pub guesses: u64,
    /// Positions of one sweep that want logits; what exceeds its positions does
    /// not count.
    pub logit_rows: u64,
    /// Compute threads.
    pub workers: u64,
    /// The vocabulary and its tables.
    pub vocabulary_bytes: u64,
    /// The shard index.
    pub index_bytes: u64,
    /// Bytes the read engine keeps in flight.
    pub in_flight_bytes: u64,
    /// Alignment of reads and pages of arenas.
    pub layout: ArenaLayout,
    /// Expert slots in all, instead of what fits.
    pub slots: Option<u64>,
    /// Which blocks to pin when not all fit.
    pub pins: Pins,
    /// Experts of the next layer that are read ahead for each position; 0 is off.
    pub lookahead: u64,
}

/// Plans the sequences of a model whose workspace takes `workspace(size)`.
///
/// # Errors
///
/// A budget that is too small or inputs that contradict one another.
pub fn plan_run(
    footprint: &ModelFootprint,
    workspace: &dyn Fn(&WorkspaceSize) -> u64,
    budget: &MemoryBudget,
    inputs: &PlanInputs,
) -> Result<BudgetPlan, PlanRefusal> {
    let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let step_positions = inputs.guesses.saturating_add(1);
    let sized = |shape: WorkspaceShape, held_positions: u64| {
        workspace(&WorkspaceSize {
            held_positions: count(held_positions),
            positions: count(shape.positions),
            logit_rows: count(shape.logit_rows),
            context_positions: count(shape.context_positions),
            workers: count(shape.workers),
        })
    };
    let log_bytes = match inputs.guesses {
        0 => 0,
        _ => {
            let step = step_positions.min(inputs.context_positions);
            let shape = WorkspaceShape {
                positions: 1,
                logit_rows: 0,
                context_positions: 1,
                workers: inputs.workers,
            };
            let held = step.saturating_mul(inputs.sequences);
            let log = sized(shape, held).saturating_sub(sized(shape, 0));
            let lookup = guessing_bytes(count(inputs.context_positions));
            log.saturating_add(lookup.saturating_mul(inputs.sequences))
        }
    };
    let workspace = |shape| sized(shape, 0);
    let lookahead_blocks: &[usize] = match inputs.lookahead {
        0 => &[],
        _ => &footprint.lookahead_blocks,
    };
    plan(&PlanRequest {
        footprint,
        budget,
        context_positions: inputs.context_positions,
        context_total: inputs.context_total,
        spill: inputs.spill,
        chunk_positions: inputs.chunk_positions,
        logit_rows: inputs.logit_rows,
        step_positions,
        sequences: inputs.sequences,
        workers: inputs.workers,
        baseline_bytes: BASELINE_BYTES,
        vocabulary_bytes: inputs.vocabulary_bytes,
        index_bytes: inputs.index_bytes,
        speculation_log_bytes: log_bytes,
        workspace: &workspace,
        lookahead_blocks,
        lookahead_count: inputs.lookahead,
        layout: inputs.layout,
        in_flight_bytes: inputs.in_flight_bytes,
        slots: inputs.slots,
        pins: inputs.pins,
    })
}
