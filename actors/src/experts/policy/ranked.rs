//! What all policies share: a bounded set in which the lowest rank leaves first.

use std::collections::BTreeSet;

use k3_models::ExpertKey;
use rustc_hash::FxHashMap;

use super::PolicyOutcome;

/// At most `capacity` experts, each with a rank.
#[derive(Debug, Clone)]
pub(crate) struct RankedSet<R> {
    capacity: usize,
    order: BTreeSet<(R, ExpertKey)>,
    rank_of: FxHashMap<ExpertKey, R>,
}

impl<R: Copy + Ord> RankedSet<R> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            order: BTreeSet::new(),
            rank_of: FxHashMap::with_capacity_and_hasher(capacity, rustc_hash::FxBuildHasher),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.order.len(), self.rank_of.len());
        self.order.len()
    }

    pub(crate) fn contains(&self, key: ExpertKey) -> bool {
        self.rank_of.contains_key(&key)
    }

    pub(crate) fn remove(&mut self, key: ExpertKey) {
        if let Some(rank) = self.rank_of.remove(&key) {
            let was_there = self.order.remove(&(rank, key));
            assert!(was_there, "{key} has one rank");
        }
    }

    /// Replaces every rank by what `map` makes of it; the order may only
    /// change by ranks becoming equal.
    pub(crate) fn map_ranks(&mut self, map: impl Fn(R) -> R) {
        self.order.clear();
        for (&key, rank) in &mut self.rank_of {
            *rank = map(*rank);
            self.order.insert((*rank, key));
        }
        assert_eq!(self.order.len(), self.rank_of.len());
    }

    /// Gives each demanded expert its new rank, then offers those not held, the
    /// highest rank first. One enters where there is room or where the lowest
    /// rank is below its own; so nobody that enters leaves again at once.
    ///
    /// `ranked` holds each expert once and is left sorted.
    pub(crate) fn demand(&mut self, ranked: &mut [(R, ExpertKey)], outcome: &mut PolicyOutcome) {
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        outcome.clear();
        // Who is held now decides: one that leaves below is not offered again.
        let mut newcomers = Vec::with_capacity(ranked.len());
        for &(rank, key) in &*ranked {
            if self.contains(key) {
                self.remove(key);
                self.insert(rank, key);
            } else {
                newcomers.push((rank, key));
            }
        }
        for (rank, key) in newcomers {
            if self.order.len() == self.capacity {
                let Some(&(lowest, victim)) = self.order.first().filter(|(r, _)| *r < rank) else {
                    outcome.bypassed.push(key);
                    continue;
                };
                assert!(lowest < rank && victim != key);
                self.remove(victim);
                outcome.evicted.push(victim);
            }
            self.insert(rank, key);
            outcome.admitted.push(key);
        }
        assert!(self.order.len() <= self.capacity);
    }

    fn insert(&mut self, rank: R, key: ExpertKey) {
        let before = self.rank_of.insert(key, rank);
        assert!(before.is_none(), "{key} is held once");
        self.order.insert((rank, key));
        assert!(self.order.len() <= self.capacity);
    }
}

/// How often and how late a demand names each expert.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    index_of: FxHashMap<ExpertKey, usize>,
    entries: Vec<ExpertUsage>,
}

/// One expert's part in a demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpertUsage {
    pub(crate) key: ExpertKey,
    /// Picks that name it.
    pub(crate) count: u32,
    /// Index of the last of them in (position, pick) order.
    pub(crate) last: u64,
}

impl Usage {
    /// Each expert of `picks` once, in order of first pick.
    pub(crate) fn of(&mut self, picks: &[ExpertKey]) -> &[ExpertUsage] {
        self.index_of.clear();
        self.entries.clear();
        for (index, &key) in picks.iter().enumerate() {
            let last = index as u64;
            let next = self.entries.len();
            let entry = *self.index_of.entry(key).or_insert(next);
            if entry == next {
                self.entries.push(ExpertUsage {
                    key,
                    count: 1,
                    last,
                });
            } else {
                self.entries[entry].count += 1;
                self.entries[entry].last = last;
            }
        }
        assert!(self.entries.len() <= picks.len());
        assert!(picks.is_empty() || !self.entries.is_empty());
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use k3_models::LayerIndex;

    use super::*;

    fn key(expert: u16) -> ExpertKey {
        ExpertKey {
            layer: LayerIndex(1),
            expert,
        }
    }

    #[test]
    fn the_lowest_rank_leaves_and_ties_do_not_enter() {
        let mut set = RankedSet::new(2);
        let mut outcome = PolicyOutcome::default();
        set.demand(&mut [(3, key(0)), (5, key(1))], &mut outcome);
        assert_eq!(outcome.admitted, [key(1), key(0)]);
        set.demand(&mut [(3, key(2)), (4, key(3)), (9, key(4))], &mut outcome);
        assert_eq!(outcome.admitted, [key(4)]);
        assert_eq!(outcome.evicted, [key(0)]);
        assert_eq!(outcome.bypassed, [key(3), key(2)]);
        assert!(set.contains(key(1)) && set.contains(key(4)));
        assert_eq!(set.len(), 2);
    }

    #[test]
    fn held_experts_take_their_new_rank_before_anybody_enters() {
        let mut set = RankedSet::new(2);
        let mut outcome = PolicyOutcome::default();
        set.demand(&mut [(1, key(0)), (2, key(1))], &mut outcome);
        set.demand(&mut [(4, key(2)), (3, key(0))], &mut outcome);
        assert_eq!(outcome.evicted, [key(1)], "not 0, which ranks 3 by now");
    }

    #[test]
    fn no_room_means_everything_passes_through() {
        let mut set = RankedSet::new(0);
        let mut outcome = PolicyOutcome::default();
        set.demand(&mut [(1, key(0))], &mut outcome);
        assert_eq!(outcome.bypassed, [key(0)]);
        assert_eq!(set.len(), 0);
    }

    #[test]
    fn usage_counts_repetitions_and_keeps_the_last() {
        let mut usage = Usage::default();
        let seen = usage.of(&[key(7), key(2), key(7)]).to_vec();
        let want = [(7, 2, 2), (2, 1, 1)].map(|(expert, count, last)| ExpertUsage {
            key: key(expert),
            count,
            last,
        });
        assert_eq!(seen, want);
        assert!(usage.of(&[]).is_empty());
    }
}
