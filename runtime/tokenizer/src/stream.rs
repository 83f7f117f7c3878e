//! Ids to text as they come.

use crate::{Render, Tokenizer, TokenizerError};
use std::borrow::Borrow;

/// Decodes ids one at a time into text that is safe to show at once.
///
/// A token may end inside a character: its first bytes are held back until the rest
/// arrives or cannot arrive any more. Bytes that are not UTF-8 become U+FFFD. All deltas
/// joined, with that of [`StreamDecoder::finish`], are [`String::from_utf8_lossy`] of all
/// bytes. Never more than three bytes are held back.
///
/// `T` is whatever holds the tokenizer: `&Tokenizer` or `Arc<Tokenizer>`.
#[derive(Debug)]
pub struct StreamDecoder<T> {
    tokenizer: T,
    render: Render,
    /// The beginning of a character, then the bytes of the id being pushed.
    pending: Vec<u8>,
    delta: String,
}

impl<T: Borrow<Tokenizer>> StreamDecoder<T> {
    /// A decoder at the start of a text.
    pub fn new(tokenizer: T, render: Render) -> Self {
        StreamDecoder {
            tokenizer,
            render,
            pending: Vec::new(),
            delta: String::new(),
        }
    }

    /// The text that `id` completes; empty when it completes none.
    ///
    /// # Errors
    /// An id that no token has. The decoder stays as it was.
    pub fn push(&mut self, id: u32) -> Result<&str, TokenizerError> {
        let bytes = self.tokenizer.borrow().token_bytes(id, self.render)?;
        self.pending.extend_from_slice(bytes);
        self.delta.clear();
        let held_back = take_complete(&self.pending, &mut self.delta);
        self.pending.drain(..self.pending.len() - held_back);
        Ok(&self.delta)
    }

    /// What was held back, as U+FFFD; empty when the text ended with a whole character.
    /// The decoder is at the start of a text again.
    pub fn finish(&mut self) -> &str {
        self.delta.clear();
        if !self.pending.is_empty() {
            self.pending.clear();
            self.delta.push(char::REPLACEMENT_CHARACTER);
        }
        &self.delta
    }
}

/// Appends the text of `bytes` and returns how many bytes at its end may be the
/// beginning of a character.
fn take_complete(mut bytes: &[u8], text: &mut String) -> usize {
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(valid) => {
                text.push_str(valid);
                return 0;
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        text.push_str(std::str::from_utf8(valid).expect("valid up to here"));
        let Some(invalid_bytes) = error.error_len() else {
            return rest.len();
        };
        text.push(char::REPLACEMENT_CHARACTER);
        bytes = &rest[invalid_bytes..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Specials;
    use crate::ranks::tests::table;
    use proptest::prelude::*;

    fn tokenizer() -> Tokenizer {
        let ranks = table(&["あ".as_bytes(), b"ok"]).unwrap();
        Tokenizer::new(ranks, Specials::kimi_k3(258), 514).unwrap()
    }

    #[test]
    fn characters_come_whole_and_broken_ones_are_replaced_as_soon_as_known() {
        let tokenizer = tokenizer();
        let mut decoder = StreamDecoder::new(&tokenizer, Render::Plain);
        let deltas: Vec<String> = [0xf0, 0x9f, 0x98, 0x80, 0xe3, 0x81, 257, 256, 0x80, 0xc3]
            .iter()
            .map(|&id| decoder.push(id).unwrap().to_owned())
            .collect();
        assert_eq!(
            deltas,
            ["", "", "", "😀", "", "", "\u{fffd}ok", "あ", "\u{fffd}", ""]
        );
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn control_tokens_are_left_out_or_spelled_and_an_unknown_id_changes_nothing() {
        let tokenizer = std::sync::Arc::new(tokenizer());
        let sep = tokenizer.special_id("<|sep|>").unwrap();
        let mut plain = StreamDecoder::new(tokenizer.clone(), Render::Plain);
        assert_eq!(plain.push(0xc3).unwrap(), "");
        assert_eq!(plain.push(sep).unwrap(), "");
        assert!(plain.push(514).is_err());
        assert_eq!(
            plain.push(0xa9).unwrap(),
            "é",
            "what is left out separates nothing"
        );
        let mut markup = StreamDecoder::new(tokenizer, Render::Markup);
        assert_eq!(markup.push(0xc3).unwrap(), "");
        assert_eq!(markup.push(sep).unwrap(), "\u{fffd}<|sep|>");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn deltas_joined_are_the_lossy_text(
            // Bytes that begin, continue and cannot be in characters.
            ids in proptest::collection::vec(
                prop_oneof![
                    0u32..258,
                    Just(0xe3), Just(0x81), Just(0x82), Just(0xf0), Just(0x9f), Just(0xed), Just(0xa0),
                    Just(0xf4), Just(0x90), Just(0xc0), Just(0x41), Just(256),
                ],
                0..24,
            )
        ) {
            let tokenizer = tokenizer();
            let mut decoder = StreamDecoder::new(&tokenizer, Render::Markup);
            let mut text = String::new();
            for &id in &ids {
                text.push_str(decoder.push(id).unwrap());
                prop_assert!(decoder.pending.len() <= 3);
            }
            text.push_str(decoder.finish());
            let bytes = tokenizer.decode(&ids, Render::Markup).unwrap();
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
