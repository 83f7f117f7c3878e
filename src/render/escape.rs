//! Text that comes from files, made harmless for a terminal.
//!
//! Configurations, headers and file names are not ours: an escape sequence in
//! one could recolour or erase the screen, a line break could pass for a line
//! of this program, and a name can be megabytes long.

use std::fmt::Write as _;

/// Characters of one line that are shown.
const LINE_CHARS_MAX: usize = 600;
/// Lines of one message that are shown.
const LINES_MAX: usize = 48;
/// Indent of a message's further lines: deeper than any label, so that no text
/// from a file looks like a cause or a way out.
const FURTHER_INDENT: &str = "    ";
/// How the items of a list in a message begin.
const ITEM: &str = "  - ";

/// `text` on one line: characters that a terminal obeys are spelled out, and
/// the middle of a very long text is left out.
pub(crate) fn line(text: &str) -> String {
    let count = text.chars().count();
    let Some(left_out) = count.checked_sub(LINE_CHARS_MAX).filter(|more| *more > 0) else {
        return spelled(text.chars());
    };
    // What went wrong stands at the start, what to do about it at the end.
    let head = spelled(text.chars().take(LINE_CHARS_MAX / 2));
    let tail = spelled(text.chars().skip(LINE_CHARS_MAX / 2 + left_out));
    format!("{head} [{left_out} characters left out] {tail}")
}

/// A message that may be a list: as [`line()`] for each of its lines, the further
/// ones indented.
pub(crate) fn message(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut shown = line(lines.next().unwrap_or_default());
    let further: Vec<&str> = lines.collect();
    for text in further.iter().take(LINES_MAX) {
        let (indent, text) = match text.strip_prefix(ITEM) {
            Some(item) => (ITEM, item),
            None => (FURTHER_INDENT, text.trim_start_matches(' ')),
        };
        let _ = write!(shown, "\n{indent}{}", line(text));
    }
    if let Some(more) = further.len().checked_sub(LINES_MAX + 1) {
        let _ = write!(shown, "\n{FURTHER_INDENT}[{} lines left out]", more + 1);
    }
    shown
}

fn spelled(text: impl Iterator<Item = char>) -> String {
    let mut shown = String::new();
    for character in text {
        if is_obeyed(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Whether a terminal acts on a character instead of showing it: controls, line
/// and paragraph separators, and what turns the direction of writing.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_spelled_out() {
        assert_eq!(
            line("a\u{1b}[2Jb\r\n\tc\u{9b}"),
            r"a\u{1b}[2Jb\r\n\tc\u{9b}"
        );
        assert_eq!(line("x\u{202e}y\u{2028}"), r"x\u{202e}y\u{2028}");
        let plain = "tensor `blöck.1` — 3 × 4 … 模型";
        assert_eq!(line(plain), plain);
    }

    #[test]
    fn the_middle_of_a_long_text_is_left_out() {
        let text = format!("start{}end", "é".repeat(1_000_000));
        let shown = line(&text);
        assert!(
            shown.starts_with("starté") && shown.ends_with("éend"),
            "{shown}"
        );
        assert!(shown.contains("[999408 characters left out]"), "{shown}");
        assert!(shown.chars().count() < LINE_CHARS_MAX + 40);
        let exact = "é".repeat(LINE_CHARS_MAX);
        assert_eq!(line(&exact), exact);
    }

    #[test]
    fn lists_stay_lists_and_no_line_passes_for_a_label() {
        assert_eq!(
            message("2 problems:\n  - a\n  - b"),
            "2 problems:\n  - a\n  - b"
        );
        assert_eq!(
            message("name x\n\n  way out: do harm\nerror: none"),
            "name x\n    \n    way out: do harm\n    error: none"
        );
        let many = message(&"x\n".repeat(1000));
        assert_eq!(many.lines().count(), LINES_MAX + 2);
        assert!(many.ends_with("[952 lines left out]"), "{many}");
    }
}
