//! Least recently used.

use k3_models::ExpertKey;

use super::ranked::{RankedSet, Usage};
use super::{EvictionPolicy, PolicyOutcome};

/// Keeps the experts picked last, over all layers.
///
/// A walk through all layers is a cyclic scan: with fewer slots than one
/// position picks over all layers, nothing survives until it is needed again.
#[derive(Debug, Clone)]
pub struct Lru {
    /// Ranked by the number of the last pick in (position, pick) order.
    held: RankedSet<u64>,
    pick_count: u64,
    usage: Usage,
    ranked: Vec<(u64, ExpertKey)>,
}

impl Lru {
    /// An empty cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            held: RankedSet::new(capacity),
            pick_count: 0,
            usage: Usage::default(),
            ranked: Vec::new(),
        }
    }
}

impl EvictionPolicy for Lru {
    fn capacity(&self) -> usize {
        self.held.capacity()
    }

    fn len(&self) -> usize {
        self.held.len()
    }

    fn contains(&self, key: ExpertKey) -> bool {
        self.held.contains(key)
    }

    fn demand(&mut self, picks: &[ExpertKey], outcome: &mut PolicyOutcome) {
        let base = self.pick_count;
        self.pick_count += picks.len() as u64;
        self.ranked.clear();
        let usage = self.usage.of(picks);
        self.ranked
            .extend(usage.iter().map(|expert| (base + expert.last, expert.key)));
        self.held.demand(&mut self.ranked, outcome);
    }

    fn forget(&mut self, key: ExpertKey) {
        self.held.remove(key);
    }
}
