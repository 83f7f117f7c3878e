//! What one device has to read, most urgent first.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::counters::{BusyClock, DeviceStats};
use super::error::EngineError;
use super::layout::PiecePlan;
use super::pending::{Job, Piece};
use super::request::ReadClass;

/// The answer to a thread that asks for work.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Read this; call [`DeviceQueue::finished`] afterwards.
    Piece(Piece),
    /// Nothing queued: the queue will wake whoever sleeps.
    Empty,
    /// There is something, but it does not fit now.
    NoRoom,
    /// Nothing queued, and nothing will be.
    Closed,
}

/// Queue of one device.
///
/// Bound: one job for each request, and each request owns a write lease, so
/// never more jobs than leases. Pieces are cut off the front job one at a time
/// when there is room in flight; nothing is queued per piece.
#[derive(Debug)]
pub(crate) struct DeviceQueue {
    inner: Mutex<Inner>,
    arrived: Condvar,
    pub(crate) stats: DeviceStats,
    /// Shared by the devices of an engine.
    engine_clock: Arc<BusyClock>,
}

#[derive(Debug, Default)]
struct Inner {
    classes: [VecDeque<Job>; 3],
    in_flight: usize,
    busy: bool,
    closing: bool,
    /// Threads that wait for a job.
    waiting: usize,
    /// A ring thread that has seen the queue empty and wants to be woken.
    sleeping: bool,
}

impl Inner {
    fn has_work(&self) -> bool {
        self.in_flight > 0 || self.classes.iter().any(|class| !class.is_empty())
    }
}

impl DeviceQueue {
    pub(crate) fn new(engine_clock: Arc<BusyClock>) -> Self {
        Self {
            inner: Mutex::default(),
            arrived: Condvar::new(),
            stats: DeviceStats::default(),
            engine_clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts or stops the clocks when work has come or gone.
    fn update_clocks(&self, inner: &mut Inner) {
        let busy = inner.has_work();
        if busy == inner.busy {
            return;
        }
        inner.busy = busy;
        for clock in [&self.stats.clock, &*self.engine_clock] {
            if busy {
                clock.enter();
            } else {
                clock.leave();
            }
        }
    }

    /// Queues a job. Returns whether a sleeping ring thread must be woken;
    /// threads that wait in [`DeviceQueue::take`] are woken here.
    pub(crate) fn push(&self, job: Job) -> bool {
        let mut inner = self.lock();
        if inner.closing {
            drop(inner);
            job.request.fail(EngineError::Stopped);
            return false;
        }
        self.stats.requests.fetch_add(1, Ordering::Relaxed);
        let class = job.request.class.index();
        inner.classes[class].push_back(job);
        self.update_clocks(&mut inner);
        let wake = std::mem::take(&mut inner.sleeping);
        drop(inner);
        // One thread; it wakes the next if there is more than it takes.
        self.arrived.notify_one();
        wake
    }

    /// Cuts off the most urgent piece, if `room` says that it fits now.
    pub(crate) fn try_take(&self, room: impl FnMut(&PiecePlan) -> bool) -> Taken {
        let mut dropped = Vec::new();
        let mut inner = self.lock();
        let taken = Self::take_locked(&mut inner, room, &mut dropped);
        match &taken {
            Taken::Piece(_) => self.started(),
            Taken::Empty => inner.sleeping = true,
            Taken::NoRoom | Taken::Closed => {}
        }
        self.update_clocks(&mut inner);
        drop(inner);
        // Answers requesters: not under the lock.
        drop(dropped);
        taken
    }

    /// Waits for a piece; `None` once the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<Piece> {
        let mut inner = self.lock();
        loop {
            let mut dropped = Vec::new();
            let taken = Self::take_locked(&mut inner, |_| true, &mut dropped);
            self.update_clocks(&mut inner);
            if !dropped.is_empty() {
                drop(inner);
                drop(dropped);
                inner = self.lock();
            }
            match taken {
                Taken::Piece(piece) => {
                    self.started();
                    let more = inner.classes.iter().any(|class| !class.is_empty());
                    if more && inner.waiting > 0 {
                        self.arrived.notify_one();
                    }
                    return Some(piece);
                }
                Taken::Closed => return None,
                Taken::Empty | Taken::NoRoom => {
                    // A job may have come while the lock was released above.
                    if inner.classes.iter().all(VecDeque::is_empty) && !inner.closing {
                        inner.waiting += 1;
                        inner = self
                            .arrived
                            .wait(inner)
                            .unwrap_or_else(PoisonError::into_inner);
                        inner.waiting -= 1;
                    }
                }
            }
        }
    }

    fn started(&self) {
        self.stats.pieces.fetch_add(1, Ordering::Relaxed);
    }

    fn take_locked(
        inner: &mut Inner,
        mut room: impl FnMut(&PiecePlan) -> bool,
        dropped: &mut Vec<Job>,
    ) -> Taken {
        for class in &mut inner.classes {
            while let Some(job) = class.front_mut() {
                if job.request.has_failed() {
                    dropped.extend(class.pop_front());
                    continue;
                }
                let plan = job.peek();
                if !room(&plan) {
                    return Taken::NoRoom;
                }
                let request = Arc::clone(&job.request);
                if !job.advance() {
                    class.pop_front();
                }
                inner.in_flight += 1;
                return Taken::Piece(Piece { request, plan });
            }
        }
        if inner.closing {
            Taken::Closed
        } else {
            Taken::Empty
        }
    }

    /// A piece that was taken is over, well or badly.
    pub(crate) fn finished(&self) {
        let mut inner = self.lock();
        inner.in_flight = inner.in_flight.checked_sub(1).expect("a piece was taken");
        self.update_clocks(&mut inner);
    }

    /// Makes queued jobs of a request more urgent.
    pub(crate) fn promote(&self, tag: u64, class: ReadClass) {
        let mut inner = self.lock();
        for lower in class.index() + 1..inner.classes.len() {
            let (upper, rest) = inner.classes.split_at_mut(lower);
            let queue = &mut rest[0];
            while let Some(at) = queue.iter().position(|job| job.request.tag == tag) {
                upper[class.index()].extend(queue.remove(at));
            }
        }
    }

    /// Ends queued jobs of a request. What is in flight still arrives first.
    pub(crate) fn cancel(&self, tag: u64) {
        let mut dropped = Vec::new();
        let mut inner = self.lock();
        for class in &mut inner.classes {
            while let Some(at) = class.iter().position(|job| job.request.tag == tag) {
                dropped.extend(class.remove(at));
            }
        }
        self.update_clocks(&mut inner);
        drop(inner);
        for job in &dropped {
            job.request.fail(EngineError::Cancelled);
        }
    }

    /// Takes no more jobs and ends the queued ones; pieces in flight go on.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closing = true;
        let dropped: Vec<Job> = inner
            .classes
            .iter_mut()
            .flat_map(|class| class.drain(..))
            .collect();
        self.update_clocks(&mut inner);
        drop(inner);
        self.arrived.notify_all();
        for job in &dropped {
            job.request.fail(EngineError::Stopped);
        }
    }
}
