//! What a document shows, compared with what a command prints.
//!
//! Everything must be the same, to the byte of a count, but for what [`WILD`] lists:
//! that depends on the machine or the moment. Blanks between columns may differ in
//! number, as a wild figure may be longer.

use fancy_regex::Regex;

/// What may differ: a name for it, how it looks, and why.
const WILD: &[(&str, &str, &str)] = &[
    (
        "TIME",
        r"\b\d[\d.,]* (?:s|ms|min|seconds)\b",
        "takes as long as it takes",
    ),
    (
        "RATE",
        r"\b\d[\d.,]* (?:[kMGT]?B|tokens|positions)/s\b",
        "bytes, tokens or positions by a time",
    ),
    (
        "PROCESSOR",
        r"\bwith (?:avx512|avx2|neon|scalar), \d+ threads?\b",
        "what the processor can do, and how many there are",
    ),
    (
        "PEAK",
        r"\bpeak \d[\d.]* [kMG]B\b",
        "pages that the kernel counted, program and libraries included",
    ),
    (
        "DEVICE",
        r"\bdevice \d[\d.]* [kMG]B\b",
        "bytes with alignment: that of direct reads, or none",
    ),
    (
        "ENGINE",
        r"\b(?:io_uring|pread)\b",
        "what the kernel, or a container's filter, allows",
    ),
    (
        "WAITS",
        r"\b\d[\d.]* % of the time\b|\boverlap \d[\d.]*",
        "shares of a time",
    ),
    (
        "PAGING",
        r"\b\d+ major faults?\b",
        "what else is on the machine",
    ),
    (
        "CACHE",
        r"\S+/demo-(?=[0-9a-f]{16})",
        "where the user's cache lies; the name in it is the model's and is compared",
    ),
];

/// A column of a table whose figures are [`WILD`] as well, by its header.
const WILD_COLUMN: &str = "seconds";

/// Whether `found` is what a document shows as `expected`.
///
/// # Errors
///
/// The first line that differs, both ways.
pub(crate) fn same(expected: &str, found: &str) -> Result<(), String> {
    let [expected, found] = [expected, found].map(settled);
    if expected == found {
        return Ok(());
    }
    let (mut left, mut right) = (expected.lines(), found.lines());
    loop {
        match (left.next(), right.next()) {
            (left, right) if left != right => {
                let [left, right] = [left, right].map(|line| line.unwrap_or("(nothing more)"));
                return Err(format!(
                    "shown:   {left}\nprinted: {right}\n\nall:\n{found}"
                ));
            }
            _ => {}
        }
    }
}

/// `text` with names for what is wild and single blanks.
fn settled(text: &str) -> String {
    let rules = WILD.iter().map(|(name, pattern, _)| {
        let pattern = Regex::new(pattern).expect("the patterns are fixed");
        (*name, pattern)
    });
    let rules: Vec<_> = rules.collect();
    let mut settled = String::new();
    let mut column = None;
    for line in text.trim_end().lines() {
        let mut line = line.trim_end().to_owned();
        if let Some(start) = line.find(WILD_COLUMN) {
            column = Some(start + WILD_COLUMN.len());
        } else if line.is_empty() {
            column = None;
        } else if let Some(end) = column.filter(|end| *end == line.len()) {
            let start = line[..end].rfind(' ').map_or(0, |blank| blank + 1);
            if line[start..].parse::<f64>().is_ok() {
                line.replace_range(start.., "TIME");
            }
        }
        for (name, pattern) in &rules {
            line = pattern.replace_all(&line, *name).into_owned();
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        settled.push_str(&words.join(" "));
        settled.push('\n');
    }
    settled
}

/// Checks of the above; there is no harness that would collect them.
pub(crate) fn check() {
    let table = "in memory  reserved  hits  seconds\n10 %       55.47 MB  10 %     1.01\n\nthe same 96 tokens\n";
    let is_same = |from: &str, to: &str| {
        assert!(table.contains(from), "{from}");
        same(table, &table.replacen(from, to, 1)).is_ok()
    };
    assert!(is_same("1.01", "7.25"), "a time");
    assert!(is_same("    1.01", "   11.01"), "a longer time");
    assert!(!is_same("55.47 MB", "55.48 MB"), "a byte count");
    assert!(!is_same("55.47 MB", "55.47 kB"), "its unit");
    assert!(!is_same("  10 %     1", "  11 %     1"), "hits");
    assert!(!is_same("96 tokens", "97 tokens"), "text");
    assert!(!is_same("the same", "The same"), "a letter");
    assert!(
        !is_same("\nthe same 96 tokens\n", ""),
        "a line that is missing"
    );
    assert!(!is_same("96 tokens\n", "96 tokens\nmore\n"), "a line more");
    let line = "computed  with avx512, 2 threads, 40 sweeps\nread  trunk 6.51 MB, device 9.59 MB\n\
                disk  io_uring, 502.91 MB/s\nloaded  in 0.018 s\nmodel  ~/.cache/k3/demo-4dd322c7cb9d559c (9 layers)\n\
                paging  0 major faults\n";
    let is_same = |from: &str, to: &str| {
        assert!(line.contains(from), "{from}");
        same(line, &line.replacen(from, to, 1)).is_ok()
    };
    for (from, to) in [
        ("avx512, 2 threads", "neon, 1 thread"),
        ("device 9.59 MB", "device 8.38 MB"),
        ("io_uring, 502.91 MB/s", "pread, 1.20 GB/s"),
        ("0.018 s", "18 ms"),
        ("~/.cache/k3/", "/tmp/x/"),
        ("0 major", "3 major"),
    ] {
        assert!(is_same(from, to), "{from} is wild");
    }
    for (from, to) in [
        ("40 sweeps", "41 sweeps"),
        ("trunk 6.51 MB", "trunk 6.52 MB"),
        ("d559c", "d559d"),
        ("9 layers", "8 layers"),
    ] {
        assert!(!is_same(from, to), "{from} is compared");
    }
}
