//! What documents say beside commands: links lead somewhere, quoted errors exist,
//! examples run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::place::Place;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below `directory` with this ending, by name.
pub(crate) fn below(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Files of the repository that a document's links name, without their anchors.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
    let own = targets.filter(|target| !target.is_empty() && !target.contains("://"));
    own.collect()
}

/// Every link of `documents` leads somewhere.
pub(crate) fn links_lead_somewhere(documents: &[PathBuf]) {
    let mut count = 0;
    for path in documents {
        let text = fs::read_to_string(path).unwrap();
        for link in links(&text) {
            let target = path.parent().unwrap().join(link);
            assert!(target.exists(), "{}: no {link}", path.display());
            count += 1;
        }
    }
    assert!(count > 20, "only {count} links");
}

/// The fixed parts of a quoted message: `…` stands for names and numbers.
fn parts(message: &str) -> Vec<&str> {
    let parts = message.split('…').map(str::trim);
    parts.filter(|part| part.len() >= 6).collect()
}

/// Strings that `\` continues on the next line, in one piece.
fn joined(source: &str) -> String {
    let mut pieces = source.split("\\\n");
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        whole.push_str(piece.trim_start());
    }
    whole
}

/// The text of every source file that can say an error.
fn sources() -> Vec<String> {
    let crates = [
        "src",
        "actors/src",
        "config/src",
        "demo/src",
        "integrity/src",
        "io/src",
        "io/formats/src",
        "packer/src",
        "runtime/src",
    ];
    let paths = crates
        .iter()
        .flat_map(|name| below(&root().join(name), "rs"));
    paths
        .map(|path| joined(&fs::read_to_string(path).unwrap()))
        .collect()
}

/// Every message that `docs/troubleshooting.md` has as a heading is in one source
/// file, all its fixed parts.
pub(crate) fn quoted_errors_exist() {
    let text = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let headings = text.lines().filter_map(|line| line.strip_prefix("### `"));
    // Two backticks where the message has some itself.
    let quoted: Vec<&str> = headings.map(|line| line.trim_matches('`').trim()).collect();
    assert!(quoted.len() >= 10, "only {} messages", quoted.len());
    let sources = sources();
    for message in quoted {
        let parts = parts(message);
        assert!(!parts.is_empty(), "{message}: nothing to look for");
        let found = sources
            .iter()
            .any(|source| parts.iter().all(|part| source.contains(part)));
        assert!(found, "no source file has {parts:?}");
    }
    assert_eq!(
        parts("… is too small for … positions"),
        ["is too small for", "positions"]
    );
}

/// Every example says how it is called, and runs when it is called so.
pub(crate) fn examples_run() {
    let place = Place::new();
    let examples = below(&root().join("examples"), "sh");
    assert!(examples.len() >= 3, "only {} examples", examples.len());
    for path in examples {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#!/bin/sh\n# "), "{name}: no comment");
        let call = text
            .lines()
            .find_map(|line| line.strip_prefix("#   sh "))
            .unwrap_or_else(|| panic!("{name}: does not say how it is called"));
        let call = call
            .replace("MODEL", "Kimi-K3")
            .replace("CONFIG", "Kimi-K3");
        let output = place.run(&format!("sh {call}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{call}: {said}");
        assert!(!output.stdout.is_empty(), "{call} says nothing");
    }
}
