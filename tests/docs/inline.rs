//! What the text names between backticks: commands have such options, tests and files
//! are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::place::Place;

/// What only looks like a command: words that hashes begin with.
const NO_COMMANDS: &[&str] = &[
    "k3 manifest root 1",
    "k3 sequence snapshot 1",
    "k3 prefix binding 1",
    "k3 prefix key 1",
    "k3 packed trunk set 1",
];

/// What stands for a value, and a value.
const PLACEHOLDERS: &[(&str, &str)] = &[("SHELL", "bash"), ("…", "1"), ("...", "1")];

/// Commands that are also run, for they are complete and short.
const RUN: &[&str] = &[
    "k3 presets",
    "k3 --version",
    "k3 demo path",
    "k3 plan Kimi-K3 --memory 32G",
    "k3 bench kernels --check",
];

/// Every command in the text parses, every test that is named exists, and so does every
/// path into this repository.
pub(crate) fn what_is_named_exists(documents: &[PathBuf]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = Place::new();
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for document in documents {
        let text = fs::read_to_string(document).unwrap();
        for span in spans(&text) {
            let fault = if span.starts_with("k3 ") || span.starts_with("k3-pack ") {
                if !seen.insert(span.clone()) || NO_COMMANDS.contains(&&*span) {
                    continue;
                }
                parse(&place, &span).err()
            } else if span.contains("cargo test -p ") {
                test_exists(root, &span).err()
            } else if is_path(root, &span) && !root.join(&span).exists() {
                Some("is no file of this repository".to_owned())
            } else {
                None
            };
            let fault = fault.map(|fault| format!("{}: `{span}`: {fault}", document.display()));
            wrong.extend(fault);
        }
    }
    for command in RUN {
        assert!(seen.contains(*command), "no document has `{command}`");
        let output = place.run(command);
        if !output.status.success() {
            wrong.push(format!("`{command}`: {output:?}"));
        }
    }
    assert!(seen.len() > 40, "{seen:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // This can fail.
    for bad in [
        "k3 no-such-command --x",
        "k3 plan --no-such-option",
        "k3-pack synth --sparser",
    ] {
        assert!(parse(&place, bad).is_err(), "{bad}");
    }
    assert!(test_exists(root, "cargo test -p k3 --test no_such").is_err());
}

/// What stands between backticks, outside of blocks, on one line each.
fn spans(text: &str) -> Vec<String> {
    let mut in_block = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    let mut spans = Vec::new();
    for paragraph in prose.split("\n\n") {
        let parts = paragraph.split('`').skip(1).step_by(2);
        spans.extend(parts.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    spans
}

/// Whether a command line has the subcommands and options that it names, with values that
/// they take.
fn parse(place: &Place, span: &str) -> Result<(), String> {
    let mut line = span.replace(['[', ']'], "");
    for (placeholder, value) in PLACEHOLDERS {
        line = line.replace(placeholder, value);
    }
    // Help comes after everything before it has been understood.
    let said = help(place, &line)?;
    if said.contains("a value is required") || said.contains("requires a value") {
        // The text names an option without what it takes.
        let said = help(place, &format!("{line} 1"))?;
        return if said.is_empty() { Ok(()) } else { Err(said) };
    }
    if said.is_empty() { Ok(()) } else { Err(said) }
}

/// What is said against a command line with `--help` at its end: nothing, if all is well.
fn help(place: &Place, line: &str) -> Result<String, String> {
    let output = place.run(&format!("{line} --help"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) if !output.stdout.is_empty() => Ok(String::new()),
        Some(2) => Ok(text),
        _ => Err(format!("{output:?}")),
    }
}

/// Whether the package and the test target of `cargo test -p P --test T` exist.
fn test_exists(root: &Path, span: &str) -> Result<(), String> {
    let words: Vec<&str> = span.split_whitespace().collect();
    let after = |option: &str| {
        let at = words.iter().position(|word| *word == option)?;
        words.get(at + 1).copied()
    };
    let package = after("-p").unwrap_or_default();
    let name = format!("name = \"{package}\"");
    let manifests = manifests(root);
    let manifest = manifests.iter().find(|manifest| {
        let text = fs::read_to_string(manifest).unwrap();
        text.lines().any(|line| line == name)
    });
    let manifest = manifest.ok_or_else(|| format!("no package {package}"))?;
    let Some(test) = after("--test") else {
        return Ok(());
    };
    let directory = manifest.parent().unwrap().join("tests");
    let text = fs::read_to_string(manifest).unwrap();
    let is_there = directory.join(format!("{test}.rs")).exists()
        || directory.join(test).join("main.rs").exists()
        || text.contains(&format!("[[test]]\nname = \"{test}\""));
    if is_there {
        Ok(())
    } else {
        Err(format!("{package} has no test {test}"))
    }
}

/// The manifests of the workspace.
fn manifests(root: &Path) -> Vec<PathBuf> {
    let own = root.join("Cargo.toml");
    let text = fs::read_to_string(&own).unwrap();
    let (_, members) = text.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let members = members.split('"').skip(1).step_by(2);
    members
        .map(|member| root.join(member).join("Cargo.toml"))
        .collect()
}

/// Whether `span` is spelled as a path below one of the repository's directories.
fn is_path(root: &Path, span: &str) -> bool {
    let Some((first, _)) = span.split_once('/') else {
        return false;
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    !first.is_empty()
        && span.chars().all(plain)
        && first != "target"
        && first != "nvme0"
        && root.join(first).is_dir()
}
