//! What a model costs: the numbers every plan and prediction starts from.

/// What a trunk block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// A matrix of the decoder layer with this zero-based index.
    Layer(u32),
    /// The output head: read last, and skipped when no logits are wanted.
    Head,
}

/// One streamed block: consecutive rows of one trunk matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockFootprint {
    /// Where the block belongs.
    pub kind: BlockKind,
    /// Stored size in bytes.
    pub bytes: u64,
}

/// Sizes of one model, in bytes, as its family declares them.
///
/// Blocks stand in sweep order: each is read once per sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFootprint {
    /// Every streamed block of a sweep, in order.
    pub blocks: Vec<BlockFootprint>,
    /// Blocks that looking a layer ahead needs in memory, ascending: the routers
    /// of all layers that have one before them.
    pub lookahead_blocks: Vec<usize>,
    /// Small tensors that stay resident (norms, biases, conv taps), as stored.
    pub vector_bytes: u64,
    /// One row of the embedding table, read on demand.
    pub embedding_row_bytes: u64,
    /// One routed expert; 0 for a dense model.
    pub expert_bytes: u64,
    /// Layers that have routed experts.
    pub moe_layer_count: u32,
    /// Experts per such layer.
    pub experts_per_layer: u32,
    /// Experts used per position and layer.
    pub experts_per_token: u32,
    /// State of one sequence that does not grow with its length.
    pub state_bytes_fixed: u64,
    /// State of one sequence per position of context.
    pub state_bytes_per_position: u64,
    /// Positions of a page: memory for positions comes in pages.
    pub state_page_positions: u64,
    /// Parts of a page, one for each layer that keeps something for positions.
    pub state_page_parts: u64,
    /// Activation memory per position of a sweep.
    pub activation_bytes_per_position: u64,
    /// One row of logits.
    pub logit_row_bytes: u64,
}

impl ModelFootprint {
    /// Bytes of all blocks a sweep with logits streams when nothing is pinned.
    #[must_use]
    pub fn trunk_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes).sum()
    }

    /// Bytes of the blocks that belong to the output head.
    #[must_use]
    pub fn head_bytes(&self) -> u64 {
        self.blocks
            .iter()
            .filter(|block| block.kind == BlockKind::Head)
            .map(|block| block.bytes)
            .sum()
    }

    /// Expert bytes one position needs when nothing is cached.
    #[must_use]
    pub fn expert_bytes_per_token(&self) -> u64 {
        self.expert_bytes * u64::from(self.moe_layer_count) * u64::from(self.experts_per_token)
    }

    /// State of one sequence planned for `context_positions` positions, in whole
    /// pages.
    #[must_use]
    pub fn state_bytes(&self, context_positions: u64) -> u64 {
        let pages = context_positions.div_ceil(self.state_page_positions);
        self.state_bytes_fixed + self.page_bytes() * pages
    }

    /// One page: a few positions of one sequence.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.state_bytes_per_position
            .saturating_mul(self.state_page_positions)
    }
}

/// Pages, of `page_positions` positions each, that `sequences` share, each of at
/// most `context_positions`. By default each can reach them beside all others.
/// With `total_positions` they have as many together, in whole pages: never less
/// than one context, and never more than all could use.
///
/// # Panics
///
/// If a page has no positions.
#[must_use]
pub fn pool_page_count(
    page_positions: u64,
    sequences: u64,
    context_positions: u64,
    total_positions: Option<u64>,
) -> u64 {
    let pages = |positions: u64| positions.div_ceil(page_positions);
    let each = pages(context_positions);
    let all = each.saturating_mul(sequences);
    match total_positions {
        Some(total) => pages(total).max(each).min(all),
        None => all,
    }
}

/// Pages of `page_positions` positions that a sweep over `positions` of one
/// sequence changes at most, wherever it begins.
///
/// # Panics
///
/// If a page has no positions, or there are none.
#[must_use]
pub fn touched_pages(page_positions: u64, positions: u64) -> u64 {
    assert!(positions > 0, "a sweep has a position");
    (positions - 1).saturating_add(page_positions - 1) / page_positions + 1
}

#[cfg(test)]
mod tests {
    use super::{pool_page_count, touched_pages};

    #[test]
    fn a_sweep_changes_the_pages_it_reaches_from_the_worst_place() {
        for positions in 1..300_u64 {
            let pages = |start: u64| (start + positions).div_ceil(64) - start / 64;
            let most = (0..64).map(pages).max().unwrap();
            assert_eq!(touched_pages(64, positions), most, "{positions}");
        }
    }

    #[test]
    fn a_pool_is_between_one_context_and_all_of_them() {
        let pages = |context, total| pool_page_count(64, 3, context, total);
        // Each sequence ends in a page of its own.
        assert_eq!([1, 64, 65].map(|context| pages(context, None)), [3, 3, 6]);
        let totals = [1, 128, 129, 192, 193, 384, 385, u64::MAX];
        let counts = totals.map(|total| pages(65, Some(total)));
        assert_eq!(counts, [2, 2, 3, 3, 4, 6, 6, 6]);
        assert_eq!(pool_page_count(1, u64::MAX, u64::MAX, None), u64::MAX);
    }
}
