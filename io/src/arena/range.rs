//! The part of an arena that one owner leases out.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::HugeArena;
use crate::engine::EngineError;

/// Exclusive ownership of a range of an arena; returned to it on drop.
pub(crate) struct ArenaRange {
    arena: Arc<HugeArena>,
    range: Range<usize>,
}

impl ArenaRange {
    /// Takes `range` out of the arena.
    pub(crate) fn claim(arena: &Arc<HugeArena>, range: Range<usize>) -> Result<Self, EngineError> {
        arena.claim(range.clone())?;
        Ok(Self {
            arena: Arc::clone(arena),
            range,
        })
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.range.len()
    }

    /// Pointer to byte `offset` of the range, valid for `bytes` bytes.
    pub(crate) fn pointer(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let end = offset.checked_add(bytes).expect("an offset in the range");
        assert!(end <= self.range.len(), "outside the claimed range");
        // SAFETY: the range lies inside the arena's mapping (checked when it
        // was claimed) and the offset inside the range (checked above).
        unsafe { self.arena.base().add(self.range.start + offset) }
    }
}

impl Drop for ArenaRange {
    fn drop(&mut self) {
        self.arena.release(&self.range);
    }
}

impl fmt::Debug for ArenaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.range, self.arena)
    }
}
