//! What leases point back to: the memory, the states, and where freed memory
//! goes.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crossbeam_channel::Sender;

use super::ring::RingState;
use super::state::{Generation, SlotState};
use crate::arena::ArenaRange;

/// The memory of one lease: a part of the owner's range and the state that
/// guards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// First byte within the owner's range.
    pub(super) start: usize,
    pub(super) bytes: usize,
    /// Index of the guarding state.
    pub(super) cell: usize,
    pub(super) generation: Generation,
    /// Ring: which allocation. Slots: the slot's index.
    pub(super) sequence: u64,
}

/// Owner of a range of an arena. Shared by its arena handle and all leases.
pub(super) struct LeaseTable {
    memory: ArenaRange,
    cells: Box<[SlotState]>,
    /// Present for rings: where allocations lie.
    pub(super) ring: Option<Mutex<RingState>>,
    /// Told, without waiting, when memory became available. Bound 1: one
    /// pending message says all there is to say.
    released: Option<Sender<()>>,
}

impl LeaseTable {
    pub(super) fn new(
        memory: ArenaRange,
        cell_count: usize,
        ring: Option<RingState>,
        released: Option<Sender<()>>,
    ) -> Self {
        Self {
            memory,
            cells: (0..cell_count).map(|_| SlotState::new()).collect(),
            ring: ring.map(Mutex::new),
            released,
        }
    }

    pub(super) fn cell(&self, index: usize) -> &SlotState {
        &self.cells[index]
    }

    pub(super) fn cell_count(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.memory.len_bytes()
    }

    pub(super) fn pointer(&self, span: &Span) -> NonNull<u8> {
        self.memory.pointer(span.start, span.bytes)
    }

    /// Called once per lease, after its cell became free.
    pub(super) fn reclaim(&self, span: &Span) {
        let available = self.ring.as_ref().is_none_or(|ring| {
            ring.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .release(span.sequence)
        });
        if available && let Some(released) = &self.released {
            // Full means a message is pending, disconnected that nobody asks.
            let _ = released.try_send(());
        }
    }
}

impl fmt::Debug for LeaseTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseTable")
            .field("memory", &self.memory)
            .field("cells", &self.cells.len())
            .finish_non_exhaustive()
    }
}
