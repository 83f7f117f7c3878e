//! The thread that keeps the ring full.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Select, Sender};
use k3_io::{ReadClass, ReadDone, ReadEngine, ReadLease, ReadRequest, WriteLease};

use super::order::{Place, SweepOrder};
use super::{BlockError, Delivery, Message, TrunkSettings};
use crate::tags::{Party, Tags};
use crate::units::memory;

/// One block between being asked for and being handed over.
#[derive(Debug)]
struct Entry {
    place: Place,
    state: EntryState,
    was_read: bool,
    was_awaited: bool,
}

#[derive(Debug)]
enum EntryState {
    Reading { tag: u64 },
    Ready(ReadLease),
    Failed(BlockError),
}

/// Channels of the thread.
pub(super) struct Channels {
    pub(super) mailbox: Receiver<Message>,
    pub(super) deliveries: Sender<Delivery>,
    /// Answers of the engine, with room for every lease.
    pub(super) done: (Sender<ReadDone>, Receiver<ReadDone>),
    /// Told when a place of the ring becomes free.
    pub(super) released: Receiver<()>,
}

/// The streamer's state; owned by its thread.
pub(super) struct TrunkActor {
    settings: TrunkSettings,
    engine: Arc<dyn ReadEngine>,
    channels: Channels,
    order: SweepOrder,
    /// The next block to ask for.
    next: Place,
    /// Asked for and not handed over, in sweep order.
    queue: VecDeque<Entry>,
    /// Pinned blocks that have arrived.
    resident: Vec<Option<ReadLease>>,
    /// Pinned blocks that have been handed over once: compute keeps them and
    /// takes them itself from then on.
    handed: Vec<bool>,
    /// Reads in flight by tag: their block, and whether their sweep was
    /// aborted.
    flights: HashMap<u64, Flight>,
    /// Tag of the read of a pinned block that is on its way.
    pin_flights: HashMap<usize, u64>,
    /// Memory of pinned blocks whose read failed: their room is cut to the
    /// byte, so it is kept for the next try.
    pin_spares: HashMap<usize, WriteLease>,
    tags: Tags,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    block: usize,
    aborted: bool,
}

/// What woke the thread.
enum Event {
    Message(Option<Message>),
    Done(ReadDone),
    Released,
    /// There was room for a delivery; false when compute is gone.
    Delivered(bool),
}

impl TrunkActor {
    pub(super) fn new(
        settings: TrunkSettings,
        engine: Arc<dyn ReadEngine>,
        channels: Channels,
    ) -> Self {
        let total = settings.blocks.len();
        let body = settings
            .blocks
            .iter()
            .position(|block| block.is_head)
            .unwrap_or(total);
        assert!(
            settings.blocks[body..].iter().all(|block| block.is_head),
            "the head is last"
        );
        assert_eq!(settings.pinned.block_count(), total);
        Self {
            order: SweepOrder::new(body, total),
            next: Place { sweep: 1, block: 0 },
            queue: VecDeque::new(),
            resident: vec![None; total],
            handed: vec![false; total],
            flights: HashMap::new(),
            pin_flights: HashMap::new(),
            pin_spares: HashMap::new(),
            tags: Tags::new(Party::Trunk),
            settings,
            engine,
            channels,
        }
    }

    /// Runs until it is told to stop or compute is gone.
    pub(super) fn run(mut self) {
        loop {
            self.read_ahead();
            match self.wait() {
                Event::Message(None | Some(Message::Stop)) | Event::Delivered(false) => break,
                Event::Message(Some(message)) => self.handle(message),
                Event::Done(done) => self.land(done),
                Event::Released | Event::Delivered(true) => {}
            }
        }
        self.stop();
    }

    /// Blocks until something happens; hands over the front when it is ready.
    fn wait(&mut self) -> Event {
        let mut select = Select::new();
        let mailbox = select.recv(&self.channels.mailbox);
        let done = select.recv(&self.channels.done.1);
        let released = select.recv(&self.channels.released);
        let can_deliver = self.queue.front().is_some_and(|entry| {
            self.order.has_begun(entry.place.sweep)
                && !matches!(entry.state, EntryState::Reading { .. })
        });
        let delivery = can_deliver.then(|| select.send(&self.channels.deliveries));
        let operation = select.select();
        match operation.index() {
            chosen if chosen == mailbox => {
                Event::Message(operation.recv(&self.channels.mailbox).ok())
            }
            chosen if chosen == done => {
                let done = operation.recv(&self.channels.done.1);
                Event::Done(done.expect("this thread holds a sender"))
            }
            chosen if chosen == released => {
                // The arena may be gone before us; space is checked anyway.
                let _ = operation.recv(&self.channels.released);
                Event::Released
            }
            chosen => {
                assert_eq!(Some(chosen), delivery);
                let entry = self.queue.pop_front().expect("a front was ready");
                let delivery = entry.into_delivery();
                let arrived = delivery.lease.is_ok().then_some(delivery.block);
                let sent = operation.send(&self.channels.deliveries, delivery);
                if let Some(block) = arrived {
                    self.note_handed(block);
                }
                Event::Delivered(sent.is_ok())
            }
        }
    }

    /// A pinned block is handed over once. What was asked for since the first
    /// time is dropped before anybody looks at the front again.
    fn note_handed(&mut self, block: usize) {
        if self.settings.pinned.is_pinned(block) {
            self.handed[block] = true;
            self.queue.retain(|entry| entry.place.block != block);
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Begin { sweep, with_head } => {
                self.order.begin(sweep, with_head);
                // Nothing is left of a sweep that compute has finished.
                assert!(
                    self.queue
                        .front()
                        .is_none_or(|entry| entry.place.sweep >= sweep),
                    "sweep {sweep} began while an older one was being handed over"
                );
                self.note_arrived(sweep);
            }
            Message::Waiting => self.hurry(),
            Message::Abort { sweep } => self.abort(sweep),
            Message::Stop => unreachable!("handled by the loop"),
        }
    }

    /// Blocks that are there as their sweep begins are not waited for.
    fn note_arrived(&mut self, sweep: u64) {
        for entry in &mut self.queue {
            let is_reading = matches!(entry.state, EntryState::Reading { .. });
            entry.was_awaited &= is_reading || entry.place.sweep != sweep;
        }
    }

    /// The block compute waits for overtakes everything.
    fn hurry(&self) {
        if let Some(Entry {
            state: EntryState::Reading { tag },
            ..
        }) = self.queue.front()
        {
            self.engine.promote(*tag, ReadClass::AwaitedBlock);
        }
    }

    /// Drops everything asked for and starts over with the sweep after
    /// `sweep`.
    fn abort(&mut self, sweep: u64) {
        self.queue.clear();
        for (tag, flight) in &mut self.flights {
            // A pinned block is wanted by every sweep: let it land.
            if !self.settings.pinned.is_pinned(flight.block) {
                flight.aborted = true;
                self.engine.cancel(*tag);
            }
        }
        self.next = Place {
            sweep: sweep + 1,
            block: 0,
        };
    }

    /// Asks for blocks until memory or knowledge ends.
    fn read_ahead(&mut self) {
        while let Some(place) = self.order.resolve(self.next) {
            if self.handed[place.block] {
                // Nothing to read may be left: then a sweep is enough to know.
                if self.order.is_far_ahead(place.sweep) {
                    return;
                }
                self.next = Place {
                    block: place.block + 1,
                    ..place
                };
                continue;
            }
            // Everything resident: enough is queued when compute cannot take
            // more than this at once.
            if self.queue.len() >= self.queue_max() {
                return;
            }
            let Some((state, was_read)) = self.ask(place.block) else {
                return;
            };
            let was_awaited = matches!(state, EntryState::Reading { .. });
            self.queue.push_back(Entry {
                place,
                state,
                was_read,
                was_awaited,
            });
            self.next = Place {
                block: place.block + 1,
                ..place
            };
        }
    }

    /// Longest queue: every place of the ring, and as many resident blocks as
    /// compute may take without waking this thread.
    fn queue_max(&self) -> usize {
        let places = self
            .settings
            .ring
            .as_ref()
            .map_or(0, k3_io::SlotArena::slot_count);
        places + super::DELIVERIES_MAX
    }

    /// The block at hand, or a read of it; `None` when there is no memory.
    fn ask(&mut self, block: usize) -> Option<(EntryState, bool)> {
        if let Some(lease) = &self.resident[block] {
            return Some((EntryState::Ready(lease.clone()), false));
        }
        if let Some(&tag) = self.pin_flights.get(&block) {
            // On its way for an earlier sweep, which counts the read.
            return Some((EntryState::Reading { tag }, false));
        }
        let target = self.allocate(block)?;
        let tag = self.tags.next();
        let aborted = false;
        self.flights.insert(tag, Flight { block, aborted });
        if self.settings.pinned.is_pinned(block) {
            self.pin_flights.insert(block, tag);
        }
        self.engine.submit(ReadRequest::single(
            self.settings.blocks[block].place,
            target,
            ReadClass::ReadAhead,
            tag,
            self.channels.done.0.clone(),
        ));
        Some((EntryState::Reading { tag }, true))
    }

    fn allocate(&mut self, block: usize) -> Option<WriteLease> {
        if let Some(spare) = self.pin_spares.remove(&block) {
            return Some(spare);
        }
        if !self.settings.pinned.is_pinned(block) {
            let ring = self.settings.ring.as_ref();
            return ring.expect("unpinned blocks have a ring").acquire_any();
        }
        // Padding to whole pages fits as well: the offset is one of theirs then.
        let bytes = self.settings.blocks[block].bytes;
        let window = k3_io::AlignedWindow::capacity_for(bytes, self.settings.alignment_bytes);
        let window = memory(window.expect("a block fits an address space"));
        let pins = self
            .settings
            .pins
            .as_ref()
            .expect("pinned blocks have memory");
        pins.allocate(window)
    }

    /// Files an answer of the engine.
    fn land(&mut self, done: ReadDone) {
        let flight = self
            .flights
            .remove(&done.tag)
            .expect("every answer was asked for");
        if flight.aborted {
            return;
        }
        self.pin_flights.remove(&flight.block);
        let is_pinned = self.settings.pinned.is_pinned(flight.block);
        let result = done.result.map_err(BlockError::Read);
        let result =
            result.and_then(|()| self.check(flight.block, &done.target[done.payload.clone()]));
        let arrived = match result {
            Ok(()) => {
                let start = done.payload.start;
                let bytes = memory(self.settings.blocks[flight.block].bytes);
                Ok(done.target.freeze(start..start + bytes))
            }
            Err(error) => {
                if is_pinned {
                    self.pin_spares.insert(flight.block, done.target);
                }
                Err(error)
            }
        };
        if is_pinned {
            self.resident[flight.block] = arrived.as_ref().ok().cloned();
        }
        // A small model is read ahead around the whole sweep: several entries
        // may wait for one pinned block.
        let waiting = self
            .queue
            .iter_mut()
            .filter(|entry| matches!(entry.state, EntryState::Reading { tag } if tag == done.tag));
        for entry in waiting {
            entry.state = match &arrived {
                Ok(lease) => EntryState::Ready(lease.clone()),
                Err(error) => EntryState::Failed(error.clone()),
            };
        }
    }

    /// Compares what was read of `block` with its checksum.
    fn check(&self, block: usize, read: &[u8]) -> Result<(), BlockError> {
        let Some(checks) = &self.settings.checks else {
            return Ok(());
        };
        let start = Instant::now();
        let result = checks.checksums.check(block, read);
        checks.counts.add(read.len(), start.elapsed());
        result.map_err(|error| BlockError::Damaged(Arc::new(error)))
    }

    /// Drops what is queued and waits for what is in flight: memory is
    /// written until the last answer.
    fn stop(mut self) {
        self.queue.clear();
        for tag in self.flights.keys() {
            self.engine.cancel(*tag);
        }
        for _ in 0..self.flights.len() {
            let done = self.channels.done.1.recv();
            drop(done.expect("this thread holds a sender"));
        }
    }
}

impl Entry {
    fn into_delivery(self) -> Delivery {
        let lease = match self.state {
            EntryState::Ready(lease) => Ok(lease),
            EntryState::Failed(error) => Err(error),
            EntryState::Reading { .. } => unreachable!("only finished reads are handed over"),
        };
        Delivery {
            sweep: self.place.sweep,
            block: self.place.block,
            lease,
            was_read: self.was_read,
            was_awaited: self.was_awaited,
        }
    }
}
