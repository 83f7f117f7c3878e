//! What compute holds of the streamer.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, never};
use k3_config::PinMap;
use k3_io::{ReadEngine, ReadLease};

use super::actor::{Channels, TrunkActor};
use super::{DELIVERIES_MAX, Delivery, Message, TrunkSettings};
use crate::error::ActorError;

/// Messages compute may be ahead of the streamer: a start, a wait and an end
/// are all it has to say at once.
const MAILBOX_MAX: usize = 8;

/// What a sweep took of the trunk.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TrunkCounts {
    /// Payload bytes of blocks read for the sweep.
    pub read_bytes: u64,
    /// Payload bytes of blocks that were in memory already.
    pub pinned_bytes: u64,
    /// Time compute waited for a block that was being read.
    pub wait_seconds: f64,
}

/// Compute's end of the streamer. Dropping it stops the thread.
#[derive(Debug)]
pub struct TrunkHandle {
    mailbox: Sender<Message>,
    pub(super) deliveries: Receiver<Delivery>,
    thread: Option<JoinHandle<()>>,
    /// Sweep at hand, its next block and where it ends.
    sweep: u64,
    next: usize,
    end: usize,
    body: usize,
    total: usize,
    pinned: PinMap,
    /// Pinned blocks that have been handed over once: they stay where they
    /// are, and from then on compute takes them itself. The streamer knows the
    /// same, as it hands over in order.
    resident: Vec<Option<ReadLease>>,
    counts: TrunkCounts,
}

impl TrunkHandle {
    /// Starts the streamer over `settings`. `released` is what the ring's
    /// arena signals.
    ///
    /// # Errors
    ///
    /// A thread the system refuses to start.
    pub fn spawn(
        settings: TrunkSettings,
        engine: Arc<dyn ReadEngine>,
        released: Receiver<()>,
    ) -> Result<Self, ActorError> {
        let total = settings.blocks.len();
        let body = settings
            .blocks
            .iter()
            .filter(|block| !block.is_head)
            .count();
        let (mailbox, messages) = bounded(MAILBOX_MAX);
        let (deliver, deliveries) = bounded(DELIVERIES_MAX);
        // One answer for each lease that can be out with the engine.
        let places = settings
            .ring
            .as_ref()
            .map_or(0, k3_io::SlotArena::slot_count);
        let done = bounded(places + settings.pinned.pinned_count() + 1);
        // Without a ring nobody is left to signal: a channel whose other end is
        // gone is always ready, and the thread would never rest.
        let released = match settings.ring {
            Some(_) => released,
            None => never(),
        };
        let channels = Channels {
            mailbox: messages,
            deliveries: deliver,
            done,
            released,
        };
        let pinned = settings.pinned.clone();
        let actor = TrunkActor::new(settings, engine, channels);
        let thread = std::thread::Builder::new()
            .name("k3-trunk".to_owned())
            .spawn(move || actor.run())
            .map_err(|source| ActorError::Thread {
                name: "k3-trunk",
                source,
            })?;
        Ok(Self {
            mailbox,
            deliveries,
            thread: Some(thread),
            sweep: 0,
            next: 0,
            end: 0,
            body,
            total,
            pinned,
            resident: vec![None; total],
            counts: TrunkCounts::default(),
        })
    }

    /// Starts a sweep; one that compute left unfinished is forgotten first.
    ///
    /// # Errors
    ///
    /// [`ActorError::Gone`] when the streamer has died.
    pub fn begin(&mut self, with_head: bool) -> Result<(), ActorError> {
        if self.next < self.end {
            self.send(Message::Abort { sweep: self.sweep })?;
        }
        self.sweep += 1;
        self.next = 0;
        self.end = if with_head { self.total } else { self.body };
        self.counts = TrunkCounts::default();
        self.send(Message::Begin {
            sweep: self.sweep,
            with_head,
        })
    }

    /// The sweep's next block, which must be `block`.
    ///
    /// # Errors
    ///
    /// A failed read, or [`ActorError::Gone`].
    ///
    /// # Panics
    ///
    /// If blocks are asked for out of order.
    pub fn block(&mut self, block: usize) -> Result<ReadLease, ActorError> {
        assert_eq!(block, self.next, "blocks are taken in sweep order");
        assert!(block < self.end, "block {block} is not part of this sweep");
        loop {
            if let Some(lease) = &self.resident[block] {
                self.next += 1;
                self.counts.pinned_bytes += lease.len() as u64;
                return Ok(lease.clone());
            }
            let (delivery, waited_seconds) = self.receive()?;
            if self.pinned.is_pinned(delivery.block) {
                self.resident[delivery.block] = delivery.lease.as_ref().ok().cloned();
            }
            // Left over from a sweep that was aborted.
            if delivery.sweep < self.sweep {
                continue;
            }
            assert_eq!((delivery.sweep, delivery.block), (self.sweep, block));
            // A block that was in memory costs the other thread's turn only.
            if delivery.was_awaited {
                self.counts.wait_seconds += waited_seconds;
            }
            let lease = delivery.lease?;
            self.next += 1;
            let bytes = lease.len() as u64;
            if delivery.was_read {
                self.counts.read_bytes += bytes;
            } else {
                self.counts.pinned_bytes += bytes;
            }
            return Ok(lease);
        }
    }

    /// What the sweep at hand has taken so far.
    #[must_use]
    pub fn counts(&self) -> &TrunkCounts {
        &self.counts
    }

    /// The next delivery, and how long it was waited for.
    fn receive(&self) -> Result<(Delivery, f64), ActorError> {
        if let Ok(delivery) = self.deliveries.try_recv() {
            return Ok((delivery, 0.0));
        }
        self.send(Message::Waiting)?;
        let start = Instant::now();
        let delivery = self
            .deliveries
            .recv()
            .map_err(|_| ActorError::Gone { name: "k3-trunk" })?;
        Ok((delivery, start.elapsed().as_secs_f64()))
    }

    fn send(&self, message: Message) -> Result<(), ActorError> {
        let gone = |_| ActorError::Gone { name: "k3-trunk" };
        self.mailbox.send(message).map_err(gone)
    }

    /// Stops the streamer: queued reads are dropped, those in flight awaited.
    ///
    /// # Errors
    ///
    /// [`ActorError::Panicked`] when the thread died of a bug.
    pub fn stop(&mut self) -> Result<(), ActorError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.resident.fill(None);
        // It may be gone already, or wait for room to deliver: both end it.
        let _ = self.mailbox.send(Message::Stop);
        thread
            .join()
            .map_err(|_| ActorError::Panicked { name: "k3-trunk" })
    }
}

impl Drop for TrunkHandle {
    fn drop(&mut self) {
        // The error was the run's to report; here only the thread's end counts.
        let _ = self.stop();
    }
}
