//! One thread tells another that it may go on.
//!
//! ```text
//! clear ──set──► set ──(the waiter goes on)──► clear
//!   │             ▲
//!   └─(the waiter sleeps)─► asleep ──set, wake─┘
//! ```
//!
//! There is one waiter at a time, and `set` is called once for each time it
//! waits. Ordering: what the setter did before `set` is visible to the waiter
//! after `wait`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::word::Word;

const CLEAR: u32 = 0;
const ASLEEP: u32 = 1;
const SET: u32 = 2;

/// Looks between two looks at the clock: a look takes about 20 to 60 ns, the
/// clock as long.
const LOOKS_PER_CLOCK: u32 = 16;

/// A flag that one thread sets and another waits for.
#[derive(Debug)]
pub struct Signal<W>(W);

impl<W: Word> Signal<W> {
    /// A signal that is not set.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a word has no default")]
    pub fn new() -> Self {
        Self(W::new(CLEAR))
    }

    /// Lets the waiter go on. Costs a system call only if it sleeps.
    pub fn set(&self) {
        let before = self.0.swap(SET, Ordering::AcqRel);
        debug_assert_ne!(before, SET, "set once for each wait");
        if before == ASLEEP {
            // The waiter may already be gone on: then nobody is woken.
            self.0.wake();
        }
    }

    /// Waits until the signal is set and clears it: looks for `patience`, then
    /// sleeps. Whether looking was enough.
    pub fn wait(&self, patience: Duration) -> bool {
        let is_seen = self.look(patience);
        if !is_seen {
            let asleep =
                self.0
                    .compare_exchange(CLEAR, ASLEEP, Ordering::Acquire, Ordering::Acquire);
            if asleep.is_ok() {
                while self.0.load(Ordering::Acquire) == ASLEEP {
                    self.0.wait(ASLEEP);
                }
            }
        }
        debug_assert_eq!(self.0.load(Ordering::Acquire), SET);
        // Published to the next setter by whatever tells it that the waiter
        // has gone on.
        self.0.store(CLEAR, Ordering::Relaxed);
        is_seen
    }

    /// Whether the signal was set within `patience`; at least one look.
    fn look(&self, patience: Duration) -> bool {
        if self.0.load(Ordering::Acquire) == SET {
            return true;
        }
        if patience.is_zero() {
            return false;
        }
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                std::hint::spin_loop();
                if self.0.load(Ordering::Acquire) == SET {
                    return true;
                }
            }
            if start.elapsed() >= patience {
                return false;
            }
        }
    }
}
