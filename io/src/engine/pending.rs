//! A request inside an engine.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Sender, TrySendError};

use super::error::EngineError;
use super::landing::Landing;
use super::layout::{Layout, PiecePlan};
use super::request::{ReadClass, ReadDone, ReadRequest};
use crate::direct::FileTable;
use crate::units::file;

/// A request whose pieces are queued or in flight.
///
/// Every queued job and every piece in flight holds it. When the last of them
/// lets go, whichever way, it answers: so each request is answered exactly
/// once, even by a thread that panics, and never while the system may still
/// write into the memory.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) layout: Layout,
    pub(crate) class: ReadClass,
    pub(crate) tag: u64,
    /// Present until the answer.
    landing: Option<Landing>,
    reply: Sender<ReadDone>,
    /// Payload that has not landed yet.
    missing_bytes: AtomicU64,
    failed: AtomicBool,
    error: Mutex<Option<EngineError>>,
}

impl Pending {
    /// Takes a request in. One that cannot be read is answered at once: `None`.
    pub(crate) fn new(table: &FileTable, request: ReadRequest) -> Option<Arc<Self>> {
        let ReadRequest {
            segments,
            target,
            class,
            tag,
            reply,
        } = request;
        let landing = Landing::new(target);
        let layout = Layout::new(table, &segments, landing.address(), landing.len());
        let (layout, error) = match layout {
            Ok(layout) => (layout, None),
            Err(error) => (Layout::empty(), Some(error)),
        };
        let pending = Self {
            class,
            tag,
            landing: Some(landing),
            reply,
            missing_bytes: AtomicU64::new(file(layout.payload().len())),
            failed: AtomicBool::new(error.is_some()),
            error: Mutex::new(error),
            layout,
        };
        // Dropping it here answers: an error, or no bytes wanted.
        (!pending.has_failed() && !pending.layout.payload().is_empty()).then(|| Arc::new(pending))
    }

    /// Where it lands.
    pub(crate) fn landing(&self) -> &Landing {
        self.landing.as_ref().expect("present until the answer")
    }

    /// Payload of a piece has arrived in the target.
    pub(crate) fn landed(&self, bytes: usize) {
        // Release: the answer, sent after the last of these, shows the bytes.
        let before = self.missing_bytes.fetch_sub(file(bytes), Ordering::Release);
        debug_assert!(before >= file(bytes));
    }

    /// Ends it with an error; the first one counts.
    pub(crate) fn fail(&self, error: EngineError) {
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }

    /// Whether the rest of it need not be read.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn outcome(&mut self) -> Result<(), EngineError> {
        let error = self.error.get_mut().unwrap_or_else(PoisonError::into_inner);
        match error.take() {
            Some(error) => Err(error),
            None if self.missing_bytes.load(Ordering::Acquire) == 0 => Ok(()),
            None => Err(EngineError::Stopped),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let result = self.outcome();
        let Some(landing) = self.landing.take() else {
            return;
        };
        let payload: Range<usize> = self.layout.payload();
        let done = ReadDone {
            tag: self.tag,
            target: landing.into_lease(),
            payload,
            result,
        };
        match self.reply.try_send(done) {
            // Gone receiver: the lease inside returns its memory.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            // Only when the channel is smaller than it has to be: wait rather
            // than lose the answer.
            Err(TrySendError::Full(done)) => drop(self.reply.send(done)),
        }
    }
}

/// The part of a request that one device still has to start.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Arc<Pending>,
    /// Segments on this device that are not finished, one bit each.
    segments: u8,
    /// Next piece of the lowest of them.
    next: u64,
    piece_bytes: usize,
}

impl Job {
    /// The part of a request on one device; `None` when there is none.
    pub(crate) fn new(request: &Arc<Pending>, device: usize, piece_bytes: usize) -> Option<Self> {
        let mut segments = 0;
        for (index, segment) in request.layout.segments().iter().enumerate() {
            if segment.device == device && segment.bytes > 0 {
                segments |= 1 << index;
            }
        }
        (segments != 0).then(|| Self {
            request: Arc::clone(request),
            segments,
            next: 0,
            piece_bytes,
        })
    }

    fn segment(&self) -> usize {
        self.segments.trailing_zeros() as usize
    }

    /// The piece that comes next.
    pub(crate) fn peek(&self) -> PiecePlan {
        self.request
            .layout
            .piece(self.segment(), self.next, self.piece_bytes)
    }

    /// Goes past that piece; whether another follows.
    pub(crate) fn advance(&mut self) -> bool {
        let segment = self.segment();
        self.next += 1;
        if self.next == self.request.layout.piece_count(segment, self.piece_bytes) {
            self.next = 0;
            self.segments &= !(1 << segment);
        }
        self.segments != 0
    }
}

/// A piece that is being read.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) request: Arc<Pending>,
    pub(crate) plan: PiecePlan,
}
