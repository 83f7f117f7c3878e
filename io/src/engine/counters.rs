//! What an engine has done so far.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::request::ReadClass;

/// Counts of one device since the engine started.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeviceCounters {
    /// Number of the device (`st_dev`).
    pub device: u64,
    /// Wanted bytes that landed, by the class they were submitted with (the
    /// order of [`ReadClass::ALL`]).
    pub payload_bytes: [u64; 3],
    /// Bytes the system transferred: payload plus alignment plus what retries
    /// and continued reads read again.
    pub device_bytes: u64,
    /// Requests with a part on this device.
    pub requests: u64,
    /// Pieces they were split into, as far as they were started.
    pub pieces: u64,
    /// System calls or ring entries beyond the first of a piece, because it
    /// failed in a way that can pass.
    pub retries: u64,
    /// Reads that brought less than asked without reaching the wanted end.
    pub short_reads: u64,
    /// Pieces continued through the page cache, because a direct read was
    /// refused or stopped at an odd place.
    pub buffered_pieces: u64,
    /// Payload that was copied through a bounce buffer.
    pub bounced_bytes: u64,
    /// Time with at least one request queued or in flight.
    pub busy_seconds: f64,
}

/// Counts of an engine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EngineCounters {
    /// One for each device, in the order of the file table.
    pub devices: Vec<DeviceCounters>,
    /// Time with at least one request queued or in flight on any device: the
    /// I/O side of the report's overlap.
    pub busy_seconds: f64,
}

impl EngineCounters {
    /// Wanted bytes that landed, of all classes and devices.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let devices = self.devices.iter();
        devices.flat_map(|device| device.payload_bytes).sum()
    }

    /// Wanted bytes that landed, of one class.
    #[must_use]
    pub fn payload_bytes_of(&self, class: ReadClass) -> u64 {
        let devices = self.devices.iter();
        devices
            .map(|device| device.payload_bytes[class.index()])
            .sum()
    }

    /// Bytes the system transferred on all devices.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.device_bytes).sum()
    }
}

/// The live counts behind [`DeviceCounters`].
#[derive(Debug, Default)]
pub(crate) struct DeviceStats {
    payload_bytes: [AtomicU64; 3],
    pub(crate) device_bytes: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) pieces: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) short_reads: AtomicU64,
    pub(crate) buffered_pieces: AtomicU64,
    pub(crate) bounced_bytes: AtomicU64,
    pub(crate) clock: BusyClock,
}

impl DeviceStats {
    pub(crate) fn add_payload(&self, class: ReadClass, bytes: u64) {
        self.payload_bytes[class.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self, device: u64) -> DeviceCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceCounters {
            device,
            payload_bytes: std::array::from_fn(|class| load(&self.payload_bytes[class])),
            device_bytes: load(&self.device_bytes),
            requests: load(&self.requests),
            pieces: load(&self.pieces),
            retries: load(&self.retries),
            short_reads: load(&self.short_reads),
            buffered_pieces: load(&self.buffered_pieces),
            bounced_bytes: load(&self.bounced_bytes),
            busy_seconds: self.clock.seconds(),
        }
    }
}

/// Adds up the time during which at least one party is inside.
#[derive(Debug, Default)]
pub(crate) struct BusyClock(Mutex<Busy>);

#[derive(Debug, Default)]
struct Busy {
    inside: u32,
    since: Option<Instant>,
    total: Duration,
}

impl BusyClock {
    pub(crate) fn enter(&self) {
        let mut busy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        busy.inside += 1;
        if busy.inside == 1 {
            busy.since = Some(Instant::now());
        }
    }

    pub(crate) fn leave(&self) {
        let mut busy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        busy.inside = busy.inside.checked_sub(1).expect("somebody is inside");
        if busy.inside == 0
            && let Some(since) = busy.since.take()
        {
            busy.total += since.elapsed();
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        let busy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running = busy.since.map_or(Duration::ZERO, |since| since.elapsed());
        (busy.total + running).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_visits_count_once() {
        let clock = BusyClock::default();
        assert_eq!(clock.seconds(), 0.0);
        let start = Instant::now();
        clock.enter();
        clock.enter();
        std::thread::sleep(Duration::from_millis(20));
        clock.leave();
        assert!(clock.seconds() >= 0.02, "still running");
        clock.leave();
        let counted = clock.seconds();
        assert!(counted >= 0.02 && counted <= start.elapsed().as_secs_f64());
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(clock.seconds(), counted, "stopped");
    }
}
