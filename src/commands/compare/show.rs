//! A comparison, to read. Everything fits 80 columns.

use std::fmt::Write as _;

use super::Comparison;
use super::row::{Ranked, RowComparison};
use crate::render::table;

/// Rows with different likeliest ids that are listed.
const LISTED_ROWS_MAX: usize = 10;

/// The comparison as text, line end included.
pub(super) fn comparison(found: &Comparison) -> String {
    let worst = found.worst_row();
    let mut facts = vec![
        (
            "bits",
            if found.identical {
                "identical"
            } else {
                "different"
            }
            .to_owned(),
        ),
        ("values", sizes(found)),
        ("differing", share(found)),
        ("max |a-b|", largest(found, worst)),
        ("relative", relative(found)),
        ("argmax", argmax(found, worst)),
    ];
    let (in_a, in_b) = (found.non_finite_a, found.non_finite_b);
    if in_a + in_b > 0 {
        facts.push(("not finite", format!("{in_a} values in A, {in_b} in B")));
    }
    let mut text = table::facts(&facts);
    if found.one_row_assumed {
        let _ = write!(
            text,
            "\nnote: taken for one position of {} values. A dump made with\n\
             --all-positions holds several: then give their vocabulary with --vocab N\n",
            found.row_values
        );
    }
    if found.rows.len() > 1 && found.argmax_differs > 0 {
        list_rows(&mut text, found);
    }
    if found.rows.len() > 1 {
        let _ = write!(text, "\nRow {}, the one that differs most:\n", worst.row);
    }
    text.push('\n');
    text.push_str(&top_table(worst));
    let overlap = worst.top_overlap;
    let _ = writeln!(
        text,
        "\n{overlap} of the {} likeliest are in both lists",
        worst.top_a.len()
    );
    text
}

fn sizes(found: &Comparison) -> String {
    match found.rows.len() {
        1 => found.values.to_string(),
        rows => format!("{} in {rows} rows of {}", found.values, found.row_values),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share to three digits")]
fn share(found: &Comparison) -> String {
    let percent = 100.0 * found.differing as f64 / found.values as f64;
    format!("{} ({percent:.3} %)", found.differing)
}

fn largest(found: &Comparison, worst: &RowComparison) -> String {
    if found.max_abs_difference == 0.0 {
        return "0".to_owned();
    }
    let place = match found.rows.len() {
        1 => String::new(),
        _ => format!(" of row {}", worst.row),
    };
    format!(
        "{} at id {}{place}",
        number(found.max_abs_difference),
        worst.max_at
    )
}

fn relative(found: &Comparison) -> String {
    let relative = number(found.max_relative);
    if found.max_relative.is_finite() {
        format!("{relative} of the largest |logit| of its row")
    } else {
        relative
    }
}

/// Four digits, in powers of ten where that is shorter.
fn number(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if !value.is_finite() {
        "not finite".to_owned()
    } else if (1e-3..1e5).contains(&value) {
        format!("{value:.4}")
    } else {
        format!("{value:.3e}")
    }
}

fn argmax(found: &Comparison, worst: &RowComparison) -> String {
    match (found.rows.len(), found.argmax_differs) {
        (1, 0) => format!("{} in both", id(worst.argmax_a)),
        (1, _) => format!("{} in A, {} in B", id(worst.argmax_a), id(worst.argmax_b)),
        (rows, 0) => format!("the same in all {rows} rows"),
        (rows, differs) => format!("different in {differs} of {rows} rows"),
    }
}

fn list_rows(text: &mut String, found: &Comparison) {
    text.push('\n');
    let differing = found.rows.iter().filter(|row| !row.argmax_agrees());
    for row in differing.take(LISTED_ROWS_MAX) {
        let (a, b) = (id(row.argmax_a), id(row.argmax_b));
        let _ = writeln!(text, "row {}: argmax {a} in A, {b} in B", row.row);
    }
    if found.argmax_differs > LISTED_ROWS_MAX {
        let _ = writeln!(text, "and {} more", found.argmax_differs - LISTED_ROWS_MAX);
    }
}

fn id(argmax: Option<usize>) -> String {
    argmax.map_or_else(|| "none (not finite)".to_owned(), |id| id.to_string())
}

fn top_table(row: &RowComparison) -> String {
    let cells = |ranked: &Ranked| [ranked.id.to_string(), format!("{:.6}", ranked.logit)];
    let lines = row
        .top_a
        .iter()
        .zip(&row.top_b)
        .enumerate()
        .map(|(index, (a, b))| {
            let [id_a, logit_a] = cells(a);
            let [id_b, logit_b] = cells(b);
            let same = if a.id == b.id { "=" } else { "" }.to_owned();
            vec![(index + 1).to_string(), id_a, logit_a, same, id_b, logit_b]
        });
    table::numbers(&["rank", "id A", "logit A", "", "id B", "logit B"], lines)
}
