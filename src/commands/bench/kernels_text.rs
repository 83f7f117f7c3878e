//! The result of `k3 bench kernels`, to read.

use std::fmt::Write as _;

use k3_benchmarks::kernels::limits::Limit;
use k3_benchmarks::kernels::report::{KernelReport, Row};
use k3_config::Bytes;
use k3_kernels::Isa;
use k3_runtime::statistics::Spread;

use crate::render::{short_bytes, table};

const GIGA: f64 = 1e9;
const MICRO: f64 = 1e-6;
const WRITE: &str = "writing to a string cannot fail";

/// Weights below which a cache may hold a good part of them.
const MEANINGFUL_BYTES: u64 = 1_200_000_000;

/// Tables by threads and instruction set, then limits.
pub(super) fn render(report: &KernelReport, weights: Bytes) -> String {
    let mut text = String::new();
    if !report.rows.is_empty() {
        text.push_str(&facts(report));
        if weights.0 < MEANINGFUL_BYTES {
            text.push_str("note: caches may hold much of so few weights; rates say little\n");
        }
    }
    for (threads, isa) in sections(&report.rows) {
        push_section(&mut text, report, threads, isa);
    }
    push_pools(&mut text, report);
    push_limits(&mut text, &report.limits);
    if !report.rows.is_empty() {
        let (compared, mismatches) = (report.compared, report.mismatches);
        writeln!(
            text,
            "\noutputs compared with the scalar definition: {compared}, of other bits: {mismatches}"
        )
        .expect(WRITE);
    }
    if report.interrupted {
        text.push_str("interrupted: not every round was done\n");
    }
    text
}

fn facts(report: &KernelReport) -> String {
    let huge = match report.huge_bytes {
        Some(huge) => format!("{} of it in 2 MiB pages", short_bytes(huge)),
        None => "pages not known".to_owned(),
    };
    let weights = short_bytes(report.weights_bytes as u64);
    let samples = format!(
        "{} of {} CPU seconds, in turn",
        report.rounds, report.pass_seconds
    );
    let mut rows = vec![
        ("weights", format!("{weights}, {huge}")),
        ("samples", samples),
    ];
    let reads: Vec<String> = report
        .read
        .iter()
        .map(|read| {
            let Spread { median, q1, q3, .. } = read.bytes_per_second;
            let threads = plural(read.threads);
            format!(
                "{:.1} GB per CPU second on {threads} ({:.1}..{:.1}), {}",
                median / GIGA,
                q1 / GIGA,
                q3 / GIGA,
                read.isa
            )
        })
        .collect();
    rows.extend(reads.into_iter().map(|read| ("reading", read)));
    table::facts(&rows)
}

/// Threads and instruction sets that have rows, in their order.
fn sections(rows: &[Row]) -> Vec<(usize, Isa)> {
    let mut sections = Vec::new();
    for row in rows {
        if !sections.contains(&(row.threads, row.isa)) {
            sections.push((row.threads, row.isa));
        }
    }
    sections.sort_unstable();
    sections
}

fn push_section(text: &mut String, report: &KernelReport, threads: usize, isa: Isa) {
    let alone = if threads > 1 { "/1 thread" } else { "" };
    writeln!(text, "\n{isa}, {}, per CPU second", plural(threads)).expect(WRITE);
    let of_section = |row: &&Row| row.threads == threads && row.isa == isa;
    let rows = || report.rows.iter().filter(of_section);
    let has_packed = rows().any(|row| row.of_unpacked.is_some());
    let packed = if has_packed { "/bf16" } else { "" };
    let header = [
        "",
        "T",
        "GB/s",
        "Gop/s",
        "quartiles",
        "/reading",
        packed,
        "/T=1",
        alone,
    ];
    let rows = rows().map(|row| {
        let ratio = |spread: Option<Spread>| match spread {
            Some(spread) => format!("{:.2}", spread.median),
            None => String::new(),
        };
        let Spread { median, q1, q3, .. } = row.operations_per_second;
        vec![
            row.kernel.to_owned(),
            row.positions
                .map_or_else(String::new, |count| count.to_string()),
            format!("{:.2}", row.bytes_per_second.median / GIGA),
            format!("{:.2}", median / GIGA),
            format!("{:.2}..{:.2}", q1 / GIGA, q3 / GIGA),
            ratio(row.of_read),
            ratio(row.of_unpacked),
            ratio(row.of_one_position),
            ratio(row.of_one_thread),
        ]
    });
    text.push_str(&table::numbers(&header, rows));
}

fn push_pools(text: &mut String, report: &KernelReport) {
    if report.fork_join.is_empty() {
        return;
    }
    text.push_str("\nan empty job over a pool, microseconds of wall time\n");
    let header = ["threads", "", "median", "quartiles"];
    let rows = report.fork_join.iter().flat_map(|pool| {
        [
            ("in use", pool.busy_seconds),
            ("after 2 ms", pool.idle_seconds),
        ]
        .map(|(when, spread)| {
            let Spread { median, q1, q3, .. } = spread;
            vec![
                pool.threads.to_string(),
                when.to_owned(),
                format!("{:.1}", median / MICRO),
                format!("{:.1}..{:.1}", q1 / MICRO, q3 / MICRO),
            ]
        })
    });
    text.push_str(&table::numbers(&header, rows));
}

fn push_limits(text: &mut String, limits: &[Limit]) {
    if limits.is_empty() {
        return;
    }
    text.push_str("\nlimits\n");
    let header = ["", "found", "limit", ""];
    let rows = limits.iter().map(|limit| {
        let side = if limit.is_most { "at most" } else { "at least" };
        let verdict = if limit.kept { "kept" } else { "missed" };
        vec![
            limit.what.clone(),
            figure(limit.found),
            format!("{side} {}", figure(limit.bound)),
            verdict.to_owned(),
        ]
    });
    text.push_str(&table::numbers(&header, rows));
}

/// Ratios with three places, small numbers with their power of ten.
fn figure(value: f64) -> String {
    if value < 1e-3 {
        format!("{value:.1e}")
    } else {
        format!("{value:.3}")
    }
}

fn plural(threads: usize) -> String {
    match threads {
        1 => "1 thread".to_owned(),
        _ => format!("{threads} threads"),
    }
}
