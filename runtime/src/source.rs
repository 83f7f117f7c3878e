//! Where a sweep gets its bytes.

use std::ops::Deref;

use k3_models::{BlockIndex, ExpertDemand, ExpertKey, PastPart, StoreError, Sweep};

use crate::error::RunError;

/// Payload bytes that a sweep read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadBytes {
    /// Of trunk blocks.
    pub trunk_bytes: u64,
    /// Of experts.
    pub expert_bytes: u64,
    /// Of embedding rows.
    pub row_bytes: u64,
    /// Of pages that are not in memory.
    pub past_bytes: u64,
}

impl ReadBytes {
    /// All of them.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.trunk_bytes + self.expert_bytes + self.row_bytes + self.past_bytes
    }
}

/// Hands out weights in the order of a sweep's program.
///
/// A lease is the right to read its bytes: their memory is not reused while
/// it lives. The forward loop holds at most one at a time.
pub trait WeightSource {
    /// Bytes that stay put while the lease lives.
    type Lease<'a>: Deref<Target = [u8]>
    where
        Self: 'a;

    /// `sweep` starts. Its blocks of the output head are asked for exactly
    /// when it wants logits. A sweep before it may have been left unfinished.
    ///
    /// # Errors
    ///
    /// A source that cannot serve a sweep now.
    fn begin_sweep(&mut self, sweep: &Sweep) -> Result<(), RunError>;

    /// Pages of the sweep's sequences that are not in memory lie at `places`, in
    /// order: their parts will be wanted, layer by layer. Told after the start of
    /// the sweep, if there are any.
    ///
    /// # Panics
    ///
    /// By default: only a source that stores pages can have them.
    fn begin_past(&mut self, places: &[u32]) {
        assert!(places.is_empty(), "pages lie where this source cannot read");
    }

    /// The parts of all these pages that the next layer with any needs; asked for
    /// in the order of layers. Each fails by itself.
    fn past(&mut self) -> Vec<Result<PastPart, StoreError>> {
        Vec::new()
    }

    /// The embedding row of `token`; asked for in the order of the sweep's
    /// positions.
    ///
    /// # Errors
    ///
    /// A failed read.
    fn embedding_row(&mut self, token: u32) -> Result<Self::Lease<'_>, RunError>;

    /// Block `index`; asked for in program order.
    ///
    /// # Errors
    ///
    /// A failed read.
    fn block(&mut self, index: BlockIndex) -> Result<Self::Lease<'_>, RunError>;

    /// Asks for all experts of a layer at once.
    ///
    /// # Errors
    ///
    /// A source that cannot take the demand.
    fn demand(&mut self, demand: &ExpertDemand) -> Result<(), RunError>;

    /// The next demanded expert that is at hand, in any order; `None` when
    /// all have been given.
    ///
    /// # Errors
    ///
    /// A failed read.
    fn next_expert(&mut self) -> Result<Option<(ExpertKey, Self::Lease<'_>)>, RunError>;

    /// Payload bytes read for the sweep at hand, or the last one; none, the
    /// default, where nothing is read after the start.
    fn sweep_read_bytes(&self) -> ReadBytes {
        ReadBytes::default()
    }

    /// Experts of the next layer that are worth a guess for each position of the
    /// sweep at hand; 0, the default, asks for none.
    fn lookahead_count(&self) -> usize {
        0
    }

    /// Block `index`, if it is in memory to look ahead with: out of program
    /// order, without waiting and without counting as read.
    fn lookahead_block(&mut self, index: BlockIndex) -> Option<Self::Lease<'_>> {
        let _ = index;
        None
    }

    /// The next layer will probably demand `experts`, the most likely first.
    /// A hint: what is made of it never shows in what is handed out.
    ///
    /// # Errors
    ///
    /// A source that can serve no more.
    fn expect(&mut self, experts: &[ExpertKey]) -> Result<(), RunError> {
        let _ = experts;
        Ok(())
    }
}
