//! What compute holds of the cache.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, never};
use k3_io::{ReadEngine, ReadLease};
use k3_models::{ExpertDemand, ExpertKey};
use parking_lot::Mutex;

use super::actor::{self, Channels, Shared};
use super::books::{Books, Leased};
use super::{CacheSettings, Delivery};
use crate::error::ActorError;
use crate::experts::{CacheCounters, SlotId};

const NAME: &str = "k3-experts";
const GONE: ActorError = ActorError::Gone { name: NAME };

/// The right to read one expert. Its slot is not reused while this lives.
pub struct ExpertLease {
    key: ExpertKey,
    slot: SlotId,
    /// `None` only while dropping.
    bytes: Option<ReadLease>,
    was_read: bool,
    shared: Arc<Shared>,
}

impl ExpertLease {
    pub(super) fn new(leased: Leased, shared: Arc<Shared>) -> Self {
        let Leased {
            key,
            slot,
            bytes,
            was_read,
        } = leased;
        Self {
            key,
            slot,
            bytes: Some(bytes),
            was_read,
            shared,
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
        self.shared.release(self.slot);
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
pub struct ExpertHandle {
    shared: Arc<Shared>,
    /// Dropped to end the thread.
    running: Option<Sender<()>>,
    pub(super) deliveries: Receiver<Delivery>,
    /// What the demand at hand found resident and compute has not taken.
    resident: VecDeque<ExpertLease>,
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
        let (running, ended) = bounded(0);
        let (deliver, deliveries) = bounded(slots + 1);
        let (answer, done) = bounded(slots);
        let counters = Arc::new(Mutex::new(CacheCounters::default()));
        let books = Books::new(settings, engine, answer, Arc::clone(&counters));
        let shared = Shared::new(books);
        let channels = Channels {
            running: ended,
            deliveries: deliver,
            done,
        };
        let reader = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(NAME.to_owned())
            .spawn(move || actor::run(&reader, &channels))
            .map_err(|source| ActorError::Thread { name: NAME, source })?;
        Ok(Self {
            shared,
            running: Some(running),
            deliveries,
            resident: VecDeque::with_capacity(slots),
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
        self.resident.clear();
        while self.deliveries.try_recv().is_ok() {}
        self.sweep += 1;
        self.remaining = 0;
        self.counts = ExpertCounts::default();
        let sweep = self.sweep;
        self.shared.change(|books| books.begin(sweep));
        self.check()
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
        let (shared, resident) = (&self.shared, &mut self.resident);
        shared.change(|books| {
            books.demand(layer, &demand.picks, |leased| {
                resident.push_back(ExpertLease::new(leased, Arc::clone(shared)));
            });
        });
        self.check()
    }

    /// Tells which experts the next layer will probably demand, the most likely
    /// first. They replace what was expected before.
    ///
    /// # Errors
    ///
    /// [`ActorError::Gone`].
    pub fn expect(&mut self, experts: &[ExpertKey]) -> Result<(), ActorError> {
        let experts = experts.to_vec();
        self.shared.change(|books| books.expect(experts));
        self.check()
    }

    /// Whether the thread is there.
    fn check(&self) -> Result<(), ActorError> {
        let thread = self.thread.as_ref();
        if thread.is_none_or(JoinHandle::is_finished) {
            return Err(GONE);
        }
        Ok(())
    }

    /// The next expert that is at hand; `None` when all have been given.
    ///
    /// # Errors
    ///
    /// A failed read, or [`ActorError::Gone`].
    pub fn next_expert(&mut self) -> Result<Option<ExpertLease>, ActorError> {
        while self.remaining > 0 {
            if let Some(lease) = self.resident.pop_front() {
                return Ok(Some(self.count(lease)));
            }
            let (delivery, waited_seconds) = self.receive()?;
            // Left over from a sweep that was given up.
            if delivery.sweep != self.sweep {
                continue;
            }
            self.counts.wait_seconds += waited_seconds;
            let lease = delivery.expert?;
            return Ok(Some(self.count(lease)));
        }
        Ok(None)
    }

    fn count(&mut self, lease: ExpertLease) -> ExpertLease {
        self.remaining -= 1;
        if lease.was_read {
            self.counts.read_bytes += lease.len() as u64;
            self.counts.misses += 1;
        } else {
            self.counts.hits += 1;
        }
        lease
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
        let delivery = self.deliveries.recv().map_err(|_| GONE)?;
        Ok((delivery, start.elapsed().as_secs_f64()))
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
        // Nobody takes an expert from here on: a delivery that is on its way
        // must not keep the thread from its end. Leases nobody took release
        // their slots while they are dropped.
        self.resident.clear();
        drop(std::mem::replace(&mut self.deliveries, never()));
        drop(self.running.take());
        thread
            .join()
            .map_err(|_| ActorError::Panicked { name: NAME })
    }
}

impl fmt::Debug for ExpertHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpertHandle")
            .field("sweep", &self.sweep)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

impl Drop for ExpertHandle {
    fn drop(&mut self) {
        // The error was the run's to report; here only the thread's end counts.
        let _ = self.stop();
    }
}
