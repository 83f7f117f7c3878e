//! What the kernel says about this process.

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// The most that was ever resident (`VmHWM`), reserved huge pages left out.
    pub peak_resident_bytes: Option<u64>,
    /// Reserved huge pages in use.
    pub hugetlb_bytes: u64,
    /// What is swapped out.
    pub swapped_bytes: Option<u64>,
    /// Pages this process had to wait for a disk to bring, since it began.
    pub major_faults: Option<u64>,
}

impl ProcessMemory {
    /// As of now.
    pub(crate) fn read() -> Self {
        // Without /proc there is nothing to tell.
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            major_faults: parse_major_faults(&text("/proc/self/stat")),
            ..Self::parse(&text("/proc/self/status"))
        }
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
            swapped_bytes: kibibytes("VmSwap"),
            major_faults: None,
        }
    }

    /// Both together.
    pub(crate) fn peak_bytes(self) -> Option<u64> {
        Some(self.peak_resident_bytes? + self.hugetlb_bytes)
    }
}

/// Field 12 of the line; the second, a name in brackets, may hold anything.
fn parse_major_faults(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(9)?.parse().ok()
}

/// Whether this process ignores `signal`, as of now; not known is no.
pub(crate) fn ignores(signal: i32) -> bool {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&text, signal)
}

fn ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal - 1).ok();
    let bit = bit.and_then(|bit| 1u64.checked_shl(bit));
    mask.zip(bit).is_some_and(|(mask, bit)| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_counted_from_one() {
        let status = "Name:\tk3\nSigIgn:\t0000000000001001\n";
        for (signal, want) in [(1, true), (13, true), (2, false), (15, false), (0, false)] {
            assert_eq!(ignored(status, signal), want, "{signal}");
        }
        assert!(!ignored("", 1) && !ignored("SigIgn:\tx\n", 1));
    }

    #[test]
    fn both_kinds_of_pages_count() {
        let text = "Name:\tk3\nVmPeak:\t  999 kB\nVmHWM:\t    10 kB\nHugetlbPages:\t    2048 kB\n";
        let memory = ProcessMemory::parse(text);
        assert_eq!(memory.peak_resident_bytes, Some(10 << 10));
        assert_eq!(memory.peak_bytes(), Some((10 << 10) + (2 << 20)));
    }

    #[test]
    fn paging_is_found_whatever_the_process_is_called() {
        let stat = "7 (a) (b 1 2) S 1 7 7 0 -1 4194304 501 0 42 0 1 2 0 0 20";
        assert_eq!(parse_major_faults(stat), Some(42));
        let memory = ProcessMemory::parse("VmSwap:\t      8 kB\n");
        assert_eq!(memory.swapped_bytes, Some(8192));
    }

    #[test]
    fn what_the_kernel_does_not_say_is_unknown() {
        assert_eq!(ProcessMemory::parse("Name:\tk3\n").peak_bytes(), None);
        assert_eq!(ProcessMemory::parse("Name:\tk3\n").swapped_bytes, None);
        assert_eq!(parse_major_faults(""), None);
        assert_eq!(parse_major_faults("1 (k3) S 1 2"), None);
        let own = ProcessMemory::read();
        assert!(own.major_faults.is_some() && own.swapped_bytes.is_some());
        assert!(own.peak_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}
