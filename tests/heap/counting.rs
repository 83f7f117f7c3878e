//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Forwards to the system's allocator and counts, for the whole process.
pub(crate) struct Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static LARGEST_BYTES: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator with its arguments unchanged,
// so its guarantees are the system allocator's; the counters touch no memory of
// the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size(), Relaxed);
        LARGEST_BYTES.fetch_max(layout.size(), Relaxed);
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout, hence
        // from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What was allocated since a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    /// The largest single allocation.
    pub(crate) largest_bytes: usize,
    /// Bytes alive now that were not then; 0 if there are fewer.
    pub(crate) net_bytes: usize,
    /// Allocations, freed since or not.
    pub(crate) count: usize,
}

/// The moment [`Mark::growth`] counts from.
#[derive(Debug)]
pub(crate) struct Mark {
    live_bytes: usize,
    count: usize,
}

impl Mark {
    /// Now. One at a time: the largest allocation is counted anew.
    pub(crate) fn new() -> Self {
        LARGEST_BYTES.store(0, Relaxed);
        Self {
            live_bytes: LIVE_BYTES.load(Relaxed),
            count: COUNT.load(Relaxed),
        }
    }

    /// Since this mark.
    pub(crate) fn growth(&self) -> Growth {
        Growth {
            largest_bytes: LARGEST_BYTES.load(Relaxed),
            net_bytes: LIVE_BYTES.load(Relaxed).saturating_sub(self.live_bytes),
            count: COUNT.load(Relaxed) - self.count,
        }
    }
}
