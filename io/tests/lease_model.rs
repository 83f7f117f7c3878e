//! The lease states under every interleaving that a model checker can reach.

use std::sync::atomic::Ordering;

use k3_io::{RingState, SlotState, Word};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};

/// The checker's atomic word.
struct Modelled(loom::sync::atomic::AtomicU64);

impl Word for Modelled {
    fn new(value: u64) -> Self {
        Self(loom::sync::atomic::AtomicU64::new(value))
    }

    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }
}

/// A slot and its memory. The checker fails a run in which a write to the cell
/// is not ordered against every other access.
struct Slot {
    state: SlotState<Modelled>,
    memory: UnsafeCell<u32>,
}

impl Slot {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: SlotState::new(),
            memory: UnsafeCell::new(0),
        })
    }

    fn write(&self, value: u32) {
        // SAFETY: the caller is in state `writing`; the checker verifies that
        // this excludes every other access.
        self.memory.with_mut(|memory| unsafe { *memory = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: the caller holds a share; the checker verifies that no write
        // runs beside it.
        self.memory.with(|memory| unsafe { *memory })
    }
}

#[test]
fn readers_finish_before_the_next_writer_starts() {
    loom::model(|| {
        let slot = Slot::new();
        let generation = slot.state.acquire().expect("free");
        slot.write(1);
        slot.state.freeze(generation);
        slot.state.share(generation);
        let reader = |slot: Arc<Slot>| {
            move || {
                assert_eq!(slot.read(), 1);
                slot.state.unshare(generation)
            }
        };
        let first = loom::thread::spawn(reader(Arc::clone(&slot)));
        let second = loom::thread::spawn(reader(Arc::clone(&slot)));
        if let Some(next) = slot.state.acquire() {
            slot.write(2);
            slot.state.abandon(next);
        }
        let freed = [first.join().unwrap(), second.join().unwrap()];
        assert_eq!(freed.iter().filter(|&&freed| freed).count(), 1);
        let last = slot.state.acquire().expect("everybody has left");
        slot.write(3);
        slot.state.abandon(last);
    });
}

#[test]
fn a_clone_made_while_others_leave_keeps_the_memory() {
    loom::model(|| {
        let slot = Slot::new();
        let generation = slot.state.acquire().expect("free");
        slot.write(1);
        slot.state.freeze(generation);
        slot.state.share(generation);
        let other = Arc::clone(&slot);
        let cloner = loom::thread::spawn(move || {
            other.state.share(generation);
            let freed_early = other.state.unshare(generation);
            assert!(!freed_early, "the clone still holds it");
            assert_eq!(other.read(), 1);
            other.state.unshare(generation)
        });
        let freed_here = slot.state.unshare(generation);
        let freed_there = cloner.join().unwrap();
        assert!(freed_here ^ freed_there, "freed exactly once");
        assert!(slot.state.is_free());
    });
}

#[test]
fn two_writers_never_hold_one_slot() {
    loom::model(|| {
        let slot = Slot::new();
        let contend = |slot: Arc<Slot>, value: u32| {
            move || {
                let Some(generation) = slot.state.acquire() else {
                    return;
                };
                slot.write(value);
                slot.state.freeze(generation);
                assert_eq!(slot.read(), value);
                assert!(slot.state.unshare(generation));
            }
        };
        let first = loom::thread::spawn(contend(Arc::clone(&slot), 1));
        let second = loom::thread::spawn(contend(Arc::clone(&slot), 2));
        first.join().unwrap();
        second.join().unwrap();
        assert!(slot.state.is_free());
    });
}

/// A ring's cell is reused only after its allocation was reclaimed, and the
/// reclaiming order of two threads does not matter.
#[test]
fn ring_cells_are_free_when_their_space_is() {
    loom::model(|| {
        let ring = Arc::new(Mutex::new(RingState::new(8192, 2)));
        let cells = Arc::new([Slot::new(), Slot::new()]);
        let hold = |value: u32| {
            let allocation = ring.lock().unwrap().allocate(4096).expect("room");
            let index = usize::try_from(allocation.sequence).unwrap() % 2;
            let generation = cells[index].state.acquire().expect("a free cell");
            cells[index].write(value);
            cells[index].state.freeze(generation);
            (allocation, index, generation)
        };
        let threads = [hold(1), hold(2)].map(|(allocation, index, generation)| {
            let ring = Arc::clone(&ring);
            let cells = Arc::clone(&cells);
            loom::thread::spawn(move || {
                assert!(cells[index].state.unshare(generation));
                ring.lock().unwrap().release(allocation.sequence);
            })
        });
        // Meanwhile the owner asks for more: granted only with a free cell.
        let allocation = ring.lock().unwrap().allocate(4096);
        if let Some(allocation) = allocation {
            let index = usize::try_from(allocation.sequence).unwrap() % 2;
            let generation = cells[index].state.acquire().expect("reclaimed means free");
            cells[index].write(3);
            cells[index].state.abandon(generation);
            ring.lock().unwrap().release(allocation.sequence);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(ring.lock().unwrap().used_bytes(), 0);
    });
}
