//! Where a sweep gets its bytes.

use std::ops::Deref;

use k3_models::{BlockIndex, ExpertDemand, ExpertKey};

use crate::error::RunError;

/// Hands out weights in the order of a sweep's program.
///
/// A lease is the right to read its bytes: their memory is not reused while
/// it lives. The forward loop holds at most one at a time.
pub trait WeightSource {
    /// Bytes that stay put while the lease lives.
    type Lease<'a>: Deref<Target = [u8]>
    where
        Self: 'a;

    /// A sweep starts; `with_head` tells whether its blocks of the output
    /// head will be asked for.
    ///
    /// # Errors
    ///
    /// A source that cannot serve a sweep now.
    fn begin_sweep(&mut self, with_head: bool) -> Result<(), RunError>;

    /// The embedding row of `token`.
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
}
