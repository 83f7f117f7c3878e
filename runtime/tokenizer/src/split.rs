//! The pre-split: text is cut into pieces and no token ever spans two of them.
//!
//! At each position the first of eight alternatives that matches takes its longest
//! match, as a backtracking regex would with the released pattern:
//!
//! 1. `\p{Han}+`
//! 2. `[^\r\n\p{L}\p{N}]?` `U*` `W+` `'x?`
//! 3. `[^\r\n\p{L}\p{N}]?` `U+` `W*` `'x?`
//! 4. `\p{N}{1,3}`
//! 5. ` ?[^\s\p{L}\p{N}]+[\r\n]*`
//! 6. `\s*[\r\n]+`
//! 7. `\s+(?!\S)`
//! 8. `\s+`
//!
//! where `U` is `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`, `W` the same with `\p{Ll}`
//! for `\p{Lu}\p{Lt}`, and `'x` the contraction `(?i:'s|'t|'re|'ve|'m|'ll|'d)`.
//!
//! The alternatives are written out by hand because an engine that backtracks rescans
//! long runs, and may give up on them. Here a position is looked at a bounded number
//! of times: where an alternative looks ahead farther than the piece it returns (2 and
//! 6), what lies between cannot make it look that far again.

use crate::unicode::{CLASSES, ClassTable, HAN, LETTER, LOWER, NEWLINE, NUMBER, SPACE, UPPER};

/// Cuts `text` into the pieces that are encoded on their own. Joined they are `text`.
pub fn pre_split(text: &str) -> Pieces<'_> {
    Pieces {
        rest: text,
        classes: &CLASSES,
    }
}

/// Iterator over the pieces of a text; see [`pre_split`].
#[derive(Clone)]
pub struct Pieces<'t> {
    rest: &'t str,
    classes: &'static ClassTable,
}

impl<'t> Iterator for Pieces<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let first = self.rest.chars().next()?;
        let scanner = Scanner {
            text: self.rest,
            classes: self.classes,
        };
        let (piece, rest) = self.rest.split_at(scanner.piece_end(first));
        self.rest = rest;
        Some(piece)
    }
}

impl std::fmt::Debug for Pieces<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces")
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}

/// The alternatives at the start of `text`. Positions are byte offsets into it.
#[derive(Clone, Copy)]
struct Scanner<'t> {
    text: &'t str,
    classes: &'static ClassTable,
}

impl Scanner<'_> {
    /// Where the first piece ends; `first` is the first character.
    fn piece_end(self, first: char) -> usize {
        let classes = self.classes.of(first);
        if classes & HAN != 0 {
            return self.run_end(0, HAN);
        }
        if let Some(end) = self.word_end(first, classes) {
            return end;
        }
        if classes & NUMBER != 0 {
            return self.digits_end();
        }
        if let Some(end) = self.symbols_end(first) {
            return end;
        }
        // Letters are words, so what is left is white space.
        debug_assert!(
            classes & SPACE != 0,
            "{first:?} belongs to an earlier alternative"
        );
        self.space_end(first)
    }

    /// Alternatives 2 and 3, each first with the optional leading character and then
    /// without (which differs only where that character is a mark).
    fn word_end(self, first: char, classes: u8) -> Option<usize> {
        let leading = (classes & (LETTER | NUMBER | NEWLINE) == 0).then(|| first.len_utf8());
        let starts = || leading.into_iter().chain([0]);
        let end = starts()
            .find_map(|start| self.lower_word_end(start))
            .or_else(|| starts().find_map(|start| self.upper_word_end(start)))?;
        Some(end + self.contraction_bytes(end))
    }

    /// `U*W+`. The longest `U*` is followed by `W+` if it can be; otherwise it gives
    /// characters back until one is in both sets, and that one is all of `W+`.
    fn lower_word_end(self, start: usize) -> Option<usize> {
        let mut end = start;
        let mut last_in_both = None;
        for c in self.text[start..].chars() {
            let classes = self.classes.of(c);
            if classes & UPPER == 0 {
                break;
            }
            end += c.len_utf8();
            if classes & LOWER != 0 {
                last_in_both = Some(end);
            }
        }
        let lower_end = self.run_end(end, LOWER);
        if lower_end > end {
            Some(lower_end)
        } else {
            last_in_both
        }
    }

    /// `U+W*`.
    fn upper_word_end(self, start: usize) -> Option<usize> {
        let end = self.run_end(start, UPPER);
        (end > start).then(|| self.run_end(end, LOWER))
    }

    /// Length of the English contraction at `at`, 0 if there is none. The long s is a
    /// case variant of s; the other letters have none outside ASCII.
    fn contraction_bytes(self, at: usize) -> usize {
        let mut chars = self.text[at..].chars();
        if chars.next() != Some('\'') {
            return 0;
        }
        let Some(first) = chars.next() else { return 0 };
        let second = chars.next().map_or('\0', |c| c.to_ascii_lowercase());
        match (first.to_ascii_lowercase(), second) {
            ('s' | 'ſ' | 't' | 'm' | 'd', _) => 1 + first.len_utf8(),
            ('r' | 'v', 'e') | ('l', 'l') => 3,
            _ => 0,
        }
    }

    /// Alternative 4, the first character being a number.
    fn digits_end(self) -> usize {
        let digits = self
            .text
            .chars()
            .take(3)
            .take_while(|&c| self.is(c, NUMBER));
        digits.map(char::len_utf8).sum()
    }

    /// Alternative 5. The space itself is no symbol, so there is nothing to retry
    /// without it.
    fn symbols_end(self, first: char) -> Option<usize> {
        let start = usize::from(first == ' ');
        let symbols = self.text[start..]
            .chars()
            .take_while(|&c| !self.is(c, SPACE | LETTER | NUMBER))
            .map(char::len_utf8)
            .sum::<usize>();
        (symbols > 0).then(|| self.run_end(start + symbols, NEWLINE))
    }

    /// Alternatives 6 to 8: up to the last line end of the white space; without one, all
    /// of it at the end of the text, else all but the last character, else that one.
    fn space_end(self, first: char) -> usize {
        let (mut end, mut last_start) = (0, 0);
        let mut newline_end = None;
        for c in self.text.chars() {
            if !self.is(c, SPACE) {
                break;
            }
            last_start = end;
            end += c.len_utf8();
            if self.is(c, NEWLINE) {
                newline_end = Some(end);
            }
        }
        match newline_end {
            Some(end) => end,
            None if end == self.text.len() => end,
            None => last_start.max(first.len_utf8()),
        }
    }

    /// The end of the run of characters in any class of `mask` that starts at `start`.
    fn run_end(self, start: usize, mask: u8) -> usize {
        let run = self.text[start..].chars().take_while(|&c| self.is(c, mask));
        start + run.map(char::len_utf8).sum::<usize>()
    }

    fn is(self, c: char, mask: u8) -> bool {
        self.classes.of(c) & mask != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(pre_split(text).collect::<Vec<_>>(), expected, "{text:?}");
    }

    #[test]
    fn words_take_one_leading_character() {
        check("Hello world", &["Hello", " world"]);
        check("(a)b", &["(a", ")b"]);
        check("\tx  y", &["\tx", " ", " y"]);
        check("\nx", &["\n", "x"]);
    }

    #[test]
    fn case_changes_cut_words() {
        check("camelCaseHTMLParser", &["camel", "Case", "HTMLParser"]);
        check("ABC ABCdef", &["ABC", " ABCdef"]);
        check("ǅa", &["ǅa"]);
    }

    #[test]
    fn characters_of_both_cases_end_the_word_they_close() {
        // U* runs to the end, then gives back up to the last letter without case.
        check("ABあCD", &["ABあ", "CD"]);
        check("あA", &["あ", "A"]);
        // A combining mark may lead a word or be one.
        check("\u{301}A", &["\u{301}", "A"]);
        check("\u{301}a", &["\u{301}a"]);
        check("1\u{301}", &["1", "\u{301}"]);
    }

    #[test]
    fn contractions_stay_with_their_word() {
        check("It's WE'LL o'clock", &["It's", " WE'LL", " o", "'clock"]);
        check("x'ſ x'rx 9's", &["x'ſ", " x", "'rx", " ", "9", "'s"]);
        check("漢's", &["漢", "'s"]);
    }

    #[test]
    fn digits_go_by_threes() {
        check("1234567 ٣٤٥٦", &["123", "456", "7", " ", "٣٤٥", "٦"]);
        check("12〇〇", &["12〇", "〇"]);
    }

    #[test]
    fn han_stands_alone() {
        check("東京タワー", &["東京", "タワー"]);
        check(" 漢字a", &[" ", "漢字", "a"]);
    }

    #[test]
    fn symbols_keep_a_space_before_and_line_ends_after() {
        check(" ;;\r\n\r\n}", &[" ;;\r\n\r\n", "}"]);
        check("a/b", &["a", "/b"]);
        check("//\n/", &["//\n", "/"]);
    }

    #[test]
    fn white_space_reaches_its_last_line_end() {
        check(" \n \n  x", &[" \n \n", " ", " x"]);
        check("x   ", &["x", "   "]);
        check("x   9", &["x", "  ", " ", "9"]);
        check(" \u{3000}漢", &[" ", "\u{3000}", "漢"]);
    }
}
