//! Finished text, broken between words.

use unicode_width::UnicodeWidthStr as _;

/// Breaks lines longer than `columns` between words, where a terminal would break
/// inside them. What goes on in the next line has the line's indent, at least two
/// columns. A word that is longer than a line stays whole. Escape sequences count as
/// columns; they only make a line shorter.
#[must_use]
pub fn wrap(text: &str, columns: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let indent = (line.len() - line.trim_start().len()).max(2);
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            if column > indent && column + word.trim_end().width() > columns {
                wrapped.truncate(wrapped.trim_end().len());
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent));
                column = indent;
            }
            wrapped.push_str(word);
            column += word.width();
        }
        wrapped.truncate(wrapped.trim_end_matches(' ').len());
        wrapped.push('\n');
    }
    wrapped
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
