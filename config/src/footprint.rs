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
        self.state_bytes_fixed + self.page_bytes() * self.page_count(context_positions)
    }

    /// One page: a few positions of one sequence.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.state_bytes_per_position
            .saturating_mul(self.state_page_positions)
    }

    /// Pages that `positions` positions of one sequence take.
    ///
    /// # Panics
    ///
    /// If a page has no positions.
    #[must_use]
    pub fn page_count(&self, positions: u64) -> u64 {
        positions.div_ceil(self.state_page_positions)
    }

    /// Pages that `sequences` share, each of at most `context_positions`. By
    /// default each can reach them beside all others. With `total_positions` they
    /// have as many together, rounded up to whole pages: never less than one
    /// context, and never more than all could use.
    #[must_use]
    pub fn pool_page_count(
        &self,
        sequences: u64,
        context_positions: u64,
        total_positions: Option<u64>,
    ) -> u64 {
        let each = self.page_count(context_positions);
        let all = each.saturating_mul(sequences);
        match total_positions {
            Some(total) => self.page_count(total).max(each).min(all),
            None => all,
        }
    }
}
