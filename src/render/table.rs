//! Tables in plain text, without lines.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use k3_terminal::{COLUMNS, wrap};

use super::escape;

/// Columns between a name and its value.
const GAP_COLUMNS: usize = 2;

/// Names and values, one pair a line, values aligned.
pub(crate) fn facts(rows: &[(&str, String)]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for (name, value) in rows {
        table.add_row([(*name).to_owned(), escape::line(value)]);
    }
    finish(&mut table)
}

/// As [`facts`], in lines of at most [`COLUMNS`]: values go on below where they begin.
pub(crate) fn fitting_facts(rows: &[(&str, String)]) -> String {
    let names = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let room = COLUMNS.saturating_sub(names + GAP_COLUMNS);
    let mut broken = Vec::new();
    for (name, value) in rows {
        // It gives all lines but the first an indent.
        let wrapped = wrap(&escape::line(value), room);
        let lines = wrapped.lines().map(|line| line.trim_start().to_owned());
        let names = std::iter::once(*name).chain(std::iter::repeat(""));
        broken.extend(names.zip(lines));
    }
    facts(&broken)
}

/// Columns of numbers under a header, aligned to the right.
pub(crate) fn numbers(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    named(header, 0, rows)
}

/// As [`numbers`], with the first `names` columns aligned to the left.
pub(crate) fn named(
    header: &[&str],
    names: usize,
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(header.iter().copied());
    for row in rows {
        table.add_row(row.iter().map(|cell| escape::line(cell)));
    }
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    finish(&mut table)
}

fn finish(table: &mut Table) -> String {
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_aligned_without_trailing_blanks() {
        let text = facts(&[("a", "1".to_owned()), ("longer", "two words".to_owned())]);
        assert_eq!(text, "a       1\nlonger  two words\n");
    }

    #[test]
    fn long_values_go_on_below_where_they_begin() {
        let words = "word ".repeat(30);
        let path = "x".repeat(100);
        let rows = [
            ("short", "one".to_owned()),
            ("words", words.trim_end().to_owned()),
            ("path", format!("{path} (and more)")),
        ];
        let text = fitting_facts(&rows);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "short  one");
        assert!(lines[1].starts_with("words  word word"), "{text}");
        assert!(lines[2].starts_with("       word"), "{text}");
        assert!(
            text.contains(&format!("\npath   {path}\n       (and more)\n")),
            "{text}"
        );
        let long = lines.iter().filter(|line| line.len() > COLUMNS);
        assert_eq!(long.count(), 1, "the word that cannot be broken: {text}");
        assert_eq!(fitting_facts(&rows[..1]), facts(&rows[..1]));
    }

    #[test]
    fn cells_are_one_harmless_line() {
        let text = facts(&[("a", "x\u{1b}[2J\ny".to_owned())]);
        assert_eq!(text, "a  x\\u{1b}[2J\\ny\n");
        let row = vec!["1\r".to_owned()];
        assert_eq!(numbers(&["n"], [row].into_iter()), "  n\n1\\r\n");
    }

    #[test]
    fn numbers_are_aligned_to_the_right() {
        let rows = [
            vec!["1".to_owned(), "9.5".to_owned()],
            vec!["10".to_owned(), "12.25".to_owned()],
        ];
        assert_eq!(
            numbers(&["id", "x"], rows.into_iter()),
            "id      x\n 1    9.5\n10  12.25\n"
        );
    }
}
