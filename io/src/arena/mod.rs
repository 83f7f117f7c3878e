//! Big memory, reserved once and read into for the life of a run.

mod map;
mod policy;
mod prefault;
mod range;
mod smaps;

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

pub use policy::{PagePolicy, PageReport, ResidentPages};
pub use prefault::{PREFAULT_STEP_BYTES, PrefaultMethod};
pub(crate) use range::ArenaRange;

use map::Mapping;

use crate::engine::EngineError;

/// One reservation of address space for weights.
///
/// An arena hands out no memory itself: [`crate::SlotArena`] and
/// [`crate::RingArena`] each claim a range of it (ranges never overlap) and
/// lease parts of that. Every claim and every lease keeps the arena alive, so
/// it is unmapped last.
///
/// Reserving touches nothing: pages come at first touch, from reads or from
/// [`HugeArena::prefault`].
pub struct HugeArena {
    mapping: Mapping,
    report: PageReport,
    /// Ranges given to owners, at most one entry per owner.
    claims: Mutex<Vec<Range<usize>>>,
}

impl HugeArena {
    /// Reserves `bytes`, rounded up to whole pages of the rung that is got.
    ///
    /// The ladder starts at `policy` and goes down: hugetlb, transparent huge
    /// pages, 4 KiB pages. The report says where it stopped and why.
    ///
    /// # Errors
    ///
    /// [`EngineError::Reserve`] when even 4 KiB pages are refused (address space
    /// limit, strict overcommit) or `bytes` is zero or beyond the address space.
    pub fn reserve(
        bytes: usize,
        policy: PagePolicy,
    ) -> Result<(Arc<Self>, PageReport), EngineError> {
        let mut fallbacks = Vec::new();
        let mut rung = policy;
        loop {
            let reason = match Self::reserve_rung(bytes, rung) {
                Ok(mapping) => {
                    let nodes = interleave(&mapping, &mut fallbacks);
                    let report = PageReport {
                        asked: policy,
                        got: rung,
                        bytes: mapping.bytes(),
                        nodes,
                        fallbacks,
                    };
                    let arena = Self {
                        mapping,
                        report: report.clone(),
                        claims: Mutex::new(Vec::new()),
                    };
                    return Ok((Arc::new(arena), report));
                }
                Err(reason) => reason,
            };
            match rung.lower() {
                Some(lower) => {
                    fallbacks.push(format!("{rung} for {bytes} bytes: {reason}"));
                    rung = lower;
                }
                None => {
                    return Err(EngineError::Reserve {
                        bytes: crate::units::file(bytes),
                        reason: reason.to_string(),
                    });
                }
            }
        }
    }

    fn reserve_rung(bytes: usize, rung: PagePolicy) -> io::Result<Mapping> {
        if bytes == 0 {
            return Err(io::Error::other("an arena of zero bytes"));
        }
        if rung == PagePolicy::Transparent {
            check_transparent()?;
        }
        let rounded = bytes
            .checked_next_multiple_of(rung.page_bytes())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Mapping::new(rounded, rung).map_err(|error| match (rung, error.raw_os_error()) {
            (PagePolicy::Hugetlb, Some(libc::ENOMEM)) => io::Error::other(
                "not enough reserved huge pages are free (vm.nr_hugepages reserves them)",
            ),
            _ => error,
        })
    }

    /// Bytes reserved.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// What was asked for and got.
    #[must_use]
    pub fn report(&self) -> &PageReport {
        &self.report
    }

    /// How many bytes are resident now, and how many of those in huge pages.
    ///
    /// # Errors
    ///
    /// When `/proc/self/smaps` cannot be read.
    pub fn resident(&self) -> io::Result<ResidentPages> {
        let smaps = std::fs::read_to_string("/proc/self/smaps")?;
        Ok(self.mapping.count_pages(&smaps))
    }

    /// First byte; valid for [`HugeArena::len_bytes`] bytes while `self` lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Takes `range` for one owner.
    fn claim(&self, range: Range<usize>) -> Result<(), EngineError> {
        let outside = range.start >= range.end || range.end > self.len_bytes();
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let overlaps = claims
            .iter()
            .any(|claim| claim.start < range.end && range.start < claim.end);
        if outside || overlaps {
            return Err(EngineError::Claim {
                range,
                arena_bytes: self.len_bytes(),
                overlaps,
            });
        }
        claims.push(range);
        Ok(())
    }

    fn release(&self, range: &Range<usize>) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let position = claims.iter().position(|claim| claim == range);
        claims.swap_remove(position.expect("only claimed ranges are released"));
    }
}

impl Drop for HugeArena {
    fn drop(&mut self) {
        let claims = self
            .claims
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // Each claim holds an Arc of the arena, so this cannot happen; if it
        // did, unmapping would leave leases dangling.
        assert!(
            claims.is_empty() || std::thread::panicking(),
            "arena dropped while ranges of it are in use: {claims:?}"
        );
    }
}

impl fmt::Debug for HugeArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HugeArena")
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// Lets the pages of a mapping that nobody has touched come from every memory
/// node in turn, and returns the nodes; none without the feature `numa`, and on
/// a machine with one node.
fn interleave(mapping: &Mapping, fallbacks: &mut Vec<String>) -> Vec<u32> {
    #[cfg(feature = "numa")]
    if let Some(machine) = crate::numa::Machine::this() {
        // SAFETY: the mapping is readable for all its bytes, anonymous and
        // private to this function until it returns: nobody writes meanwhile.
        let memory =
            unsafe { std::slice::from_raw_parts(mapping.base().as_ptr(), mapping.bytes()) };
        match machine.interleave(memory) {
            Ok(nodes) => return nodes,
            Err(reason) => fallbacks.push(format!(
                "{} bytes interleaved over memory nodes: {reason}",
                mapping.bytes()
            )),
        }
    }
    #[cfg(not(feature = "numa"))]
    let _ = (mapping, fallbacks);
    Vec::new()
}

/// Whether the system may give transparent huge pages on advice.
fn check_transparent() -> io::Result<()> {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let setting = std::fs::read_to_string(path)
        .map_err(|error| io::Error::other(format!("{path}: {error}")))?;
    if setting.contains("[never]") {
        return Err(io::Error::other(format!("{path} says never")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_always_ends_on_a_rung_and_says_why() {
        for policy in [
            PagePolicy::Hugetlb,
            PagePolicy::Transparent,
            PagePolicy::Small,
        ] {
            let (arena, report) = HugeArena::reserve(5_000_001, policy).unwrap();
            assert_eq!(report.asked, policy);
            assert!(report.bytes >= 5_000_001);
            assert_eq!(report.bytes % report.got.page_bytes(), 0);
            assert_eq!(arena.base().as_ptr().addr() % report.got.page_bytes(), 0);
            let steps = usize::from(policy != report.got);
            assert!(report.fallbacks.len() >= steps, "{report:?}");
            if policy == report.got {
                assert!(report.fallbacks.is_empty(), "{report:?}");
            }
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        for bytes in [0, usize::MAX, usize::MAX / 2] {
            let error = HugeArena::reserve(bytes, PagePolicy::Transparent).unwrap_err();
            assert!(matches!(error, EngineError::Reserve { .. }), "{error}");
        }
    }

    #[test]
    fn claims_never_overlap_and_return() {
        let (arena, _) = HugeArena::reserve(1 << 20, PagePolicy::Small).unwrap();
        let first = ArenaRange::claim(&arena, 0..8192).unwrap();
        assert!(ArenaRange::claim(&arena, 4096..12_288).is_err());
        assert!(ArenaRange::claim(&arena, (1 << 20) - 4096..(1 << 20) + 4096).is_err());
        assert!(ArenaRange::claim(&arena, 8192..8192).is_err());
        let second = ArenaRange::claim(&arena, 8192..12_288).unwrap();
        drop(first);
        ArenaRange::claim(&arena, 0..8192).unwrap();
        drop(second);
    }
}
