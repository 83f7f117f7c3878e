//! Who may have which slot: the cache's state, and what changes it.
//!
//! The books are under one lock, taken for microseconds: compute enters its
//! demands and the ends of its leases itself, so an expert that is resident
//! costs it no turn of another thread, and one that is not is asked for at once.
//! The cache's thread files the answers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crossbeam_channel::Sender;
use k3_io::{EngineError, ReadClass, ReadDone, ReadEngine, ReadLease, ReadRequest, SlotArena};
use k3_models::{ExpertKey, LayerIndex};
use parking_lot::Mutex;

use super::{CacheSettings, ExpertPlaces};
use crate::experts::{CacheCounters, SlotId, SlotState, SlotTable};
use crate::tags::{Party, Tags};

/// A resident expert that the books count as leased.
#[derive(Debug)]
pub(super) struct Leased {
    pub(super) key: ExpertKey,
    pub(super) slot: SlotId,
    pub(super) bytes: ReadLease,
    /// Whether it was read for the sweep at hand.
    pub(super) was_read: bool,
}

/// What a read came to, for the sweep that waits for it.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) sweep: u64,
    pub(super) expert: Result<Leased, EngineError>,
}

/// The state of the cache.
pub(super) struct Books {
    table: SlotTable,
    slots: SlotArena,
    places: ExpertPlaces,
    engine: Arc<dyn ReadEngine>,
    /// Where the engine answers.
    done: Sender<ReadDone>,
    counters: Arc<Mutex<CacheCounters>>,
    /// Misses without a slot, in disk order.
    unread: VecDeque<ExpertKey>,
    /// Guesses at the next layer's demand whose read has not begun, the most
    /// likely first.
    expected: VecDeque<ExpertKey>,
    /// What each slot holds, while it holds something.
    held: Vec<Option<ReadLease>>,
    /// Slots of the reads in flight, by tag.
    flights: HashMap<u64, SlotId>,
    sweep: u64,
    /// Whether a read of the sweep has failed: it gets nothing more.
    has_failed: bool,
    tags: Tags,
}

impl Books {
    pub(super) fn new(
        settings: CacheSettings,
        engine: Arc<dyn ReadEngine>,
        done: Sender<ReadDone>,
        counters: Arc<Mutex<CacheCounters>>,
    ) -> Self {
        let CacheSettings {
            shape,
            policy,
            slots,
            places,
        } = settings;
        let slot_count = shape.slot_count;
        assert!(slots.slot_count() >= slot_count, "a place for every slot");
        Self {
            table: SlotTable::new(shape, policy),
            slots,
            places,
            engine,
            done,
            counters,
            unread: VecDeque::new(),
            expected: VecDeque::new(),
            held: vec![None; slot_count],
            flights: HashMap::new(),
            sweep: 0,
            has_failed: false,
            tags: Tags::new(Party::Experts),
        }
    }

    /// Starts sweep `sweep`; what the one before still wanted is given up.
    pub(super) fn begin(&mut self, sweep: u64) {
        self.sweep = sweep;
        self.has_failed = false;
        self.give_up();
        self.table.begin_sweep();
    }

    /// Forgets what is wanted; reads in flight are withdrawn.
    pub(super) fn give_up(&mut self) {
        self.unread.clear();
        self.expected.clear();
        for tag in self.flights.keys() {
            self.engine.cancel(*tag);
        }
        self.table.abandon();
        self.publish();
    }

    /// Experts the next layer will probably demand, the most likely first.
    pub(super) fn expect(&mut self, experts: Vec<ExpertKey>) {
        // Compute may not have learnt yet that its sweep has failed.
        if !self.has_failed {
            self.expected = experts.into();
        }
    }

    /// All picks of a layer, `[positions][top_k]`. Hands over what is
    /// resident.
    pub(super) fn demand(
        &mut self,
        layer: LayerIndex,
        picks: &[u16],
        mut hand_over: impl FnMut(Leased),
    ) {
        // Guesses whose read has not begun are settled by the demand itself.
        self.expected.clear();
        let plan = self.table.demand(layer, picks);
        self.publish();
        for (_, slot) in plan.hits {
            hand_over(self.lease(slot, false));
        }
        for (_, slot) in plan.ahead {
            if self.table.state(slot) == SlotState::Resident {
                hand_over(self.lease(slot, true));
            } else {
                self.hurry(slot);
            }
        }
        let mut misses = plan.misses;
        misses.sort_by_cached_key(|key| {
            let place = (self.places)(*key);
            (place[0].file, place[0].offset)
        });
        self.unread.extend(misses);
    }

    /// A guess on its way to `slot` has been demanded.
    fn hurry(&self, slot: SlotId) {
        let found = self.flights.iter().find(|(_, target)| **target == slot);
        let (&tag, _) = found.expect("a slot in flight has a read");
        self.engine.promote(tag, ReadClass::Expert);
    }

    /// Reads as many misses as there are slots for, then as many guesses.
    pub(super) fn read_more(&mut self) {
        while let Some(&key) = self.unread.front() {
            let Some(slot) = self.table.reserve(key) else {
                return;
            };
            self.unread.pop_front();
            self.read(key, slot, ReadClass::Expert);
        }
        while let Some(&key) = self.expected.front() {
            if !self.table.is_known(key) {
                let Some(slot) = self.table.speculate(key) else {
                    return;
                };
                self.read(key, slot, ReadClass::ReadAhead);
            }
            self.expected.pop_front();
        }
    }

    fn read(&mut self, key: ExpertKey, slot: SlotId, class: ReadClass) {
        self.held[slot.index()] = None;
        let target = self.slots.acquire(slot.index());
        let target = target.expect("the books say that nobody holds this slot");
        let tag = self.tags.next();
        self.flights.insert(tag, slot);
        self.engine.submit(ReadRequest {
            segments: (self.places)(key),
            target,
            class,
            tag,
            reply: self.done.clone(),
        });
    }

    /// Reads that the engine has not answered.
    pub(super) fn flight_count(&self) -> usize {
        self.flights.len()
    }

    /// Files an answer of the engine; what it is to somebody who waits.
    pub(super) fn land(&mut self, done: ReadDone) -> Option<Landed> {
        let slot = self.flights.remove(&done.tag);
        let slot = slot.expect("every answer was asked for");
        // Not by a sweep that was given up, nor by one that only guesses.
        let is_awaited = self.table.is_awaited(slot);
        let expert = match done.result {
            Ok(()) => {
                self.held[slot.index()] = Some(done.target.freeze(done.payload));
                self.table.arrived(slot);
                self.publish();
                if !is_awaited {
                    self.forget_if_empty(slot);
                    return None;
                }
                Ok(self.lease(slot, true))
            }
            Err(error) => {
                drop(done.target);
                self.table.failed(slot);
                if !is_awaited {
                    // A guess that failed is read again if it is demanded.
                    return None;
                }
                // The sweep ends here: compute takes no more of it, so this is
                // the last it is sent.
                self.has_failed = true;
                self.give_up();
                Err(error)
            }
        };
        Some(Landed {
            sweep: self.sweep,
            expert,
        })
    }

    /// Counts a resident, demanded slot as leased.
    fn lease(&mut self, slot: SlotId, was_read: bool) -> Leased {
        let key = self.table.lease(slot);
        let bytes = self.held[slot.index()]
            .clone()
            .expect("a resident slot holds its expert");
        Leased {
            key,
            slot,
            bytes,
            was_read,
        }
    }

    /// The lease of `slot` has ended; its memory is free by now.
    pub(super) fn released(&mut self, slot: SlotId) {
        self.table.release(slot);
        self.forget_if_empty(slot);
    }

    fn forget_if_empty(&mut self, slot: SlotId) {
        if self.table.state(slot) == SlotState::Empty {
            self.held[slot.index()] = None;
        }
    }

    fn publish(&self) {
        *self.counters.lock() = *self.table.counters();
    }
}
