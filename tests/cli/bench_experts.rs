//! `k3 bench experts`: what it tells and refuses.

use serde_json::Value;

use crate::common::{json, refusal, stdout_of, tiny};

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn experts_are_measured_and_the_tables_fit_80_columns() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("experts.json");
    let tiny = tiny();
    let quick = ["--rounds", "2", "--seconds", "0.001"];
    let args = [&["bench", "experts", &tiny][..], &quick].concat();
    let text = String::from_utf8(stdout_of(&args)).unwrap();
    for line in text.lines() {
        // A path may be longer than a line.
        assert!(line.chars().count() <= 80 || line.contains(&tiny), "{line}");
    }
    for part in [
        "Huffman",
        "palette",
        "decode both and multiply",
        "differed: 0",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let out_path = out.display().to_string();
    let args = [&args[..], &["--sample", "3", "--json", "--out", &out_path]].concat();
    let printed = stdout_of(&args);
    assert_eq!(std::fs::read(&out).unwrap(), printed);
    let report = json(&printed);
    assert_eq!(report["sample"], 3);
    assert_eq!(report["rates"]["mismatches"], 0);
    let codings = report["codings"].as_array().unwrap();
    assert_eq!(codings.len(), 9);
    for coding in codings {
        assert!(number(&coding["saved_share"]) < 1.0, "{coding}");
    }
}

#[test]
fn experts_that_cannot_be_measured_are_refused() {
    let said = refusal(2, &["bench", "experts", &tiny(), "--sample", "0"]);
    assert!(said.contains("--sample"), "{said}");
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("nothing").display().to_string();
    let said = refusal(2, &["bench", "experts", &missing]);
    assert!(said.contains("nothing"), "{said}");
}
