//! A ladder as tab-separated text: units in the names, nothing where nothing is
//! known.

use k3_config::Bytes;

use super::report::LadderReport;
use super::rung::{RungFigures, RungReport};
use crate::statistics::Spread;

type Cell = fn(&LadderReport, &RungReport) -> String;

/// Every column: its name, and its value for a rung.
const COLUMNS: [(&str, Cell); 28] = [
    ("budget_bytes", |_, rung| rung.budget_bytes.to_string()),
    ("status", |_, rung| rung.status.name().to_owned()),
    ("limits", |report, _| report.header.limits.clone()),
    ("run_count", |_, rung| rung.runs.len().to_string()),
    ("finished_count", |_, rung| {
        known(figure(rung, |all| Some(all.run_count)))
    }),
    ("planned_bytes", |_, rung| known(rung.planned_bytes)),
    ("peak_bytes", |_, rung| {
        known(figure(rung, |all| all.peak_bytes))
    }),
    ("anon_and_kernel_bytes", |_, rung| {
        size(rung.group.anon_and_kernel)
    }),
    ("group_peak_bytes", |_, rung| size(rung.group.peak)),
    ("swap_bytes", |_, rung| size(rung.group.swap)),
    ("oom_kill_count", |_, rung| known(rung.group.oom_kills)),
    ("limit_hit_count", |_, rung| known(rung.group.limit_hits)),
    ("prefill_seconds_min", |_, rung| {
        prefill(rung, |spread| spread.min)
    }),
    ("prefill_seconds_median", |_, rung| {
        prefill(rung, |spread| spread.median)
    }),
    ("prefill_seconds_max", |_, rung| {
        prefill(rung, |spread| spread.max)
    }),
    ("token_seconds_min", |_, rung| {
        token(rung, |spread| spread.min)
    }),
    ("token_seconds_q1", |_, rung| {
        token(rung, |spread| spread.q1)
    }),
    ("token_seconds_median", |_, rung| {
        token(rung, |spread| spread.median)
    }),
    ("token_seconds_q3", |_, rung| {
        token(rung, |spread| spread.q3)
    }),
    ("token_seconds_max", |_, rung| {
        token(rung, |spread| spread.max)
    }),
    ("read_bytes_per_token", |_, rung| {
        known(figure(rung, |all| all.read_bytes_per_token))
    }),
    ("disk_bytes_per_second", |_, rung| {
        known(figure(rung, |all| Some(all.disk_bytes_per_second)))
    }),
    ("io_share", |_, rung| {
        known(figure(rung, |all| Some(all.io_share)))
    }),
    ("overlap", |_, rung| {
        known(figure(rung, |all| Some(all.overlap)))
    }),
    ("hit_rate", |_, rung| {
        known(figure(rung, |all| Some(all.hit_rate)))
    }),
    ("fallback_count", |_, rung| {
        known(figure(rung, |all| Some(all.fallbacks.len())))
    }),
    ("smallest_budget_bytes", |_, rung| {
        known(rung.smallest_budget_bytes)
    }),
    ("ids_agree", |report, _| report.ids.agree.to_string()),
];

pub(super) fn table(report: &LadderReport) -> String {
    let header = COLUMNS.map(|(name, _)| name).join("\t");
    let rows = report.rungs.iter().map(|rung| {
        let cells = COLUMNS.map(|(_, cell)| one_field(&cell(report, rung)));
        cells.join("\t")
    });
    let mut text = header + "\n";
    for row in rows {
        text += &row;
        text.push('\n');
    }
    text
}

/// What separates fields and rows cannot be in one.
fn one_field(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

fn figure<T>(rung: &RungReport, of: impl Fn(&RungFigures) -> Option<T>) -> Option<T> {
    rung.figures.as_ref().and_then(of)
}

fn prefill(rung: &RungReport, of: fn(&Spread) -> f64) -> String {
    known(figure(rung, |all| Some(of(&all.prefill_seconds))))
}

fn token(rung: &RungReport, of: fn(&Spread) -> f64) -> String {
    known(figure(rung, |all| all.token_seconds.as_ref().map(of)))
}

fn size(value: Option<Bytes>) -> String {
    known(value.map(|bytes| bytes.0))
}

fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::ladder;
    use super::super::rung::RungPlan;
    use super::super::rung::tests::{FITS, finished};
    use super::*;

    #[test]
    fn every_row_has_every_column() {
        let small = RungPlan::TooSmall {
            smallest: Some(Bytes(900)),
        };
        let good = finished(1, &[4, 5], &[0.1, 1.5]);
        let mut report = ladder(&[
            (Bytes(9), small, Vec::new()),
            (Bytes(2000), FITS, vec![good]),
        ]);
        report.header.limits = "a\tgroup\n".to_owned();
        let text = report.tsv();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split('\t').collect())
            .collect();
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.len() == COLUMNS.len()), "{text}");
        let cell = |row: usize, name: &str| {
            let column = rows[0].iter().position(|column| *column == name);
            rows[row][column.unwrap_or_else(|| panic!("no column {name}"))]
        };
        assert_eq!(
            (cell(1, "budget_bytes"), cell(1, "status")),
            ("9", "refused")
        );
        assert_eq!(cell(1, "smallest_budget_bytes"), "900");
        assert_eq!(
            (cell(1, "peak_bytes"), cell(1, "token_seconds_median")),
            ("", "")
        );
        assert_eq!(
            (cell(2, "planned_bytes"), cell(2, "peak_bytes")),
            ("1000", "990")
        );
        assert_eq!(cell(2, "token_seconds_median"), "1.5");
        assert_eq!(
            (cell(2, "swap_bytes"), cell(2, "oom_kill_count")),
            ("0", "0")
        );
        assert_eq!(
            (cell(2, "limits"), cell(2, "ids_agree")),
            ("a group ", "true")
        );
    }
}
