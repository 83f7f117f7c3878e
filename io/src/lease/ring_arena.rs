//! Blocks of any size passing through a fixed amount of memory.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crossbeam_channel::Sender;

use super::handles::WriteLease;
use super::ring::{RING_ALIGNMENT, RingState};
use super::table::{LeaseTable, Span};
use crate::arena::{ArenaRange, HugeArena};
use crate::engine::EngineError;
use crate::units::memory;

/// Variable-size allocations over a range of an arena, meant to be freed in
/// roughly the order in which they were made: space is reclaimed from the
/// oldest on, so one old lease holds back everything behind it.
///
/// To stream blocks of at most `b` bytes with `k` of them alive, `(k + 1) * b`
/// is always enough. Blocks that never leave fit a ring of exactly their sum.
/// The handle is cheap to clone; leases keep the memory alive without it.
#[derive(Debug, Clone)]
pub struct RingArena {
    table: Arc<LeaseTable>,
}

impl RingArena {
    /// A ring over `range` with at most `leases_max` allocations not yet
    /// reclaimed. `released` (capacity 1) is told whenever space becomes
    /// available.
    ///
    /// # Errors
    ///
    /// [`EngineError::Claim`] when the range is not inside the arena or overlaps
    /// one that is in use.
    ///
    /// # Panics
    ///
    /// When the range is not aligned to 4096 or `leases_max` is zero.
    pub fn new(
        arena: &Arc<HugeArena>,
        range: Range<usize>,
        leases_max: usize,
        released: Option<Sender<()>>,
    ) -> Result<Self, EngineError> {
        assert!(range.start.is_multiple_of(RING_ALIGNMENT));
        assert!(range.end.is_multiple_of(RING_ALIGNMENT));
        let capacity = range.len();
        let memory = ArenaRange::claim(arena, range)?;
        let ring = RingState::new(capacity, leases_max);
        Ok(Self {
            table: Arc::new(LeaseTable::new(memory, leases_max, Some(ring), released)),
        })
    }

    /// Takes `bytes` (rounded up to 4096) for writing; `None` when there is no
    /// room until older leases are dropped.
    ///
    /// # Panics
    ///
    /// When `bytes` exceeds the ring: it would never fit.
    #[must_use]
    pub fn allocate(&self, bytes: usize) -> Option<WriteLease> {
        assert!(
            bytes <= self.capacity_bytes(),
            "{bytes} bytes from a ring of {}",
            self.capacity_bytes()
        );
        let ring = self.table.ring.as_ref().expect("a ring table has a ring");
        let allocation = ring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .allocate(bytes)?;
        // At most `leases_max` sequences are live and they are consecutive, so
        // no two share a cell; a cell is free before its sequence is released.
        let cell = memory(allocation.sequence) % self.table.cell_count();
        let generation = self.table.cell(cell).acquire();
        let span = Span {
            start: allocation.start,
            bytes: allocation.bytes,
            cell,
            generation: generation.expect("a reclaimed allocation left its cell free"),
            sequence: allocation.sequence,
        };
        Some(WriteLease::new(Arc::clone(&self.table), span))
    }

    /// Size of the ring.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.table.len_bytes()
    }

    /// Bytes not available now: leased, or behind a lease.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        let ring = self.table.ring.as_ref().expect("a ring table has a ring");
        ring.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .used_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::PagePolicy;
    use crate::lease::ReadLease;
    use proptest::prelude::*;

    #[derive(Debug)]
    enum Held {
        Writing(WriteLease, u8),
        Reading(ReadLease, u8),
    }

    impl Held {
        fn intact(&self) -> bool {
            match self {
                Self::Writing(lease, canary) => lease.iter().all(|byte| byte == canary),
                Self::Reading(lease, canary) => lease.iter().all(|byte| byte == canary),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn canaries_survive_any_order(
            steps in prop::collection::vec((0_u8..4, 1_usize..40_000, any::<prop::sample::Index>()), 1..120),
        ) {
            const CAPACITY: usize = 128 << 10;
            let (arena, _) = HugeArena::reserve(CAPACITY, PagePolicy::Small).unwrap();
            let ring = RingArena::new(&arena, 0..CAPACITY, 7, None).unwrap();
            let mut held: Vec<Held> = Vec::new();
            let mut canary = 0_u8;
            for (step, bytes, index) in steps {
                let position = index.index(held.len().max(1));
                match step {
                    0 | 1 => if let Some(mut lease) = ring.allocate(bytes) {
                        canary = canary.wrapping_add(1);
                        lease.fill(canary);
                        held.push(Held::Writing(lease, canary));
                    },
                    2 if !held.is_empty() => {
                        held[position] = match held.swap_remove(position) {
                            Held::Writing(lease, canary) => {
                                let end = lease.len();
                                let read = lease.freeze(end / 3..end);
                                held.push(Held::Reading(read.clone(), canary));
                                let last = held.len() - 1;
                                held.swap(position.min(last), last);
                                Held::Reading(read, canary)
                            }
                            Held::Reading(lease, canary) => {
                                let copy = lease.clone();
                                held.push(Held::Reading(lease, canary));
                                let last = held.len() - 1;
                                held.swap(position.min(last), last);
                                Held::Reading(copy, canary)
                            }
                        };
                    }
                    3 if !held.is_empty() => drop(held.swap_remove(position)),
                    _ => {}
                }
                prop_assert!(held.iter().all(Held::intact));
            }
            held.clear();
            prop_assert_eq!(ring.used_bytes(), 0);
            prop_assert!(ring.allocate(CAPACITY).is_some());
        }
    }

    #[test]
    fn readers_and_writers_on_threads_never_meet() {
        const CAPACITY: usize = 64 << 10;
        let (arena, _) = HugeArena::reserve(CAPACITY, PagePolicy::Small).unwrap();
        let (released, space) = crossbeam_channel::bounded(1);
        let ring = RingArena::new(&arena, 0..CAPACITY, 8, Some(released)).unwrap();
        let (sender, receiver) = crossbeam_channel::bounded::<(ReadLease, u8)>(8);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let receiver = receiver.clone();
                std::thread::spawn(move || {
                    let mut count = 0;
                    for (lease, value) in receiver {
                        let copy = lease.clone();
                        drop(lease);
                        assert!(copy.iter().all(|&byte| byte == value));
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for round in 0..2000_usize {
            let value = u8::try_from(round % 251).unwrap();
            let mut lease = loop {
                if let Some(lease) = ring.allocate(1 + round * 997 % 20_000) {
                    break lease;
                }
                space.recv().unwrap();
            };
            lease.fill(value);
            let end = lease.len();
            sender.send((lease.freeze(0..end), value)).unwrap();
        }
        drop(sender);
        let total: usize = readers.into_iter().map(|r| r.join().unwrap()).sum();
        assert_eq!(total, 2000);
        assert_eq!(ring.used_bytes(), 0);
    }
}
