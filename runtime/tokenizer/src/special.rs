//! Control tokens: their names, their ids, and finding them in structure text.

use crate::TokenizerError;
use std::ops::Range;

/// Ids reserved for control tokens above the ordinary ones.
pub const RESERVED_SLOT_COUNT: u32 = 256;

/// Ends a sequence.
pub const END_OF_SEQUENCE: &str = "[EOS]";

/// Ends a turn.
pub const END_OF_MESSAGE: &str = "<|end_of_msg|>";

/// Special ids lie less than this above the first: the table is indexed by id.
const INDEX_LIMIT: u32 = 1 << 24;

/// The named slots of the Kimi K3 release, by offset from the first.
const KIMI_K3: [(u32, &str); 16] = [
    (0, "[BOS]"),
    (1, END_OF_SEQUENCE),
    (2, END_OF_MESSAGE),
    (3, "<|open|>"),
    (4, "<|close|>"),
    (5, "<|sep|>"),
    (6, "[start_header_id]"),
    (7, "[end_header_id]"),
    (9, "[EOT]"),
    (18, "<|media_begin|>"),
    (19, "<|media_content|>"),
    (20, "<|media_end|>"),
    (21, "<|media_pad|>"),
    (65, "<osagent_mode>"),
    (254, "[UNK]"),
    (255, "[PAD]"),
];

/// The control tokens of a vocabulary: spellings for ids from `base` up.
///
/// The release marks some of them (`<|open|>`, `<|close|>`, `<|sep|>`) as "not special",
/// by which other decoders leave their spelling in the text. Here every entry is a
/// control token, known by its id.
#[derive(Clone)]
pub struct Specials {
    base: u32,
    /// Spelling of `base + index`, if that id has one.
    names: Vec<Option<Box<str>>>,
    /// Ids, ordered by their spelling's bytes.
    by_name: Vec<u32>,
    /// Whether a spelling starts with the byte.
    starts: [bool; 256],
    /// Whether the names are the release's own, placed by the number of ranks.
    released: bool,
}

impl Specials {
    /// The table of the Kimi K3 release above `base` ordinary tokens: 16 named ids, and
    /// `<|reserved_token_{id}|>` for the others of the 256 slots.
    ///
    /// # Panics
    /// If the slots do not fit into `u32`.
    pub fn kimi_k3(base: u32) -> Self {
        let end = base
            .checked_add(RESERVED_SLOT_COUNT)
            .expect("slots fit into u32");
        let named = KIMI_K3
            .iter()
            .map(|&(offset, name)| (base + offset, name.to_owned()));
        let mut specials =
            Self::with_reserved(base, named, end).expect("the released names are distinct");
        specials.released = true;
        specials
    }

    /// A table of exactly these `(id, spelling)` entries, none below `base`, the number
    /// of ordinary tokens.
    ///
    /// # Errors
    /// An id below `base`, 2^24 or more above it, or taken twice; a spelling that is
    /// empty or taken twice.
    pub fn new(
        base: u32,
        entries: impl IntoIterator<Item = (u32, String)>,
    ) -> Result<Self, TokenizerError> {
        let mut names: Vec<Option<Box<str>>> = Vec::new();
        for (id, name) in entries {
            let Some(index) = id.checked_sub(base) else {
                let id = id.into();
                return Err(TokenizerError::SpecialIsOrdinary {
                    name,
                    id,
                    rank_count: base,
                });
            };
            if name.is_empty() {
                return Err(TokenizerError::SpecialUnnamed { id });
            }
            if index >= INDEX_LIMIT {
                let what = "ids between the first special token and another";
                return Err(TokenizerError::VocabularyTooLarge {
                    what,
                    limit: INDEX_LIMIT.into(),
                });
            }
            let index = index as usize;
            if names.len() <= index {
                names.resize(index + 1, None);
            }
            if let Some(first) = names[index].replace(name.clone().into()) {
                return Err(TokenizerError::SpecialIdTwice {
                    id,
                    first: first.into(),
                    second: name,
                });
            }
        }
        Self::index(base, names)
    }

    /// As [`Specials::new`], with the released spelling for every id of the reserved
    /// slots below `id_end` that has no entry.
    pub(crate) fn with_reserved(
        base: u32,
        entries: impl IntoIterator<Item = (u32, String)>,
        id_end: u32,
    ) -> Result<Self, TokenizerError> {
        let Specials { mut names, .. } = Self::new(base, entries)?;
        let slot_count = RESERVED_SLOT_COUNT.min(id_end.saturating_sub(base));
        for (index, id) in (0..slot_count as usize).zip(base..) {
            if names.len() <= index {
                names.push(None);
            }
            names[index].get_or_insert_with(|| format!("<|reserved_token_{id}|>").into());
        }
        Self::index(base, names)
    }

    fn index(base: u32, names: Vec<Option<Box<str>>>) -> Result<Self, TokenizerError> {
        let mut entries: Vec<(&str, u32)> = names
            .iter()
            .zip(base..)
            .filter_map(|(name, id)| Some((name.as_deref()?, id)))
            .collect();
        entries.sort_unstable();
        for pair in entries.windows(2) {
            let [(name, first), (next, second)] = [pair[0], pair[1]];
            if name == next {
                let name = name.to_owned();
                return Err(TokenizerError::SpecialNameTwice {
                    name,
                    first,
                    second,
                });
            }
        }
        let mut starts = [false; 256];
        for (name, _) in &entries {
            starts[usize::from(name.as_bytes()[0])] = true;
        }
        let by_name = entries.iter().map(|&(_, id)| id).collect();
        Ok(Specials {
            base,
            names,
            by_name,
            starts,
            released: false,
        })
    }

    /// First id of the table: the number of ordinary tokens.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// Whether this is [`Specials::kimi_k3`]: ids that follow from the number of ranks
    /// and confirm nothing about it.
    pub(crate) fn is_released(&self) -> bool {
        self.released
    }

    /// Number of control tokens.
    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// `(id, spelling)` of every control token, ascending by id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        self.names
            .iter()
            .zip(self.base..)
            .filter_map(|(name, id)| Some((id, name.as_deref()?)))
    }

    /// The spelling of a control token.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.names
            .get(id.checked_sub(self.base)? as usize)?
            .as_deref()
    }

    /// The id with exactly this spelling.
    pub fn id(&self, name: &str) -> Option<u32> {
        let at = self
            .by_name
            .binary_search_by(|&id| self.bytes(id).cmp(name.as_bytes()))
            .ok()?;
        Some(self.by_name[at])
    }

    /// The leftmost spelling in `text` at or after `from`, the longest of those that
    /// start there: its id and its byte range. It may start anywhere, not only where a
    /// piece does.
    pub(crate) fn find(&self, text: &str, from: usize) -> Option<(u32, Range<usize>)> {
        let bytes = text.as_bytes();
        (from..bytes.len())
            .filter(|&at| self.starts[usize::from(bytes[at])])
            .find_map(|at| {
                let id = self.longest_prefix(&bytes[at..])?;
                Some((id, at..at + self.bytes(id).len()))
            })
    }

    /// Narrows the sorted spellings byte by byte; the work is bounded by the longest
    /// spelling, not by their number.
    fn longest_prefix(&self, text: &[u8]) -> Option<u32> {
        let mut candidates = self.by_name.as_slice();
        let mut longest = None;
        for (depth, &byte) in text.iter().enumerate() {
            // All candidates share the first `depth` bytes; the one that ends here sorts
            // first and has no byte to compare.
            let byte_of = |id: u32| self.bytes(id).get(depth).copied();
            let start = candidates.partition_point(|&id| byte_of(id) < Some(byte));
            let end = candidates.partition_point(|&id| byte_of(id) <= Some(byte));
            candidates = &candidates[start..end];
            let Some(&first) = candidates.first() else {
                break;
            };
            if self.bytes(first).len() == depth + 1 {
                longest = Some(first);
            }
        }
        longest
    }

    fn bytes(&self, id: u32) -> &[u8] {
        self.name(id)
            .expect("by_name holds ids with names")
            .as_bytes()
    }
}

impl std::fmt::Debug for Specials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(names: &[&str]) -> Result<Specials, TokenizerError> {
        Specials::new(
            300,
            (300..).zip(names.iter().map(|name| (*name).to_owned())),
        )
    }

    #[test]
    fn released_names_have_their_ids_and_the_rest_are_reserved() {
        let specials = Specials::kimi_k3(163_584);
        assert_eq!(specials.count(), 256);
        assert_eq!(
            specials.iter().map(|(id, _)| id).collect::<Vec<_>>(),
            Vec::from_iter(163_584..163_840)
        );
        for (id, name) in [
            (163_584, "[BOS]"),
            (163_586, "<|end_of_msg|>"),
            (163_589, "<|sep|>"),
            (163_592, "<|reserved_token_163592|>"),
            (163_593, "[EOT]"),
            (163_605, "<|media_pad|>"),
            (163_649, "<osagent_mode>"),
            (163_839, "[PAD]"),
        ] {
            assert_eq!(specials.id(name), Some(id));
            assert_eq!(specials.name(id), Some(name));
        }
        assert_eq!(specials.name(163_583), None);
        assert_eq!(specials.name(163_840), None);
        assert_eq!(specials.id("<|im_end|>"), None);
        assert_eq!(specials.id(""), None);
    }

    #[test]
    fn leftmost_then_longest() {
        let specials = table(&["<a>", "<a><b>", "<a><b><c", "b>"]).unwrap();
        assert_eq!(specials.find("x<a>", 0), Some((300, 1..4)));
        assert_eq!(specials.find("<a><b><d", 0), Some((301, 0..6)));
        assert_eq!(specials.find("<a><b><c", 0), Some((302, 0..8)));
        assert_eq!(specials.find("<b>", 0), Some((303, 1..3)));
        assert_eq!(specials.find("<a><b>", 1), Some((303, 4..6)));
        assert_eq!(specials.find("<<a", 0), None);
    }

    #[test]
    fn refuses_tables_that_are_no_function_either_way() {
        assert!(matches!(
            table(&["a", ""]),
            Err(TokenizerError::SpecialUnnamed { id: 301 })
        ));
        assert!(matches!(
            table(&["a", "b", "a"]),
            Err(TokenizerError::SpecialNameTwice {
                first: 300,
                second: 302,
                ..
            })
        ));
        let twice = Specials::new(1, [(5, "a".to_owned()), (5, "b".to_owned())]);
        assert!(matches!(
            twice,
            Err(TokenizerError::SpecialIdTwice { id: 5, .. })
        ));
        let far = Specials::new(6, [(6 + (1 << 24), "a".to_owned())]);
        assert!(matches!(
            far,
            Err(TokenizerError::VocabularyTooLarge {
                limit: 0x100_0000,
                ..
            })
        ));
        let low = Specials::new(6, [(5, "a".to_owned())]);
        assert!(matches!(
            low,
            Err(TokenizerError::SpecialIsOrdinary {
                id: 5,
                rank_count: 6,
                ..
            })
        ));
    }

    proptest! {
        #[test]
        fn find_equals_trying_every_name_everywhere(
            names in proptest::collection::btree_set("[<|x]{1,4}", 1..8),
            text in "[<|xy]{0,30}",
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let specials = table(&names).unwrap();
            let expected = (0..text.len()).find_map(|at| {
                let here = names.iter().filter(|name| text[at..].starts_with(**name));
                let longest = here.max_by_key(|name| name.len())?;
                Some((specials.id(longest).unwrap(), at..at + longest.len()))
            });
            prop_assert_eq!(specials.find(&text, 0), expected);
        }
    }
}
