//! Which experts are worth a cache slot.

mod decayed;
mod deep_layers;
mod lru;
mod ranked;

use std::fmt;

use k3_config::CachePolicy;
use k3_models::ExpertKey;

pub use decayed::DecayedFrequency;
pub use deep_layers::DeepLayers;
pub use lru::Lru;
pub(crate) use ranked::{RankedSet, Usage};

use super::shape::CacheShape;

/// Decides what a cache of a fixed number of slots holds.
///
/// A policy sees demands only, in the order of the run, and answers with what
/// enters and what leaves. It never learns when a read completes or a lease
/// ends, so equal demands give equal contents.
pub trait EvictionPolicy: fmt::Debug + Send {
    /// Most experts held at a time.
    fn capacity(&self) -> usize;

    /// Experts held now.
    fn len(&self) -> usize;

    /// Whether no expert is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `key` is held.
    fn contains(&self, key: ExpertKey) -> bool;

    /// A walk through the layers starts.
    fn begin_sweep(&mut self) {}

    /// The experts of one layer that a sweep needs, in (position, pick) order
    /// with repetitions. `outcome` is overwritten with what changed; an expert
    /// is never both admitted and evicted.
    fn demand(&mut self, picks: &[ExpertKey], outcome: &mut PolicyOutcome);

    /// Gives up `key` without another in its place, if it is held: its read
    /// never happened.
    fn forget(&mut self, key: ExpertKey);
}

/// What one demand did to a cache's contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// Demanded experts that are held from now on.
    pub admitted: Vec<ExpertKey>,
    /// Demanded experts that were not held and still are not.
    pub bypassed: Vec<ExpertKey>,
    /// Experts that are no longer held. A demanded one may be among them, when a
    /// single demand is larger than the cache.
    pub evicted: Vec<ExpertKey>,
}

impl PolicyOutcome {
    /// Nothing changed.
    pub fn clear(&mut self) {
        self.admitted.clear();
        self.bypassed.clear();
        self.evicted.clear();
    }
}

/// The policy a user named, for a cache of this shape.
#[must_use]
pub fn eviction_policy(policy: CachePolicy, shape: &CacheShape) -> Box<dyn EvictionPolicy> {
    match policy {
        CachePolicy::DeepLayers => Box::new(DeepLayers::new(shape)),
        CachePolicy::Lru => Box::new(Lru::new(shape.cache_slot_count())),
        CachePolicy::DecayedFrequency => Box::new(DecayedFrequency::new(shape)),
    }
}
