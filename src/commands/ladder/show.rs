//! A ladder, to read.

use std::fmt::Write as _;

use k3_config::Bytes;
use k3_runtime::ladder::{IdsReport, LadderReport, RungFigures, RungReport, RungStatus};
use k3_runtime::statistics::Spread;

use crate::render::{escape, short_bytes, table};

/// Columns that the ids of a list take at most.
const IDS_COLUMNS_MAX: usize = 60;
/// Runs of a list that are named.
const RUNS_MAX: usize = 4;
const WRITE: &str = "writing to a string cannot fail";
/// What is not known.
const UNKNOWN: &str = "-";

/// The whole ladder, within 80 columns.
pub(super) fn render(report: &LadderReport) -> String {
    let header = &report.header;
    let mut facts = vec![
        ("model", header.model.clone()),
        ("limits", header.limits.clone()),
    ];
    facts.extend(header.group.clone().map(|path| ("below", path)));
    facts.push(("runs", runs(report)));
    let mut text = table::facts(&facts);
    text.push_str("\nmemory, the most over all runs; planned <= budget = the kernel's limit\n");
    push_memory(&mut text, report);
    text.push_str("\nseconds\n");
    push_seconds(&mut text, report);
    text.push_str("\nreading, medians\n");
    push_reading(&mut text, report);
    text.push('\n');
    push_ids(&mut text, &report.ids);
    for rung in &report.rungs {
        if let Some(reason) = &rung.reason {
            let name = budget(rung.budget_bytes);
            let status = rung.status.name();
            writeln!(text, "{name}: {status}: {}", escape::line(reason)).expect(WRITE);
        }
    }
    push_notes(&mut text, report);
    text
}

fn runs(report: &LadderReport) -> String {
    let stopped = if report.interrupted {
        "; interrupted: what had ended is shown"
    } else {
        ""
    };
    let repeats = report.header.repeats;
    let rungs = match report.rungs.len() {
        1 => "1 rung".to_owned(),
        count => format!("{count} rungs, taking turns"),
    };
    format!("{repeats} of each of {rungs}{stopped}")
}

fn push_memory(text: &mut String, report: &LadderReport) {
    let header = [
        "rung",
        "planned",
        "peak",
        "anon+krnl",
        "group",
        "swap",
        "OOM",
        "status",
    ];
    let rows = report.rungs.iter().map(|rung| {
        let group = &rung.group;
        let size = |bytes: Option<Bytes>| known(bytes.map(|bytes| short_bytes(bytes.0)));
        vec![
            budget(rung.budget_bytes),
            known(rung.planned_bytes.map(short_bytes)),
            known(figures(rung, |all| all.peak_bytes).map(short_bytes)),
            size(group.anon_and_kernel),
            size(group.peak),
            size(group.swap),
            known(group.oom_kills),
            rung.status.name().to_owned(),
        ]
    });
    text.push_str(&table::numbers(&header, rows));
}

fn push_seconds(text: &mut String, report: &LadderReport) {
    let header = [
        "rung", "runs", "prefill", "token", "least", "quartile", "quartile", "most",
    ];
    let rows = report.rungs.iter().map(|rung| {
        let token = |of: fn(&Spread) -> f64| {
            let value = figures(rung, |all| all.token_seconds.as_ref().map(of));
            known(value.map(seconds))
        };
        vec![
            budget(rung.budget_bytes),
            figures(rung, |all| Some(all.run_count))
                .unwrap_or(0)
                .to_string(),
            known(figures(rung, |all| {
                Some(seconds(all.prefill_seconds.median))
            })),
            token(|spread| spread.median),
            token(|spread| spread.min),
            token(|spread| spread.q1),
            token(|spread| spread.q3),
            token(|spread| spread.max),
        ]
    });
    text.push_str(&table::numbers(&header, rows));
}

fn push_reading(text: &mut String, report: &LadderReport) {
    let header = [
        "rung",
        "read/token",
        "disk",
        "waits",
        "overlap",
        "hits",
        "fallbacks",
    ];
    let rows = report.rungs.iter().map(|rung| {
        let percent = |of: fn(&RungFigures) -> f64| {
            known(figures(rung, |all| {
                Some(format!("{:.1} %", 100.0 * of(all)))
            }))
        };
        vec![
            budget(rung.budget_bytes),
            known(figures(rung, |all| all.read_bytes_per_token).map(whole_bytes)),
            known(figures(rung, |all| {
                Some(format!("{}/s", whole_bytes(all.disk_bytes_per_second)))
            })),
            percent(|all| all.io_share),
            known(figures(rung, |all| Some(format!("{:.2}", all.overlap)))),
            percent(|all| all.hit_rate),
            known(figures(rung, |all| Some(all.fallbacks.len()))),
        ]
    });
    text.push_str(&table::numbers(&header, rows));
}

fn push_ids(text: &mut String, ids: &IdsReport) {
    match &ids.seen[..] {
        [] => writeln!(text, "ids: no run finished"),
        [only] => {
            let list = list(&only.generated_ids);
            match only.runs.len() {
                1 => writeln!(text, "ids of the one run\n  {list}"),
                count => writeln!(text, "ids, the same in all {count} runs\n  {list}"),
            }
        }
        seen => {
            writeln!(text, "ids DIFFER between runs").expect(WRITE);
            for seen in seen {
                let runs = seen
                    .runs
                    .iter()
                    .take(RUNS_MAX)
                    .map(|run| format!("{} repeat {}", budget(run.budget_bytes), run.repeat));
                let runs: Vec<String> = runs.collect();
                let more = match seen.runs.len().saturating_sub(RUNS_MAX) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let list = list(&seen.generated_ids);
                writeln!(text, "  {list}\n    in {}{more}", runs.join(", ")).expect(WRITE);
            }
            Ok(())
        }
    }
    .expect(WRITE);
}

fn push_notes(text: &mut String, report: &LadderReport) {
    for note in &report.header.notes {
        writeln!(text, "note: {}", escape::line(note)).expect(WRITE);
    }
    let mut fallbacks: Vec<&String> = report
        .rungs
        .iter()
        .filter_map(|rung| rung.figures.as_ref())
        .flat_map(|figures| &figures.fallbacks)
        .collect();
    fallbacks.sort();
    fallbacks.dedup();
    for fallback in fallbacks {
        writeln!(text, "fallback: {}", escape::line(fallback)).expect(WRITE);
    }
    let is_refused = |rung: &&RungReport| rung.status == RungStatus::Refused;
    let refused = report.rungs.iter().filter(is_refused);
    let smallest = refused.filter_map(|rung| rung.smallest_budget_bytes).max();
    if let Some(smallest) = smallest {
        writeln!(text, "way out: a rung that fits is --rungs {smallest}").expect(WRITE);
    }
}

fn list(ids: &[u32]) -> String {
    if ids.is_empty() {
        return "none were asked for".to_owned();
    }
    let mut shown = String::new();
    for (index, id) in ids.iter().enumerate() {
        let id = id.to_string();
        if shown.len() + 1 + id.len() > IDS_COLUMNS_MAX {
            return format!("{shown} and {} more", ids.len() - index);
        }
        if index > 0 {
            shown.push(' ');
        }
        shown.push_str(&id);
    }
    shown
}

fn figures<T>(rung: &RungReport, of: impl Fn(&RungFigures) -> Option<T>) -> Option<T> {
    rung.figures.as_ref().and_then(of)
}

fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

/// Bytes that came out of a division.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size to three digits, never negative"
)]
fn whole_bytes(bytes: f64) -> String {
    short_bytes(bytes.round() as u64)
}

/// Three digits, or more before the point.
pub(super) fn seconds(seconds: f64) -> String {
    let digits = match seconds {
        seconds if seconds < 1.0 => 4,
        seconds if seconds < 10.0 => 3,
        seconds if seconds < 100.0 => 2,
        _ => 1,
    };
    format!("{seconds:.digits$}")
}

/// A budget in the unit it is round in: limits are set in GiB, drives and
/// presets count in GB.
pub(super) fn budget(bytes: u64) -> String {
    let units = [
        (1 << 30, "GiB"),
        (1_000_000_000, "GB"),
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
    ];
    for (scale, name) in units {
        // One and a half counts as round.
        let (halves, rest) = (2 * u128::from(bytes) / scale, 2 * u128::from(bytes) % scale);
        if halves >= 2 && rest == 0 {
            let half = if halves % 2 == 1 { ".5" } else { "" };
            return format!("{}{half} {name}", halves / 2);
        }
    }
    short_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use k3_config::GroupPeaks;
    use k3_runtime::ladder::{LadderHeader, LadderRun, RunFigures, RunOutcome, RungPlan};
    use k3_runtime::report::{
        CacheReport, EngineReport, MemoryReport, REPORT_VERSION, TimeReport, TimingReport,
    };

    use super::*;

    #[test]
    fn budgets_are_shown_as_people_say_them() {
        for (bytes, want) in [
            (3 << 29, "1.5 GiB"),
            (8 << 30, "8 GiB"),
            (8_000_000_000, "8 GB"),
            (64 << 20, "64 MiB"),
            (64_000_000, "64 MB"),
            (1_500_000, "1.5 MB"),
            (1_234_567, "1.23 MB"),
            (1, "1 B"),
        ] {
            assert_eq!(budget(bytes), want);
        }
    }

    fn finished(repeat: u32, ids: &[u32]) -> LadderRun {
        let memory = MemoryReport {
            planned_bytes: 8,
            peak_bytes: Some(7),
            ..MemoryReport::default()
        };
        let timing = TimingReport {
            token_seconds: vec![0.1, 2.0],
            ..TimingReport::default()
        };
        let json = serde_json::json!({
            "report_version": REPORT_VERSION,
            "generated_ids": ids,
            "timing": timing,
            "streaming": {
                "memory": memory,
                "engine": EngineReport::default(),
                "cache": CacheReport::default(),
                "time": TimeReport::default(),
                "sweeps": [],
                "fallbacks": ["pages are small"],
            },
        });
        let figures = RunFigures::parse(json.to_string().as_bytes()).unwrap();
        LadderRun {
            repeat,
            seconds: 3.0,
            group: GroupPeaks::default(),
            outcome: RunOutcome::Finished(Box::new(figures)),
        }
    }

    #[test]
    fn ids_that_differ_are_shown_beside_each_other() {
        let header = LadderHeader {
            k3_version: "1".to_owned(),
            model: "model".to_owned(),
            limits: "nothing".to_owned(),
            group: None,
            repeats: 5,
            prompt_ids: vec![1],
            notes: Vec::new(),
        };
        let fits = RungPlan::Fits {
            planned: Bytes(1000),
        };
        let long: Vec<u32> = (163_000..163_100).collect();
        let small = (1..=5).map(|repeat| finished(repeat, &long)).collect();
        let rungs = [
            (Bytes(1 << 30), fits, small),
            (
                Bytes(2 << 30),
                fits,
                vec![finished(1, &[7, 8]), finished(2, &long)],
            ),
        ];
        let text = render(&LadderReport::new(header, &rungs, false));
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(
            text.contains("ids DIFFER between runs\n  163000 163001 "),
            "{text}"
        );
        let odd = "  7 8\n    in 2 GiB repeat 1\n";
        assert!(text.contains(odd) && text.contains("and 2 more"), "{text}");
        assert!(text.contains("fallback: pages are small"), "{text}");
    }

    #[test]
    fn seconds_keep_three_digits() {
        let shown = [0.012_345, 1.5, 12.345, 123.45].map(seconds);
        assert_eq!(shown, ["0.0123", "1.500", "12.35", "123.5"]);
    }
}
