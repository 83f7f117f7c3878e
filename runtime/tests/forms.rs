//! The two forms of attention on every prompt of every fixture: logits within
//! 2e-6 of the largest, and the same tokens.

mod common;

use std::path::{Path, PathBuf};

use common::{Way, load, open};
use k3_kernels::argmax;
use k3_models::kimi_k3::AttentionForm;
use k3_runtime::{Cancel, ComputePool, Session, SessionSettings};
use k3_testkit::gates;
use serde_json::Value;

/// Tokens generated after each prompt.
const GENERATED: usize = 24;

/// Logits behind the prompt, and the greedy tokens that follow.
fn run(dir: &Path, ids: &[u32], form: AttentionForm) -> (Vec<f32>, Vec<u32>) {
    let checkpoint = open(dir).unwrap();
    let (model, mut source) = load(&checkpoint, form, Way::default());
    let pool = ComputePool::new(1).unwrap();
    let settings = SessionSettings {
        context_positions: ids.len() + GENERATED,
        chunk_positions: 64,
        all_logits: false,
    };
    let mut session = Session::new(&model, &mut source, &pool, settings, Cancel::default());
    let first = session.append_for_logits(ids).unwrap();
    let mut logits = first.clone();
    let mut tokens = Vec::new();
    while tokens.len() < GENERATED {
        let token = u32::try_from(argmax(&logits).unwrap()).unwrap();
        tokens.push(token);
        if tokens.len() < GENERATED {
            logits = session.append_for_logits(&[token]).unwrap();
        }
    }
    (first, tokens)
}

/// Name and ids of every prompt of an `expected.json`.
fn prompts(value: &Value) -> Vec<(String, Vec<u32>)> {
    let id = |id: &Value| u32::try_from(id.as_u64().unwrap()).unwrap();
    let ids = |entry: &Value| entry["ids"].as_array().unwrap().iter().map(id).collect();
    let map = value.as_object().unwrap();
    map.iter()
        .map(|(name, entry)| (name.clone(), ids(entry)))
        .collect()
}

fn check(dir: &Path, expected: &Value) -> usize {
    let cases = prompts(expected);
    for (name, ids) in &cases {
        let (latent, latent_tokens) = run(dir, ids, AttentionForm::Latent);
        let (expanded, expanded_tokens) = run(dir, ids, AttentionForm::Expanded);
        let largest = expanded
            .iter()
            .fold(0.0f32, |max, value| max.max(value.abs()));
        let pairs = latent.iter().zip(&expanded);
        let apart = pairs.fold(0.0f32, |max, (a, b)| max.max((a - b).abs()));
        let what = format!("{}, prompt {name}", dir.display());
        assert!(
            apart <= 2e-6 * largest,
            "{what}: {} of the largest",
            apart / largest
        );
        assert_eq!(latent_tokens, expanded_tokens, "{what}");
    }
    cases.len()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_forms_agree_on_the_fixtures() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    for name in ["tiny", "odd", "flat"] {
        let dir = fixtures.join(name);
        let expected = read(&dir.join("expected.json"));
        assert_eq!(check(&dir, &expected["prompts"]), 6, "{name}");
    }
}

#[test]
fn the_forms_agree_on_the_reference_checkpoints() {
    let Some(data): Option<PathBuf> = gates::reference_data() else {
        return;
    };
    let expected = read(&data.join("k3tiny/expected.json"));
    for name in ["seed7", "e30"] {
        let prompts = &expected["checkpoints"][name]["prompts"];
        assert_eq!(check(&data.join("k3tiny").join(name), prompts), 6, "{name}");
    }
}
