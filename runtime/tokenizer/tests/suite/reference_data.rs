//! Checks against reference data that is not part of the repository.

use crate::released::{TOKENIZER, TOKENS, reference_data};
use k3_formats::RankFile;
use k3_tokenizer::{Mode, Render};
use serde::Deserialize;
use std::fmt::Write as _;

#[derive(Deserialize)]
struct Vector {
    text: String,
    ids: Vec<u32>,
}

#[test]
fn reference_vectors_agree_without_exception() {
    let Some(path) = reference_data("kimi-tokenizer/golden.json") else {
        return;
    };
    let json = std::fs::read(path).expect("the vectors are readable");
    let vectors: Vec<Vector> = serde_json::from_slice(&json).expect("a list of vectors");
    assert!(vectors.len() >= 50, "{} vectors", vectors.len());
    for Vector { text, ids } in &vectors {
        assert_eq!(TOKENIZER.encode(text, Mode::Content), *ids, "{text:?}");
        assert_eq!(
            TOKENIZER.decode(ids, Render::Plain).unwrap(),
            text.as_bytes()
        );
    }
}

#[test]
fn the_released_file_is_the_packed_vocabulary() {
    let Some(path) = reference_data("kimi-tokenizer/tiktoken.model") else {
        return;
    };
    let file = std::fs::read_to_string(&path).expect("the vocabulary is readable");
    let mut expected = String::new();
    for (rank, token) in TOKENS.iter().enumerate() {
        writeln!(expected, "{} {rank}", base64(token)).expect("a string takes it");
    }
    assert!(
        file == expected,
        "tiktoken.model is not the packed vocabulary line by line"
    );
    let parsed = RankFile::parse(&path, file.as_bytes()).expect("the released file");
    assert!(parsed.tokens().eq(TOKENS.iter().copied()));
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(padded);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}
