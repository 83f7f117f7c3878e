//! Where in a ring the next allocation goes: arithmetic alone.

use std::collections::VecDeque;

/// Positions and sizes are multiples of this: what direct reads need.
pub const RING_ALIGNMENT: usize = 4096;

/// One allocation of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAllocation {
    /// First byte, a multiple of [`RING_ALIGNMENT`].
    pub start: usize,
    /// Bytes, a multiple of [`RING_ALIGNMENT`].
    pub bytes: usize,
    /// Which allocation of the ring: counts up from 0.
    pub sequence: u64,
}

#[derive(Debug)]
struct Entry {
    bytes: usize,
    /// Bytes at the end of the ring left unused so that this entry is
    /// contiguous.
    skipped: usize,
    freed: bool,
}

/// Allocations in a circle: taken at the head, freed in any order, reclaimed
/// at the tail.
///
/// Invariant: live entries, in sequence order, cover the circle from tail to
/// head without a gap but the skipped ends.
#[derive(Debug)]
pub struct RingState {
    capacity: usize,
    head: usize,
    used: usize,
    first_sequence: u64,
    /// Oldest first; at most `entries_max`, allocated once.
    entries: VecDeque<Entry>,
    entries_max: usize,
}

impl RingState {
    /// A ring over `capacity` bytes (a multiple of [`RING_ALIGNMENT`]) with at
    /// most `entries_max` allocations that are not yet reclaimed.
    ///
    /// # Panics
    ///
    /// When the capacity is zero or not aligned, or no entry is allowed.
    #[must_use]
    pub fn new(capacity: usize, entries_max: usize) -> Self {
        assert!(capacity > 0 && capacity.is_multiple_of(RING_ALIGNMENT));
        assert!(entries_max > 0);
        Self {
            capacity,
            head: 0,
            used: 0,
            first_sequence: 0,
            entries: VecDeque::with_capacity(entries_max),
            entries_max,
        }
    }

    /// Takes `bytes`, rounded up to [`RING_ALIGNMENT`]; `None` when there is no
    /// room now. An empty ring has room for its whole capacity.
    pub fn allocate(&mut self, bytes: usize) -> Option<RingAllocation> {
        let bytes = bytes.max(1).checked_next_multiple_of(RING_ALIGNMENT)?;
        if self.entries.len() == self.entries_max {
            return None;
        }
        if self.used == 0 {
            self.head = 0;
        }
        let tail = self.tail();
        let (start, skipped) = if self.used == 0 || self.head > tail {
            let to_end = self.capacity - self.head;
            if bytes <= to_end {
                (self.head, 0)
            } else if self.used > 0 && bytes <= tail {
                (0, to_end)
            } else {
                return None;
            }
        } else if bytes <= tail - self.head {
            (self.head, 0)
        } else {
            return None;
        };
        self.head = (start + bytes) % self.capacity;
        self.used += bytes + skipped;
        debug_assert!(self.used <= self.capacity);
        self.entries.push_back(Entry {
            bytes,
            skipped,
            freed: false,
        });
        let sequence = self.first_sequence + crate::units::file(self.entries.len() - 1);
        Some(RingAllocation {
            start,
            bytes,
            sequence,
        })
    }

    /// Position of the oldest byte that is not reclaimed; the head's when none.
    fn tail(&self) -> usize {
        (self.head + self.capacity - self.used % self.capacity) % self.capacity
    }

    /// Frees an allocation and reclaims what is free at the tail; whether any
    /// bytes became available.
    ///
    /// # Panics
    ///
    /// When the allocation is not live: a bug in the leases.
    pub fn release(&mut self, sequence: u64) -> bool {
        let index = sequence
            .checked_sub(self.first_sequence)
            .map_or(usize::MAX, crate::units::memory);
        let entry = self.entries.get_mut(index).expect("a live allocation");
        assert!(!entry.freed, "allocation {sequence} freed twice");
        entry.freed = true;
        let mut reclaimed = false;
        while let Some(entry) = self.entries.front()
            && entry.freed
        {
            self.used -= entry.bytes + entry.skipped;
            self.first_sequence += 1;
            self.entries.pop_front();
            reclaimed = true;
        }
        reclaimed
    }

    /// Bytes not available: live, freed but not yet reclaimed, or skipped.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used
    }

    /// Size of the ring.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: usize = RING_ALIGNMENT;

    #[test]
    fn wraps_and_reclaims_at_the_tail() {
        let mut ring = RingState::new(10 * UNIT, 8);
        let a = ring.allocate(4 * UNIT).unwrap();
        let b = ring.allocate(4 * UNIT - 1).unwrap();
        assert_eq!((a.start, b.start, b.bytes), (0, 4 * UNIT, 4 * UNIT));
        assert!(ring.allocate(3 * UNIT).is_none(), "2 units left at the end");
        assert!(!ring.release(b.sequence), "not at the tail");
        assert!(ring.allocate(3 * UNIT).is_none());
        assert!(ring.release(a.sequence), "a and b together");
        assert_eq!(ring.used_bytes(), 0);
        assert_eq!(ring.allocate(10 * UNIT).unwrap().start, 0, "whole again");
    }

    #[test]
    fn a_wrapped_entry_owns_the_skipped_end() {
        let mut ring = RingState::new(10 * UNIT, 8);
        let a = ring.allocate(6 * UNIT).unwrap();
        let b = ring.allocate(2 * UNIT).unwrap();
        ring.release(a.sequence);
        let c = ring.allocate(4 * UNIT).unwrap();
        assert_eq!(c.start, 0);
        assert_eq!(ring.used_bytes(), 8 * UNIT, "2 of b, 4 of c, 2 skipped");
        assert!(ring.allocate(3 * UNIT).is_none());
        let d = ring.allocate(2 * UNIT).unwrap();
        assert_eq!(d.start, 4 * UNIT);
        assert_eq!(ring.used_bytes(), ring.capacity_bytes());
        assert!(ring.allocate(1).is_none(), "full");
        for allocation in [d, c, b] {
            ring.release(allocation.sequence);
        }
        assert_eq!(ring.used_bytes(), 0);
    }

    #[test]
    fn the_entry_count_is_bounded() {
        let mut ring = RingState::new(10 * UNIT, 2);
        let a = ring.allocate(1).unwrap();
        ring.allocate(1).unwrap();
        assert!(ring.allocate(1).is_none());
        ring.release(a.sequence);
        assert!(ring.allocate(1).is_some());
    }

    proptest! {
        #[test]
        fn allocations_never_overlap_and_all_returns(
            capacity in 1_usize..20,
            entries_max in 1_usize..6,
            steps in prop::collection::vec((any::<bool>(), 1_usize..12, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut ring = RingState::new(capacity * UNIT, entries_max);
            let mut live: Vec<RingAllocation> = Vec::new();
            for (allocate, units, index) in steps {
                if allocate {
                    let bytes = units * UNIT - units;
                    if let Some(new) = ring.allocate(bytes) {
                        prop_assert!(new.bytes >= bytes);
                        prop_assert!(new.start + new.bytes <= capacity * UNIT);
                        prop_assert!(new.start.is_multiple_of(UNIT));
                        for old in &live {
                            prop_assert!(new.start + new.bytes <= old.start || old.start + old.bytes <= new.start);
                        }
                        live.push(new);
                    } else if live.is_empty() {
                        prop_assert!(units > capacity, "an empty ring takes what fits");
                    }
                } else if !live.is_empty() {
                    let gone = live.swap_remove(index.index(live.len()));
                    ring.release(gone.sequence);
                }
                prop_assert!(ring.used_bytes() >= live.iter().map(|a| a.bytes).sum::<usize>());
            }
            for gone in live {
                ring.release(gone.sequence);
            }
            prop_assert_eq!(ring.used_bytes(), 0);
            prop_assert!(ring.allocate(capacity * UNIT).is_some());
        }
    }
}
