//! Anonymous mappings: the system calls below an arena.

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

use super::policy::PagePolicy;
use crate::units::file;

/// `MADV_POPULATE_WRITE` (Linux 5.14): fault pages in, writable, contents kept.
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// An anonymous private mapping, readable and writable, unmapped on drop.
///
/// Unless it is hugetlb it lies between inaccessible guard pages: an overrun
/// faults instead of hitting a neighbour, and the kernel cannot merge the
/// mapping with another, so its page counts can be read from `smaps`.
pub(super) struct Mapping {
    /// First usable byte.
    base: NonNull<u8>,
    bytes: usize,
    /// What `munmap` gets.
    outer_base: *mut libc::c_void,
    outer_bytes: usize,
}

// SAFETY: the mapping is plain memory, valid in every thread until drop; who
// may touch which part of it is decided by the leases above.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method of `Mapping` reads or writes the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` (a multiple of the policy's page) with its base aligned to
    /// the policy's page.
    pub(super) fn new(bytes: usize, policy: PagePolicy) -> io::Result<Self> {
        assert!(bytes > 0 && bytes.is_multiple_of(policy.page_bytes()));
        match policy {
            PagePolicy::Hugetlb => Self::hugetlb(bytes),
            PagePolicy::Transparent | PagePolicy::Small => {
                let mapping = Self::guarded(bytes, policy.page_bytes())?;
                if policy == PagePolicy::Transparent {
                    mapping.advise(0..bytes, libc::MADV_HUGEPAGE)?;
                } else {
                    // Without the advice, `enabled = always` would still give
                    // huge pages. A kernel without them refuses: fine.
                    let _ = mapping.advise(0..bytes, libc::MADV_NOHUGEPAGE);
                }
                // A child made by fork must not turn the pages under a running
                // read into copy-on-write copies. Old kernels may refuse.
                let _ = mapping.advise(0..bytes, libc::MADV_DONTFORK);
                Ok(mapping)
            }
        }
    }

    fn hugetlb(bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        let outer_base = map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags)?;
        Ok(Self {
            base: NonNull::new(outer_base.cast()).ok_or_else(null_mapping)?,
            bytes,
            outer_base,
            outer_bytes: bytes,
        })
    }

    fn guarded(bytes: usize, alignment: usize) -> io::Result<Self> {
        let guard = alignment.max(4096);
        let outer_bytes = bytes
            .checked_add(3 * guard)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let outer_base = map(outer_bytes, libc::PROT_NONE, 0)?;
        // From here on drop unmaps.
        let start = (outer_base.addr() + guard).next_multiple_of(alignment);
        let mapping = Self {
            base: NonNull::new(outer_base.with_addr(start).cast()).ok_or_else(null_mapping)?,
            bytes,
            outer_base,
            outer_bytes,
        };
        // SAFETY: the range lies inside the mapping just made, which nobody
        // else knows yet.
        let code = unsafe {
            libc::mprotect(
                mapping.base.as_ptr().cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapping)
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn advise(&self, range: Range<usize>, advice: libc::c_int) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: the range lies inside the mapping. The advices used in this
        // file (HUGEPAGE, NOHUGEPAGE, DONTFORK, POPULATE_WRITE) never change
        // its contents.
        let code = unsafe {
            libc::madvise(
                self.base.as_ptr().add(range.start).cast(),
                range.len(),
                advice,
            )
        };
        if code == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Makes the pages of `range` present and writable, contents kept.
    pub(super) fn populate(&self, range: Range<usize>) -> io::Result<()> {
        self.advise(range, MADV_POPULATE_WRITE)
    }

    /// The same through `mlock` and `munlock`, for kernels that do not know
    /// the advice. Limited by RLIMIT_MEMLOCK.
    pub(super) fn populate_by_lock(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: the range lies inside the mapping; locking and unlocking
        // leave its contents as they are.
        let code = unsafe {
            let start = self.base.as_ptr().add(range.start);
            match libc::mlock(start.cast(), range.len()) {
                0 => libc::munlock(start.cast(), range.len()),
                code => code,
            }
        };
        if code == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Sums the resident and huge bytes of the mapping from `smaps`' text.
    pub(super) fn count_pages(&self, smaps: &str) -> super::ResidentPages {
        let own = file(self.base.as_ptr().addr())..file(self.base.as_ptr().addr() + self.bytes);
        super::smaps::count(smaps, &own)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `mmap` returned; the arena drops last, when no
        // lease refers to the memory any more.
        let code = unsafe { libc::munmap(self.outer_base, self.outer_bytes) };
        debug_assert_eq!(code, 0, "munmap: {}", io::Error::last_os_error());
    }
}

fn map(bytes: usize, protection: libc::c_int, flags: libc::c_int) -> io::Result<*mut libc::c_void> {
    // SAFETY: a new anonymous mapping at an address the kernel chooses
    // disturbs nothing that exists.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(base)
    }
}

fn null_mapping() -> io::Error {
    io::Error::other("mmap returned address zero")
}
