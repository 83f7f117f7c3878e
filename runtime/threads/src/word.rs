//! The atomic word that threads wait on.

use std::sync::atomic::{AtomicU32, Ordering};

/// An atomic word a thread can sleep on: the standard one over the kernel's
/// futex, or a model checker's.
pub trait Word {
    /// A word holding `value`.
    fn new(value: u32) -> Self;
    /// Atomic load.
    fn load(&self, order: Ordering) -> u32;
    /// Atomic store.
    fn store(&self, value: u32, order: Ordering);
    /// Stores and returns the value before.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// Strong compare-and-exchange.
    ///
    /// # Errors
    ///
    /// The value found when it is not `current`.
    fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;
    /// Subtracts and returns the value before.
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32;
    /// Sleeps until woken if the word holds `expected`; may return early, and
    /// at once if it holds something else.
    fn wait(&self, expected: u32);
    /// Wakes one thread that sleeps on the word, if there is one.
    fn wake(&self);
}

impl Word for AtomicU32 {
    fn new(value: u32) -> Self {
        Self::new(value)
    }

    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }

    fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.compare_exchange(current, new, success, failure)
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_sub(value, order)
    }

    fn wait(&self, expected: u32) {
        atomic_wait::wait(self, expected);
    }

    fn wake(&self) {
        atomic_wait::wake_one(self);
    }
}
