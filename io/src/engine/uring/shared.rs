//! What a ring thread and the rest of the engine share.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::engine::queue::DeviceQueue;

/// Most memory ranges waiting for registration: one message tells of all pages
/// so far, so more than a few mean that the ring thread is behind; the oldest
/// are merged away then.
const READY_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct RingShared {
    pub(super) queue: Arc<DeviceQueue>,
    /// Written to wake the thread; one read of it is always in the ring.
    pub(super) event: EventFd,
    /// Addresses whose pages are present and not yet looked at.
    ready: Mutex<Vec<Range<u64>>>,
    fixed_bytes: AtomicUsize,
    fallbacks: Mutex<Vec<String>>,
}

impl RingShared {
    pub(super) fn new(queue: Arc<DeviceQueue>) -> Result<Self, String> {
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)
            .map_err(|errno| format!("eventfd: {errno}"))?;
        Ok(Self {
            queue,
            event,
            ready: Mutex::default(),
            fixed_bytes: AtomicUsize::new(0),
            fallbacks: Mutex::default(),
        })
    }

    /// Makes the thread look at its queue, wherever it is.
    pub(super) fn wake(&self) {
        // Fails only at a count of 2^64 - 1, and then the thread is awake.
        let _ = self.event.write(1);
    }

    pub(super) fn memory_ready(&self, addresses: Range<u64>) {
        {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            ready.retain(|known| !(addresses.start <= known.start && known.end <= addresses.end));
            if ready.len() == READY_MAX {
                ready.remove(0);
            }
            ready.push(addresses);
        }
        self.wake();
    }

    pub(super) fn take_ready(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_fixed_bytes(&self, bytes: usize) {
        self.fixed_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn fixed_bytes(&self) -> usize {
        self.fixed_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn add_fallback(&self, line: String) {
        let mut lines = self
            .fallbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }

    pub(super) fn fallbacks(&self) -> Vec<String> {
        self.fallbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
