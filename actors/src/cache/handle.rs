//! What compute holds of the cache.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, never};
use k3_io::{ReadEngine, ReadLease};
use k3_models::{ExpertDemand, ExpertKey};
use parking_lot::Mutex;

use super::actor::{CacheActor, Channels};
use super::{CacheSettings, Delivery, Message};
use crate::error::ActorError;
use crate::experts::{CacheCounters, SlotId};

const NAME: &str = "k3-experts";

/// Messages compute may be ahead of the cache, besides one release for every
/// slot: a start, a demand, a guess and an end.
const MAILBOX_MARGIN: usize = 8;

/// The right to read one expert. Its slot is not reused while this lives.
pub struct ExpertLease {
    key: ExpertKey,
    slot: SlotId,
    /// `None` only while dropping.
    bytes: Option<ReadLease>,
    was_read: bool,
    releases: Sender<Message>,
}

impl ExpertLease {
    pub(super) fn new(
        key: ExpertKey,
        slot: SlotId,
        bytes: ReadLease,
        was_read: bool,
        releases: Sender<Message>,
    ) -> Self {
        Self {
            key,
            slot,
            bytes: Some(bytes),
            was_read,
            releases,
        }
    }

    /// Which expert it is.
    #[must_use]
    pub fn key(&self) -> ExpertKey {
        self.key
    }
}

impl Deref for ExpertLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_deref().expect("the lease is alive")
    }
}

impl Drop for ExpertLease {
    fn drop(&mut self) {
        // The memory first: the cache may take the slot on the next line.
        self.bytes = None;
        // The mailbox has room for every slot; if it is closed, the books are
        // gone too.
        let _ = self.releases.send(Message::Released(self.slot));
    }
}

impl fmt::Debug for ExpertLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExpertLease({} in {:?})", self.key, self.slot)
    }
}

/// What a sweep took of the experts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ExpertCounts {
    /// Payload bytes of experts read for the sweep.
    pub read_bytes: u64,
    /// Experts that were resident when their layer's demand arrived.
    pub hits: u64,
    /// Experts that were not.
    pub misses: u64,
    /// Time compute waited for an expert that was being read.
    pub wait_seconds: f64,
}

/// Compute's end of the cache. Dropping it stops the thread.
#[derive(Debug)]
pub struct ExpertHandle {
    mailbox: Sender<Message>,
    pub(super) deliveries: Receiver<Delivery>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Mutex<CacheCounters>>,
    sweep: u64,
    /// Experts of the demand at hand that have not been taken.
    remaining: usize,
    counts: ExpertCounts,
}

impl ExpertHandle {
    /// Starts the cache over `settings`.
    ///
    /// # Errors
    ///
    /// A thread the system refuses to start.
    pub fn spawn(settings: CacheSettings, engine: Arc<dyn ReadEngine>) -> Result<Self, ActorError> {
        let slots = settings.shape.slot_count;
        let (mailbox, messages) = bounded(slots + MAILBOX_MARGIN);
        let (deliver, deliveries) = bounded(slots + 1);
        let counters = Arc::new(Mutex::new(CacheCounters::default()));
        let channels = Channels {
            mailbox: messages,
            releases: mailbox.clone(),
            deliveries: deliver,
            done: bounded(slots),
        };
        let actor = CacheActor::new(settings, engine, channels, Arc::clone(&counters));
        let thread = std::thread::Builder::new()
            .name(NAME.to_owned())
            .spawn(move || actor.run())
            .map_err(|source| ActorError::Thread { name: NAME, source })?;
        Ok(Self {
            mailbox,
            deliveries,
            thread: Some(thread),
            counters,
            sweep: 0,
            remaining: 0,
            counts: ExpertCounts::default(),
        })
    }

    /// Starts a sweep; what the one before still wanted is given up.
    ///
    /// # Errors
    ///
    /// [`ActorError::Gone`] when the cache has died.
    pub fn begin(&mut self) -> Result<(), ActorError> {
        // What is left over of sweeps that ended early makes room.
        while self.deliveries.try_recv().is_ok() {}
        self.sweep += 1;
        self.remaining = 0;
        self.counts = ExpertCounts::default();
        self.send(Message::Begin { sweep: self.sweep })
    }

    /// Asks for all experts of a layer.
    ///
    /// # Errors
    ///
    /// [`ActorError::Gone`].
    ///
    /// # Panics
    ///
    /// If the demand before has not been taken in full.
    pub fn demand(&mut self, demand: &ExpertDemand) -> Result<(), ActorError> {
        assert_eq!(self.remaining, 0, "the layer before has been served");
        let layer = demand.layer.expect("a demand has a layer");
        self.remaining = demand.union.len();
        let picks = demand.picks.clone();
        self.send(Message::Demand { layer, picks })
    }

    /// Tells which experts the next layer will probably demand, the most likely
    /// first. They replace what was expected before.
    ///
    /// # Errors
    ///
    /// [`ActorError::Gone`].
    pub fn expect(&mut self, experts: &[ExpertKey]) -> Result<(), ActorError> {
        let experts = experts.to_vec();
        self.send(Message::Expect { experts })
    }

    /// The next expert that is at hand; `None` when all have been given.
    ///
    /// # Errors
    ///
    /// A failed read, or [`ActorError::Gone`].
    pub fn next_expert(&mut self) -> Result<Option<ExpertLease>, ActorError> {
        while self.remaining > 0 {
            let (delivery, waited_seconds) = self.receive()?;
            // Left over from a sweep that was given up.
            if delivery.sweep != self.sweep {
                continue;
            }
            // An expert that was resident costs the other thread's turn only.
            if delivery.was_awaited {
                self.counts.wait_seconds += waited_seconds;
            }
            let lease = delivery.expert?;
            self.remaining -= 1;
            if lease.was_read {
                self.counts.read_bytes += lease.len() as u64;
                self.counts.misses += 1;
            } else {
                self.counts.hits += 1;
            }
            return Ok(Some(lease));
        }
        Ok(None)
    }

    /// What the sweep at hand has taken so far.
    #[must_use]
    pub fn counts(&self) -> &ExpertCounts {
        &self.counts
    }

    /// What the books have counted since the start.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        *self.counters.lock()
    }

    /// The same counts, for other threads to look at.
    pub(crate) fn shared_counters(&self) -> Arc<Mutex<CacheCounters>> {
        Arc::clone(&self.counters)
    }

    /// The next delivery, and how long it was waited for.
    fn receive(&self) -> Result<(Delivery, f64), ActorError> {
        if let Ok(delivery) = self.deliveries.try_recv() {
            return Ok((delivery, 0.0));
        }
        let start = Instant::now();
        let delivery = self
            .deliveries
            .recv()
            .map_err(|_| ActorError::Gone { name: NAME })?;
        Ok((delivery, start.elapsed().as_secs_f64()))
    }

    fn send(&self, message: Message) -> Result<(), ActorError> {
        self.mailbox
            .send(message)
            .map_err(|_| ActorError::Gone { name: NAME })
    }

    /// Stops the cache: queued reads are dropped, those in flight awaited.
    ///
    /// # Errors
    ///
    /// [`ActorError::Panicked`] when the thread died of a bug.
    pub fn stop(&mut self) -> Result<(), ActorError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        // Nobody takes a delivery from here on: one that is on its way must not
        // keep the thread from its mailbox. Leases nobody took release their
        // slots while they are dropped.
        drop(std::mem::replace(&mut self.deliveries, never()));
        let _ = self.mailbox.send(Message::Stop);
        thread
            .join()
            .map_err(|_| ActorError::Panicked { name: NAME })
    }
}

impl Drop for ExpertHandle {
    fn drop(&mut self) {
        // The error was the run's to report; here only the thread's end counts.
        let _ = self.stop();
    }
}
