//! Splitting against the pattern in a regex engine, encoding against another encoder.

use crate::released::{PATTERN, RANK_COUNT, TOKENIZER, oracle_ids};
use fancy_regex::Regex;
use k3_tokenizer::{Mode, Render, StreamDecoder, pre_split};
use proptest::prelude::*;
use std::sync::LazyLock;

static REGEX: LazyLock<Regex> = LazyLock::new(|| Regex::new(PATTERN).expect("a valid pattern"));

/// Text that reaches every alternative and the borders between them: single characters
/// of each class, contractions, line ends, and now and then anything at all.
fn fragment() -> impl Strategy<Value = String> {
    let of = |pool: &'static [&'static str]| proptest::sample::select(pool).prop_map(str::to_owned);
    prop_oneof![
        4 => of(&["a", "b", "Z", "Q", "the", "HTML", "é", "Ж", "ж", "ß", "ſ", "K", "ª", "ʰ", "ǅ", "ǈ"]),
        3 => of(&["あ", "ン", "한", "글", "ا", "ב", "ก", "ํ", "ि", "क", "漢", "字", "々", "〇", "⺀", "𠀀"]),
        3 => of(&[" ", "  ", "\t", "\u{a0}", "\u{3000}", "\u{85}", "\u{1c}", "\u{200b}", "\u{2028}"]),
        2 => of(&["\n", "\r", "\r\n", "\n\n"]),
        2 => of(&["1", "23", "٤", "Ⅷ", "½", "²", "𝟘"]),
        2 => of(&["'s", "'S", "'ſ", "'t", "'RE", "'vE", "'m", "'lL", "'d", "'l", "'r", "'", "’s"]),
        2 => of(&["!", ".", "/", "_", "€", "😀", "👩\u{200d}👦", "\u{301}", "\u{fe0f}", "<|sep|>", "<|"]),
        1 => any::<char>().prop_map(String::from),
    ]
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(fragment(), 0..40).prop_map(|parts| parts.concat())
}

#[track_caller]
fn check(text: &str) {
    let expected: Vec<&str> = REGEX
        .find_iter(text)
        .map(|found| found.expect("within the limits").as_str())
        .collect();
    assert_eq!(
        pre_split(text).collect::<Vec<_>>(),
        expected,
        "pieces of {text:?}"
    );
    let ids = TOKENIZER.encode(text, Mode::Content);
    assert_eq!(ids, oracle_ids(text), "ids of {text:?}");
    assert!(ids.iter().all(|&id| id < RANK_COUNT));
    assert_eq!(
        TOKENIZER.decode(&ids, Render::Plain).expect("own ids"),
        text.as_bytes()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn mixed_text_splits_and_encodes_like_the_oracles(text in text()) {
        check(&text);
    }

    #[test]
    fn arbitrary_text_splits_and_encodes_like_the_oracles(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn repetitive_text_merges_like_the_oracle(text in "[ab]{1,4}( ?[-=]{1,3}){0,2}", times in 1usize..200) {
        // Long pieces take the heap; the oracle rescans an array.
        check(&text.repeat(times));
        check(&text.replace([' ', '-', '='], "").repeat(times));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn streamed_text_is_the_text(text in prop_oneof![text(), any::<String>()], cut in any::<u64>()) {
        let ids = TOKENIZER.encode(&text, Mode::Content);
        let stream = |ids: &[u32]| {
            let mut decoder = StreamDecoder::new(&*TOKENIZER, Render::Plain);
            let mut streamed = String::new();
            for &id in ids {
                streamed.push_str(decoder.push(id).expect("own ids"));
            }
            streamed + decoder.finish()
        };
        prop_assert_eq!(stream(&ids), &text[..]);
        // From the middle, where a character may begin outside, to the middle.
        let start = usize::try_from(cut % (ids.len() as u64 + 1)).unwrap();
        let bytes = TOKENIZER.decode(&ids[start..], Render::Plain).unwrap();
        prop_assert_eq!(stream(&ids[start..]), String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn every_character_between_neighbours_of_each_kind() {
    // A page of characters at a time keeps the failing text short.
    let all: Vec<char> = ('\0'..=char::MAX).collect();
    for page in all.chunks(256) {
        for around in ["", "a", "A", " ", "1", "漢", "!", "\n", "\u{301}"] {
            let text: String = page
                .iter()
                .flat_map(|&c| [around.to_owned(), c.into()])
                .collect();
            let pieces = REGEX
                .find_iter(&text)
                .map(|found| found.expect("short text").as_str());
            assert!(
                pre_split(&text).eq(pieces),
                "{around:?} around U+{:04X}..",
                page[0] as u32
            );
        }
    }
}
