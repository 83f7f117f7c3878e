//! Finished text, broken between words.

use unicode_width::UnicodeWidthStr as _;

/// Breaks lines longer than `columns` between words, where a terminal would break
/// inside them. What goes on in the next line has the line's indent, at least two
/// columns. A word that is longer than a line stays whole. Escape sequences take no
/// columns.
#[must_use]
pub fn wrap(text: &str, columns: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let indent = (line.len() - line.trim_start().len()).max(2);
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            if column > indent && column + shown_width(word.trim_end()) > columns {
                wrapped.truncate(wrapped.trim_end().len());
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent));
                column = indent;
            }
            wrapped.push_str(word);
            column += shown_width(word);
        }
        wrapped.truncate(wrapped.trim_end_matches(' ').len());
        wrapped.push('\n');
    }
    wrapped
}

/// Columns of `word` without the sequences that colour it: ESC, a bracket, parameters
/// and a letter.
fn shown_width(word: &str) -> usize {
    let mut parts = word.split("\u{1b}[");
    let first = parts.next().map_or(0, |text| text.width());
    let shown = |part: &str| {
        let end = part.find(|c| ('@'..='~').contains(&c));
        end.map_or(0, |end| part[end + 1..].width())
    };
    first + parts.map(shown).sum::<usize>()
}

/// Breaks the lines of a text that has no indent.
#[must_use]
pub fn fold(text: &str, columns: usize) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let mut column = 0;
        for word in line.split_whitespace() {
            let width = word.width();
            if column > 0 && column + 1 + width > columns {
                folded.push('\n');
                column = 0;
            } else if column > 0 {
                folded.push(' ');
                column += 1;
            }
            folded.push_str(word);
            column += width;
        }
        folded.push('\n');
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COLUMNS;

    #[test]
    fn a_text_is_folded_between_words_and_keeps_its_own_lines() {
        let long = format!("{}\n\nlast", "word ".repeat(40));
        let folded = fold(&long, COLUMNS);
        assert!(folded.lines().all(|line| line.width() <= COLUMNS));
        assert_eq!(folded.lines().count(), 5);
        assert!(folded.ends_with("word\n\nlast\n"), "{folded:?}");
        assert_eq!(fold("one\n", COLUMNS), "one\n");
        let word = "x".repeat(100);
        let text = fold(&format!("a {word} b"), COLUMNS);
        assert_eq!(text, format!("a\n{word}\nb\n"));
        assert_eq!(fold("漢字 漢字", 8), "漢字\n漢字\n", "two columns each");
    }

    /// A text in colour has the lines that it has without.
    #[test]
    fn colours_take_no_columns() {
        let plain = format!("note: {}", "word ".repeat(40));
        for (on, off) in [
            ("\u{1b}[1;36m", "\u{1b}[0m"),
            ("\u{1b}[38;5;208m", "\u{1b}[m"),
        ] {
            for coloured in ["note:", "word"] {
                let in_colour =
                    |text: &str| text.replace(coloured, &format!("{on}{coloured}{off}"));
                for columns in [20, 24, 43, COLUMNS] {
                    let wrapped = wrap(&in_colour(&plain), columns);
                    assert_eq!(wrapped, in_colour(&wrap(&plain, columns)), "{columns}");
                }
            }
        }
        assert_eq!(shown_width("a\u{1b}[1mb\u{1b}[0mc"), 3);
        assert_eq!(shown_width("\u{1b}[1"), 0);
    }

    #[test]
    fn lines_break_between_words_and_keep_their_indent() {
        let long = format!(
            "error: {}\n\n  way out: {}\n",
            "word ".repeat(30),
            "x ".repeat(50)
        );
        for columns in [40, COLUMNS] {
            let wrapped = wrap(&long, columns);
            assert!(
                wrapped.lines().all(|line| line.width() <= columns),
                "{wrapped}"
            );
            let mut later = wrapped.lines().skip(1);
            assert!(later.all(|line| line.is_empty() || line.starts_with("  ")));
            assert!(
                wrapped.split_whitespace().eq(long.split_whitespace()),
                "{wrapped}"
            );
        }
        assert_eq!(wrap("short\n", COLUMNS), "short\n");
        let unbroken = "y".repeat(200);
        assert_eq!(wrap(&unbroken, COLUMNS), format!("{unbroken}\n"));
    }
}
