//! The thread that owns the slots.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, select};
use k3_io::{EngineError, ReadClass, ReadDone, ReadEngine, ReadLease, ReadRequest, SlotArena};
use k3_models::{ExpertKey, LayerIndex};
use parking_lot::Mutex;

use super::handle::ExpertLease;
use super::{CacheSettings, Delivery, ExpertPlaces, Message};
use crate::experts::{CacheCounters, SlotId, SlotState, SlotTable};
use crate::tags::{Party, Tags};

/// Channels of the thread.
pub(super) struct Channels {
    pub(super) mailbox: Receiver<Message>,
    /// For leases to tell their end.
    pub(super) releases: Sender<Message>,
    /// Room for every slot and one error.
    pub(super) deliveries: Sender<Delivery>,
    /// Answers of the engine, with room for every slot.
    pub(super) done: (Sender<ReadDone>, Receiver<ReadDone>),
}

/// Where a demanded expert was when its layer's demand came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// In a slot, cached.
    Hit,
    /// In a slot: a guess that was right and is complete.
    Guessed,
    /// On the disk, or on its way from there.
    Awaited,
}

/// The cache's state; owned by its thread.
pub(super) struct CacheActor {
    table: SlotTable,
    slots: SlotArena,
    places: ExpertPlaces,
    engine: Arc<dyn ReadEngine>,
    channels: Channels,
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

impl CacheActor {
    pub(super) fn new(
        settings: CacheSettings,
        engine: Arc<dyn ReadEngine>,
        channels: Channels,
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
            channels,
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

    /// Runs until it is told to stop or compute is gone.
    pub(super) fn run(mut self) {
        loop {
            select! {
                recv(self.channels.mailbox) -> message => match message {
                    Ok(Message::Begin { sweep }) => self.begin(sweep),
                    Ok(Message::Demand { layer, picks }) => self.demand(layer, &picks),
                    Ok(Message::Expect { experts }) => self.expect(experts),
                    Ok(Message::Released(slot)) => self.released(slot),
                    Ok(Message::Stop) | Err(_) => break,
                },
                recv(self.channels.done.1) -> done => {
                    self.land(done.expect("this thread holds a sender"));
                }
            }
            self.read_more();
        }
        self.stop();
    }

    fn begin(&mut self, sweep: u64) {
        self.sweep = sweep;
        self.has_failed = false;
        self.give_up();
        self.table.begin_sweep();
    }

    /// Forgets what is wanted; reads in flight are withdrawn.
    fn give_up(&mut self) {
        self.unread.clear();
        self.expected.clear();
        for tag in self.flights.keys() {
            self.engine.cancel(*tag);
        }
        self.table.abandon();
        self.publish();
    }

    fn expect(&mut self, experts: Vec<ExpertKey>) {
        // Compute may not have learnt yet that its sweep has failed.
        if !self.has_failed {
            self.expected = experts.into();
        }
    }

    fn demand(&mut self, layer: LayerIndex, picks: &[u16]) {
        // Guesses whose read has not begun are settled by the demand itself.
        self.expected.clear();
        let plan = self.table.demand(layer, picks);
        self.publish();
        for (_, slot) in plan.hits {
            self.hand_over(slot, Arrival::Hit);
        }
        for (_, slot) in plan.ahead {
            if self.table.state(slot) == SlotState::Resident {
                self.hand_over(slot, Arrival::Guessed);
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
    fn read_more(&mut self) {
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
            reply: self.channels.done.0.clone(),
        });
    }

    fn land(&mut self, done: ReadDone) {
        let slot = self.flights.remove(&done.tag);
        let slot = slot.expect("every answer was asked for");
        // Not by a sweep that was given up, nor by one that only guesses.
        let is_awaited = self.table.is_awaited(slot);
        match done.result {
            Ok(()) => {
                self.held[slot.index()] = Some(done.target.freeze(done.payload));
                self.table.arrived(slot);
                self.publish();
                if is_awaited {
                    self.hand_over(slot, Arrival::Awaited);
                } else {
                    self.forget_if_empty(slot);
                }
            }
            Err(error) => {
                drop(done.target);
                self.table.failed(slot);
                if is_awaited {
                    // The sweep ends here: compute takes no more of it, so this
                    // is the last it is sent. A guess that failed is read again
                    // if it is demanded.
                    self.has_failed = true;
                    self.give_up();
                    self.deliver(Err(error), true);
                }
            }
        }
    }

    /// Leases a resident, demanded slot to compute.
    fn hand_over(&mut self, slot: SlotId, arrival: Arrival) {
        let key = self.table.lease(slot);
        let lease = self.held[slot.index()]
            .clone()
            .expect("a resident slot holds its expert");
        let releases = self.channels.releases.clone();
        let was_read = arrival != Arrival::Hit;
        let expert = ExpertLease::new(key, slot, lease, was_read, releases);
        self.deliver(Ok(expert), arrival == Arrival::Awaited);
    }

    fn deliver(&self, expert: Result<ExpertLease, EngineError>, was_awaited: bool) {
        // There is room for every slot and the sweep's one error. Compute may
        // be gone: then it has said so, or closed the mailbox.
        let _ = self.channels.deliveries.send(Delivery {
            sweep: self.sweep,
            expert,
            was_awaited,
        });
    }

    fn released(&mut self, slot: SlotId) {
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

    /// Drops what is queued and waits for what is in flight.
    fn stop(mut self) {
        self.give_up();
        while !self.flights.is_empty() {
            let done = self.channels.done.1.recv();
            self.land(done.expect("this thread holds a sender"));
        }
    }
}
