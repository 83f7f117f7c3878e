//! The findings, to read: at most 80 columns.

use std::fmt::Write as _;
use std::path::Path;

use k3_config::{Bytes, MemlockLimit, TransparentHugepages};
use k3_runtime::PlacementReport;

use super::choices::Choice;
use super::disk::{Cell, Disk};
use super::findings::Severity;
use super::machine::{Pages, limit_name};
use super::{Recommended, Report};
use crate::render::{escape, short_bytes, table};

const WRITE: &str = "writing to a string cannot fail";
/// Columns that a screen is taken to have.
const COLUMNS: usize = 80;
/// Limits of control groups that are listed.
const LIMITS_MAX: usize = 4;

/// The whole report.
pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    section(&mut text, "processor", &processor(report));
    section(&mut text, "memory", &memory(report));
    section(&mut text, "reading", &reading(report));
    for disk in &report.disks {
        section(&mut text, &format!("disk {}", disk.label()), &rows(disk));
    }
    push_choices(&mut text, report);
    push_findings(&mut text, report);
    push_recommended(&mut text, report);
    text
}

/// A title over names and values; a long value goes on below its start.
fn section(text: &mut String, title: &str, rows: &[(&str, String)]) {
    writeln!(text, "{}", escape::line(title)).expect(WRITE);
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        push_words(text, &format!("  {name:<width$}  "), &escape::line(value));
    }
    text.push('\n');
}

/// `words` behind `label`, broken between words, further lines as far in.
fn push_words(text: &mut String, label: &str, words: &str) {
    let indent = label.chars().count();
    let mut line = label.to_owned();
    let mut column = indent;
    for word in words.split(' ') {
        let width = word.chars().count();
        if column > indent && column + 1 + width > COLUMNS {
            writeln!(text, "{}", line.trim_end()).expect(WRITE);
            line = " ".repeat(indent);
            column = indent;
        }
        if column > indent {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += width;
    }
    writeln!(text, "{}", line.trim_end()).expect(WRITE);
}

fn processor(report: &Report) -> Vec<(&'static str, String)> {
    let processors = &report.processors;
    let unknown = || "the kernel does not tell".to_owned();
    let mut others: Vec<_> = processors.isas_available.clone();
    others.retain(|isa| *isa != processors.isa);
    let others = match &others[..] {
        [] => String::new(),
        others => format!(" (also here: {})", others.join(", ")),
    };
    let arithmetic = &report.arithmetic;
    vec![
        ("name", processors.name.clone().unwrap_or_else(unknown)),
        ("kernels", format!("{}{others}", processors.isa)),
        (
            "threads",
            format!(
                "{}, limited by {}, {}",
                processors.threads,
                processors.limited_by,
                placement(&processors.placement)
            ),
        ),
        (
            "arithmetic",
            format!(
                "{} GB/s of bf16 weights, {} GB/s of MXFP4",
                giga(arithmetic.bf16_bytes_per_second),
                giga(arithmetic.mxfp4_bytes_per_second)
            ),
        ),
    ]
}

fn placement(placement: &PlacementReport) -> String {
    match &placement.not_pinned_reason {
        Some(reason) => format!("not pinned: {reason}"),
        None => {
            let cpus: Vec<String> = placement.cpus.iter().map(u32::to_string).collect();
            format!("pinned to {}", cpus.join(", "))
        }
    }
}

fn memory(report: &Report) -> Vec<(&'static str, String)> {
    let memory = &report.memory;
    let bytes = |value: Option<Bytes>| value.map_or("unknown".to_owned(), |b| b.to_string());
    let mut rows = vec![
        ("total", bytes(memory.total)),
        ("available", bytes(memory.available)),
    ];
    // Version 1 states the same limit in two files.
    let mut limits = memory.limits.clone();
    limits.dedup_by(|b, a| a.bytes == b.bytes && a.path.parent() == b.path.parent());
    for limit in limits.iter().take(LIMITS_MAX) {
        let name = limit_name(&limit.path);
        let held = limit.held.map_or_else(String::new, |held| {
            format!(", {} of it in use", short_bytes(held.0))
        });
        rows.push(("limit", format!("{} by {name}{held}", limit.bytes)));
    }
    if memory.limits.is_empty() {
        rows.push(("limit", "none of a control group".to_owned()));
    }
    rows.push(match (&memory.auto, &memory.auto_problem) {
        (Some(auto), _) => (
            "auto",
            format!(
                "{}: {} less {} for the rest",
                auto.total,
                limit_name(Path::new(&auto.limit)),
                short_bytes(auto.reserve.0)
            ),
        ),
        (None, problem) => ("auto", problem.clone().unwrap_or_default()),
    });
    let swappiness = report.kernel.swappiness;
    let swappiness = swappiness.map_or_else(String::new, |value| format!(", swappiness {value}"));
    rows.push(match (memory.swap_total, memory.swap_used()) {
        (Some(Bytes(0)), _) => ("swap", "none".to_owned()),
        (Some(total), Some(used)) => (
            "swap",
            format!(
                "{} of {} in use{swappiness}",
                short_bytes(used),
                short_bytes(total.0)
            ),
        ),
        _ => ("swap", "unknown".to_owned()),
    });
    rows.extend(pages(&report.pages));
    rows
}

fn pages(pages: &Pages) -> [(&'static str, String); 2] {
    let transparent = match pages.transparent {
        TransparentHugepages::Always => "always",
        TransparentHugepages::Madvise => "on advice",
        TransparentHugepages::Never => "never",
        TransparentHugepages::Unknown => "unknown",
    };
    let reserved = match (pages.reserved_count, pages.free_count) {
        (Some(0) | None, _) => "none reserved".to_owned(),
        (Some(count), free) => format!("{count} reserved, {} free", free.unwrap_or(0)),
    };
    let got = pages.huge_bytes.map_or_else(
        || format!("{} asked for, what came is unknown", pages.got),
        |huge| {
            format!(
                "{} of {} in huge pages ({})",
                short_bytes(huge),
                short_bytes(pages.trial_bytes),
                pages.got
            )
        },
    );
    [
        (
            "huge pages",
            format!("{reserved}; transparent ones {transparent}"),
        ),
        ("a buffer gets", got),
    ]
}

fn reading(report: &Report) -> Vec<(&'static str, String)> {
    let reader = &report.reader;
    let engine = match (reader.uring_wanted, reader.lacks_uring()) {
        (true, true) => "pread threads, as io_uring is not to be had".to_owned(),
        (true, false) if reader.ring_flags.is_empty() => "io_uring works".to_owned(),
        (true, false) => format!("io_uring works ({})", reader.ring_flags),
        (false, _) => "pread threads, as asked for".to_owned(),
    };
    let mut rows = vec![("engine", engine)];
    if !reader.lacks_uring() && reader.uring_wanted {
        let registered = format!(
            "{} of {} of buffers",
            short_bytes(reader.registered_bytes),
            short_bytes(reader.registrable_bytes)
        );
        rows.push(("registered", registered));
    }
    let lockable = match (report.memory.memlock, report.kernel.may_lock_any) {
        (_, Some(true)) => "any amount (CAP_IPC_LOCK)".to_owned(),
        (MemlockLimit::Unlimited, _) => "any amount".to_owned(),
        (MemlockLimit::AtMost(bytes), _) => bytes.to_string(),
        (MemlockLimit::Unknown, _) => "unknown".to_owned(),
    };
    rows.push(("lockable", lockable));
    for fallback in &reader.fallbacks {
        rows.push(("without", fallback.clone()));
    }
    rows
}

fn rows(disk: &Disk) -> Vec<(&'static str, String)> {
    let files = format!(
        "{} {}, {}",
        disk.file_count,
        if disk.file_count == 1 {
            "file"
        } else {
            "files"
        },
        Bytes(disk.file_bytes)
    );
    let kind = match disk.device.rotational {
        Some(true) => ", said to rotate",
        Some(false) => ", no moving parts",
        None => "",
    };
    let mut rows = vec![("holds", format!("{files}{kind}"))];
    if let Some(reason) = &disk.not_measured {
        rows.push(("rate", format!("not measured: {reason}")));
        return rows;
    }
    let way = if disk.direct {
        "past the page cache"
    } else {
        "through the page cache: may be wrong"
    };
    rows.push(("measured", way.to_owned()));
    let cells = [
        ("best", &disk.best),
        ("enough", &disk.knee),
        ("a run", &disk.run),
    ];
    for (name, cell) in cells {
        if let Some(cell) = cell {
            rows.push((name, rate(cell)));
        }
    }
    rows
}

fn rate(cell: &Cell) -> String {
    format!(
        "{} GB/s ({} to {}), {} x {} KiB in flight",
        giga(cell.bytes_per_second),
        giga(cell.slowest),
        giga(cell.fastest),
        cell.depth,
        cell.request_bytes >> 10
    )
}

fn push_choices(text: &mut String, report: &Report) {
    match &report.model {
        Some(model) => {
            let what = format!(
                "{}, {} layers{}, {} positions",
                model.path.display(),
                model.layers,
                if model.weights_present {
                    ""
                } else {
                    " (weights not here)"
                },
                report.context_positions
            );
            push_words(text, "", &escape::line(&what));
            text.push_str(
                "one token that finds no expert in memory; s/token = the larger of disk and cpu\n",
            );
            let header = [
                "preset     ",
                "memory",
                "fits",
                "plan",
                "reads",
                "disk s",
                "cpu s",
                "s/token",
            ];
            let rows = report.choices.iter().map(model_row);
            text.push_str(&table::numbers(&header, rows));
        }
        None => {
            text.push_str("presets, by memory alone (no model was named)\n");
            let rows = report
                .choices
                .iter()
                .map(|choice| vec![name_of(choice), memory_of(choice), fits(choice)]);
            text.push_str(&table::numbers(&["preset     ", "memory", "fits"], rows));
        }
    }
    text.push('\n');
}

fn model_row(choice: &Choice) -> Vec<String> {
    let seconds = |value: Option<f64>| value.map_or("-".to_owned(), |s| format!("{s:.2}"));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes for people to read"
    )]
    let bytes = |value: Option<f64>| value.map_or("-".to_owned(), |b| short_bytes(b as u64));
    vec![
        name_of(choice),
        memory_of(choice),
        fits(choice),
        choice.planned.map_or("-".to_owned(), |b| short_bytes(b.0)),
        bytes(choice.bytes_per_token),
        seconds(choice.disk_seconds),
        seconds(choice.arithmetic_seconds),
        seconds(choice.seconds_per_token),
    ]
}

/// As wide as the longest, so that names stand under each other.
fn name_of(choice: &Choice) -> String {
    format!("{:<11}", choice.preset.name())
}

fn memory_of(choice: &Choice) -> String {
    choice.memory.map_or("-".to_owned(), |b| short_bytes(b.0))
}

fn fits(choice: &Choice) -> String {
    if choice.fits { "yes" } else { "no" }.to_owned()
}

fn push_findings(text: &mut String, report: &Report) {
    for (severity, title) in [
        (Severity::Impossible, "impossible"),
        (Severity::LessThanIdeal, "less than ideal"),
    ] {
        let findings = report.findings.iter();
        let findings: Vec<_> = findings.filter(|f| f.severity == severity).collect();
        if findings.is_empty() {
            continue;
        }
        writeln!(text, "{title}").expect(WRITE);
        for finding in findings {
            push_words(text, "  - ", &escape::line(&finding.what));
            push_words(text, "    way out: ", &escape::line(&finding.way_out));
        }
        text.push('\n');
    }
}

fn push_recommended(text: &mut String, report: &Report) {
    match &report.recommended {
        Some(Recommended { preset, command }) => {
            writeln!(text, "recommended: {preset}\n  {}", escape::line(command)).expect(WRITE);
        }
        None => text.push_str("recommended: nothing, as no run is possible\n"),
    }
}

/// In 10^9, to three digits.
fn giga(value: f64) -> String {
    let value = value / 1e9;
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
