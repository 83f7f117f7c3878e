//! A tiny vocabulary beside a tiny checkpoint.

use serde_json::{Map, json};

use super::shards::FileImage;

/// 256 single bytes (id = byte), then merges in rank order, then specials.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TinyTokenizer {
    /// Merged tokens, ranks from 256. Each must be two tokens before it.
    pub merges: Vec<Vec<u8>>,
    /// Names of the specials, ids following the merges.
    pub specials: Vec<String>,
}

impl TinyTokenizer {
    /// Merges for a few English words and the specials the model's chat format
    /// names.
    #[must_use]
    pub fn small() -> Self {
        let merges = [
            "th", "the", " the", "in", "an", "and", "er", " a", "ll", "he", "hell", "lo",
        ];
        let specials = [
            "[BOS]",
            "[EOS]",
            "<|end_of_msg|>",
            "<|open|>",
            "<|close|>",
            "<|sep|>",
        ];
        Self {
            merges: merges.iter().map(|text| text.as_bytes().to_vec()).collect(),
            specials: specials.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// Ids in use: bytes, merges and specials.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        256 + self.merges.len() + self.specials.len()
    }

    /// `tiktoken.model` and `tokenizer_config.json`.
    ///
    /// # Panics
    /// When a merge is not two earlier tokens: no encoder could reach it.
    #[must_use]
    pub fn files(&self) -> Vec<FileImage> {
        let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        for merge in &self.merges {
            let reachable = (1..merge.len()).any(|cut| {
                let (left, right) = merge.split_at(cut);
                tokens.iter().any(|t| t == left) && tokens.iter().any(|t| t == right)
            });
            assert!(reachable, "{merge:?} is not two earlier tokens");
            tokens.push(merge.clone());
        }
        let ranks: String = tokens
            .iter()
            .enumerate()
            .map(|(rank, token)| format!("{} {rank}\n", base64(token)))
            .collect();
        let mut added = Map::new();
        for (index, name) in self.specials.iter().enumerate() {
            // As released: the three markers of the chat format are not "special".
            let special = !["<|open|>", "<|close|>", "<|sep|>"].contains(&name.as_str());
            added.insert(
                (tokens.len() + index).to_string(),
                json!({ "content": name, "special": special }),
            );
        }
        let config = json!({ "added_tokens_decoder": added });
        vec![
            FileImage {
                name: "tiktoken.model".to_owned(),
                bytes: ranks.into_bytes(),
            },
            FileImage {
                name: "tokenizer_config.json".to_owned(),
                bytes: format!("{config:#}\n").into_bytes(),
            },
        ]
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        for place in 0..4 {
            if place <= chunk.len() {
                let digit = usize::try_from(word >> (18 - 6 * place) & 63).expect("six bits");
                text.push(char::from(ALPHABET[digit]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_published_vectors() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in vectors {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    #[should_panic(expected = "not two earlier tokens")]
    fn an_unreachable_merge_is_refused() {
        let tokenizer = TinyTokenizer {
            merges: vec![b"the".to_vec()],
            specials: Vec::new(),
        };
        let _ = tokenizer.files();
    }
}
