//! What a group holds, in the words of both versions.

use std::path::Path;

use serde::Serialize;

use crate::bytes::Bytes;
use crate::host::CgroupVersion;
use crate::host::files::read_optional;

/// Kinds of kernel memory that kernels before 5.18 list without their sum.
const V2_KERNEL_KINDS: [&str; 5] = ["kernel_stack", "pagetables", "percpu", "sock", "slab"];

/// A group at one moment. What the kernel does not tell is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GroupReading {
    /// Memory of its processes that is no file's.
    pub anon: Option<Bytes>,
    /// Memory the kernel holds for it: page tables, stacks, rings, buffers.
    pub kernel: Option<Bytes>,
    /// Its pages in swap.
    pub swap: Option<Bytes>,
    /// The most it has held so far, page cache included.
    pub peak: Option<Bytes>,
    /// Processes that were killed because it was full.
    pub oom_kills: Option<u64>,
    /// How often it was full and something had to give way, mostly page cache.
    pub limit_hits: Option<u64>,
}

impl GroupReading {
    pub(super) fn read(group: &Path, version: CgroupVersion) -> Self {
        let stat = text(&group.join("memory.stat"));
        match version {
            CgroupVersion::V1 => Self {
                anon: entry(&stat, "total_rss").map(Bytes),
                kernel: number(&group.join("memory.kmem.usage_in_bytes")).map(Bytes),
                swap: entry(&stat, "total_swap").map(Bytes),
                peak: number(&group.join("memory.max_usage_in_bytes")).map(Bytes),
                oom_kills: entry(&text(&group.join("memory.oom_control")), "oom_kill"),
                limit_hits: number(&group.join("memory.failcnt")),
            },
            CgroupVersion::V2 => {
                let events = text(&group.join("memory.events"));
                Self {
                    anon: entry(&stat, "anon").map(Bytes),
                    kernel: v2_kernel(&stat).map(Bytes),
                    swap: number(&group.join("memory.swap.current")).map(Bytes),
                    peak: number(&group.join("memory.peak")).map(Bytes),
                    oom_kills: entry(&events, "oom_kill"),
                    limit_hits: entry(&events, "max"),
                }
            }
        }
    }
}

/// The most of each figure over all readings of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GroupPeaks {
    /// The most anonymous and kernel memory at once, as far as readings saw it.
    pub anon_and_kernel: Option<Bytes>,
    /// The most swap, as far as readings saw it.
    pub swap: Option<Bytes>,
    /// The kernel's own high-water mark, page cache included.
    pub peak: Option<Bytes>,
    /// Processes killed.
    pub oom_kills: Option<u64>,
    /// Times the group was full.
    pub limit_hits: Option<u64>,
}

impl GroupPeaks {
    /// Counts a reading in.
    pub fn add(&mut self, reading: &GroupReading) {
        let both = reading.anon.zip(reading.kernel);
        self.merge(&Self {
            anon_and_kernel: both.map(|(anon, kernel)| Bytes(anon.0.saturating_add(kernel.0))),
            swap: reading.swap,
            peak: reading.peak,
            oom_kills: reading.oom_kills,
            limit_hits: reading.limit_hits,
        });
    }

    /// Counts the peaks of another group in.
    pub fn merge(&mut self, other: &Self) {
        // `None` is less than any figure.
        self.anon_and_kernel = self.anon_and_kernel.max(other.anon_and_kernel);
        self.swap = self.swap.max(other.swap);
        self.peak = self.peak.max(other.peak);
        self.oom_kills = self.oom_kills.max(other.oom_kills);
        self.limit_hits = self.limit_hits.max(other.limit_hits);
    }
}

fn v2_kernel(stat: &str) -> Option<u64> {
    entry(stat, "kernel").or_else(|| {
        let kinds = V2_KERNEL_KINDS.iter().filter_map(|kind| entry(stat, kind));
        kinds.reduce(u64::saturating_add)
    })
}

/// The number of the line `key number`.
fn entry(text: &str, key: &str) -> Option<u64> {
    let value = |line: &str| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    };
    text.lines().find_map(value)
}

/// The number that is all there is in a file.
pub(super) fn number(path: &Path) -> Option<u64> {
    text(path).trim().parse().ok()
}

/// A file that is missing says nothing, and so does one whose group has gone.
fn text(path: &Path) -> String {
    read_optional(path).ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_their_whole_name() {
        let stat = "anon 4096\nanon_thp 2097152\nkernel_stack 16384\nkernel 20480\n";
        assert_eq!(entry(stat, "anon"), Some(4096));
        assert_eq!(entry(stat, "kernel"), Some(20480));
        assert_eq!(entry(stat, "ano"), None);
        assert_eq!(
            entry("oom_kill_disable 0\noom_kill 2\n", "oom_kill"),
            Some(2)
        );
        assert_eq!(entry("oom_kill x\n", "oom_kill"), None);
    }

    #[test]
    fn without_the_sum_the_kinds_of_kernel_memory_are_added() {
        let stat = "anon 1\nkernel_stack 10\npagetables 20\npercpu 1\nsock 2\nslab 300\n\
                    slab_reclaimable 200\n";
        assert_eq!(v2_kernel(stat), Some(333));
        assert_eq!(v2_kernel("anon 1\n"), None);
    }

    #[test]
    fn peaks_are_of_each_figure_and_of_sums_at_one_moment() {
        let reading = |anon, kernel, peak| GroupReading {
            anon: Some(Bytes(anon)),
            kernel: Some(Bytes(kernel)),
            peak: Some(Bytes(peak)),
            ..GroupReading::default()
        };
        let mut peaks = GroupPeaks::default();
        for reading in [
            reading(10, 1, 20),
            GroupReading::default(),
            reading(5, 5, 30),
            reading(1, 9, 30),
        ] {
            peaks.add(&reading);
        }
        assert_eq!(peaks.anon_and_kernel, Some(Bytes(11)));
        assert_eq!(peaks.peak, Some(Bytes(30)));
        assert_eq!((peaks.swap, peaks.oom_kills), (None, None));
    }
}
