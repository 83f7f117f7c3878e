//! A measurement of overlap, to read.

use std::fmt::Write as _;

use k3_actors::bench::overlap::OverlapPoint;
use k3_runtime::statistics::Spread;

use super::overlap::{OverlapReport, Verdict};
use crate::render::wrap::wrap;
use crate::render::{escape, short_bytes, table};

const GIGA: f64 = 1e9;

/// The tables of `report`.
pub(super) fn render(report: &OverlapReport) -> String {
    let mut text = table::facts(&facts(report));
    let write = "writing to a string cannot fail";
    writeln!(
        text,
        "\nseconds of a sweep over T positions: median and least..most of {}",
        report.execution.rounds
    )
    .expect(write);
    let header = ["T", "wall", "", "I/O", "", "compute", ""];
    text.push_str(&table::numbers(&header, report.points.iter().map(seconds)));
    text.push_str("\nwall / the longer of I/O and compute, triple by triple\n");
    let header = [
        "T",
        "ratio",
        "quartiles",
        "least..most",
        "in series",
        "read",
        "GB/s",
        "alone",
        "",
    ];
    let rows = report
        .points
        .iter()
        .map(|point| ratios(point, report.limit));
    text.push_str(&table::numbers(&header, rows));
    text.push('\n');
    for line in closing(report) {
        text.push_str(&wrap(&format!("{}\n", escape::line(&line))));
    }
    text
}

fn facts(report: &OverlapReport) -> [(&'static str, String); 5] {
    let (execution, memory) = (&report.execution, &report.memory);
    [
        (
            "model",
            format!(
                "{} ({} layers)",
                report.model.path.display(),
                report.model.layers
            ),
        ),
        (
            "computed",
            format!(
                "with {}, {} threads{}",
                execution.isa,
                execution.threads,
                if execution.placement.pinned {
                    " pinned"
                } else {
                    ""
                }
            ),
        ),
        (
            "read",
            format!(
                "by {}, {} in flight; {} of {} trunk pinned",
                execution.engine,
                short_bytes(execution.in_flight_bytes as u64),
                short_bytes(memory.pinned_bytes),
                short_bytes(memory.trunk_bytes)
            ),
        ),
        (
            "memory",
            format!(
                "budget {} ({})",
                short_bytes(memory.budget_bytes),
                memory.budget_origin
            ),
        ),
        (
            "beside it",
            format!(
                "{} for I/O alone, {} of weights for compute alone",
                short_bytes(memory.io_alone_bytes),
                short_bytes(memory.compute_alone_bytes)
            ),
        ),
    ]
}

fn seconds(point: &OverlapPoint) -> Vec<String> {
    let mut row = vec![label(point)];
    for spread in [
        &point.wall_seconds,
        &point.io_seconds,
        &point.compute_seconds,
    ] {
        row.push(short_seconds(spread.median));
        row.push(range(spread.min, spread.max, short_seconds));
    }
    row
}

fn ratios(point: &OverlapPoint, limit: f64) -> Vec<String> {
    let Spread {
        median,
        min,
        q1,
        q3,
        max,
    } = point.ratio;
    let verdict = match Verdict::of(point, limit) {
        Verdict::Kept => "ok",
        Verdict::Missed => "missed",
        Verdict::NotComparable => "?",
    };
    let two = |value: f64| format!("{value:.2}");
    vec![
        label(point),
        format!("{median:.3}"),
        range(q1, q3, two),
        range(min, max, two),
        format!("{:.2}", point.serial_ratio),
        short_bytes(point.read_bytes()),
        format!("{:.2}", point.wall_bytes_per_second / GIGA),
        format!("{:.2}", point.io_bytes_per_second / GIGA),
        verdict.to_owned(),
    ]
}

/// The number of positions; a star where it was searched for.
fn label(point: &OverlapPoint) -> String {
    let star = if point.is_closest { "*" } else { "" };
    format!("{star}{}", point.positions)
}

fn range(low: f64, high: f64, form: impl Fn(f64) -> String) -> String {
    format!("{}..{}", form(low), form(high))
}

/// Three digits.
fn short_seconds(seconds: f64) -> String {
    match seconds {
        10.0.. => format!("{seconds:.1}"),
        1.0.. => format!("{seconds:.2}"),
        _ => format!("{seconds:.3}"),
    }
}

fn closing(report: &OverlapReport) -> Vec<String> {
    let mut lines = Vec::new();
    if report.points.iter().any(|point| point.is_closest) {
        lines.push("* where I/O and compute are closest".to_owned());
    }
    let count = |verdict| {
        let points = report.points.iter();
        points
            .filter(|point| Verdict::of(point, report.limit) == verdict)
            .count()
    };
    let total = report.points.len();
    let (missed, unknown) = (count(Verdict::Missed), count(Verdict::NotComparable));
    lines.push(match (missed, unknown, report.interrupted) {
        (_, _, true) => "interrupted: not everything was measured".to_owned(),
        (0, 0, false) => format!("limit {}: kept", report.limit),
        (0, _, false) => format!("limit {}: not known at {unknown} of {total}", report.limit),
        _ => format!("limit {}: missed at {missed} of {total}", report.limit),
    });
    if unknown > 0 {
        lines.push(
            "? not comparable: the sides do not belong to the streamed sweep; measure on a \
             machine that does nothing else"
                .to_owned(),
        );
    }
    if report.points.iter().any(|point| !point.reads_are_equal) {
        lines.push(
            "note: some sweeps read more or less than the recorded one; the expert cache was \
             not in a steady state"
                .to_owned(),
        );
    }
    let notes = report.fallbacks.iter().chain(&report.notes);
    lines.extend(notes.map(|line| format!("note: {line}")));
    lines
}
