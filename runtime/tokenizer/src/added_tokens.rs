//! The special table as `tokenizer_config.json` gives it.

use crate::{Specials, TokenizerError};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::path::Path;

#[derive(Deserialize)]
struct TokenizerConfig {
    added_tokens_decoder: AddedTokens,
}

#[derive(Deserialize)]
struct AddedToken {
    content: String,
}

/// The entries in file order. A map would drop the first of two entries for one id.
struct AddedTokens(Vec<(u64, String)>);

impl<'de> Deserialize<'de> for AddedTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = AddedTokens;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object from token ids to objects with \"content\"")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AddedTokens, A::Error> {
                let mut entries = Vec::new();
                while let Some((id, token)) = map.next_entry::<u64, AddedToken>()? {
                    entries.push((id, token.content));
                }
                Ok(AddedTokens(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl Specials {
    /// Reads `added_tokens_decoder` of a `tokenizer_config.json` for a vocabulary of
    /// `base` ordinary tokens and a model of `vocab_size` rows. As in the released
    /// tokenizer, ids of the 256 reserved slots that the file does not name are spelled
    /// `<|reserved_token_{id}|>`. `label` names the file in errors.
    ///
    /// # Errors
    /// JSON of another form; a lowest id above `base`, so that the vocabulary lacks tokens
    /// below it ([`TokenizerError::GapBelowSpecials`]); an id that is an ordinary token's or that lies beyond the
    /// embedding (entries left over from an older release do); an id or spelling that
    /// comes twice; an empty spelling.
    pub fn from_tokenizer_config(
        label: &Path,
        json: &[u8],
        base: u32,
        vocab_size: u32,
    ) -> Result<Self, TokenizerError> {
        let config: TokenizerConfig =
            serde_json::from_slice(json).map_err(|source| TokenizerError::ConfigJson {
                label: label.to_owned(),
                source,
            })?;
        let AddedTokens(entries) = config.added_tokens_decoder;
        let in_fault = |source| TokenizerError::ConfigEntry {
            label: label.to_owned(),
            source: Box::new(source),
        };
        // Before the range: a vocabulary cut short also pushes the last ids out of it.
        let first_special = entries.iter().map(|&(id, _)| id).min();
        if let Some(first_special) = first_special.filter(|&first| first > base.into()) {
            return Err(in_fault(TokenizerError::GapBelowSpecials {
                rank_count: base,
                first_special,
            }));
        }
        let in_range = entries
            .into_iter()
            .map(|(id, name)| match u32::try_from(id) {
                Ok(id) if id < vocab_size => Ok((id, name)),
                _ => Err(TokenizerError::SpecialBeyondModel {
                    name,
                    id,
                    vocab_size,
                }),
            });
        in_range
            .collect::<Result<Vec<_>, _>>()
            .and_then(|entries| Self::with_reserved(base, entries, vocab_size))
            .map_err(in_fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &str) -> Result<Specials, TokenizerError> {
        let first = r#""1000": {"content": "[BOS]"}"#;
        let json =
            format!(r#"{{"model_max_length": 9, "added_tokens_decoder": {{{first}, {entries}}}}}"#);
        let label = Path::new("ckpt/tokenizer_config.json");
        Specials::from_tokenizer_config(label, json.as_bytes(), 1000, 1256)
    }

    fn fault(entries: &str) -> TokenizerError {
        match read(entries) {
            Err(TokenizerError::ConfigEntry { source, .. }) => *source,
            other => panic!("expected a faulty entry, got {other:?}"),
        }
    }

    #[test]
    fn names_from_the_file_and_reserved_spellings_for_the_rest() {
        let specials = read(
            r#""1001": {"content": "[EOS]", "special": true, "lstrip": false},
               "1005": {"content": "<|sep|>", "special": false}"#,
        )
        .unwrap();
        assert_eq!(specials.count(), 256);
        assert_eq!(specials.id("[EOS]"), Some(1001));
        assert_eq!(specials.id("<|sep|>"), Some(1005));
        assert_eq!(specials.name(1000), Some("[BOS]"));
        assert_eq!(specials.name(1002), Some("<|reserved_token_1002|>"));
        assert_eq!(specials.name(1255), Some("<|reserved_token_1255|>"));
        assert_eq!(specials.name(1256), None);
    }

    #[test]
    fn a_vocabulary_that_ends_below_the_first_entry_is_incomplete() {
        let json = br#"{"added_tokens_decoder": {
            "1255": {"content": "[PAD]"}, "1000": {"content": "[BOS]"}}}"#;
        let read = |base, vocab_size| {
            Specials::from_tokenizer_config(Path::new("x"), json, base, vocab_size)
        };
        assert!(read(1000, 1256).is_ok());
        for (base, vocab_size) in [(999, 1256), (999, 1255), (300, 556)] {
            let error = read(base, vocab_size).unwrap_err().to_string();
            for part in [
                &format!("{base} ranks"),
                "begin at id 1000",
                "fetch it again",
            ] {
                assert!(error.contains(part), "{error}");
            }
        }
        // One rank too many is a token on two ids.
        assert!(read(1001, 1257).is_err());
    }

    #[test]
    fn reserved_slots_end_with_the_embedding() {
        let json = br#"{"added_tokens_decoder": {}}"#;
        let specials = Specials::from_tokenizer_config(Path::new("x"), json, 1000, 1010).unwrap();
        assert_eq!(specials.count(), 10);
        let none = Specials::from_tokenizer_config(Path::new("x"), json, 1000, 900).unwrap();
        assert_eq!(none.count(), 0);
    }

    #[test]
    fn ids_outside_the_special_range_are_refused_by_name() {
        let error = read(r#""1256": {"content": "<|im_end|>"}"#)
            .unwrap_err()
            .to_string();
        for part in [
            "ckpt/tokenizer_config.json",
            "<|im_end|>",
            "1256",
            "end at 1255",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert!(matches!(
            fault(r#""4294967297": {"content": "x"}"#),
            TokenizerError::SpecialBeyondModel {
                id: 0x1_0000_0001,
                ..
            }
        ));
        assert!(matches!(
            fault(r#""999": {"content": "x"}"#),
            TokenizerError::SpecialIsOrdinary { id: 999, .. }
        ));
    }

    #[test]
    fn repeated_entries_are_refused() {
        assert!(matches!(
            fault(r#""1001": {"content": "a"}, "1001": {"content": "b"}"#),
            TokenizerError::SpecialIdTwice { id: 1001, .. }
        ));
        assert!(matches!(
            fault(r#""1001": {"content": "a"}, "1002": {"content": "a"}"#),
            TokenizerError::SpecialNameTwice {
                first: 1001,
                second: 1002,
                ..
            }
        ));
        assert!(matches!(
            fault(r#""1001": {"content": ""}"#),
            TokenizerError::SpecialUnnamed { id: 1001 }
        ));
    }

    #[test]
    fn other_json_is_refused_with_the_file_named() {
        let label = Path::new("ckpt/tokenizer_config.json");
        for json in [
            "",
            "[]",
            "{}",
            r#"{"added_tokens_decoder": []}"#,
            r#"{"added_tokens_decoder": {"x": {"content": "a"}}}"#,
            r#"{"added_tokens_decoder": {"-1": {"content": "a"}}}"#,
            r#"{"added_tokens_decoder": {"1001": "a"}}"#,
            r#"{"added_tokens_decoder": {"1001": {"special": true}}}"#,
            r#"{"added_tokens_decoder": {"1001": {"content": 7}}}"#,
        ] {
            let result = Specials::from_tokenizer_config(label, json.as_bytes(), 1000, 1256);
            assert!(
                matches!(result, Err(TokenizerError::ConfigJson { .. })),
                "{json}"
            );
            assert!(
                result
                    .unwrap_err()
                    .to_string()
                    .starts_with("ckpt/tokenizer_config.json: ")
            );
        }
    }
}
