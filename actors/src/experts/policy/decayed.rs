//! Most used, counts fading with time.

use std::cmp::Ordering;

use k3_models::ExpertKey;

use super::ranked::{RankedSet, Usage};
use super::{EvictionPolicy, PolicyOutcome};
use crate::experts::shape::CacheShape;

/// What a count is worth one sweep later.
const DECAY: f64 = 0.7;

/// Counts are divided by the worth of a fresh pick before it exceeds this.
const PICK_WORTH_MAX: f64 = 1e100;

/// Keeps the experts with the largest counts of picks, where a pick is worth
/// 0.7 of a fresh one after a sweep. An expert enters only if it counts more
/// than one that is held; of equal counts the one used earlier stays, because in a walk
/// through the layers it is needed again first.
#[derive(Debug, Clone)]
pub struct DecayedFrequency {
    shape: CacheShape,
    held: RankedSet<Rank>,
    /// Count of every expert, held or not: `[layer][expert]`, in units in
    /// which a fresh pick is worth `pick_worth`.
    counts: Vec<f64>,
    /// Instead of every count falling, what is added grows.
    pick_worth: f64,
    pick_count: u64,
    usage: Usage,
    ranked: Vec<(Rank, ExpertKey)>,
}

#[derive(Debug, Clone, Copy)]
struct Rank {
    count: f64,
    last_pick: u64,
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        let earlier = other.last_pick.cmp(&self.last_pick);
        self.count.total_cmp(&other.count).then(earlier)
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rank {}

impl DecayedFrequency {
    /// An empty cache.
    #[must_use]
    pub fn new(shape: &CacheShape) -> Self {
        Self {
            shape: shape.clone(),
            held: RankedSet::new(shape.cache_slot_count()),
            counts: vec![0.0; shape.expert_count()],
            pick_worth: 1.0,
            pick_count: 0,
            usage: Usage::default(),
            ranked: Vec::new(),
        }
    }

    /// Returns to a fresh pick being worth one.
    fn rescale(&mut self) {
        let factor = 1.0 / self.pick_worth;
        assert!(factor > 0.0 && factor <= 1.0);
        for count in &mut self.counts {
            *count *= factor;
        }
        self.held.map_ranks(|rank| Rank {
            count: rank.count * factor,
            ..rank
        });
        self.pick_worth = 1.0;
    }
}

impl EvictionPolicy for DecayedFrequency {
    fn capacity(&self) -> usize {
        self.held.capacity()
    }

    fn len(&self) -> usize {
        self.held.len()
    }

    fn contains(&self, key: ExpertKey) -> bool {
        self.held.contains(key)
    }

    fn begin_sweep(&mut self) {
        self.pick_worth /= DECAY;
        if self.pick_worth > PICK_WORTH_MAX {
            self.rescale();
        }
        assert!(self.pick_worth.is_finite() && self.pick_worth >= 1.0);
    }

    fn demand(&mut self, picks: &[ExpertKey], outcome: &mut PolicyOutcome) {
        let base = self.pick_count;
        self.pick_count += picks.len() as u64;
        self.ranked.clear();
        for expert in self.usage.of(picks) {
            let count = &mut self.counts[self.shape.index(expert.key)];
            *count += f64::from(expert.count) * self.pick_worth;
            assert!(count.is_finite());
            let rank = Rank {
                count: *count,
                last_pick: base + expert.last,
            };
            self.ranked.push((rank, expert.key));
        }
        self.held.demand(&mut self.ranked, outcome);
    }

    fn forget(&mut self, key: ExpertKey) {
        self.held.remove(key);
    }
}
