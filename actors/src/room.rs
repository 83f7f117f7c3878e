//! Whether the memory that is touched next is still there.
//!
//! A plan is compared with the machine before it is reserved, but it is touched
//! later, and what others take meanwhile is gone. The kernel would not say so:
//! it ends a process. So the machine is asked again, rarely while there is much
//! and before every step when it gets tight.

use std::path::Path;

use k3_config::{Bytes, Headroom, HostMemory};

/// Bytes touched on one answer, at most.
const GRANT_BYTES_MAX: u64 = 256 << 20;
/// Left for the kernel's own records of the pages touched.
const MARGIN_BYTES: u64 = 2 << 20;

/// Memory that was planned has gone to somebody else since.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{bytes} of the planned memory are not there any more: {} are left ({room}), and the plan's \
     first {touched} were there; the run would be killed: end what else takes memory, or lower \
     --memory", .room.bytes
)]
pub struct MemoryTaken {
    /// What was to be touched next.
    pub bytes: Bytes,
    /// What had been touched before.
    pub touched: Bytes,
    /// What there is, and what says so.
    pub room: Headroom,
}

/// Asks how much there is; `None` where the kernel does not tell.
pub(crate) type AskRoom = dyn Fn() -> Option<Headroom> + Send;

/// The machine's own answer.
pub(crate) fn of_this_machine() -> Box<AskRoom> {
    Box::new(|| HostMemory::read(Path::new("/")).room())
}

/// Answers steps from what the machine said last.
pub(crate) struct Room {
    ask: Box<AskRoom>,
    granted_bytes: u64,
}

impl Room {
    pub(crate) fn new(ask: Box<AskRoom>) -> Self {
        Self {
            ask,
            granted_bytes: 0,
        }
    }

    /// Whether `bytes` may be touched after `touched_bytes` others.
    ///
    /// # Errors
    ///
    /// They are not there.
    pub(crate) fn take(&mut self, bytes: u64, touched_bytes: u64) -> Result<(), MemoryTaken> {
        if self.granted_bytes < bytes {
            // A kernel that does not tell is no reason to stop.
            let Some(room) = (self.ask)() else {
                return Ok(());
            };
            let free_bytes = room.bytes.0.saturating_sub(MARGIN_BYTES);
            if free_bytes < bytes {
                return Err(MemoryTaken {
                    bytes: Bytes(bytes),
                    touched: Bytes(touched_bytes),
                    room,
                });
            }
            // Half, so that the answers come closer together as it gets tight.
            self.granted_bytes = (free_bytes / 2).min(GRANT_BYTES_MAX).max(bytes);
        }
        self.granted_bytes -= bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const STEP_BYTES: u64 = 16 << 20;

    fn machine(bytes: u64) -> Headroom {
        Headroom {
            bytes: Bytes(bytes),
            group: None,
        }
    }

    /// Touches until it may not; what was touched, and how often was asked.
    fn touch_all(room_bytes: u64) -> (u64, u64) {
        let touched = Arc::new(AtomicU64::new(0));
        let asked = Arc::new(AtomicU64::new(0));
        let (seen, count) = (Arc::clone(&touched), Arc::clone(&asked));
        let mut room = Room::new(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Some(machine(room_bytes - seen.load(Ordering::Relaxed)))
        }));
        while room.take(STEP_BYTES, 0).is_ok() {
            touched.fetch_add(STEP_BYTES, Ordering::Relaxed);
        }
        (
            touched.load(Ordering::Relaxed),
            asked.load(Ordering::Relaxed),
        )
    }

    #[test]
    fn all_but_the_margin_is_given_with_few_questions() {
        let (touched, asked) = touch_all((8 << 30) + MARGIN_BYTES);
        assert_eq!(touched, 8 << 30);
        assert!((32..60).contains(&asked), "{asked} questions");
        assert_eq!(
            touch_all((8 << 30) + MARGIN_BYTES - 1).0,
            (8 << 30) - STEP_BYTES
        );
    }

    #[test]
    fn the_refusal_names_figures_and_ways_out() {
        let mut room = Room::new(Box::new(|| Some(machine(5_000_000))));
        let error = room.take(STEP_BYTES, 64 << 20).unwrap_err();
        let said = error.to_string();
        for word in [
            "16.78 MB",
            "5.00 MB",
            "67.11 MB",
            "MemAvailable",
            "--memory",
        ] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }

    #[test]
    fn a_silent_kernel_stops_nobody() {
        let mut room = Room::new(Box::new(|| None));
        room.take(u64::MAX, 0).unwrap();
    }
}
