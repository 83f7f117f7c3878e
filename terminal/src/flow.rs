//! Text that arrives in pieces, broken between words.

use unicode_width::UnicodeWidthChar as _;

/// Distance of tabulator stops.
const TAB_COLUMNS: usize = 8;

/// Breaks text between words as it comes.
///
/// Each piece is shown at once, for a person waits seconds for it. A word that turns
/// out not to fit is taken back from the end of its line and begun again on the next
/// one, so is the blank before it; a blank is written with the word that comes behind it.
/// No line ends with one. The last column stays free: what terminals do behind it differs.
#[derive(Debug, Default)]
pub struct Flow {
    /// Columns taken on this line.
    column: usize,
    /// What this line ends with that may not be broken.
    word: String,
    /// Columns of it.
    word_columns: usize,
    /// Blanks that are not written yet.
    blanks: String,
    /// Columns of them.
    blank_columns: usize,
    /// Those that were written before the word.
    before: String,
    /// Columns of them.
    before_columns: usize,
    /// Whether this line goes on from the last one and has nothing yet.
    is_wrapped: bool,
}

impl Flow {
    /// Behind `shown`, which is on the screen already.
    #[must_use]
    pub fn behind(shown: &str, columns: usize) -> Self {
        let mut flow = Self::default();
        let _ = flow.push(shown, columns);
        flow.column += std::mem::take(&mut flow.blank_columns);
        flow.blanks.clear();
        // Somebody else wrote it: it is not taken back.
        flow.end_word();
        flow
    }

    /// What is to be written for `piece` on a terminal of `columns` columns, which may be
    /// another number each time.
    #[must_use]
    pub fn push(&mut self, piece: &str, columns: usize) -> String {
        let room = columns.saturating_sub(1).max(2);
        let mut out = String::with_capacity(piece.len());
        for c in piece.chars() {
            match c {
                // Blanks before it are seen by nobody.
                '\n' | '\r' => {
                    out.push(c);
                    *self = Self::default();
                }
                ' ' | '\t' => self.blank(c),
                _ => self.visible(c, room, &mut out),
            }
        }
        out
    }

    fn blank(&mut self, c: char) {
        self.end_word();
        if self.is_wrapped {
            return;
        }
        self.blanks.push(c);
        self.blank_columns += match c {
            '\t' => TAB_COLUMNS - (self.column + self.blank_columns) % TAB_COLUMNS,
            _ => 1,
        };
    }

    fn visible(&mut self, c: char, room: usize, out: &mut String) {
        let width = c.width().unwrap_or(0);
        // Ideographs are words of their own.
        let is_word = width == 2;
        if is_word {
            self.end_word();
        }
        if self.column + self.blank_columns + width > room {
            let word = std::mem::take(&mut self.word);
            let columns = std::mem::take(&mut self.word_columns);
            let taken_back = std::mem::take(&mut self.before) + &word;
            let columns_back = self.before_columns + columns;
            // A word that began the line breaks, and one from when it was longer.
            let moves = columns > 0 && columns < self.column && self.column <= room;
            if moves && out.ends_with(&taken_back) {
                out.truncate(out.len() - taken_back.len());
            } else if moves {
                // To the left, and from there on nothing.
                out.push_str(&format!("\u{1b}[{columns_back}D\u{1b}[K"));
            }
            self.next_line(out);
            if moves {
                out.push_str(&word);
                (self.word, self.word_columns, self.column) = (word, columns, columns);
            }
        }
        if !self.blanks.is_empty() {
            out.push_str(&self.blanks);
            self.column += self.blank_columns;
            self.before = std::mem::take(&mut self.blanks);
            self.before_columns = std::mem::take(&mut self.blank_columns);
        }
        out.push(c);
        self.column += width;
        self.word.push(c);
        self.word_columns += width;
        self.is_wrapped = false;
        if is_word {
            self.end_word();
        }
    }

    fn next_line(&mut self, out: &mut String) {
        out.push('\n');
        *self = Self {
            is_wrapped: true,
            ..Self::default()
        };
    }

    fn end_word(&mut self) {
        self.word.clear();
        self.word_columns = 0;
        self.before.clear();
        self.before_columns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a terminal that understands the two sequences shows, line by line.
    fn screen(written: &str) -> Vec<String> {
        let mut lines = vec![String::new()];
        let mut chars = written.chars();
        while let Some(c) = chars.next() {
            let line = lines.last_mut().unwrap();
            match c {
                '\n' => lines.push(String::new()),
                '\u{1b}' => {
                    let sequence: String = chars.by_ref().take_while(|c| *c != 'K').collect();
                    let count = sequence.strip_prefix('[').unwrap();
                    let count = count.strip_suffix("D\u{1b}[").unwrap().parse().unwrap();
                    // By columns.
                    let mut left: usize = count;
                    while left > 0 {
                        left -= match line.pop().unwrap() {
                            '\t' => TAB_COLUMNS - columns_of(line) % TAB_COLUMNS,
                            c => c.width().unwrap_or(0),
                        };
                    }
                }
                c => line.push(c),
            }
        }
        lines
    }

    fn columns_of(line: &str) -> usize {
        line.chars().fold(0, |column, c| match c {
            '\t' => column + TAB_COLUMNS - column % TAB_COLUMNS,
            c => column + c.width().unwrap_or(0),
        })
    }

    fn shown(pieces: &[&str], columns: usize) -> Vec<String> {
        let mut flow = Flow::default();
        let written: String = pieces
            .iter()
            .map(|piece| flow.push(piece, columns))
            .collect();
        screen(&written)
    }

    #[test]
    fn words_stay_whole_however_they_arrive() {
        let text = "Fellow citizens of the Senate and of the House of Representatives";
        let expected = ["Fellow citizens of", "the Senate and of", "the House of"];
        let whole = shown(&[text], 20);
        assert_eq!(whole[..3], expected);
        assert_eq!(whole[3], "Representatives");
        for size in 1..12 {
            let pieces: Vec<&str> = text
                .as_bytes()
                .chunks(size)
                .map(|piece| std::str::from_utf8(piece).unwrap())
                .collect();
            assert_eq!(shown(&pieces, 20), whole, "pieces of {size}");
        }
    }

    #[test]
    fn what_fits_is_written_as_it_is() {
        let mut flow = Flow::default();
        for (piece, written) in [
            ("It ", "It"),
            ("was", " was"),
            (" a\n", " a\n"),
            ("\n  dark", "\n  dark"),
            ("\tnight", "\tnight"),
            ("", ""),
            ("  ", ""),
            (" and", "   and"),
        ] {
            assert_eq!(flow.push(piece, 80), written);
        }
    }

    #[test]
    fn a_word_longer_than_a_line_is_broken_at_the_edge() {
        let long = "x".repeat(25);
        assert_eq!(
            shown(&[&long], 11),
            ["x".repeat(10), "x".repeat(10), "x".repeat(5)]
        );
        // It is begun on a line of its own, and then breaks.
        assert_eq!(
            shown(&["ab ", &long], 11)[..2],
            ["ab".to_owned(), "x".repeat(10)]
        );
    }

    #[test]
    fn a_line_end_of_the_text_begins_anew() {
        assert_eq!(
            shown(&["123456789\n123456789 1"], 12),
            ["123456789", "123456789 1"]
        );
        // Exactly to the edge: no line is lost and none is added.
        assert_eq!(shown(&["1234567890\nab"], 11), ["1234567890", "ab"]);
        assert_eq!(shown(&["1234567890 ab"], 11), ["1234567890", "ab"]);
        // Blanks at a break are not the beginning of the next line.
        assert_eq!(shown(&["1234567890", "   ab"], 11), ["1234567890", "ab"]);
    }

    #[test]
    fn wide_and_combining_characters_take_the_columns_that_they_take() {
        assert_eq!(shown(&["漢字漢字漢字"], 9), ["漢字漢字", "漢字"]);
        let accents = "e\u{301}".repeat(10);
        assert_eq!(
            shown(&[&accents, " ab"], 11),
            [accents.clone(), "ab".to_owned()]
        );
        assert_eq!(shown(&["ab 👍👍👍"], 8), ["ab 👍👍", "👍"]);
        // Not broken: the blank that binds.
        assert_eq!(shown(&["ab 12\u{a0}km"], 8), ["ab", "12\u{a0}km"]);
    }

    #[test]
    fn no_line_ends_with_a_blank_and_none_is_lost_within_one() {
        let text = "Four score  and\tseven years   ago  our fathers \n  brought forth, ";
        let words: Vec<&str> = text.split_whitespace().collect();
        for columns in 4..30 {
            for size in 1..9 {
                let pieces: Vec<&str> = text
                    .as_bytes()
                    .chunks(size)
                    .map(|piece| std::str::from_utf8(piece).unwrap())
                    .collect();
                let lines = shown(&pieces, columns);
                for line in &lines {
                    assert_eq!(line.trim_end(), line, "{columns} {size}: {lines:?}");
                }
                if columns > 10 {
                    let all = lines.join(" ");
                    let all: Vec<&str> = all.split_whitespace().collect();
                    assert_eq!(all, words, "{columns} {size}: {lines:?}");
                }
            }
        }
        let wide = shown(&[text], 80);
        assert_eq!(wide[0], "Four score  and\tseven years   ago  our fathers");
        assert_eq!(wide[1], "  brought forth,");
        // The blank that somebody else has written takes its column.
        let mut flow = Flow::behind("Fellow ", 12);
        assert_eq!(flow.push("cits", 12), "cits");
        assert_eq!(flow.push("!", 12), "\u{1b}[4D\u{1b}[K\ncits!");
    }

    #[test]
    fn another_width_counts_from_where_it_is_known() {
        let mut flow = Flow::default();
        let mut written = flow.push("It was a dark night ", 80);
        // Narrower than what the line has already: on with the next one.
        written.push_str(&flow.push("and stormy", 12));
        assert_eq!(screen(&written), ["It was a dark night", "and stormy"]);
        written.push_str(&flow.push(" and cold", 40));
        assert_eq!(screen(&written)[1], "and stormy and cold");
        // A word that the narrower terminal cannot hold.
        let mut flow = Flow::default();
        let mut written = flow.push("of Representatives", 80);
        written.push_str(&flow.push("!", 6));
        assert_eq!(screen(&written), ["of Representatives", "!"]);
    }

    #[test]
    fn what_somebody_else_has_written_counts_and_stays() {
        let mut flow = Flow::behind("Fellow citizens of the Senate", 80);
        assert_eq!(flow.push(" and", 80), " and");
        let mut flow = Flow::behind("Senate", 10);
        // Of a word the part that is another's.
        assert_eq!(flow.push("orial", 10), "\norial");
    }
}
