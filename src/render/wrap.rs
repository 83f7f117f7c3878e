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

#[cfg(test)]
mod tests {
    use super::*;

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
