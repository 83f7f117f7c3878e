//! What several test files share: the pattern, the released vocabulary, the oracle.

use k3_tokenizer::{RankTable, Specials, Tokenizer};
use splintr_vocab_kimi::KIMI_VOCAB_PACKED;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The released pre-split pattern, one alternative a line.
pub(crate) const PATTERN: &str = concat!(
    r"[\p{Han}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+",
    r"|\s+(?!\S)",
    r"|\s+",
);

/// Rows of the released embedding.
pub(crate) const VOCAB_SIZE: u32 = 163_840;

/// Ranks of the released vocabulary.
pub(crate) const RANK_COUNT: u32 = 163_584;

/// The released tokens in rank order.
pub(crate) static TOKENS: LazyLock<Vec<&'static [u8]>> =
    LazyLock::new(|| unpack(KIMI_VOCAB_PACKED));

/// The released tokenizer.
pub(crate) static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let ranks = RankTable::new(TOKENS.iter().copied().zip(0..)).expect("the released ranks");
    Tokenizer::new(ranks, Specials::kimi_k3(RANK_COUNT), VOCAB_SIZE).expect("the released table")
});

/// The same vocabulary and pattern in an independent encoder.
pub(crate) static ORACLE: LazyLock<tiktoken_rs::CoreBPE> = LazyLock::new(|| {
    let encoder = (0..)
        .zip(TOKENS.iter())
        .map(|(rank, token)| (token.to_vec(), rank))
        .collect();
    tiktoken_rs::CoreBPE::new(encoder, Default::default(), PATTERN).expect("a valid pattern")
});

/// Reads the packed form: magic, u32 count, then varint rank, varint length, bytes.
fn unpack(packed: &'static [u8]) -> Vec<&'static [u8]> {
    let rest = packed
        .strip_prefix(b"SPLNTRV1")
        .expect("the magic of the packed vocabulary");
    let (count, mut rest) = rest.split_first_chunk::<4>().expect("a count");
    let tokens: Vec<&[u8]> = (0..u32::from_le_bytes(*count))
        .map(|expected| {
            let rank = varint(&mut rest);
            assert_eq!(rank, expected as usize, "ranks are stored in order");
            let length = varint(&mut rest);
            rest.split_off(..length).expect("a whole token")
        })
        .collect();
    assert!(rest.is_empty(), "{} bytes after the last token", rest.len());
    tokens
}

fn varint(rest: &mut &[u8]) -> usize {
    let mut value = 0;
    for shift in (0..28).step_by(7) {
        let byte = *rest.split_off_first().expect("a whole number");
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number of more than 28 bits");
}

/// The oracle's ids for content, after the long-input rule in its released form: a
/// literal transcription over vectors of characters.
pub(crate) fn oracle_ids(text: &str) -> Vec<u32> {
    let chars: Vec<char> = text.chars().collect();
    let mut ids = Vec::new();
    for part in chars.chunks(400_000) {
        let (mut start, mut run, mut run_is_space) = (0, 0, is_python_space(part[0]));
        for (index, &c) in part.iter().enumerate() {
            if is_python_space(c) == run_is_space {
                run += 1;
                if run > 25_000 {
                    ids.extend(ORACLE.encode_ordinary(&String::from_iter(&part[start..index])));
                    start = index;
                    run = 1;
                }
            } else {
                run_is_space = !run_is_space;
                run = 1;
            }
        }
        ids.extend(ORACLE.encode_ordinary(&String::from_iter(&part[start..])));
    }
    ids
}

fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// The workspace root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace root")
}

/// A file of the reference data, or a note that the test is not run.
pub(crate) fn reference_data(file: &str) -> Option<PathBuf> {
    k3_formats::gates::reference_data().map(|root| root.join(file))
}
