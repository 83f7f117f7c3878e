//! The thread that owns the slots.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, select};
use k3_io::{ReadClass, ReadDone, ReadEngine, ReadLease, ReadRequest, SlotArena};
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
    /// What each slot holds, while it holds something.
    held: Vec<Option<ReadLease>>,
    /// Reads in flight by tag: their slot, and the sweep that wants it.
    flights: HashMap<u64, Flight>,
    sweep: u64,
    tags: Tags,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    slot: SlotId,
    sweep: u64,
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
            held: vec![None; slot_count],
            flights: HashMap::new(),
            sweep: 0,
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
        self.unread.clear();
        for tag in self.flights.keys() {
            self.engine.cancel(*tag);
        }
        self.table.begin_sweep();
    }

    fn demand(&mut self, layer: LayerIndex, picks: &[u16]) {
        let plan = self.table.demand(layer, picks);
        *self.counters.lock() = *self.table.counters();
        for (_, slot) in plan.hits {
            self.hand_over(slot, false);
        }
        for (_, slot) in plan.ahead {
            if self.table.state(slot) == SlotState::Resident {
                self.hand_over(slot, true);
            }
        }
        let mut misses = plan.misses;
        misses.sort_by_cached_key(|key| {
            let place = (self.places)(*key);
            (place[0].file, place[0].offset)
        });
        self.unread.extend(misses);
    }

    /// Reads as many misses as there are slots for.
    fn read_more(&mut self) {
        while let Some(&key) = self.unread.front() {
            let Some(slot) = self.table.reserve(key) else {
                return;
            };
            self.unread.pop_front();
            self.held[slot.index()] = None;
            let target = self.slots.acquire(slot.index());
            let target = target.expect("the books say that nobody holds this slot");
            let tag = self.tags.next();
            let sweep = self.sweep;
            self.flights.insert(tag, Flight { slot, sweep });
            self.engine.submit(ReadRequest {
                segments: (self.places)(key),
                target,
                class: ReadClass::Expert,
                tag,
                reply: self.channels.done.0.clone(),
            });
        }
    }

    fn land(&mut self, done: ReadDone) {
        let Flight { slot, sweep } = self
            .flights
            .remove(&done.tag)
            .expect("every answer was asked for");
        match done.result {
            Ok(()) => {
                self.held[slot.index()] = Some(done.target.freeze(done.payload));
                self.table.arrived(slot);
                if sweep == self.sweep {
                    self.hand_over(slot, true);
                } else if self.table.state(slot) == SlotState::Empty {
                    self.held[slot.index()] = None;
                }
            }
            Err(error) => {
                drop(done.target);
                self.table.failed(slot);
                if sweep == self.sweep {
                    // Compute gives the sweep up when it learns of it.
                    self.deliver(Err(error));
                }
            }
        }
    }

    /// Leases a resident, demanded slot to compute.
    fn hand_over(&mut self, slot: SlotId, was_read: bool) {
        let key = self.table.lease(slot);
        let lease = self.held[slot.index()]
            .clone()
            .expect("a resident slot holds its expert");
        let releases = self.channels.releases.clone();
        self.deliver(Ok(ExpertLease::new(key, slot, lease, was_read, releases)));
    }

    fn deliver(&self, expert: Result<ExpertLease, k3_io::EngineError>) {
        let sweep = self.sweep;
        // Compute may be gone: then the mailbox is closed and ends the loop.
        let _ = self.channels.deliveries.send(Delivery { sweep, expert });
    }

    fn released(&mut self, slot: SlotId) {
        self.table.release(slot);
        if self.table.state(slot) == SlotState::Empty {
            self.held[slot.index()] = None;
        }
    }

    /// Drops what is queued and waits for what is in flight.
    fn stop(self) {
        for tag in self.flights.keys() {
            self.engine.cancel(*tag);
        }
        for _ in 0..self.flights.len() {
            drop(
                self.channels
                    .done
                    .1
                    .recv()
                    .expect("this thread holds a sender"),
            );
        }
    }
}
