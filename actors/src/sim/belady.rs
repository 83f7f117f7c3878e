//! The bound: a cache that knows the future.

use std::cmp::Reverse;
use std::collections::VecDeque;

use k3_models::ExpertKey;
use rustc_hash::FxHashMap;

use crate::experts::{EvictionPolicy, PolicyOutcome, RankedSet, Usage};

/// Holds the experts that are needed again soonest, and takes in nothing that
/// would be needed later than all of them. No policy of equal capacity hits more.
#[derive(Debug, Clone)]
pub struct Belady {
    /// Ranked by the next demand: the later, the lower.
    held: RankedSet<Reverse<u64>>,
    /// Numbers of the demands still to come that name an expert.
    future: FxHashMap<ExpertKey, VecDeque<u64>>,
    demand_count: u64,
    usage: Usage,
    ranked: Vec<(Reverse<u64>, ExpertKey)>,
}

/// Next demand of an expert that is not needed again.
const NEVER: Reverse<u64> = Reverse(u64::MAX);

impl Belady {
    /// An empty cache of `capacity` slots that will see `demands`, each of them
    /// the picks of one demand.
    pub fn new<'a>(capacity: usize, demands: impl Iterator<Item = &'a [ExpertKey]>) -> Self {
        let mut future: FxHashMap<ExpertKey, VecDeque<u64>> = FxHashMap::default();
        for (number, picks) in (0u64..).zip(demands) {
            for &key in picks {
                let uses = future.entry(key).or_default();
                if uses.back() != Some(&number) {
                    uses.push_back(number);
                }
            }
        }
        Self {
            held: RankedSet::new(capacity),
            future,
            demand_count: 0,
            usage: Usage::default(),
            ranked: Vec::new(),
        }
    }
}

impl EvictionPolicy for Belady {
    fn capacity(&self) -> usize {
        self.held.capacity()
    }

    fn len(&self) -> usize {
        self.held.len()
    }

    fn contains(&self, key: ExpertKey) -> bool {
        self.held.contains(key)
    }

    /// # Panics
    ///
    /// When the demand is not the one that was announced.
    fn demand(&mut self, picks: &[ExpertKey], outcome: &mut PolicyOutcome) {
        let number = self.demand_count;
        self.demand_count += 1;
        self.ranked.clear();
        for expert in self.usage.of(picks) {
            let uses = self.future.get_mut(&expert.key);
            let uses = uses.expect("every demand was announced");
            assert_eq!(uses.pop_front(), Some(number), "{}", expert.key);
            let next = uses.front().map_or(NEVER, |&next| Reverse(next));
            self.ranked.push((next, expert.key));
        }
        self.held.demand(&mut self.ranked, outcome);
    }

    fn forget(&mut self, key: ExpertKey) {
        self.held.remove(key);
    }
}
