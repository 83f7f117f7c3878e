//! What a plan is made from.

use crate::budget::MemoryBudget;
use crate::choices::Pins;
use crate::footprint::{ModelFootprint, pool_page_count, touched_pages};

use super::arena::ArenaLayout;
use super::pages::PagePlan;

/// What is read past the page cache is a multiple of it.
const READ_UNIT: u64 = 4096;
/// Parts of pages that are read before the attention of their layer is next, at
/// most.
const AHEAD_PARTS: u64 = 64;

/// The largest sweep the family's buffers must serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceShape {
    /// Positions in one sweep.
    pub positions: u64,
    /// Positions of one sweep that want logits.
    pub logit_rows: u64,
    /// Longest sequence, in positions.
    pub context_positions: u64,
    /// Workers that compute at the same time.
    pub workers: u64,
}

/// A file for pages that do not stay in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpillRequest {
    /// What it may take of the disk, at most; the pages decide if nobody says.
    pub bytes_max: Option<u64>,
    /// Pages that each sequence has in memory; `None`: as many as fit.
    pub memory_pages: Option<u64>,
}

/// Everything a plan depends on. Sizes are in bytes.
#[derive(Clone, Copy)]
pub struct PlanRequest<'a> {
    /// What the model costs.
    pub footprint: &'a ModelFootprint,
    /// What there is to spend.
    pub budget: &'a MemoryBudget,
    /// Positions a sequence may reach, at least 1.
    pub context_positions: u64,
    /// Positions that all sequences have memory for together, at least one
    /// context; every context beside all others if nobody says so.
    pub context_total: Option<u64>,
    /// Where pages go that do not fit, if they may.
    pub spill: Option<SpillRequest>,
    /// Prompt positions of one sweep, at least 1.
    pub chunk_positions: u64,
    /// Positions that every other sequence brings to a sweep, at least 1: its
    /// next token and the guesses behind it.
    pub step_positions: u64,
    /// Positions of one sweep that want logits; what exceeds the positions of
    /// a sweep does not count.
    pub logit_rows: u64,
    /// Sequences that exist at the same time, at least 1.
    pub sequences: u64,
    /// Workers that compute at the same time, at least 1.
    pub workers: u64,
    /// Code, stacks and everything else a process has before it does a thing.
    pub baseline_bytes: u64,
    /// The vocabulary and its tables.
    pub vocabulary_bytes: u64,
    /// Where each tensor and expert lies.
    pub index_bytes: u64,
    /// What a speculative sweep needs to take positions back.
    pub speculation_log_bytes: u64,
    /// The family's buffers for a sweep of the given shape, per-worker scratch
    /// included. Never less for a larger shape, and without overflow for any:
    /// refusals try what would fit.
    pub workspace: &'a dyn Fn(WorkspaceShape) -> u64,
    /// Blocks that looking a layer ahead needs in memory (its routers), in any
    /// order, each once; empty when it is off.
    pub lookahead_blocks: &'a [usize],
    /// Experts of the next layer that are read ahead for each position of a
    /// sweep, at most; 0 when it is off. More than a layer picks do not count.
    pub lookahead_count: u64,
    /// Alignment of reads and arenas.
    pub layout: ArenaLayout,
    /// Bytes the read engine keeps in flight.
    pub in_flight_bytes: u64,
    /// Expert slots in all, transit and cache, instead of what fits.
    pub slots: Option<u64>,
    /// Which blocks to pin when not all of them fit.
    pub pins: Pins,
}

impl PlanRequest<'_> {
    /// The shape of the largest sweep at the given limits: sequences cannot
    /// bring more positions than they have memory for.
    pub(super) fn shape(&self, context_positions: u64, chunk_positions: u64) -> WorkspaceShape {
        assert!(context_positions > 0 && chunk_positions > 0);
        let step = self.step_positions.min(context_positions);
        let others = step.saturating_mul(self.sequences - 1);
        let positions = chunk_positions.max(step).saturating_add(others);
        let positions = positions.min(context_positions.saturating_mul(self.sequences));
        assert!(positions > 0, "a sweep has a position");
        WorkspaceShape {
            positions,
            logit_rows: self.logit_rows.min(positions),
            context_positions,
            workers: self.workers,
        }
    }

    /// Pages in memory that the sequences share, each of at most
    /// `context_positions`.
    pub(super) fn page_count(&self, context_positions: u64) -> u64 {
        if self.spill.is_some() {
            let [memory, _] = self.pages_of_each(context_positions);
            return memory.saturating_mul(self.sequences);
        }
        pool_page_count(
            self.footprint.state_page_positions,
            self.sequences,
            context_positions,
            self.context_total,
        )
    }

    /// Pages of a sequence where some may leave memory: those that stay, and the
    /// others.
    pub(super) fn pages_of_each(&self, context_positions: u64) -> [u64; 2] {
        let page = self.footprint.state_page_positions;
        let all = context_positions.div_ceil(page);
        let Some(spill) = self.spill.filter(|_| self.footprint.state_page_parts > 0) else {
            return [all, 0];
        };
        let memory = spill.memory_pages.unwrap_or(all);
        let memory = memory.max(self.touched_pages(context_positions)).min(all);
        [memory, all - memory]
    }

    /// Most pages of a sequence that a sweep changes.
    pub(super) fn touched_pages(&self, context_positions: u64) -> u64 {
        let most = self.chunk_positions.max(self.step_positions);
        touched_pages(
            self.footprint.state_page_positions,
            most.min(context_positions),
        )
    }

    /// What becomes of the pages of sequences of `context_positions` each.
    pub(super) fn pages(&self, context_positions: u64) -> PagePlan {
        let footprint = self.footprint;
        let [memory, outside] = self.pages_of_each(context_positions);
        let outside = outside.saturating_mul(self.sequences);
        let parts = footprint.state_page_parts;
        let part_bytes = footprint.page_bytes() / parts.max(1);
        let unit = self.layout.alignment_bytes.max(READ_UNIT);
        let ahead = if parts > 1 {
            outside.min(AHEAD_PARTS)
        } else {
            0
        };
        PagePlan {
            page_count: self.page_count(context_positions),
            page_positions: footprint.state_page_positions,
            page_bytes: footprint.page_bytes(),
            memory_page_count: memory,
            file_page_count: outside,
            part_count: parts,
            part_bytes,
            part_stride_bytes: part_bytes
                .checked_next_multiple_of(unit)
                .unwrap_or(u64::MAX),
            staged_part_count: outside.saturating_add(ahead),
        }
    }

    /// # Panics
    ///
    /// If the request breaks what its fields promise.
    pub(super) fn check(&self) {
        assert!(self.context_positions > 0, "a context has a position");
        assert!(self.chunk_positions > 0, "a sweep has a position");
        assert!(
            self.step_positions > 0,
            "a sequence that generates has a position"
        );
        assert!(self.sequences > 0, "a plan is for at least one sequence");
        assert!(self.workers > 0, "somebody computes");
        let blocks = self.footprint.blocks.len();
        assert!(self.lookahead_blocks.iter().all(|&index| index < blocks));
        assert!(
            self.lookahead_count > 0 || self.lookahead_blocks.is_empty(),
            "blocks are pinned for a reason"
        );
    }
}
