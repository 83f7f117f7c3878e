//! Requests in, filled leases out.
//!
//! A request of any size is cut into pieces of at most 1 MiB. Each device has
//! one queue with three classes and keeps a bounded number of bytes in flight;
//! the next piece is always the oldest of the most urgent class, so an awaited
//! block overtakes read-ahead that was submitted long before.
//!
//! Bounds: queued jobs and answers under way, one for each lease; bytes in
//! flight on a device, [`EngineConfig::in_flight_bytes`]; bounce memory, at most
//! the same; tries of a piece, `transfer`'s constants; wake-ups, one event
//! counter for each ring.

mod config;
mod core;
mod counters;
mod error;
mod landing;
mod layout;
mod open;
mod pending;
mod pread;
mod queue;
mod request;
mod transfer;
mod uring;

#[cfg(any(test, feature = "testing"))]
mod fault;
#[cfg(feature = "testing")]
mod faulty;

#[cfg(feature = "testing")]
pub mod conformance;

use std::fmt;
use std::ops::Range;

pub use config::{DeviceCaps, EngineCaps, EngineConfig, EngineKind, FixedBuffers};
pub use counters::{DeviceCounters, EngineCounters};
pub use error::EngineError;
#[cfg(any(test, feature = "testing"))]
pub use fault::{Fault, FaultHook, ReadCall};
#[cfg(feature = "testing")]
pub use faulty::{FaultyEngine, FaultyPlan};
pub use open::{EnginePreference, open_engine};
pub use pread::PreadEngine;
pub use request::{ReadClass, ReadDone, ReadRequest, SEGMENTS_MAX, Segment};
pub use uring::UringEngine;

use crate::arena::HugeArena;

/// Reads ranges of files into leased memory.
///
/// Shared by all who read; every method may be called from any thread and none
/// waits for a read.
pub trait ReadEngine: Send + Sync + fmt::Debug {
    /// Hands a request over. Whatever becomes of it comes back through its
    /// reply channel, errors included, exactly once.
    fn submit(&self, request: ReadRequest);

    /// Makes the queued rest of a request more urgent: read-ahead that has
    /// become awaited. It joins its new class behind what is queued there.
    /// Unknown tags are ignored: the request may just have finished.
    fn promote(&self, tag: u64, class: ReadClass);

    /// Withdraws a request. Its queued rest is dropped, pieces in flight are
    /// waited for, then it is answered with [`EngineError::Cancelled`]; a
    /// request that was wholly in flight completes as usual.
    fn cancel(&self, tag: u64);

    /// Tells that the pages of `range` of an arena named in the configuration
    /// are present, so that registering them costs no page faults. Ranges may
    /// grow from call to call; an engine that registers nothing ignores it.
    fn memory_ready(&self, _arena: &HugeArena, _range: Range<usize>) {}

    /// What the engine is.
    fn caps(&self) -> EngineCaps;

    /// What it has done.
    fn counters(&self) -> EngineCounters;

    /// Drops queued reads (answered with [`EngineError::Stopped`]), waits for
    /// those in flight, and ends the threads. Later requests are answered with
    /// the same error. Dropping the engine does this too.
    fn shutdown(&self);
}
