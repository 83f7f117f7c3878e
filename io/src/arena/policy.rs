//! Which pages an arena asks for, and what it got.

use std::fmt;

/// The pages that back an arena.
///
/// Reads into 2 MiB pages reach 1.25 to 2.3 times the bandwidth of reads into
/// 4 KiB pages and cost a fifth of the CPU; hugetlb and transparent huge pages
/// are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PagePolicy {
    /// Pages reserved by the administrator (`vm.nr_hugepages`): they cannot be
    /// missing at first touch, and they are outside the process's RSS.
    Hugetlb,
    /// Ordinary memory, aligned to 2 MiB and advised to use huge pages.
    Transparent,
    /// 4 KiB pages.
    Small,
}

impl PagePolicy {
    /// Size of one page under this policy.
    #[must_use]
    pub const fn page_bytes(self) -> usize {
        match self {
            Self::Hugetlb | Self::Transparent => 2 << 20,
            Self::Small => 4096,
        }
    }

    /// The next rung down, `None` below 4 KiB pages.
    pub(crate) const fn lower(self) -> Option<Self> {
        match self {
            Self::Hugetlb => Some(Self::Transparent),
            Self::Transparent => Some(Self::Small),
            Self::Small => None,
        }
    }
}

impl fmt::Display for PagePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hugetlb => "hugetlb",
            Self::Transparent => "transparent huge pages",
            Self::Small => "4 KiB pages",
        })
    }
}

/// What a reservation asked for and got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageReport {
    /// The rung the caller named.
    pub asked: PagePolicy,
    /// The rung the arena stands on. For [`PagePolicy::Transparent`] the kernel
    /// decides page by page at first touch; [`crate::HugeArena::resident`] tells
    /// how it decided.
    pub got: PagePolicy,
    /// Bytes reserved: the request rounded up to whole pages.
    pub bytes: usize,
    /// Memory nodes whose pages it takes in turn; empty where the kernel takes
    /// them from the node of whoever touches them first.
    pub nodes: Vec<u32>,
    /// Why each higher rung was refused, highest first; empty when
    /// `got == asked`.
    pub fallbacks: Vec<String>,
}

/// How the pages of an arena look now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidentPages {
    /// Bytes that have been touched.
    pub resident_bytes: u64,
    /// Of those, bytes in huge pages.
    pub huge_bytes: u64,
}
