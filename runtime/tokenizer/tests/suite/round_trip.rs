//! Every text file of the repository: decoded it is itself, and the oracle agrees.

use crate::released::{RANK_COUNT, TOKENIZER, oracle_ids, root};
use k3_tokenizer::{Mode, Render};
use std::path::{Path, PathBuf};

/// Larger files are data; their like is in the smaller ones.
const ORACLE_BYTES_MAX: usize = 256 * 1024;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let entry = entry.expect("a readable entry");
        let kind = entry.file_type().expect("a file type");
        let name = entry.file_name();
        if kind.is_dir() && name != "target" && name != ".git" {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

#[test]
fn every_text_file_of_the_repository_survives() {
    let mut paths = Vec::new();
    files(&root(), &mut paths);
    let mut text_count = 0;
    for path in paths {
        // Not UTF-8: a binary fixture. Gone since the listing: an editor's.
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let ids = TOKENIZER.encode(&text, Mode::Content);
        assert!(ids.iter().all(|&id| id < RANK_COUNT), "{}", path.display());
        let decoded = TOKENIZER.decode(&ids, Render::Plain).expect("own ids");
        assert!(decoded == text.as_bytes(), "{} changed", path.display());
        let structure = TOKENIZER.encode(&text, Mode::Structure);
        let decoded = TOKENIZER
            .decode(&structure, Render::Markup)
            .expect("own ids");
        assert!(
            decoded == text.as_bytes(),
            "{} changed as structure",
            path.display()
        );
        if text.len() <= ORACLE_BYTES_MAX {
            assert!(
                ids == oracle_ids(&text),
                "{}: the oracle has other ids",
                path.display()
            );
        }
        text_count += 1;
    }
    assert!(text_count > 30, "only {text_count} text files found");
}
