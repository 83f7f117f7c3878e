//! What the expert cache counts.

use serde::Serialize;

/// Counts since the table was built, in experts unless the name says bytes.
///
/// A layer's demand counts each distinct expert once. `hits + misses` is the
/// number of experts demanded; experts read are `misses` plus what lookahead
/// read in vain, as long as no read failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CacheCounters {
    /// Resident when the layer's demand arrived, and not read during its sweep.
    pub hits: u64,
    /// Everything else that was demanded.
    pub misses: u64,
    /// Misses whose read lookahead had already begun.
    pub lookahead_used: u64,
    /// Misses the policy gave no cache slot: they only passed through.
    pub bypassed: u64,
    /// Experts that lost their cache slot to another.
    pub evictions: u64,
    /// Bytes lookahead read that no demand asked for.
    pub lookahead_wasted_bytes: u64,
}
