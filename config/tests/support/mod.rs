//! Footprints and requests for the plan's tests.
#![allow(dead_code, reason = "each test binary uses its part of the helpers")]

use k3_config::{
    ArenaLayout, BlockFootprint, BlockKind, Bytes, MemoryBudget, ModelFootprint, Origin, Pins,
    PlanRequest, WorkspaceShape,
};

/// Cuts a bf16 matrix into blocks of at most `block_bytes`, whole multiples of
/// `row_quantum` rows each.
fn cut(blocks: &mut Vec<BlockFootprint>, kind: BlockKind, rows: u64, cols: u64, row_quantum: u64) {
    let row_bytes = 2 * cols;
    let per_block = ((4 << 20) / (row_bytes * row_quantum)).max(1) * row_quantum;
    let mut start = 0;
    while start < rows {
        let count = per_block.min(rows - start);
        blocks.push(BlockFootprint {
            kind,
            bytes: count * row_bytes,
        });
        start += count;
    }
}

/// The released Kimi K3, from the shapes of its tensors.
pub(crate) fn kimi_k3() -> ModelFootprint {
    const HIDDEN: u64 = 7168;
    const HEADS_WIDE: u64 = 96 * 128;
    let mut blocks = Vec::new();
    let mut routers = Vec::new();
    for layer in 0..93u32 {
        let kind = BlockKind::Layer(layer);
        let mut push = |rows, cols| cut(&mut blocks, kind, rows, cols, 1);
        if layer % 4 == 3 || layer == 92 {
            push(1536, HIDDEN);
            push(96 * 192, 1536);
            push(576, HIDDEN);
            push(HEADS_WIDE, HIDDEN);
            cut(&mut blocks, kind, 96 * 256, 512, 256);
        } else {
            (0..3).for_each(|_| push(HEADS_WIDE, HIDDEN));
            push(128, HIDDEN);
            push(HEADS_WIDE, 128);
            push(96, HIDDEN);
            push(HEADS_WIDE, HIDDEN);
        }
        let mut push = |rows, cols| cut(&mut blocks, kind, rows, cols, 1);
        push(HIDDEN, HEADS_WIDE);
        if layer == 0 {
            push(33_792, HIDDEN);
            push(33_792, HIDDEN);
            push(HIDDEN, 33_792);
        } else {
            let first = blocks.len();
            cut(&mut blocks, kind, 896, HIDDEN, 1);
            routers.extend(first..blocks.len());
            let mut push = |rows, cols| cut(&mut blocks, kind, rows, cols, 1);
            push(3584, HIDDEN);
            push(6144, HIDDEN);
            push(6144, HIDDEN);
            push(HIDDEN, 6144);
            push(HIDDEN, 3584);
        }
    }
    cut(&mut blocks, BlockKind::Head, 163_840, HIDDEN, 1);
    ModelFootprint {
        blocks,
        lookahead_blocks: routers,
        vector_bytes: 33_000_000,
        embedding_row_bytes: 2 * HIDDEN,
        expert_bytes: 17_547_264,
        moe_layer_count: 92,
        experts_per_layer: 896,
        experts_per_token: 16,
        // 69 layers of 96 matrices of 128 x 128, and three tails of 3 x 12288.
        state_bytes_fixed: 69 * (4 * 96 * 128 * 128 + 4 * 3 * 3 * 12_288),
        state_bytes_per_position: 24 * 4 * 576,
        state_page_positions: 64,
        state_page_parts: 1,
        activation_bytes_per_position: 1_500_000,
        logit_row_bytes: 4 * 163_840,
    }
}

/// Buffers of a family that needs what the footprint says and, per worker,
/// scores of one context.
pub(crate) fn linear_workspace(
    footprint: &ModelFootprint,
) -> impl Fn(WorkspaceShape) -> u64 + use<> {
    let (position, row) = (
        footprint.activation_bytes_per_position,
        footprint.logit_row_bytes,
    );
    move |shape| {
        let worker = shape.context_positions.saturating_mul(4);
        position
            .saturating_mul(shape.positions)
            .saturating_add(row.saturating_mul(shape.logit_rows))
            .saturating_add(worker.saturating_mul(shape.workers))
    }
}

/// A budget of `total` bytes.
pub(crate) fn budget(total: u64) -> MemoryBudget {
    let name = "--memory".to_owned();
    MemoryBudget::given(Bytes(total), Origin::Flag { name })
}

/// The request of a plain run of Kimi K3: 4096 positions, 16 per sweep.
pub(crate) fn kimi_request<'a>(
    footprint: &'a ModelFootprint,
    budget: &'a MemoryBudget,
    workspace: &'a dyn Fn(WorkspaceShape) -> u64,
) -> PlanRequest<'a> {
    PlanRequest {
        footprint,
        budget,
        context_positions: 4096,
        context_total: None,
        spill: None,
        chunk_positions: 16,
        logit_rows: 1,
        step_positions: 1,
        sequences: 1,
        workers: 8,
        baseline_bytes: 24_000_000,
        vocabulary_bytes: 20_000_000,
        index_bytes: 70_000_000,
        speculation_log_bytes: 0,
        workspace,
        lookahead_blocks: &[],
        lookahead_count: 0,
        layout: ArenaLayout::PAGES_2M,
        in_flight_bytes: 16 << 20,
        slots: None,
        pins: Pins::Spread,
    }
}
