//! Where very long input is cut before it is split.
//!
//! The released tokenizer encodes a text in parts of at most 400,000 characters and,
//! within a part, cuts wherever more than 25,000 characters in a row are white space,
//! or are not. Ids depend on these cuts, so they are the same here. They also bound the
//! length of a piece.

/// Characters in a part, and characters of one kind in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) part_chars: usize,
    pub(crate) run_chars: usize,
}

/// The limits of the release.
pub(crate) const RELEASED: Limits = Limits {
    part_chars: 400_000,
    run_chars: 25_000,
};

/// Cuts `text` into spans that are split and encoded on their own. Joined they are
/// `text`; an empty text has none.
pub(crate) fn spans(text: &str, limits: Limits) -> Spans<'_> {
    Spans {
        rest: text,
        limits,
        part_chars_left: limits.part_chars,
    }
}

/// Iterator over the spans of a text; see [`spans`].
pub(crate) struct Spans<'t> {
    rest: &'t str,
    limits: Limits,
    part_chars_left: usize,
}

impl<'t> Iterator for Spans<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        if self.rest.is_empty() {
            return None;
        }
        let (span, rest) = self.rest.split_at(self.span_end());
        self.rest = rest;
        Some(span)
    }
}

impl Spans<'_> {
    fn span_end(&mut self) -> usize {
        // Fewer bytes than a run may have characters: no limit can be reached.
        if self.rest.len() <= self.limits.run_chars.min(self.part_chars_left) {
            return self.rest.len();
        }
        // Kind and length of the run that the next character may continue. A cut starts
        // counting anew.
        let mut run = None;
        for (at, c) in self.rest.char_indices() {
            if self.part_chars_left == 0 {
                self.part_chars_left = self.limits.part_chars;
                return at;
            }
            let is_space = is_python_space(c);
            let length = match run {
                Some((kind, length)) if kind == is_space => length + 1,
                _ => 1,
            };
            if length > self.limits.run_chars {
                return at;
            }
            run = Some((is_space, length));
            self.part_chars_left -= 1;
        }
        self.rest.len()
    }
}

/// White space as Python's `str.isspace` has it: Unicode's and the four separators of
/// ASCII.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The released rule, over vectors of characters.
    fn by_definition(text: &str, limits: Limits) -> Vec<String> {
        let chars: Vec<char> = text.chars().collect();
        let mut spans = Vec::new();
        for part in chars.chunks(limits.part_chars) {
            let (mut start, mut length, mut kind) = (0, 0, is_python_space(part[0]));
            for (index, &c) in part.iter().enumerate() {
                if is_python_space(c) != kind {
                    kind = !kind;
                    length = 1;
                    continue;
                }
                length += 1;
                if length > limits.run_chars {
                    spans.push(String::from_iter(&part[start..index]));
                    start = index;
                    length = 1;
                }
            }
            spans.push(String::from_iter(&part[start..]));
        }
        spans
    }

    #[test]
    fn released_limits_cut_where_they_say() {
        let lengths = |text: &str| spans(text, RELEASED).map(str::len).collect::<Vec<_>>();
        assert_eq!(lengths(""), [0usize; 0]);
        assert_eq!(lengths(&"a".repeat(25_000)), [25_000]);
        assert_eq!(lengths(&"a".repeat(25_001)), [25_000, 1]);
        assert_eq!(lengths(&format!("b {}", "a".repeat(25_001))), [25_002, 1]);
        assert_eq!(lengths(&" \u{1f}".repeat(12_501)), [25_000, 2]);
        assert_eq!(lengths(&"あ".repeat(25_001)), [75_000, 3]);
        assert_eq!(lengths(&"a ".repeat(200_001)), [400_000, 2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn spans_equal_the_definition(
            text in "[a \u{1d}é\n]{0,60}",
            part_chars in 1usize..20,
            run_chars in 1usize..8,
        ) {
            let limits = Limits { part_chars, run_chars };
            let found: Vec<&str> = spans(&text, limits).collect();
            prop_assert_eq!(found, by_definition(&text, limits));
        }
    }
}
