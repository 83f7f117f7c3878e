//! Lines that fit a terminal.

/// Columns that a terminal is taken to have.
const COLUMNS: usize = 80;

/// Breaks lines between words, where a terminal would break inside them.
/// Escape sequences count as columns; they only make a line shorter.
pub(crate) fn wrap(text: &str) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let indent = (line.len() - line.trim_start().len()).max(2);
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            let width = word.trim_end().chars().count();
            if column > indent && column + width > COLUMNS {
                wrapped.truncate(wrapped.trim_end().len());
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent));
                column = indent;
            }
            wrapped.push_str(word);
            column += word.chars().count();
        }
        wrapped.truncate(wrapped.trim_end_matches(' ').len());
        wrapped.push('\n');
    }
    wrapped
}

/// Breaks the lines of a text that has no indent.
pub(crate) fn fold(text: &str) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let mut column = 0;
        for word in line.split_whitespace() {
            let width = word.chars().count();
            if column > 0 && column + 1 + width > COLUMNS {
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

    #[test]
    fn a_text_is_folded_between_words_and_keeps_its_own_lines() {
        let long = format!("{}\n\nlast", "word ".repeat(40));
        let folded = fold(&long);
        assert!(folded.lines().all(|line| line.chars().count() <= COLUMNS));
        assert_eq!(folded.lines().count(), 5);
        assert!(folded.ends_with("word\n\nlast\n"), "{folded:?}");
        assert_eq!(fold("one\n"), "one\n");
        let word = "x".repeat(100);
        assert_eq!(fold(&format!("a {word} b")), format!("a\n{word}\nb\n"));
    }

    #[test]
    fn lines_break_between_words_and_keep_their_indent() {
        let long = format!(
            "error: {}\n\n  way out: {}\n",
            "word ".repeat(30),
            "x ".repeat(50)
        );
        let wrapped = wrap(&long);
        assert!(
            wrapped.lines().all(|line| line.chars().count() <= COLUMNS),
            "{wrapped}"
        );
        assert!(
            wrapped
                .lines()
                .skip(1)
                .all(|line| line.is_empty() || line.starts_with("  "))
        );
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&wrapped), words(&long));
        assert_eq!(wrap("short\n"), "short\n");
        let unbroken = "y".repeat(200);
        assert_eq!(wrap(&unbroken), format!("{unbroken}\n"));
    }
}
