//! The ladder of the built-in model, to read.

use std::fmt::Write as _;

use k3_terminal::{Stream, fitting, fold, wrap};

use super::ladder::{DemoLadder, Row};
use crate::render::{escape, short_bytes, table};

const WRITE: &str = "writing to a string cannot fail";

/// A rung in a few words.
pub(super) fn name(percent: u64, is_packed: bool) -> String {
    let packed = if is_packed { ", packed" } else { "" };
    format!("{percent} %{packed}")
}

/// The text, the rows, and what they come to.
pub(super) fn render(ladder: &DemoLadder) -> String {
    let columns = fitting(Stream::Stdout);
    let mut text = String::new();
    if let Some(generated) = &ladder.generated_text {
        text.push_str(&fold(&format!("{}{generated}", ladder.prompt), columns));
        text.push('\n');
    }
    let header = [
        "in memory",
        "",
        "reserved",
        "trunk read",
        "experts read",
        "hits",
        "seconds",
    ];
    text.push_str(&table::named(&header, 2, ladder.rows.iter().map(row)));
    for row in &ladder.rows {
        if let Some(error) = &row.error {
            let what = name(row.pinned_percent, row.is_packed);
            let line = format!("\n{what}: {}\n", escape::line(error));
            text.push_str(&wrap(&line, columns));
        }
    }
    let runs = ladder.rows.len();
    let verdict = if ladder.same_ids {
        let count = ladder.rows[0].generated_ids.len();
        let tokens = if count == 1 { "token" } else { "tokens" };
        match runs {
            1 => format!("{count} {tokens}, and no other run to compare with"),
            _ => format!("the same {count} {tokens} in all {runs} runs"),
        }
    } else {
        "NOT the same tokens in every run".to_owned()
    };
    writeln!(text, "\n{verdict}").expect(WRITE);
    if ladder.interrupted {
        text.push_str("interrupted: not every run was made\n");
    }
    text
}

fn row(row: &Row) -> Vec<String> {
    let source = if row.is_packed {
        "packed"
    } else {
        "as released"
    };
    vec![
        format!("{} %", row.pinned_percent),
        source.to_owned(),
        short_bytes(row.planned_bytes),
        short_bytes(row.trunk_read_bytes),
        short_bytes(row.expert_read_bytes),
        format!("{:.0} %", 100.0 * row.hit_rate),
        format!("{:.2}", row.seconds),
    ]
}
