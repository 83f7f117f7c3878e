//! What the kernel says about this process.

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// The most that was ever resident (`VmHWM`), reserved huge pages left out.
    pub peak_resident_bytes: Option<u64>,
    /// Reserved huge pages in use.
    pub hugetlb_bytes: u64,
}

impl ProcessMemory {
    /// As of now.
    pub(crate) fn read() -> Self {
        // Without /proc there is nothing to tell.
        let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let kibibytes = |key: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            let number = line.strip_prefix(':')?.split_whitespace().next()?;
            number.parse::<u64>().ok()?.checked_mul(1024)
        };
        Self {
            peak_resident_bytes: kibibytes("VmHWM"),
            hugetlb_bytes: kibibytes("HugetlbPages").unwrap_or(0),
        }
    }

    /// Both together.
    pub(crate) fn peak_bytes(self) -> Option<u64> {
        Some(self.peak_resident_bytes? + self.hugetlb_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_pages_count() {
        let text = "Name:\tk3\nVmPeak:\t  999 kB\nVmHWM:\t    10 kB\nHugetlbPages:\t    2048 kB\n";
        let memory = ProcessMemory::parse(text);
        assert_eq!(memory.peak_resident_bytes, Some(10 << 10));
        assert_eq!(memory.peak_bytes(), Some((10 << 10) + (2 << 20)));
    }

    #[test]
    fn what_the_kernel_does_not_say_is_unknown() {
        assert_eq!(ProcessMemory::parse("Name:\tk3\n").peak_bytes(), None);
        let own = ProcessMemory::read();
        assert!(own.peak_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}
