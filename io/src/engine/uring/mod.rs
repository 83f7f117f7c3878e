//! io_uring: one ring and one thread on each device.

mod fixed;
mod op;
mod ring;
mod selftest;
mod setup;
mod shared;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use super::ReadEngine;
use super::config::{DeviceCaps, EngineCaps, EngineConfig, EngineKind};
use super::core::EngineCore;
use super::counters::EngineCounters;
use super::error::EngineError;
use super::request::{ReadClass, ReadRequest};
use crate::arena::HugeArena;
use crate::direct::FileTable;
use crate::units::file;

use ring::RingThread;
use shared::RingShared;

/// How long a new ring may take to pass its self-test.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A read engine on io_uring.
///
/// Each device has a thread that owns a ring. It sleeps in the kernel, for
/// completions and for new requests alike (a read of an event counter is always
/// among its operations), and never spins. An operation owns its request, and
/// so its memory, until the kernel has completed it.
#[derive(Debug)]
pub struct UringEngine {
    core: EngineCore,
    rings: Vec<Ring>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Ring {
    shared: Arc<RingShared>,
    caps: DeviceCaps,
}

impl UringEngine {
    /// Sets up and tests a ring on each device of the table.
    ///
    /// # Errors
    ///
    /// [`EngineError::Unavailable`] with the reason when this system has no
    /// io_uring, forbids it, or its rings fail their test.
    pub fn open(table: Arc<FileTable>, config: &EngineConfig) -> Result<Self, EngineError> {
        let core = EngineCore::new(table, config);
        let mut engine = Self {
            core,
            rings: Vec::new(),
            threads: Mutex::default(),
        };
        for device in 0..engine.core.queues().len() {
            // On an error drop stops the rings that already run.
            engine.start(device, config)?;
        }
        Ok(engine)
    }

    fn start(&mut self, device: usize, config: &EngineConfig) -> Result<(), EngineError> {
        let queue = Arc::clone(&self.core.queues()[device]);
        let shared = Arc::new(RingShared::new(queue).map_err(unavailable)?);
        let limits = ring::Limits::new(config, self.core.piece_bytes());
        let (started, outcome) = bounded(1);
        let thread = {
            let shared = Arc::clone(&shared);
            let table = Arc::clone(self.core.table());
            let config = config.clone();
            std::thread::Builder::new()
                .name(format!("k3-ring-{device}"))
                .spawn(move || serve(shared, table, device, &config, limits, &started))
                .map_err(|error| unavailable(format!("cannot start a thread: {error}")))?
        };
        let flags = outcome
            .recv_timeout(START_LIMIT)
            .unwrap_or_else(|_| Err("the ring did not answer its self-test".into()));
        let flags = flags.map_err(unavailable)?;
        self.threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .push(thread);
        self.rings.push(Ring {
            shared,
            caps: DeviceCaps {
                in_flight_bytes: limits.in_flight_bytes,
                bounce_bytes: limits.bounce_bytes(),
                ring_flags: flags.to_owned(),
                ..self.core.device_caps(device)
            },
        });
        Ok(())
    }
}

fn unavailable(reason: impl Into<String>) -> EngineError {
    EngineError::Unavailable {
        engine: "io_uring",
        reason: reason.into(),
    }
}

/// Body of a ring's thread. The ring is made here because only the thread that
/// makes it may use it.
fn serve(
    shared: Arc<RingShared>,
    table: Arc<FileTable>,
    device: usize,
    config: &EngineConfig,
    limits: ring::Limits,
    started: &Sender<Result<&'static str, String>>,
) {
    match RingThread::new(shared, table, device, config, limits) {
        Ok(mut ring) => {
            if started.send(Ok(ring.flags())).is_ok() {
                ring.run();
            }
        }
        // Nobody listens when the start took too long: nothing to tell then.
        Err(reason) => drop(started.send(Err(reason))),
    }
}

impl ReadEngine for UringEngine {
    fn submit(&self, request: ReadRequest) {
        self.core
            .submit(request, |device| self.rings[device].shared.wake());
    }

    fn promote(&self, tag: u64, class: ReadClass) {
        self.core.promote(tag, class);
    }

    fn cancel(&self, tag: u64) {
        self.core.cancel(tag);
    }

    fn memory_ready(&self, arena: &HugeArena, range: Range<usize>) {
        assert!(range.end <= arena.len_bytes());
        let base = file(arena.base().as_ptr().addr());
        for ring in &self.rings {
            ring.shared
                .memory_ready(base + file(range.start)..base + file(range.end));
        }
    }

    fn caps(&self) -> EngineCaps {
        let mut fallbacks = self.core.table().fallbacks();
        let devices = self.rings.iter().map(|ring| {
            fallbacks.extend(ring.shared.fallbacks());
            DeviceCaps {
                fixed_bytes: ring.shared.fixed_bytes(),
                ..ring.caps.clone()
            }
        });
        let devices = devices.collect();
        EngineCaps {
            kind: EngineKind::Uring,
            devices,
            fallbacks,
        }
    }

    fn counters(&self) -> EngineCounters {
        self.core.counters()
    }

    fn shutdown(&self) {
        self.core.close();
        self.rings.iter().for_each(|ring| ring.shared.wake());
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A ring thread that panicked has answered its requests by
            // unwinding, after waiting for the kernel.
            let _ = thread.join();
        }
    }
}

impl Drop for UringEngine {
    fn drop(&mut self) {
        self.shutdown();
    }
}
