//! Drives a slot table with reads and leases that take random time.

use std::collections::BTreeSet;

use k3_actors::experts::{
    CacheCounters, CacheShape, SlotId, SlotState, SlotTable, eviction_policy,
};
use k3_config::CachePolicy;
use k3_models::{ExpertKey, LayerIndex};

/// A small generator (splitmix64): the schedule follows from its seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % bound as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn take<T>(&mut self, from: &mut Vec<T>) -> T {
        let index = self.below(from.len());
        from.swap_remove(index)
    }
}

/// Picks of each layer of a sweep, `[layer][position][top_k]`.
pub(crate) type SweepPicks = Vec<Vec<u16>>;

/// `count` sweeps of one to `positions_max` positions, with distinct picks.
pub(crate) fn sweeps(
    shape: &CacheShape,
    count: usize,
    positions_max: usize,
    seed: u64,
) -> Vec<SweepPicks> {
    let mut chance = Chance(seed);
    let mut layer = |positions: usize| -> Vec<u16> {
        let mut picks = Vec::new();
        for _ in 0..positions {
            let experts = u16::try_from(shape.experts_per_layer).unwrap();
            let mut left: Vec<u16> = (0..experts).collect();
            picks.extend((0..shape.top_k).map(|_| chance.take(&mut left)));
        }
        picks
    };
    let mut positions = Chance(!seed);
    (0..count)
        .map(|_| {
            let positions = 1 + positions.below(positions_max);
            shape.moe_layers.iter().map(|_| layer(positions)).collect()
        })
        .collect()
}

/// What must not depend on time.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Outcome {
    /// Of each demand, in order of first pick.
    pub(crate) hits: Vec<Vec<ExpertKey>>,
    /// Of each demand, as a set: lookahead may have read some before.
    pub(crate) misses: Vec<BTreeSet<ExpertKey>>,
    /// After each sweep.
    pub(crate) resident: Vec<BTreeSet<ExpertKey>>,
    pub(crate) evictions: u64,
    pub(crate) bypassed: u64,
}

/// How a run is disturbed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Reads fail, and are tried again.
    pub(crate) failures: bool,
    /// Leases outlive their demand, even their sweep.
    pub(crate) late_leases: bool,
    /// Later layers are guessed.
    pub(crate) lookahead: bool,
    /// Sweeps end before they are done; what follows is no longer comparable.
    pub(crate) aborts: bool,
}

pub(crate) const CALM: Weather = Weather {
    failures: false,
    late_leases: false,
    lookahead: false,
    aborts: false,
};

/// The caller of a slot table: what it has in hand.
pub(crate) struct Driver {
    pub(crate) table: SlotTable,
    pub(crate) chance: Chance,
    weather: Weather,
    unread: Vec<ExpertKey>,
    /// Reads in flight, of this demand or not.
    in_flight: Vec<SlotId>,
    /// Slots of this demand that are not leased yet.
    wanted: Vec<SlotId>,
    leased: Vec<(SlotId, ExpertKey)>,
    /// Experts read, in vain or not.
    pub(crate) read_count: u64,
}

impl Driver {
    pub(crate) fn new(
        shape: &CacheShape,
        policy: CachePolicy,
        weather: Weather,
        seed: u64,
    ) -> Self {
        Self {
            table: SlotTable::new(shape.clone(), eviction_policy(policy, shape)),
            chance: Chance(seed),
            weather,
            unread: Vec::new(),
            in_flight: Vec::new(),
            wanted: Vec::new(),
            leased: Vec::new(),
            read_count: 0,
        }
    }

    pub(crate) fn run(&mut self, sweeps: &[SweepPicks]) -> Outcome {
        let mut outcome = Outcome::default();
        for sweep in sweeps {
            self.table.begin_sweep();
            self.table.check_invariants();
            let layers = self.table.shape().moe_layers.clone();
            for (&layer, picks) in layers.iter().zip(sweep) {
                self.demand(layer, picks, &mut outcome);
                if !self.serve(layer) {
                    self.unread.clear();
                    self.wanted.clear();
                    break;
                }
            }
            outcome.resident.push(self.resident());
        }
        let CacheCounters {
            evictions,
            bypassed,
            ..
        } = *self.table.counters();
        Outcome {
            evictions,
            bypassed,
            ..outcome
        }
    }

    /// Ends every read and lease.
    pub(crate) fn finish(&mut self) {
        self.table.begin_sweep();
        while let Some(slot) = self.in_flight.pop() {
            self.table.arrived(slot);
            self.read_count += 1;
        }
        while let Some((slot, _)) = self.leased.pop() {
            self.table.release(slot);
        }
        self.table.check_invariants();
    }

    pub(crate) fn resident(&self) -> BTreeSet<ExpertKey> {
        let shape = self.table.shape();
        let experts = u16::try_from(shape.experts_per_layer).unwrap();
        let layers = shape.moe_layers.iter();
        layers
            .flat_map(|&layer| (0..experts).map(move |expert| ExpertKey { layer, expert }))
            .filter(|&key| self.table.resident(key).is_some())
            .collect()
    }

    fn demand(&mut self, layer: LayerIndex, picks: &[u16], outcome: &mut Outcome) {
        let plan = self.table.demand(layer, picks);
        self.table.check_invariants();
        let keys = |list: &[(ExpertKey, SlotId)]| list.iter().map(|&(key, _)| key).collect();
        let ahead: Vec<_> = keys(&plan.ahead);
        outcome.hits.push(keys(&plan.hits));
        let misses = plan.misses.iter().chain(&ahead).copied().collect();
        outcome.misses.push(misses);
        for &(_, slot) in plan.hits.iter().chain(&plan.ahead) {
            self.wanted.push(slot);
        }
        self.unread = plan.misses;
    }

    /// Acts at random until the demand is served; false when it was given up.
    fn serve(&mut self, layer: LayerIndex) -> bool {
        let in_time = if self.weather.late_leases { 4 } else { 1 };
        while !self.table.is_served() {
            if self.weather.aborts && self.chance.one_in(40) {
                return false;
            }
            self.act(layer);
            self.table.check_invariants();
        }
        assert!(self.unread.is_empty() && self.wanted.is_empty());
        while !self.leased.is_empty() && self.chance.one_in(in_time) {
            self.release();
            self.table.check_invariants();
        }
        true
    }

    fn act(&mut self, layer: LayerIndex) {
        match self.chance.below(6) {
            0 | 1 if !self.unread.is_empty() => self.reserve(),
            2 if !self.in_flight.is_empty() => self.land(),
            3 => self.lease(),
            4 if !self.leased.is_empty() => self.release(),
            5 if self.weather.lookahead => self.speculate(layer),
            _ => {}
        }
    }

    fn reserve(&mut self) {
        let key = self.chance.take(&mut self.unread);
        match self.table.reserve(key) {
            Some(slot) => {
                assert_eq!(self.table.state(slot), SlotState::InFlight);
                assert!(self.leased.iter().all(|&(other, _)| other != slot));
                assert!(!self.in_flight.contains(&slot) && !self.wanted.contains(&slot));
                self.in_flight.push(slot);
                self.wanted.push(slot);
            }
            None => {
                let in_use = self.in_flight.len() + self.leased.len() + self.wanted.len();
                assert!(in_use > 0, "nothing to wait for");
                self.unread.push(key);
            }
        }
    }

    fn land(&mut self) {
        let slot = self.chance.take(&mut self.in_flight);
        if !(self.weather.failures && self.chance.one_in(4)) {
            self.table.arrived(slot);
            self.read_count += 1;
            return;
        }
        self.table.failed(slot);
        assert_eq!(self.table.state(slot), SlotState::Empty);
        if let Some(index) = self.wanted.iter().position(|&wanted| wanted == slot) {
            self.wanted.swap_remove(index);
            self.unread.push(self.key_of_failed());
        }
    }

    /// The one demanded expert that is neither here nor on its way.
    fn key_of_failed(&self) -> ExpertKey {
        let mut missing = self.table.unread().filter(|key| !self.unread.contains(key));
        let key = missing
            .next()
            .expect("the failed expert is to be read again");
        assert_eq!(missing.next(), None);
        key
    }

    fn lease(&mut self) {
        let resident = |slot: &SlotId| self.table.state(*slot) == SlotState::Resident;
        if let Some(index) = self.wanted.iter().position(resident) {
            let slot = self.wanted.swap_remove(index);
            let key = self.table.lease(slot);
            self.leased.push((slot, key));
            if self.chance.one_in(3) {
                assert_eq!(self.table.lease(slot), key, "a second lease of it");
                self.leased.push((slot, key));
            }
        }
    }

    fn release(&mut self) {
        let (slot, _) = self.chance.take(&mut self.leased);
        self.table.release(slot);
    }

    fn speculate(&mut self, layer: LayerIndex) {
        let shape = self.table.shape();
        let later = shape.moe_layers.iter().filter(|&&other| other > layer);
        let later: Vec<LayerIndex> = later.copied().collect();
        let experts = shape.experts_per_layer;
        if later.is_empty() {
            return;
        }
        let key = ExpertKey {
            layer: later[self.chance.below(later.len())],
            expert: u16::try_from(self.chance.below(experts)).unwrap(),
        };
        if let Some(slot) = self.table.speculate(key) {
            self.in_flight.push(slot);
        }
    }
}
