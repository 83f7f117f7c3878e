//! First touch, ahead of the reads.
//!
//! Zeroing fresh memory costs a page fault per page and, in a guest, a fault
//! of the host as well: slower than a fast disk. A helper thread does it in the
//! order in which the arena will be filled, so that reads find their pages.

use std::io;
use std::ops::Range;

use super::HugeArena;
use crate::engine::EngineError;
use crate::units::MIB;

/// Bytes faulted in by one system call: long enough to amortise the call,
/// short enough for progress and for a quick stop.
pub const PREFAULT_STEP_BYTES: usize = 16 * MIB;

/// Largest step under RLIMIT_MEMLOCK: 64 KiB is the lowest limit in use.
const LOCKED_STEP_BYTES: usize = 64 << 10;

/// How an arena was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefaultMethod {
    /// `MADV_POPULATE_WRITE`.
    Populate,
    /// `mlock` and `munlock` in small steps: the kernel does not know the advice.
    LockUnlock,
    /// Neither was allowed: pages come with the first reads.
    FirstTouch,
}

impl HugeArena {
    /// Makes the pages of `range` present, leaving their contents as they are:
    /// safe beside leases and reads in flight.
    ///
    /// `progress` gets the bytes done so far after every step of at most
    /// 16 MiB and answers whether to go on.
    ///
    /// # Errors
    ///
    /// [`EngineError::Prefault`] when the system cannot provide the memory: the
    /// plan is larger than what there is.
    pub fn prefault(
        &self,
        range: Range<usize>,
        mut progress: impl FnMut(usize) -> bool,
    ) -> Result<PrefaultMethod, EngineError> {
        assert!(range.start <= range.end && range.end <= self.len_bytes());
        let page = self.report().got.page_bytes();
        let mut method = PrefaultMethod::Populate;
        let mut at = range.start / page * page;
        let last = range.end.next_multiple_of(page).min(self.len_bytes());
        while at < range.end {
            let end = (at + PREFAULT_STEP_BYTES).min(last);
            let result = match method {
                PrefaultMethod::Populate => self.mapping.populate(at..end),
                _ => self.lock_steps(at..end),
            };
            match (result, method) {
                (Ok(()), _) => {}
                (Err(error), PrefaultMethod::Populate)
                    if error.raw_os_error() == Some(libc::EINVAL) =>
                {
                    method = PrefaultMethod::LockUnlock;
                    continue;
                }
                (Err(error), PrefaultMethod::LockUnlock)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EPERM | libc::ENOMEM | libc::EAGAIN)
                    ) =>
                {
                    return Ok(PrefaultMethod::FirstTouch);
                }
                (Err(error), _) => {
                    return Err(EngineError::Prefault {
                        offset: at,
                        bytes: end - at,
                        reason: error.to_string(),
                    });
                }
            }
            at = end;
            if !progress(at.min(range.end) - range.start) {
                break;
            }
        }
        Ok(method)
    }

    fn lock_steps(&self, range: Range<usize>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let end = (at + LOCKED_STEP_BYTES).min(range.end);
            self.mapping.populate_by_lock(at..end)?;
            at = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::PagePolicy;
    use crate::lease::SlotArena;

    #[test]
    fn prefault_makes_pages_resident_and_keeps_contents() {
        let (arena, report) = HugeArena::reserve(40 * MIB, PagePolicy::Transparent).unwrap();
        let before = arena.resident().unwrap().resident_bytes;
        assert_eq!(before, 0, "a reservation touches nothing");
        let slots = SlotArena::new(&arena, 0..MIB, MIB).unwrap();
        let mut lease = slots.acquire_any().unwrap();
        lease[777] = 42;
        let mut seen = Vec::new();
        let method = arena
            .prefault(0..40 * MIB, |bytes| {
                seen.push(bytes);
                true
            })
            .unwrap();
        assert_ne!(method, PrefaultMethod::FirstTouch);
        assert_eq!(seen, [16 * MIB, 32 * MIB, 40 * MIB]);
        assert_eq!(lease[777], 42);
        let after = arena.resident().unwrap();
        assert_eq!(after.resident_bytes, crate::units::file(report.bytes));
    }

    #[test]
    fn only_the_pages_of_the_range_are_touched() {
        let (arena, _) = HugeArena::reserve(MIB, PagePolicy::Small).unwrap();
        let mut seen = 0;
        let go_on = |bytes| {
            seen = bytes;
            true
        };
        arena.prefault(5000..9000, go_on).unwrap();
        assert_eq!(seen, 4000);
        let pages = arena.resident().unwrap();
        assert_eq!(pages.resident_bytes, 8192);
    }

    #[test]
    fn locking_populates_too() {
        let (arena, _) = HugeArena::reserve(MIB, PagePolicy::Small).unwrap();
        if arena.lock_steps(0..MIB).is_ok() {
            let pages = arena.resident().unwrap();
            assert_eq!(pages.resident_bytes, crate::units::file(MIB));
            assert_eq!(pages.huge_bytes, 0);
        }
    }

    #[test]
    fn progress_can_stop_it() {
        let (arena, _) = HugeArena::reserve(64 * MIB, PagePolicy::Transparent).unwrap();
        arena.prefault(0..64 * MIB, |_| false).unwrap();
        let pages = arena.resident().unwrap();
        assert_eq!(pages.resident_bytes, crate::units::file(16 * MIB));
    }
}
