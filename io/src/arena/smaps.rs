//! Page counts from the text of `/proc/self/smaps`.

use std::ops::Range;

use super::ResidentPages;

/// Sums resident and huge bytes over the mappings that lie inside `addresses`.
pub(super) fn count(smaps: &str, addresses: &Range<u64>) -> ResidentPages {
    let mut pages = ResidentPages {
        resident_bytes: 0,
        huge_bytes: 0,
    };
    let mut inside = false;
    for line in smaps.lines() {
        if let Some(range) = mapping_range(line) {
            inside = addresses.start <= range.start && range.end <= addresses.end;
        } else if inside {
            if let Some(bytes) = field(line, "Rss:") {
                pages.resident_bytes += bytes;
            } else if let Some(bytes) = field(line, "AnonHugePages:") {
                pages.huge_bytes += bytes;
            } else if let Some(bytes) =
                field(line, "Private_Hugetlb:").or_else(|| field(line, "Shared_Hugetlb:"))
            {
                // hugetlb pages are not part of Rss.
                pages.resident_bytes += bytes;
                pages.huge_bytes += bytes;
            }
        }
    }
    pages
}

/// The address range of a header line, `None` for any other line.
fn mapping_range(line: &str) -> Option<Range<u64>> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    Some(start..end)
}

/// The bytes of a line `name:   123 kB`.
fn field(line: &str, name: &str) -> Option<u64> {
    let rest = line.strip_prefix(name)?.trim();
    let kibibytes: u64 = rest.strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
Rss:                3072 kB
AnonHugePages:      2048 kB
Private_Hugetlb:       0 kB
7f0000400000-7f0000600000 rw-p 00000000 00:00 0 
Rss:                   4 kB
AnonHugePages:         0 kB
Private_Hugetlb:    2048 kB
7f0000600000-7f0000800000 r--p 00000000 00:00 0    /lib/a-b.so
Rss:                2048 kB
AnonHugePages:      2048 kB
";

    #[test]
    fn only_the_arena_s_own_mappings_count() {
        let pages = count(TEXT, &(0x7f00_0000_0000..0x7f00_0060_0000));
        assert_eq!(pages.resident_bytes, (3072 + 4 + 2048) * 1024);
        assert_eq!(pages.huge_bytes, (2048 + 2048) * 1024);
        let first = count(TEXT, &(0x7f00_0000_0000..0x7f00_0040_0000));
        assert_eq!(first.resident_bytes, 3072 * 1024);
        assert_eq!(count(TEXT, &(0..1)).resident_bytes, 0);
    }
}
