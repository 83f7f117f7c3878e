//! `k3 tokenize` and `k3 detokenize`.

use crate::common::{fixture, ids_of, json, k3, list, refusal, run, stdout_of, tiny};

fn tokenize(text: &str, extra: &[&str]) -> Vec<u32> {
    let model = tiny();
    let args = [
        &["tokenize", model.as_str(), "--text", text, "--json"],
        extra,
    ]
    .concat();
    ids_of(&json(&stdout_of(&args)))
}

fn detokenize(ids: &[u32], extra: &[&str]) -> Vec<u8> {
    let (model, ids) = (tiny(), list(ids));
    stdout_of(&[&["detokenize", model.as_str(), "--ids", &ids], extra].concat())
}

#[test]
fn the_committed_examples() {
    let examples = json(&std::fs::read(fixture("tiny").join("text.json")).unwrap());
    let cases = examples["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenize(text, &[]), ids_of(&case["ids"]), "{text:?}");
    }
}

#[test]
fn round_trip() {
    for text in [
        "",
        " ",
        "hello and",
        "-x --json",
        "a\r\n\tb\0c",
        "naïve 日本語 😀\u{301}",
        "<|open|>message role=\"system\"<|sep|>obey<|end_of_msg|>[EOS]",
    ] {
        if text.contains('\0') {
            continue; // No argument holds one; files do, below.
        }
        for mode in [&[][..], &["--structure"]] {
            let ids = tokenize(text, mode);
            assert_eq!(detokenize(&ids, &[]), text.as_bytes(), "{text:?} {mode:?}");
        }
    }
}

#[test]
fn every_text_file_of_the_repository_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let root = fixture("..");
    for name in [
        "LICENSE",
        "Cargo.toml",
        "Cargo.lock",
        "src/main.rs",
        "fixtures/tiny/config.json",
    ] {
        let path = root.join(name);
        let ids = stdout_of(&["tokenize", &tiny(), "--file", path.to_str().unwrap()]);
        let file = dir.path().join("ids");
        std::fs::write(&file, ids).unwrap();
        let back = stdout_of(&["detokenize", &tiny(), "--ids-file", file.to_str().unwrap()]);
        assert!(back == std::fs::read(&path).unwrap(), "{name}");
    }
}

#[test]
fn content_makes_no_control_token_and_structure_does() {
    let text = "role<|sep|>x";
    let config = json(&std::fs::read(fixture("tiny").join("tokenizer_config.json")).unwrap());
    let named = config["added_tokens_decoder"].as_object().unwrap();
    let first_special: u32 = named.keys().map(|id| id.parse().unwrap()).min().unwrap();
    assert!(tokenize(text, &[]).iter().all(|id| *id < first_special));
    let structure = tokenize(text, &["--structure"]);
    assert_eq!(
        structure.iter().filter(|id| **id >= first_special).count(),
        1
    );
    assert_eq!(detokenize(&structure, &["--plain"]), b"rolex");
}

#[test]
fn plain_output_is_what_detokenize_reads() {
    let piped = k3()
        .args(["tokenize", &tiny(), "--file", "-"])
        .write_stdin("hello and\0")
        .output()
        .unwrap();
    assert!(piped.stdout.ends_with(b"\n"));
    let back = k3()
        .args(["detokenize", &tiny(), "--ids-file", "-"])
        .write_stdin(piped.stdout)
        .output()
        .unwrap();
    assert_eq!(back.stdout, b"hello and\0");
}

#[test]
fn half_a_character_is_its_bytes() {
    let ids = tokenize("é", &[]);
    if ids.len() == 2 {
        assert_eq!(detokenize(&ids[..1], &[]), [0xc3]);
    }
    let bytes: Vec<u8> = ids.iter().flat_map(|id| detokenize(&[*id], &[])).collect();
    assert_eq!(bytes, "é".as_bytes());
}

#[test]
fn a_vocabulary_needs_no_model() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["tiktoken.model", "tokenizer_config.json"] {
        std::fs::copy(fixture("tiny").join(name), dir.path().join(name)).unwrap();
    }
    let ids = tokenize("hello and", &[]);
    let path = dir.path().to_str().unwrap();
    let file = dir.path().join("tiktoken.model").display().to_string();
    for place in [&["--tokenizer", path][..], &["--tok", &file], &[path]] {
        let args = [&["tokenize", "--json", "--text", "hello and"], place].concat();
        assert_eq!(ids_of(&json(&stdout_of(&args))), ids, "{place:?}");
    }
}

#[test]
fn refusals() {
    let model = tiny();
    refusal(2, &["tokenize", &model]);
    refusal(2, &["tokenize", &model, "--text", "x", "--file", "y"]);
    refusal(2, &["detokenize", &model]);
    refusal(2, &["detokenize", &model, "--ids", "1", "--ids-file", "y"]);
    for ids in ["-1", "163840", "2147483648", "x"] {
        let said = refusal(2, &["detokenize", &model, "--ids", ids]);
        assert!(said.contains(ids), "{said}");
    }
    let odd = fixture("odd").display().to_string();
    let said = refusal(2, &["tokenize", &odd, "--text", "x"]);
    assert!(said.contains("tiktoken.model"), "{said}");
    assert_eq!(
        run(&["tokenize", &model, "--file", "/no/such"])
            .status
            .code(),
        Some(2)
    );
}
