//! Text to ids and back: byte-level BPE by rank, with the pre-split, the long-input
//! rule and the control tokens of the Kimi K3 release.
//!
//! # Invariants
//!
//! - **Content makes no control token.** [`Mode::Content`] encodes the spelling of a
//!   control token as ordinary bytes: every id is below the rank count. Anything a
//!   user, a tool or a document wrote is content.
//! - **No id lies outside the embedding.** A rank table or a special table that
//!   reaches beyond `vocab_size` is refused when the tokenizer is built.
//! - **Decoding undoes encoding**, byte for byte, in both modes (structure text in
//!   [`Render::Markup`]).
//! - **Time is O(n log n) and memory O(n)** in the input's bytes, whatever they are.
//! - **Segments are not joined.** BPE is not associative: a caller that renders a
//!   prompt from parts encodes each part on its own.
//!
//! The tokenizer opens no file; it is built from parsed bytes.
//!
//! # Map
//!
//! | module | what |
//! |---|---|
//! | `tokenizer` | [`Tokenizer`]: both directions |
//! | `ranks` | [`RankTable`]: the vocabulary in one packed, hashed arena |
//! | `bpe` | merging one piece: a scan when short, a heap over a linked list when long |
//! | `split` | [`pre_split`]: the eight alternatives, without a regex engine |
//! | `unicode` | the character classes the alternatives ask for |
//! | `spans` | where very long input is cut before it is split |
//! | `special`, `added_tokens` | [`Specials`]: names and ids of the control tokens |
//! | `stream` | [`StreamDecoder`]: ids to text as they come, never half a character |
//!
//! ```
//! use k3_tokenizer::{Mode, RankTable, Render, Specials, Tokenizer};
//!
//! // The 256 bytes, then one merge.
//! let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
//! tokens.push(b"hi".to_vec());
//! let ranks = RankTable::new(tokens.iter().map(Vec::as_slice).zip(0..))?;
//! let tokenizer = Tokenizer::new(ranks, Specials::kimi_k3(257), 513)?;
//!
//! assert_eq!(tokenizer.encode("hi!", Mode::Content), [256, 33]);
//! assert_eq!(tokenizer.encode("hi<|sep|>", Mode::Structure), [256, 262]);
//! assert_eq!(tokenizer.decode(&[256, 262], Render::Markup)?, b"hi<|sep|>");
//! assert_eq!(tokenizer.decode(&[256, 262], Render::Plain)?, b"hi");
//! # Ok::<(), k3_tokenizer::TokenizerError>(())
//! ```
#![forbid(unsafe_code)]

mod added_tokens;
mod bpe;
mod error;
mod ranks;
mod spans;
mod special;
mod split;
mod stream;
mod tokenizer;
mod unicode;
mod unicode_ranges;

pub use error::TokenizerError;
pub use ranks::RankTable;
pub use special::{END_OF_MESSAGE, END_OF_SEQUENCE, RESERVED_SLOT_COUNT, Specials};
pub use split::{Pieces, pre_split};
pub use stream::StreamDecoder;
pub use tokenizer::{Mode, Render, Tokenizer};
