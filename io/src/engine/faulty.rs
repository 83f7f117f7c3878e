//! An engine that misbehaves within the contract, and beyond it on order.
//!
//! Faults below an engine (short reads, errnos at system calls) are a
//! [`super::FaultHook`]'s; this wrapper changes what comes out of any engine:
//! when, in which order, and whether at all.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::ReadEngine;
use super::config::EngineCaps;
use super::counters::EngineCounters;
use super::error::EngineError;
use super::request::{ReadClass, ReadDone, ReadRequest, Segment};
use crate::arena::HugeArena;
use crate::direct::FileTable;

/// Answers waiting between the engine and the relay. The relay never waits for
/// the engine, so a full channel only slows the engine down.
const RELAY_CAPACITY: usize = 1024;

/// Longest time an answer is held back for the sake of disorder.
const HOLD_LIMIT: Duration = Duration::from_millis(20);

/// What to do to the answers. All choices follow from the seed and the order of
/// completion.
#[derive(Debug, Clone, Default)]
pub struct FaultyPlan {
    /// Seed of the delays and the order.
    pub seed: u64,
    /// Each answer is delayed by up to this much.
    pub delay_max: Duration,
    /// Up to this many answers are held back and let go in random order.
    pub reorder: usize,
    /// These submissions, counted from 0, end with an I/O error.
    pub io_errors: Vec<u64>,
    /// These end as if their file had been cut before their first byte.
    pub truncations: Vec<u64>,
}

/// Wraps an engine; see [`FaultyPlan`].
#[derive(Debug)]
pub struct FaultyEngine {
    inner: Arc<dyn ReadEngine>,
    routes: Arc<Mutex<Routes>>,
    /// Where the inner engine answers; gone after shutdown.
    answers: Mutex<Option<Sender<ReadDone>>>,
    relay: Mutex<Option<JoinHandle<()>>>,
}

/// Requests inside: at most one for each lease.
#[derive(Debug, Default)]
struct Routes {
    next: u64,
    inside: HashMap<u64, Route>,
}

#[derive(Debug)]
struct Route {
    tag: u64,
    reply: Sender<ReadDone>,
    first: Option<Segment>,
}

impl FaultyEngine {
    /// Wraps `inner`. `table` gives the paths for injected errors.
    ///
    /// # Panics
    ///
    /// When the relay's thread cannot be started.
    #[must_use]
    pub fn new(inner: Arc<dyn ReadEngine>, table: Arc<FileTable>, plan: FaultyPlan) -> Self {
        let (answers, incoming) = bounded(RELAY_CAPACITY);
        let routes = Arc::new(Mutex::new(Routes::default()));
        let relay = Relay {
            incoming,
            routes: Arc::clone(&routes),
            table,
            random: plan.seed.wrapping_mul(2).wrapping_add(1),
            plan,
            held: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("k3-faulty".into())
            .spawn(move || relay.run())
            .expect("a thread for the relay");
        Self {
            inner,
            routes,
            answers: Mutex::new(Some(answers)),
            relay: Mutex::new(Some(thread)),
        }
    }

    /// The inner tags of a tag.
    fn inner_tags(&self, tag: u64) -> Vec<u64> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = routes.inside.iter();
        inside
            .filter(|(_, route)| route.tag == tag)
            .map(|(&inner, _)| inner)
            .collect()
    }
}

impl ReadEngine for FaultyEngine {
    fn submit(&self, mut request: ReadRequest) {
        let answers = {
            let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.clone()
        };
        if let Some(answers) = answers {
            let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
            let inner_tag = routes.next;
            routes.next += 1;
            let route = Route {
                tag: std::mem::replace(&mut request.tag, inner_tag),
                reply: std::mem::replace(&mut request.reply, answers),
                first: request.segments.first().copied(),
            };
            routes.inside.insert(inner_tag, route);
        }
        // After shutdown the inner engine refuses it itself.
        self.inner.submit(request);
    }

    fn promote(&self, tag: u64, class: ReadClass) {
        for inner in self.inner_tags(tag) {
            self.inner.promote(inner, class);
        }
    }

    fn cancel(&self, tag: u64) {
        for inner in self.inner_tags(tag) {
            self.inner.cancel(inner);
        }
    }

    fn memory_ready(&self, arena: &HugeArena, range: Range<usize>) {
        self.inner.memory_ready(arena, range);
    }

    fn caps(&self) -> EngineCaps {
        self.inner.caps()
    }

    fn counters(&self) -> EngineCounters {
        self.inner.counters()
    }

    fn shutdown(&self) {
        self.inner.shutdown();
        // All answers are in the relay's channel now; the relay ends with it.
        drop(
            self.answers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let thread = self
            .relay
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for FaultyEngine {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// The thread between the inner engine and the requesters.
struct Relay {
    incoming: Receiver<ReadDone>,
    routes: Arc<Mutex<Routes>>,
    table: Arc<FileTable>,
    plan: FaultyPlan,
    random: u64,
    /// At most `plan.reorder` answers.
    held: Vec<ReadDone>,
}

impl Relay {
    fn run(mut self) {
        loop {
            match self.incoming.recv_timeout(HOLD_LIMIT) {
                Ok(done) => {
                    self.held.push(done);
                    if self.held.len() > self.plan.reorder {
                        self.release_one();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.release_all(),
                Err(RecvTimeoutError::Disconnected) => return self.release_all(),
            }
        }
    }

    /// xorshift64*: the low quality suffices, the repeatability matters.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound.max(1)
    }

    fn release_all(&mut self) {
        while !self.held.is_empty() {
            self.release_one();
        }
    }

    fn release_one(&mut self) {
        let index = self.below(crate::units::file(self.held.len()));
        let mut done = self.held.swap_remove(crate::units::memory(index));
        let micros = u64::try_from(self.plan.delay_max.as_micros()).unwrap_or(u64::MAX);
        if micros > 0 {
            let delay = self.below(micros);
            std::thread::sleep(Duration::from_micros(delay));
        }
        let number = done.tag;
        let route = {
            let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
            routes.inside.remove(&number)
        };
        let route = route.expect("every answer belongs to a request");
        if let Some(error) = self.injected(number, &route) {
            // What the memory holds after an error must not matter.
            super::fault::scribble(&mut done.target);
            done.result = Err(error);
        }
        done.tag = route.tag;
        let _ = route.reply.send(done);
    }

    fn injected(&self, number: u64, route: &Route) -> Option<EngineError> {
        let segment = route.first?;
        let opened = self.table.get(segment.file);
        let path = opened.path().to_path_buf();
        let (offset, bytes) = (segment.offset, segment.bytes);
        if self.plan.io_errors.contains(&number) {
            return Some(EngineError::Read {
                path,
                offset,
                bytes,
                errno: libc::EIO,
                tries: 4,
            });
        }
        self.plan
            .truncations
            .contains(&number)
            .then(|| EngineError::Truncated {
                path,
                offset,
                bytes,
                stopped_at: offset,
                found_bytes: offset,
                opened_bytes: opened.len_bytes(),
            })
    }
}
