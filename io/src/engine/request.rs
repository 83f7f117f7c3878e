//! What goes into a read engine and what comes out.

use std::ops::Range;

use arrayvec::ArrayVec;
use crossbeam_channel::Sender;

use super::error::EngineError;
use crate::direct::FileId;
use crate::lease::WriteLease;

/// Most ranges of one request: the six tensors of an expert.
pub const SEGMENTS_MAX: usize = 6;

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// How urgent a read is. A device always reads the most urgent piece it has,
/// in order of submission within a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReadClass {
    /// Compute waits for this block.
    AwaitedBlock,
    /// An expert of the layer at hand.
    Expert,
    /// Needed later.
    ReadAhead,
}

impl ReadClass {
    /// All classes, most urgent first.
    pub const ALL: [Self; 3] = [Self::AwaitedBlock, Self::Expert, Self::ReadAhead];

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::AwaitedBlock => 0,
            Self::Expert => 1,
            Self::ReadAhead => 2,
        }
    }
}

/// One read of up to six ranges into one lease.
#[derive(Debug)]
pub struct ReadRequest {
    /// The ranges, landing back to back in this order.
    pub segments: ArrayVec<Segment, SEGMENTS_MAX>,
    /// Where they land. The engine owns it until the read is over, so the
    /// memory outlives a requester that goes away. With
    /// [`crate::AlignedWindow::capacity_for`] the total at the table's
    /// alignment, a single range is read without a copy wherever it lies.
    pub target: WriteLease,
    /// How urgent it is.
    pub class: ReadClass,
    /// Comes back in the answer and names the request in
    /// [`super::ReadEngine::promote`] and `cancel`. Whoever uses those keeps the
    /// tags of all its requests in flight distinct from everybody's.
    pub tag: u64,
    /// Gets the answer. Its capacity must be at least the number of requests
    /// that can name it at once (the requester's leases): then no engine thread
    /// ever waits for a requester. A receiver that is gone is no error; the
    /// lease then returns its memory.
    pub reply: Sender<ReadDone>,
}

impl ReadRequest {
    /// A request for one range.
    #[must_use]
    pub fn single(
        segment: Segment,
        target: WriteLease,
        class: ReadClass,
        tag: u64,
        reply: Sender<ReadDone>,
    ) -> Self {
        Self {
            segments: ArrayVec::from_iter([segment]),
            target,
            class,
            tag,
            reply,
        }
    }
}

/// The answer to a request: each gets exactly one.
#[derive(Debug)]
pub struct ReadDone {
    /// The request's tag.
    pub tag: u64,
    /// The request's memory.
    pub target: WriteLease,
    /// Where in it the bytes lie: `target.freeze(payload)` shows them.
    pub payload: Range<usize>,
    /// Whether all of them arrived. On an error the memory holds anything.
    pub result: Result<(), EngineError>,
}
