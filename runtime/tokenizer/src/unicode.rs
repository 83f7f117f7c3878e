//! The character classes of the pre-split, as one bit set per character.
//!
//! Classes come from `unicode_ranges`, a list generated from the tables of the regex
//! engine that serves as the oracle, so both know the same Unicode version. The list is
//! expanded once into pages of 256 characters; equal pages are stored once (about 50 KB).

use crate::unicode_ranges::CLASS_RANGES;
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// General category L.
pub(crate) const LETTER: u8 = 1;
/// General category N.
pub(crate) const NUMBER: u8 = 2;
/// Property White_Space.
pub(crate) const SPACE: u8 = 4;
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
pub(crate) const UPPER: u8 = 8;
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
pub(crate) const LOWER: u8 = 16;
/// Script Han.
pub(crate) const HAN: u8 = 32;
/// Carriage return and line feed.
pub(crate) const NEWLINE: u8 = 64;

const PAGE_CHARS: usize = 256;
const CODE_POINTS: usize = 0x11_0000;

/// Two-stage table from character to classes.
pub(crate) struct ClassTable {
    page_of: Vec<u16>,
    pages: Vec<[u8; PAGE_CHARS]>,
}

/// The table, built at first use (about a millisecond).
pub(crate) static CLASSES: LazyLock<ClassTable> = LazyLock::new(ClassTable::build);

impl ClassTable {
    fn build() -> Self {
        let mut flat = vec![0u8; CODE_POINTS];
        for &(first, last, classes) in CLASS_RANGES {
            flat[first as usize..=last as usize].fill(classes);
        }
        for newline in ['\n', '\r'] {
            flat[newline as usize] |= NEWLINE;
        }
        let mut known: FxHashMap<[u8; PAGE_CHARS], u16> = FxHashMap::default();
        let mut table = ClassTable {
            page_of: Vec::with_capacity(CODE_POINTS / PAGE_CHARS),
            pages: Vec::new(),
        };
        let (chunks, rest) = flat.as_chunks::<PAGE_CHARS>();
        assert!(rest.is_empty(), "pages divide the code points evenly");
        for chunk in chunks {
            let page = *known.entry(*chunk).or_insert_with(|| {
                table.pages.push(*chunk);
                u16::try_from(table.pages.len() - 1).expect("at most 4,352 pages")
            });
            table.page_of.push(page);
        }
        table
    }

    /// The classes of `c`; 0 when it is in none.
    #[inline]
    pub(crate) fn of(&self, c: char) -> u8 {
        let code = c as usize;
        let page = usize::from(self.page_of[code / PAGE_CHARS]);
        self.pages[page][code % PAGE_CHARS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_characters_have_their_classes() {
        let cases = [
            ('a', LETTER | LOWER),
            ('Z', LETTER | UPPER),
            ('7', NUMBER),
            (' ', SPACE),
            ('\n', SPACE | NEWLINE),
            ('\r', SPACE | NEWLINE),
            ('!', 0),
            ('\u{1c}', 0), // white space to Python, not to Unicode
            ('あ', LETTER | UPPER | LOWER),
            ('漢', LETTER | HAN),
            ('々', LETTER | HAN),
            ('〇', NUMBER | HAN),       // a letter number of script Han
            ('\u{2e80}', HAN),          // a radical: symbol of script Han
            ('\u{301}', UPPER | LOWER), // a mark is no letter
            ('ǅ', LETTER | UPPER),      // title case
            ('\u{10ffff}', 0),
        ];
        for (c, classes) in cases {
            assert_eq!(CLASSES.of(c), classes, "{c:?}");
        }
    }

    #[test]
    fn every_listed_range_and_every_gap_is_looked_up_right() {
        let mut expected_of = vec![0u8; CODE_POINTS];
        for &(first, last, classes) in CLASS_RANGES {
            assert!(first <= last);
            for code in first..=last {
                expected_of[code as usize] = classes;
            }
        }
        for c in '\0'..=char::MAX {
            let classes = CLASSES.of(c);
            assert_eq!(classes & !NEWLINE, expected_of[c as usize], "{c:?}");
            assert_eq!(classes & NEWLINE != 0, c == '\r' || c == '\n', "{c:?}");
        }
    }

    #[test]
    fn equal_pages_are_shared() {
        assert!(CLASSES.pages.len() < 300, "{} pages", CLASSES.pages.len());
    }
}
