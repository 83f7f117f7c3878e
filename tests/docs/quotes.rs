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

/// Where a document's links lead within the repository: the file, or nothing for the
/// document itself, and the section.
fn links(text: &str) -> Vec<(&str, Option<&str>)> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    let own = targets.filter(|(target, _)| !target.is_empty() && !target.contains("://"));
    own.map(|(target, _)| match target.split_once('#') {
        Some((file, section)) => (file, Some(section)),
        None => (target, None),
    })
    .collect()
}

/// The names by which links reach a document's sections: the heading in small letters,
/// without punctuation, hyphens for blanks, and a number from the second of a name on.
fn sections(text: &str) -> Vec<String> {
    let mut sections: Vec<String> = Vec::new();
    let mut bare: Vec<String> = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if in_block || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let name: String = heading.trim().chars().filter(kept).collect();
        let name = name.to_lowercase().replace(' ', "-");
        let before = bare.iter().filter(|other| **other == name).count();
        sections.push(match before {
            0 => name.clone(),
            number => format!("{name}-{number}"),
        });
        bare.push(name);
    }
    sections
}

/// Every link of `documents` leads somewhere, to a section that there is.
pub(crate) fn links_lead_somewhere(documents: &[PathBuf]) {
    let mut counts = [0; 2];
    let mut wrong = Vec::new();
    for path in documents {
        let text = fs::read_to_string(path).unwrap();
        for (file, section) in links(&text) {
            counts[0] += 1;
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            if !target.exists() {
                wrong.push(format!("{}: no {file}", path.display()));
            } else if let Some(section) = section {
                counts[1] += 1;
                let there = sections(&fs::read_to_string(&target).unwrap());
                if !there.iter().any(|name| name == section) {
                    wrong.push(format!("{}: {file} has no #{section}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(counts[0] > 20 && counts[1] > 5, "only {counts:?} links");
    let text = "# A `b-c`: d, é!\n```sh\n# no heading\n```\n## In a file\n#none\n### In a file\n";
    assert_eq!(sections(text), ["a-b-c-d-é", "in-a-file", "in-a-file-1"]);
    let text = "[a](#b) [c](d.md#e) [f](g.md) [h](https://i.k/#l)";
    let expected = [("", Some("b")), ("d.md", Some("e")), ("g.md", None)];
    assert_eq!(links(text), expected);
}

/// What `scripts/demo/README.md` says of the built-in model's size is what its files have.
pub(crate) fn the_demo_model_is_as_large_as_said() {
    let files = fs::read_dir(root().join("demo/model")).unwrap();
    let bytes: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    let (millions, rest) = (bytes / 1_000_000, bytes % 1_000_000);
    let said = format!("{millions},{:03},{:03} bytes", rest / 1000, rest % 1000);
    let text = fs::read_to_string(root().join("scripts/demo/README.md")).unwrap();
    assert!(text.contains(&said), "scripts/demo/README.md: not {said}");
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
    lines_come_back_as_they_are(&place);
}

/// `examples/batch.sh` says the same of a line as `k3` of a prompt, whatever JSON has to
/// escape on the way there and back.
fn lines_come_back_as_they_are(place: &Place) {
    let line = "a\\tb \\\\t \\\"it\\\"";
    let said = |script: &str| {
        let output = place.run(script);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {stderr}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    };
    let lines = said(&format!(
        "printf '{line}\\r\\n\\nhello and\\n' > lines.txt; sh examples/batch.sh Kimi-K3 lines.txt"
    ));
    let first = said(&format!(
        "k3 Kimi-K3 -p \"$(printf '{line}')\" --gen 8 --quiet"
    ));
    let second = said("k3 Kimi-K3 -p 'hello and' --gen 8 --quiet");
    assert_eq!(lines, format!("{first}\n{second}"));
}
