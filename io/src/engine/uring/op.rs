//! Operations in flight.

use std::ptr::NonNull;

use crate::arena::{HugeArena, PagePolicy};
use crate::engine::error::EngineError;
#[cfg(any(test, feature = "testing"))]
use crate::engine::fault::Fault;
use crate::engine::pending::Piece;
use crate::engine::transfer::{Step, Transfer};
use crate::lease::{SlotArena, WriteLease};

/// A piece that the kernel is reading. It owns its request and its bounce
/// buffer, so whoever else lets go, the memory stays.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) piece: Piece,
    pub(super) transfer: Transfer,
    /// The call that is in the ring.
    pub(super) step: Step,
    pub(super) bounce: Option<WriteLease>,
    /// Whether that call names a registered buffer.
    pub(super) fixed: bool,
    /// Whether a call of this piece may.
    pub(super) fixed_allowed: bool,
    #[cfg(any(test, feature = "testing"))]
    pub(super) fault: Fault,
}

impl Op {
    /// The memory its window goes to, valid for the window's length.
    pub(super) fn buffer(&self) -> NonNull<u8> {
        match &self.bounce {
            Some(bounce) => bounce.pointer(),
            None => self.piece.request.landing().window(&self.piece.plan),
        }
    }
}

/// Fixed places for operations: an operation's index travels through the
/// kernel as its user data.
#[derive(Debug)]
pub(super) struct Slab {
    places: Vec<Option<Op>>,
    free: Vec<usize>,
}

impl Slab {
    pub(super) fn new(count: usize) -> Self {
        Self {
            places: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// # Panics
    ///
    /// When there is no room.
    pub(super) fn insert(&mut self, op: Op) -> usize {
        let index = self.free.pop().expect("room was checked");
        debug_assert!(self.places[index].is_none());
        self.places[index] = Some(op);
        index
    }

    /// # Panics
    ///
    /// When nothing is there: the kernel completed what was not started.
    pub(super) fn get_mut(&mut self, index: usize) -> &mut Op {
        self.places[index].as_mut().expect("an operation in flight")
    }

    /// # Panics
    ///
    /// As [`Slab::get_mut`].
    pub(super) fn remove(&mut self, index: usize) -> Op {
        let op = self.places[index].take().expect("an operation in flight");
        self.free.push(index);
        op
    }
}

/// Memory for pieces that cannot land directly; untouched until they come.
pub(super) fn bounce_buffers(count: usize, piece_bytes: usize) -> Result<SlotArena, EngineError> {
    let bytes = count * piece_bytes;
    let (arena, _) = HugeArena::reserve(bytes, PagePolicy::Small)?;
    SlotArena::new(&arena, 0..bytes, piece_bytes)
}
