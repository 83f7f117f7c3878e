//! A row for every sweep of a run, to read.

use std::fmt::Write as _;

use k3_runtime::report::{StreamingReport, SweepReport};

use super::{short_bytes, table};

const HEADER: [&str; 9] = [
    "sweep", "of", "tokens", "seconds", "waits", "trunk", "experts", "hits", "misses",
];

/// The table, after an empty line: trunk and experts are bytes read.
pub(crate) fn render(report: &StreamingReport) -> String {
    let left_out = report.sweeps_left_out;
    let first_count = report.sweeps.len() as u64 / 2;
    let numbered = (1_u64..).zip(&report.sweeps).map(|(number, sweep)| {
        // Rows are missing in the middle only.
        let skipped = if number > first_count { left_out } else { 0 };
        row(number + skipped, sweep)
    });
    let mut text = format!("\n{}", table::numbers(&HEADER, numbered));
    if left_out > 0 {
        let (from, to) = (first_count + 1, first_count + left_out);
        let _ = writeln!(text, "sweeps {from} to {to} are left out");
    }
    text
}

fn row(number: u64, sweep: &SweepReport) -> Vec<String> {
    let of = if sweep.is_prompt { "prompt" } else { "token" };
    let waits = if sweep.seconds > 0.0 {
        100.0 * sweep.wait_seconds / sweep.seconds
    } else {
        0.0
    };
    vec![
        number.to_string(),
        of.to_owned(),
        sweep.positions.to_string(),
        format!("{:.3}", sweep.seconds),
        format!("{:.1} %", waits.min(100.0)),
        short_bytes(sweep.trunk_read_bytes),
        short_bytes(sweep.expert_read_bytes),
        sweep.hits.to_string(),
        sweep.misses.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(is_prompt: bool) -> SweepReport {
        SweepReport {
            positions: 64,
            is_prompt,
            seconds: 1234.5678,
            wait_seconds: 617.3,
            trunk_read_bytes: 110_900_000_000,
            expert_read_bytes: 25_830_000_000,
            hits: 12_345,
            misses: 82_432,
            ..SweepReport::default()
        }
    }

    #[test]
    fn rows_of_the_largest_model_fit_80_columns() {
        let rows = [row(1, &sweep(true)), row(9999, &sweep(false))];
        let text = table::numbers(&HEADER, rows.into_iter());
        assert_eq!(text.lines().count(), 3);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("50.0 %"), "{text}");
    }

    #[test]
    fn a_sweep_of_no_time_waits_for_nothing() {
        assert_eq!(row(1, &SweepReport::default())[4], "0.0 %");
    }
}
