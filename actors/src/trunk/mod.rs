//! The trunk streamer: blocks in sweep order, ahead of compute.
//!
//! One thread owns which block is read next, which are pinned and which wait to
//! be handed over. It never multiplies and never waits for compute: leases go
//! into a bounded channel in sweep order, so that compute usually finds its
//! next block there without asking. Reading ahead goes on across the end of a
//! sweep into the next; only the output head waits to be asked for. A pinned
//! block is handed over once: compute keeps its lease and takes it without
//! asking in every later sweep.
//!
//! | module | holds |
//! |---|---|
//! | `order` | the endless sequence of sweeps, block by block |
//! | `actor` | the thread |
//! | `handle` | what compute holds |

mod actor;
mod handle;
mod order;
#[cfg(test)]
mod tests;

use k3_config::PinMap;
use k3_io::{EngineError, ReadLease, RingArena, Segment, SlotArena};

pub use handle::{TrunkCounts, TrunkHandle};

/// One block of the sweep, as the disk sees it.
#[derive(Debug, Clone, Copy)]
pub struct TrunkBlock {
    /// Where it lies.
    pub place: Segment,
    /// Whether it belongs to the output head.
    pub is_head: bool,
}

/// Memory and blocks of a streamer.
#[derive(Debug)]
pub struct TrunkSettings {
    /// All blocks in sweep order; those of the head last.
    pub blocks: Vec<TrunkBlock>,
    /// Which of them stay in memory once read.
    pub pinned: PinMap,
    /// Places that streamed blocks pass through; `None` when all are pinned.
    pub ring: Option<SlotArena>,
    /// Memory of the pinned blocks; `None` when none is pinned.
    pub pins: Option<RingArena>,
    /// Alignment of direct reads, for the windows of pinned blocks.
    pub alignment_bytes: u64,
}

/// Leases waiting for compute at most. Enough that a burst of small blocks
/// does not wake the streamer for each, few enough to say so here.
const DELIVERIES_MAX: usize = 64;

/// One block on its way to compute.
#[derive(Debug)]
struct Delivery {
    sweep: u64,
    block: usize,
    lease: Result<ReadLease, EngineError>,
    /// Whether it was read for this sweep; false for a block that was in
    /// memory already.
    was_read: bool,
    /// Whether it was still to be read, for this sweep or an earlier one, once
    /// the sweep had begun.
    was_awaited: bool,
}

/// What compute tells the streamer.
#[derive(Debug)]
enum Message {
    /// Sweep `sweep` starts; the one before is complete.
    Begin { sweep: u64, with_head: bool },
    /// Compute has nothing to do until its next block comes.
    Waiting,
    /// The sweep ends here: forget what was read for it.
    Abort { sweep: u64 },
    /// Drop queued reads, wait for those in flight, end.
    Stop,
}
