//! What can be wrong with a vocabulary, a special table or an id.

use std::path::PathBuf;

/// Every way in which building a tokenizer or decoding ids fails. Encoding never fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The ranks do not count up from 0 without a gap.
    #[error(
        "vocabulary: rank {found} stands where rank {expected} belongs; ranks must be 0, 1, 2, … \
         without gap or repetition: fetch the vocabulary file again"
    )]
    RankOrder {
        /// The rank that should come next.
        expected: u32,
        /// The rank that came.
        found: u32,
    },
    /// A token of no bytes, which every position of every text would match.
    #[error("vocabulary: rank {rank} is empty: fetch the vocabulary file again")]
    EmptyToken {
        /// The rank of the empty token.
        rank: u32,
    },
    /// The same bytes under two ranks.
    #[error(
        "vocabulary: ranks {first} and {second} are the same {bytes} bytes: fetch the vocabulary \
         file again"
    )]
    DuplicateToken {
        /// The lower rank.
        first: u32,
        /// The higher rank.
        second: u32,
        /// Length of the token.
        bytes: usize,
    },
    /// A byte without a token of its own, so that some texts could not be encoded.
    #[error(
        "vocabulary: no token for the single byte 0x{byte:02x}; all 256 are needed: this is not \
         a byte-level vocabulary"
    )]
    MissingByte {
        /// The byte.
        byte: u8,
    },
    /// More tokens, or more bytes of tokens, than the packed table addresses.
    #[error("vocabulary: {what} exceed the limit of {limit}: this is not a vocabulary file")]
    VocabularyTooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The vocabulary has more ranks than the model has rows.
    #[error(
        "the vocabulary has {rank_count} ranks and the model {vocab_size} rows (vocab_size): the \
         vocabulary belongs to another model"
    )]
    RanksBeyondModel {
        /// Ranks in the vocabulary.
        rank_count: u32,
        /// Rows of the embedding.
        vocab_size: u32,
    },
    /// Control tokens that do not begin where the ranks end: lines of the vocabulary
    /// file are missing, and every id from there on would be shifted.
    #[error(
        "the vocabulary has {rank_count} ranks, but the special tokens begin at id \
         {first_special}: the vocabulary file is incomplete or belongs to another model; fetch \
         it again"
    )]
    GapBelowSpecials {
        /// Ranks in the vocabulary.
        rank_count: u32,
        /// The lowest id of the special table.
        first_special: u64,
    },
    /// Ranks and control tokens that are fewer or more than the rows of the model.
    #[error(
        "the vocabulary has {rank_count} ranks and {special_count} special tokens, together {}, \
         but the model has {vocab_size} rows (vocab_size): the vocabulary file is incomplete or \
         belongs to another model; fetch it again",
        u64::from(*.rank_count) + *.special_count as u64
    )]
    IdCount {
        /// Ranks in the vocabulary.
        rank_count: u32,
        /// Control tokens, reserved ones among them.
        special_count: usize,
        /// Rows of the embedding.
        vocab_size: u32,
    },
    /// A control token whose id the embedding has no row for.
    #[error(
        "special token {name:?} has id {id}, but the model has {vocab_size} rows (vocab_size), \
         so ids end at {last}: remove the entry from the special table or use the tokenizer \
         files released with this model",
        last = i64::from(*.vocab_size) - 1
    )]
    SpecialBeyondModel {
        /// Its spelling.
        name: String,
        /// Its id.
        id: u64,
        /// Rows of the embedding.
        vocab_size: u32,
    },
    /// A control token on an id that an ordinary token has.
    #[error(
        "special token {name:?} has id {id}, which is an ordinary token: the vocabulary has \
         {rank_count} ranks and specials start at {rank_count}"
    )]
    SpecialIsOrdinary {
        /// Its spelling.
        name: String,
        /// Its id.
        id: u64,
        /// Ranks in the vocabulary.
        rank_count: u32,
    },
    /// Two spellings for one id.
    #[error("special tokens {first:?} and {second:?} both have id {id}")]
    SpecialIdTwice {
        /// The id.
        id: u32,
        /// One spelling.
        first: String,
        /// The other.
        second: String,
    },
    /// Two ids for one spelling.
    #[error("special token {name:?} has two ids, {first} and {second}")]
    SpecialNameTwice {
        /// The spelling.
        name: String,
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
    },
    /// A control token without a spelling.
    #[error("the special token with id {id} has no spelling")]
    SpecialUnnamed {
        /// The id.
        id: u32,
    },
    /// A special table that was numbered for another vocabulary.
    #[error(
        "the special table starts at id {base} and the vocabulary has {rank_count} ranks: build \
         both for the same vocabulary"
    )]
    SpecialBase {
        /// First id of the special table.
        base: u32,
        /// Ranks in the vocabulary.
        rank_count: u32,
    },
    /// `tokenizer_config.json` is not JSON of the expected form.
    #[error(
        "{}: {source}; expected an object \"added_tokens_decoder\" from ids to objects with \
         \"content\"", label.display()
    )]
    ConfigJson {
        /// The file.
        label: PathBuf,
        /// What the parser says, with line and column.
        source: serde_json::Error,
    },
    /// A fault in one entry of `tokenizer_config.json`.
    #[error("{}: {source}", label.display())]
    ConfigEntry {
        /// The file.
        label: PathBuf,
        /// The fault.
        source: Box<TokenizerError>,
    },
    /// An id that no token has.
    #[error(
        "token id {id} is unknown: the vocabulary has {rank_count} ordinary and {special_count} \
         special tokens, vocab_size is {vocab_size}"
    )]
    UnknownId {
        /// The id.
        id: u32,
        /// Ranks in the vocabulary.
        rank_count: u32,
        /// Control tokens.
        special_count: usize,
        /// Rows of the embedding.
        vocab_size: u32,
    },
}
