//! Expected logits as they lie in files.
#![allow(dead_code, reason = "each test binary uses some of this")]

use std::fs;
use std::path::{Path, PathBuf};

/// Little-endian f32 values of a file.
pub(crate) fn read_f32s(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(
        bytes.len().is_multiple_of(4),
        "{}: not f32s",
        path.display()
    );
    let words = bytes.as_chunks::<4>().0;
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// How many values differ in bits.
pub(crate) fn differing(a: &[f32], b: &[f32]) -> usize {
    assert_eq!(a.len(), b.len(), "as many values");
    a.iter()
        .zip(b)
        .filter(|(a, b)| a.to_bits() != b.to_bits())
        .count()
}

/// A JSON list of token ids.
pub(crate) fn ids(value: &serde_json::Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{value}: {e}"))
}

/// The committed checkpoints that come with expected logits.
pub(crate) fn fixture_dirs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let entries = fs::read_dir(&root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
    let mut dirs: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|dir| dir.join("expected.json").exists())
        .collect();
    dirs.sort();
    dirs
}
