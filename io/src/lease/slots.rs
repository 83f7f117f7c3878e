//! Equal slots: the memory of an expert cache.

use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::handles::WriteLease;
use super::ring::RING_ALIGNMENT;
use super::table::{LeaseTable, Span};
use crate::arena::{ArenaRange, HugeArena};
use crate::engine::EngineError;
use crate::units::{file, memory};

/// Equal slots over a range of an arena. The handle is cheap to clone; the
/// leases keep the memory alive without it.
#[derive(Debug, Clone)]
pub struct SlotArena {
    table: Arc<LeaseTable>,
    slot_bytes: usize,
}

impl SlotArena {
    /// As many slots of `slot_bytes` as fit in `range`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Claim`] when the range is not inside the arena or overlaps
    /// one that is in use, or no slot fits.
    ///
    /// # Panics
    ///
    /// When `slot_bytes` or the range's start is not a multiple of 4096: direct
    /// reads need both.
    pub fn new(
        arena: &Arc<HugeArena>,
        range: Range<usize>,
        slot_bytes: usize,
    ) -> Result<Self, EngineError> {
        Self::with_signal(arena, range, slot_bytes, None)
    }

    /// The same; `released` (capacity 1) is told whenever a slot becomes free.
    ///
    /// # Errors
    ///
    /// As [`SlotArena::new`].
    ///
    /// # Panics
    ///
    /// As [`SlotArena::new`].
    pub fn with_signal(
        arena: &Arc<HugeArena>,
        range: Range<usize>,
        slot_bytes: usize,
        released: Option<Sender<()>>,
    ) -> Result<Self, EngineError> {
        assert!(slot_bytes > 0 && slot_bytes.is_multiple_of(RING_ALIGNMENT));
        assert!(range.start.is_multiple_of(RING_ALIGNMENT));
        let slot_count = range.len() / slot_bytes;
        let claimed = range.start..range.start + slot_count * slot_bytes;
        let memory = ArenaRange::claim(arena, claimed)?;
        Ok(Self {
            table: Arc::new(LeaseTable::new(memory, slot_count, None, released)),
            slot_bytes,
        })
    }

    /// Number of slots.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.table.cell_count()
    }

    /// Size of one slot.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Takes slot `index` for writing; `None` while any lease of it lives.
    ///
    /// # Panics
    ///
    /// When there is no such slot.
    #[must_use]
    pub fn acquire(&self, index: usize) -> Option<WriteLease> {
        let generation = self.table.cell(index).acquire()?;
        let span = Span {
            start: index * self.slot_bytes,
            bytes: self.slot_bytes,
            cell: index,
            generation,
            sequence: file(index),
        };
        Some(WriteLease::new(Arc::clone(&self.table), span))
    }

    /// Takes the first free slot; `None` when all are leased.
    #[must_use]
    pub fn acquire_any(&self) -> Option<WriteLease> {
        (0..self.slot_count()).find_map(|index| self.acquire(index))
    }

    /// Slots nobody holds at this moment.
    #[must_use]
    pub fn free_count(&self) -> usize {
        (0..self.slot_count())
            .filter(|&index| self.table.cell(index).is_free())
            .count()
    }

    /// The slot a lease of this arena lies in.
    #[must_use]
    pub fn slot_of(lease: &WriteLease) -> usize {
        memory(lease.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::PagePolicy;

    fn slots(count: usize) -> SlotArena {
        let (arena, _) = HugeArena::reserve(count * 8192, PagePolicy::Small).unwrap();
        SlotArena::new(&arena, 0..count * 8192, 8192).unwrap()
    }

    #[test]
    fn a_slot_has_one_writer_or_many_readers() {
        let slots = slots(2);
        let mut writer = slots.acquire(0).unwrap();
        assert!(slots.acquire(0).is_none());
        writer.fill(7);
        writer[8191] = 9;
        let reader = writer.freeze(8000..8192);
        assert_eq!(reader.len(), 192);
        assert_eq!((reader[0], reader[191]), (7, 9));
        let tail = reader.part(191..192);
        let clone = reader.clone();
        drop(reader);
        assert!(slots.acquire(0).is_none());
        drop(clone);
        assert_eq!(&tail[..], [9]);
        assert!(slots.acquire(0).is_none());
        drop(tail);
        assert!(slots.acquire(0).is_some());
    }

    #[test]
    fn leases_keep_the_arena_alive() {
        let slots = slots(1);
        let mut writer = slots.acquire_any().unwrap();
        drop(slots);
        writer.fill(3);
        let reader = writer.freeze(0..8192);
        let copy = reader.clone();
        drop(reader);
        let thread = std::thread::spawn(move || copy.iter().all(|&byte| byte == 3));
        assert!(thread.join().unwrap());
    }

    #[test]
    fn the_signal_says_when_a_slot_is_free() {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let (arena, _) = HugeArena::reserve(3 * 4096, PagePolicy::Small).unwrap();
        let slots = SlotArena::with_signal(&arena, 0..3 * 4096, 4096, Some(sender)).unwrap();
        let leases: Vec<_> = (0..3).map(|_| slots.acquire_any().unwrap()).collect();
        assert!(slots.acquire_any().is_none());
        assert!(receiver.try_recv().is_err());
        drop(leases);
        assert!(receiver.try_recv().is_ok(), "three releases, one message");
        assert!(receiver.try_recv().is_err());
        assert_eq!(slots.free_count(), 3);
    }

    #[test]
    fn two_owners_cannot_share_a_range() {
        let (arena, _) = HugeArena::reserve(1 << 20, PagePolicy::Small).unwrap();
        let first = SlotArena::new(&arena, 0..65_536, 4096).unwrap();
        assert!(SlotArena::new(&arena, 61_440..131_072, 4096).is_err());
        assert!(SlotArena::new(&arena, 65_536..131_072, 4096).is_ok());
        let lease = first.acquire_any().unwrap();
        drop(first);
        assert!(SlotArena::new(&arena, 0..65_536, 4096).is_err());
        drop(lease);
        assert!(SlotArena::new(&arena, 0..65_536, 4096).is_ok());
    }
}
