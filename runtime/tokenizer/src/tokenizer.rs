//! Both directions.

use crate::bpe::{Scratch, encode_piece};
use crate::spans::{RELEASED, spans};
use crate::special::{END_OF_MESSAGE, END_OF_SEQUENCE};
use crate::{RankTable, Specials, TokenizerError, pre_split};
use k3_formats::RankFile;

/// What a control token's spelling in the text to encode means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: it is bytes like any others. For all text that a user, a tool, a document
    /// or a model wrote.
    Content,
    /// The control token. For what a prompt template itself writes.
    Structure,
}

/// What becomes of control tokens on decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Render {
    /// They are left out, all of them: who needs them looks at the ids.
    Plain,
    /// They appear in their spelling, so that [`Mode::Structure`] can read it back.
    Markup,
}

/// A vocabulary with its control tokens, for a model of `vocab_size` rows.
///
/// Immutable and [`Sync`]: one serves all threads.
#[derive(Debug)]
pub struct Tokenizer {
    ranks: RankTable,
    specials: Specials,
    vocab_size: u32,
}

impl Tokenizer {
    /// Joins a vocabulary and its control tokens. `vocab_size` is the number of rows of
    /// the model's embedding: every id the tokenizer makes is below it.
    ///
    /// # Errors
    /// More ranks than rows, a control token on or beyond the last row, a special table
    /// that does not start where the ranks end, or ids below `vocab_size` that are
    /// neither: a vocabulary that lost its last lines has those, and its control tokens
    /// would stand on other tokens' ids.
    pub fn new(
        ranks: RankTable,
        specials: Specials,
        vocab_size: u32,
    ) -> Result<Self, TokenizerError> {
        let rank_count = ranks.rank_count();
        if rank_count > vocab_size {
            return Err(TokenizerError::RanksBeyondModel {
                rank_count,
                vocab_size,
            });
        }
        if specials.base() != rank_count {
            return Err(TokenizerError::SpecialBase {
                base: specials.base(),
                rank_count,
            });
        }
        // Names placed by the number of ranks alone prove nothing about that number.
        let is_full = u64::from(rank_count) + specials.count() as u64 == u64::from(vocab_size);
        if specials.is_released() && !is_full {
            return Err(TokenizerError::IdCount {
                rank_count,
                special_count: specials.count(),
                vocab_size,
            });
        }
        if let Some((id, name)) = specials.iter().find(|&(id, _)| id >= vocab_size) {
            let name = name.to_owned();
            return Err(TokenizerError::SpecialBeyondModel {
                name,
                id: id.into(),
                vocab_size,
            });
        }
        if !is_full {
            return Err(TokenizerError::IdCount {
                rank_count,
                special_count: specials.count(),
                vocab_size,
            });
        }
        Ok(Tokenizer {
            ranks,
            specials,
            vocab_size,
        })
    }

    /// As [`Tokenizer::new`], with the ranks of a `tiktoken.model`.
    ///
    /// # Errors
    /// Those of [`RankTable::new`] and [`Tokenizer::new`].
    pub fn from_rank_file(
        file: &RankFile,
        specials: Specials,
        vocab_size: u32,
    ) -> Result<Self, TokenizerError> {
        Self::new(
            RankTable::new(file.tokens().zip(0..))?,
            specials,
            vocab_size,
        )
    }

    /// The ids of `text`. Never fails; every id is below `vocab_size`, and in
    /// [`Mode::Content`] below the rank count.
    pub fn encode(&self, text: &str, mode: Mode) -> Vec<u32> {
        let mut ids = Vec::new();
        self.encode_into(text, mode, &mut ids);
        ids
    }

    /// As [`Tokenizer::encode`], appending to `ids`. Two calls with two texts are two
    /// segments: the ids are not those of the joined text.
    pub fn encode_into(&self, text: &str, mode: Mode, ids: &mut Vec<u32>) {
        let mut scratch = Scratch::default();
        let mut from = 0;
        if mode == Mode::Structure {
            // Before the long-input rule, so that no cut falls into a control token.
            while let Some((id, range)) = self.specials.find(text, from) {
                self.encode_content(&text[from..range.start], &mut scratch, ids);
                ids.push(id);
                from = range.end;
            }
        }
        self.encode_content(&text[from..], &mut scratch, ids);
    }

    fn encode_content(&self, text: &str, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        for span in spans(text, RELEASED) {
            for piece in pre_split(span) {
                encode_piece(&self.ranks, piece.as_bytes(), scratch, ids);
            }
        }
    }

    /// The bytes of `ids`. They need not be UTF-8: a model may stop inside a character.
    ///
    /// # Errors
    /// An id that no token has.
    pub fn decode(&self, ids: &[u32], render: Render) -> Result<Vec<u8>, TokenizerError> {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(self.token_bytes(id, render)?);
        }
        Ok(bytes)
    }

    /// The bytes of one id.
    ///
    /// # Errors
    /// An id that no token has.
    pub fn token_bytes(&self, id: u32, render: Render) -> Result<&[u8], TokenizerError> {
        if let Some(bytes) = self.ranks.bytes(id) {
            return Ok(bytes);
        }
        match (self.specials.name(id), render) {
            (Some(name), Render::Markup) => Ok(name.as_bytes()),
            (Some(_), Render::Plain) => Ok(&[]),
            (None, _) => Err(TokenizerError::UnknownId {
                id,
                rank_count: self.ranks.rank_count(),
                special_count: self.specials.count(),
                vocab_size: self.vocab_size,
            }),
        }
    }

    /// The id of the control token spelled `name`.
    pub fn special_id(&self, name: &str) -> Option<u32> {
        self.specials.id(name)
    }

    /// The ids that end a generation: the config's, then [`END_OF_SEQUENCE`] and
    /// [`END_OF_MESSAGE`] where the vocabulary names them; each once.
    pub fn stop_ids(&self, config_eos: &[u32]) -> Vec<u32> {
        let named = [END_OF_SEQUENCE, END_OF_MESSAGE].map(|name| self.special_id(name));
        let mut ids: Vec<u32> = Vec::new();
        for id in config_eos
            .iter()
            .copied()
            .chain(named.into_iter().flatten())
        {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }

    /// The ordinary tokens.
    pub fn ranks(&self) -> &RankTable {
        &self.ranks
    }

    /// The control tokens.
    pub fn specials(&self) -> &Specials {
        &self.specials
    }

    /// Rows of the model's embedding; every id is below it.
    pub fn vocab_size(&self) -> u32 {
        self.vocab_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::tests::table;

    fn build(base: u32, vocab_size: u32) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::new(
            table(&[b"ab"]).unwrap(),
            Specials::kimi_k3(base),
            vocab_size,
        )
    }

    #[test]
    fn parts_that_do_not_belong_together_are_refused() {
        assert!(build(257, 513).is_ok());
        assert!(matches!(
            build(257, 256),
            Err(TokenizerError::RanksBeyondModel {
                rank_count: 257,
                vocab_size: 256
            })
        ));
        assert!(matches!(
            build(256, 600),
            Err(TokenizerError::SpecialBase {
                base: 256,
                rank_count: 257
            })
        ));
    }

    #[test]
    fn released_names_need_exactly_their_slots_above_the_ranks() {
        for vocab_size in [257, 512, 514, 600] {
            let error = build(257, vocab_size).unwrap_err();
            assert!(matches!(
                error,
                TokenizerError::IdCount {
                    rank_count: 257,
                    special_count: 256,
                    ..
                }
            ));
            let text = error.to_string();
            for part in ["257 ranks", &format!("{vocab_size} rows"), "fetch it again"] {
                assert!(text.contains(part), "{text}");
            }
        }
    }

    #[test]
    fn listed_names_leave_no_id_without_a_token() {
        let build = |ids: &[u32]| {
            let names = ids.iter().map(|id| (*id, format!("<{id}>")));
            let specials = Specials::new(257, names).unwrap();
            Tokenizer::new(table(&[b"ab"]).unwrap(), specials, 260)
        };
        assert!(build(&[257, 258, 259]).is_ok());
        for ids in [&[258, 259][..], &[257, 259], &[257, 258], &[]] {
            assert!(matches!(
                build(ids),
                Err(TokenizerError::IdCount {
                    rank_count: 257,
                    vocab_size: 260,
                    ..
                })
            ));
        }
        assert!(matches!(
            build(&[257, 258, 260]),
            Err(TokenizerError::SpecialBeyondModel { id: 260, .. })
        ));
    }

    #[test]
    fn working_memory_follows_a_span_not_the_text() {
        let tokenizer = build(257, 513).unwrap();
        for unit in ["a", " ", "あ", "ab"] {
            let (mut scratch, mut ids) = (Scratch::default(), Vec::new());
            tokenizer.encode_content(&unit.repeat(400_000), &mut scratch, &mut ids);
            let bytes = scratch.heap_bytes();
            assert!(bytes < 8 << 20, "{bytes} bytes for {unit:?}");
        }
    }

    #[test]
    fn unknown_ids_are_named_with_the_vocabulary_size() {
        let tokenizer = build(257, 513).unwrap();
        for id in [513, 514, 1 << 31, u32::MAX] {
            for render in [Render::Plain, Render::Markup] {
                let error = tokenizer.decode(&[97, id], render).unwrap_err().to_string();
                assert!(error.contains(&format!("token id {id} ")), "{error}");
                assert!(error.contains("vocab_size is 513"), "{error}");
            }
        }
    }

    #[test]
    fn stop_ids_are_the_configs_then_the_named_ones_once_each() {
        let tokenizer = build(257, 513).unwrap();
        assert_eq!(tokenizer.stop_ids(&[]), [258, 259]);
        assert_eq!(tokenizer.stop_ids(&[259, 7, 259]), [259, 7, 258]);
        let specials = Specials::new(257, [(257, "<end>".to_owned())]).unwrap();
        let unnamed = Tokenizer::new(table(&[b"ab"]).unwrap(), specials, 258).unwrap();
        assert_eq!(unnamed.stop_ids(&[]), [0u32; 0]);
        assert_eq!(unnamed.stop_ids(&[257]), [257]);
    }
}
