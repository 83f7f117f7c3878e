//! Which expert lies in which slot.
//!
//! Two things are kept apart. *What* is cached is the policy's business: it
//! answers each demand at once, before any read. *Where* it lies is settled
//! as slots fall free. An expert the policy keeps stays in whichever slot it
//! was read into, so "transit" is a number of slots, not a set of them:
//! the policy never holds more than `slot_count - transit_count` experts, and
//! that many slots at least serve whatever passes through.

use k3_models::{ExpertKey, LayerIndex};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::counters::CacheCounters;
use super::policy::{EvictionPolicy, PolicyOutcome};
use super::shape::CacheShape;
use super::slot::{Claim, Slot, SlotId, SlotState};

/// Where the experts of one demand are. Each list is in order of first pick.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DemandPlan {
    /// Resident, read in an earlier sweep: lease them.
    pub hits: Vec<(ExpertKey, SlotId)>,
    /// Asked for by lookahead in this sweep: resident or still in flight.
    pub ahead: Vec<(ExpertKey, SlotId)>,
    /// To be reserved and read, in any order.
    pub misses: Vec<ExpertKey>,
}

/// The books of an expert arena.
///
/// A demand is served like this: [`demand`](Self::demand); lease the hits;
/// [`reserve`](Self::reserve) as many misses as there is room for, and read
/// them; [`arrived`](Self::arrived), [`lease`](Self::lease), multiply,
/// [`release`](Self::release); reserve more. The next layer may be demanded
/// as soon as every expert of this one has been leased.
///
/// Methods panic when they are called out of this order: that is a bug of the
/// caller, and going on would hand out memory that is in use.
#[derive(Debug)]
pub struct SlotTable {
    pub(super) shape: CacheShape,
    pub(super) policy: Box<dyn EvictionPolicy>,
    pub(super) slots: Vec<Slot>,
    /// Empty slots.
    pub(super) free: Vec<SlotId>,
    /// Where an expert can be found. A slot whose expert is not found here is
    /// waiting for its read or its leases to end.
    pub(super) slot_of: FxHashMap<ExpertKey, SlotId>,
    /// Misses of the current demand without a slot.
    pub(super) unread: FxHashSet<ExpertKey>,
    /// Slots of lookahead, the oldest first.
    pub(super) ahead: Vec<SlotId>,
    /// Slots that lookahead's reads in vain still fill.
    pub(super) wasted_count: usize,
    /// Slots the current demand has not leased yet.
    pub(super) awaited_count: usize,
    pub(super) in_flight_count: usize,
    pub(super) leased_count: usize,
    /// Layer of the last demand of this sweep.
    layer: Option<LayerIndex>,
    counters: CacheCounters,
    keys: Vec<ExpertKey>,
    seen: FxHashSet<ExpertKey>,
    outcome: PolicyOutcome,
}

impl SlotTable {
    /// A table of empty slots.
    ///
    /// # Panics
    ///
    /// When the shape makes no sense (a zero; layers that do not ascend; no
    /// transit slot although not every expert has a slot of its own), or the policy
    /// wants more than the cache slots.
    #[must_use]
    pub fn new(shape: CacheShape, policy: Box<dyn EvictionPolicy>) -> Self {
        shape.assert_sound();
        assert!(policy.capacity() <= shape.cache_slot_count());
        assert!(policy.is_empty());
        let count = shape.slot_count;
        Self {
            policy,
            slots: vec![Slot::EMPTY; count],
            // Taken from the end: the first slots are used first.
            free: (0..count).rev().map(SlotId::new).collect(),
            slot_of: FxHashMap::with_capacity_and_hasher(count, FxBuildHasher),
            unread: FxHashSet::with_capacity_and_hasher(shape.experts_per_layer, FxBuildHasher),
            ahead: Vec::with_capacity(shape.lookahead_count_max),
            wasted_count: 0,
            awaited_count: 0,
            in_flight_count: 0,
            leased_count: 0,
            layer: None,
            counters: CacheCounters::default(),
            keys: Vec::new(),
            seen: FxHashSet::with_capacity_and_hasher(shape.experts_per_layer, FxBuildHasher),
            outcome: PolicyOutcome::default(),
            shape,
        }
    }

    /// The sizes it was built with.
    #[must_use]
    pub fn shape(&self) -> &CacheShape {
        &self.shape
    }

    /// Counts since it was built.
    #[must_use]
    pub fn counters(&self) -> &CacheCounters {
        &self.counters
    }

    /// Where `key` is resident and would be a hit, if it is.
    #[must_use]
    pub fn resident(&self, key: ExpertKey) -> Option<SlotId> {
        let slot = *self.slot_of.get(&key)?;
        let resident = self.slots[slot.index()].state == SlotState::Resident;
        (resident && self.policy.contains(key)).then_some(slot)
    }

    /// What a slot's memory holds.
    ///
    /// # Panics
    ///
    /// When there is no such slot.
    #[must_use]
    pub fn state(&self, slot: SlotId) -> SlotState {
        self.slots[slot.index()].state
    }

    /// Whether the demand being served waits for the expert of `slot`.
    ///
    /// # Panics
    ///
    /// When there is no such slot.
    #[must_use]
    pub fn is_awaited(&self, slot: SlotId) -> bool {
        self.slots[slot.index()].claim == Claim::Awaited
    }

    /// Whether `key` is in memory or on its way: there is nothing to
    /// [speculate](Self::speculate) on.
    #[must_use]
    pub fn is_known(&self, key: ExpertKey) -> bool {
        self.policy.contains(key) || self.slot_of.contains_key(&key)
    }

    /// Whether every expert of the last demand has been leased.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.unread.is_empty() && self.awaited_count == 0
    }

    /// Misses of the last demand that have no slot yet, in no particular order.
    pub fn unread(&self) -> impl Iterator<Item = ExpertKey> {
        self.unread.iter().copied()
    }

    /// A walk through the layers starts.
    ///
    /// A demand that was not served in full is given up: what it did not read
    /// is no longer cached. Reads in flight and leases may go on and still end
    /// with [`arrived`](Self::arrived), [`failed`](Self::failed) and
    /// [`release`](Self::release).
    pub fn begin_sweep(&mut self) {
        self.abandon();
        self.layer = None;
        self.policy.begin_sweep();
    }

    /// The walk through the layers has failed: nothing of it is waited for any
    /// more, as [`begin_sweep`](Self::begin_sweep) says. It demands nothing
    /// further.
    pub fn abandon(&mut self) {
        for key in self.unread.drain() {
            self.policy.forget(key);
        }
        if self.awaited_count > 0 {
            (0..self.slots.len()).for_each(|index| self.give_up(SlotId::new(index)));
        }
        self.drop_ahead(|_| true);
        assert!(self.is_served() && self.ahead.is_empty());
    }

    /// Takes the demand of `layer`: `picks` are the expert ids of all positions
    /// of the sweep, `[positions][top_k]` in pick order. Counts hits and misses,
    /// and lets the policy decide what to keep.
    ///
    /// # Panics
    ///
    /// When the last demand is not served, `layer` is not below it, or `picks`
    /// has other sizes or ids than the shape allows.
    pub fn demand(&mut self, layer: LayerIndex, picks: &[u16]) -> DemandPlan {
        assert!(self.is_served(), "layer {layer} before the last is served");
        assert!(self.layer.is_none_or(|last| last < layer));
        assert!(picks.len().is_multiple_of(self.shape.top_k));
        self.layer = Some(layer);
        self.keys.clear();
        self.keys
            .extend(picks.iter().map(|&expert| ExpertKey { layer, expert }));
        let plan = self.locate();
        self.policy.demand(&self.keys, &mut self.outcome);
        self.count(&plan);
        for &(_, slot) in plan.hits.iter().chain(&plan.ahead) {
            self.slots[slot.index()].claim = Claim::Awaited;
        }
        self.awaited_count = plan.hits.len() + plan.ahead.len();
        self.ahead
            .retain(|slot| self.slots[slot.index()].claim == Claim::Ahead);
        self.drop_ahead(|key| key.layer <= layer);
        for index in 0..self.outcome.evicted.len() {
            if let Some(&slot) = self.slot_of.get(&self.outcome.evicted[index]) {
                self.settle(slot);
            }
        }
        self.unread.extend(&plan.misses);
        plan
    }

    /// Reserves a slot to read the demanded `key` into. `None`: no slot is free
    /// before a read completes or a lease ends. That always helps, so the caller
    /// must not wait for anything else, and must have leased what has arrived.
    ///
    /// # Panics
    ///
    /// When `key` is not a miss of the current demand, or has a slot.
    pub fn reserve(&mut self, key: ExpertKey) -> Option<SlotId> {
        assert!(
            self.unread.contains(&key),
            "{key} is not waiting for a slot"
        );
        if self.free.is_empty() {
            self.reclaim_ahead();
        }
        let Some(slot) = self.free.pop() else {
            let busy = self.in_flight_count + self.leased_count + self.awaited_count;
            assert!(busy > 0, "a slot is free when nothing is in use");
            return None;
        };
        self.unread.remove(&key);
        self.awaited_count += 1;
        self.fill(slot, key, Claim::Awaited);
        Some(slot)
    }

    /// Reserves a slot to read `key` into before its layer demands it. `None`:
    /// there is nothing to read, or no slot to spare. Never takes a slot that a
    /// cached expert or the current demand needs.
    ///
    /// # Panics
    ///
    /// When the layer of `key` has been demanded in this sweep.
    pub fn speculate(&mut self, key: ExpertKey) -> Option<SlotId> {
        assert!(self.layer.is_none_or(|last| last < key.layer));
        assert!(self.shape.index(key) < self.shape.expert_count());
        let may_more = self.ahead.len() + self.wasted_count < self.shape.lookahead_count_max;
        let has_room = self.free.len() > self.unread.len();
        if self.is_known(key) || !may_more || !has_room {
            return None;
        }
        let slot = self.free.pop()?;
        self.ahead.push(slot);
        self.fill(slot, key, Claim::Ahead);
        Some(slot)
    }

    /// The read into `slot` has completed.
    ///
    /// # Panics
    ///
    /// When nothing is being read into it.
    pub fn arrived(&mut self, slot: SlotId) {
        self.land(slot);
        let landed = &mut self.slots[slot.index()];
        if landed.claim == Claim::Wasted {
            landed.claim = Claim::None;
            self.wasted_count -= 1;
            self.counters.lookahead_wasted_bytes += self.shape.expert_bytes;
        }
        self.settle(slot);
    }

    /// The read into `slot` has failed. A demanded expert is to be
    /// [reserved](Self::reserve) again, unless the sweep is given up.
    ///
    /// # Panics
    ///
    /// When nothing is being read into it.
    pub fn failed(&mut self, slot: SlotId) {
        self.land(slot);
        let Slot { key, claim, .. } = self.slots[slot.index()];
        match claim {
            Claim::Awaited => {
                self.awaited_count -= 1;
                let is_new = self.unread.insert(key);
                assert!(is_new, "{key} has one slot");
            }
            Claim::Ahead => self.ahead.retain(|&other| other != slot),
            Claim::Wasted => self.wasted_count -= 1,
            Claim::None => {}
        }
        self.slots[slot.index()].claim = Claim::None;
        self.empty(slot);
    }

    /// Lends `slot` out; the first lease serves the demand. Returns its expert.
    ///
    /// # Panics
    ///
    /// When the current demand does not want it, or it has not arrived.
    pub fn lease(&mut self, slot: SlotId) -> ExpertKey {
        let leased = &mut self.slots[slot.index()];
        assert_eq!(leased.state, SlotState::Resident, "{slot:?}");
        assert!(leased.claim == Claim::Awaited || leased.lease_count > 0);
        if leased.claim == Claim::Awaited {
            leased.claim = Claim::None;
            self.awaited_count -= 1;
        }
        self.leased_count += usize::from(leased.lease_count == 0);
        leased.lease_count += 1;
        leased.key
    }

    /// A lease of `slot` has ended.
    ///
    /// # Panics
    ///
    /// When it has none.
    pub fn release(&mut self, slot: SlotId) {
        let leased = &mut self.slots[slot.index()];
        assert_eq!(leased.state, SlotState::Resident, "{slot:?}");
        assert!(leased.lease_count > 0, "{slot:?} is not leased");
        leased.lease_count -= 1;
        if leased.lease_count == 0 {
            self.leased_count -= 1;
            self.settle(slot);
        }
    }

    /// Sorts the distinct experts of `self.keys` by where they are.
    fn locate(&mut self) -> DemandPlan {
        let mut plan = DemandPlan::default();
        self.seen.clear();
        for &key in &self.keys {
            assert!(
                usize::from(key.expert) < self.shape.experts_per_layer,
                "{key}"
            );
            if !self.seen.insert(key) {
                continue;
            }
            let is_cached = self.policy.contains(key);
            match self.slot_of.get(&key) {
                Some(&slot) if self.slots[slot.index()].claim == Claim::Ahead => {
                    assert!(!is_cached, "{key} was cached and read again");
                    plan.ahead.push((key, slot));
                }
                Some(&slot) if is_cached => {
                    assert_eq!(self.slots[slot.index()].state, SlotState::Resident);
                    plan.hits.push((key, slot));
                }
                // It passed through earlier and a lease still holds it. Whether
                // that lease has ended is chance, so it counts as gone.
                Some(_) => {
                    self.slot_of.remove(&key);
                    plan.misses.push(key);
                }
                None => {
                    assert!(!is_cached, "{key} is cached, but nowhere");
                    plan.misses.push(key);
                }
            }
        }
        plan
    }

    fn count(&mut self, plan: &DemandPlan) {
        let count = |experts: usize| experts as u64;
        let missed = plan.ahead.len() + plan.misses.len();
        let PolicyOutcome {
            admitted,
            bypassed,
            evicted,
        } = &self.outcome;
        assert_eq!(admitted.len() + bypassed.len(), missed);
        assert_eq!(plan.hits.len() + missed, self.seen.len());
        self.counters.hits += count(plan.hits.len());
        self.counters.misses += count(missed);
        self.counters.lookahead_used += count(plan.ahead.len());
        self.counters.bypassed += count(bypassed.len());
        self.counters.evictions += count(evicted.len());
    }

    fn fill(&mut self, slot: SlotId, key: ExpertKey, claim: Claim) {
        self.slots[slot.index()].fill(key, claim);
        self.in_flight_count += 1;
        let before = self.slot_of.insert(key, slot);
        assert_eq!(before, None, "{key} has one slot");
    }

    /// The read into `slot` has ended, well or not.
    fn land(&mut self, slot: SlotId) {
        let landed = &mut self.slots[slot.index()];
        assert_eq!(landed.state, SlotState::InFlight, "{slot:?}");
        assert_eq!(landed.lease_count, 0);
        landed.state = SlotState::Resident;
        self.in_flight_count -= 1;
    }

    /// Empties `slot` if nobody needs its expert any more.
    fn settle(&mut self, slot: SlotId) {
        let Slot {
            state,
            key,
            claim,
            lease_count,
        } = self.slots[slot.index()];
        assert_ne!(state, SlotState::Empty, "{slot:?}");
        let is_found = self.slot_of.get(&key) == Some(&slot);
        let is_cached = is_found && self.policy.contains(key);
        let is_idle = state == SlotState::Resident && claim == Claim::None && lease_count == 0;
        if is_idle && !is_cached {
            self.empty(slot);
        }
    }

    fn empty(&mut self, slot: SlotId) {
        let emptied = &mut self.slots[slot.index()];
        assert!(emptied.lease_count == 0 && emptied.claim == Claim::None);
        assert_eq!(emptied.state, SlotState::Resident);
        if self.slot_of.get(&emptied.key) == Some(&slot) {
            self.slot_of.remove(&emptied.key);
        }
        *emptied = Slot::EMPTY;
        self.free.push(slot);
        assert!(self.free.len() <= self.slots.len());
    }

    /// The demand that wants `slot`, if one does, is not going to be served.
    fn give_up(&mut self, slot: SlotId) {
        let Slot {
            state, key, claim, ..
        } = self.slots[slot.index()];
        if claim != Claim::Awaited {
            return;
        }
        self.slots[slot.index()].claim = Claim::None;
        self.awaited_count -= 1;
        if state == SlotState::InFlight {
            self.policy.forget(key);
            self.slot_of.remove(&key);
        }
        self.settle(slot);
    }

    /// Drops lookahead's experts that `is_vain` names: their bytes are wasted.
    fn drop_ahead(&mut self, is_vain: impl Fn(ExpertKey) -> bool) {
        let mut index = 0;
        while let Some(&slot) = self.ahead.get(index) {
            if is_vain(self.slots[slot.index()].key) {
                self.ahead.remove(index);
                self.waste(slot);
            } else {
                index += 1;
            }
        }
    }

    /// Makes room for a demand at lookahead's expense, where a read of its has
    /// completed.
    fn reclaim_ahead(&mut self) {
        assert!(self.free.is_empty());
        let resident = |slot: &SlotId| self.slots[slot.index()].state == SlotState::Resident;
        if let Some(index) = self.ahead.iter().position(resident) {
            let slot = self.ahead.remove(index);
            self.waste(slot);
            assert!(!self.free.is_empty());
        }
    }

    fn waste(&mut self, slot: SlotId) {
        let wasted = &mut self.slots[slot.index()];
        assert_eq!(wasted.claim, Claim::Ahead, "{slot:?}");
        let found = self.slot_of.remove(&wasted.key);
        assert_eq!(found, Some(slot));
        if wasted.state == SlotState::InFlight {
            wasted.claim = Claim::Wasted;
            self.wasted_count += 1;
            return;
        }
        wasted.claim = Claim::None;
        self.counters.lookahead_wasted_bytes += self.shape.expert_bytes;
        self.settle(slot);
    }
}
