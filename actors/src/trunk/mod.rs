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

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k3_config::PinMap;
use k3_formats::FormatError;
use k3_io::{EngineError, ReadLease, RingArena, Segment, SlotArena};
use k3_runtime::TrunkChecks;

use crate::error::ActorError;

pub use handle::{TrunkCounts, TrunkHandle};

/// One block of the sweep, as the disk sees it.
#[derive(Debug, Clone, Copy)]
pub struct TrunkBlock {
    /// Where it lies, with what pads it.
    pub place: Segment,
    /// Bytes of it without the padding.
    pub bytes: u64,
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
    /// What every block that is read is compared with, if anything.
    pub checks: Option<Checks>,
}

/// The checksums of the blocks, and what comparing has cost so far.
#[derive(Debug)]
pub struct Checks {
    /// The checksums, by block.
    pub checksums: TrunkChecks,
    /// Shared with whoever looks.
    pub counts: Arc<CheckCounts>,
}

/// What comparing blocks with their checksums has cost so far.
#[derive(Debug, Default)]
pub struct CheckCounts {
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl CheckCounts {
    fn add(&self, bytes: usize, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Bytes compared, padding included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Time the streamer's thread took for them.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64()
    }
}

/// Leases waiting for compute at most. Enough that a burst of small blocks
/// does not wake the streamer for each, few enough to say so here.
const DELIVERIES_MAX: usize = 64;

/// One block on its way to compute.
#[derive(Debug)]
struct Delivery {
    sweep: u64,
    block: usize,
    lease: Result<ReadLease, BlockError>,
    /// Whether it was read for this sweep; false for a block that was in
    /// memory already.
    was_read: bool,
    /// Whether it was still to be read, for this sweep or an earlier one, once
    /// the sweep had begun.
    was_awaited: bool,
}

/// Why a block cannot be handed over. Clonable: several sweeps may wait for one
/// pinned block.
#[derive(Debug, Clone)]
enum BlockError {
    /// It could not be read.
    Read(EngineError),
    /// It is not what was packed.
    Damaged(Arc<FormatError>),
}

impl From<BlockError> for ActorError {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Read(error) => error.into(),
            BlockError::Damaged(error) => Self::Damaged(error),
        }
    }
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
