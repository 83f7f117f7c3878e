//! The census of whole, incomplete and broken checkpoints.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;

use crate::common::{case, count_of, fixture, json, refusal, run, stdout_of, tiny};

/// The census of `path`, whose exit code tells whether it is complete.
#[track_caller]
fn census(path: &Path) -> serde_json::Value {
    let path = path.display().to_string();
    let output = run(&["inspect", &path, "--json"]);
    let census = json(&output.stdout);
    let code = if census["complete"] == true { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(code), "{census}");
    assert!(output.stderr.is_empty());
    census
}

/// The census of an incomplete checkpoint, to read.
#[track_caller]
fn text(path: &Path) -> String {
    let path = path.display().to_string();
    let output = run(&["inspect", &path]);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stdout).unwrap()
}

/// A copy of the tiny checkpoint.
fn copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture("tiny")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    dir
}

fn shard(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("model-{number:05}-of-00011.safetensors"))
}

#[test]
fn a_whole_checkpoint() {
    let output = stdout_of(&["inspect", "fixtures/tiny"]);
    assert_snapshot!(String::from_utf8(output).unwrap());
    let census = census(&fixture("tiny"));
    assert_eq!(census["complete"], true);
    let kinds = census["kinds"].as_array().unwrap();
    let bytes: u64 = kinds
        .iter()
        .map(|kind| kind["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(census["tensor_bytes"], bytes);
    let tensors: usize = kinds.iter().map(|kind| count_of(&kind["tensors"])).sum();
    assert_eq!(count_of(&census["tensor_count"]), tensors);
    // The identity is the one a run reports.
    let mut args = case("tiny", "p5", "latent").args();
    args.extend(["--json", "--gen", "0"].map(str::to_owned));
    let run = json(&stdout_of(&args));
    assert_eq!(census["identity"], run["model"]["identity"]);
}

#[test]
fn a_missing_shard_is_told_with_what_it_holds() {
    let dir = copy();
    std::fs::remove_file(shard(dir.path(), 4)).unwrap();
    let census = census(dir.path());
    assert_eq!(census["complete"], false);
    assert!(census["identity"].is_null());
    let missing = census["missing_shards"].as_array().unwrap();
    assert_eq!(missing.len(), 1);
    assert!(count_of(&missing[0]["tensors"]) > 0);
    assert_eq!(census["shards"].as_array().unwrap().len(), 10);
    let experts = census["missing_experts"].as_array().unwrap();
    assert!(
        experts
            .iter()
            .all(|layer| layer["layer"] == missing[0]["layers"][0])
    );
    assert!(!experts.is_empty());
    let text = text(dir.path());
    assert!(
        text.contains("missing: model-00004-of-00011.safetensors"),
        "{text}"
    );
    assert!(text.contains("10  of 11"), "{text}");
    assert!(!text.contains("complete"), "{text}");
    // Another root may have it.
    let other = tempfile::tempdir().unwrap();
    std::fs::copy(shard(&fixture("tiny"), 4), shard(other.path(), 4)).unwrap();
    let whole = stdout_of(&[
        "inspect",
        &dir.path().display().to_string(),
        "--root",
        &other.path().display().to_string(),
        "--json",
    ]);
    assert_eq!(json(&whole)["complete"], true);
}

#[test]
fn a_truncated_shard_is_a_problem_and_the_rest_is_counted() {
    let dir = copy();
    let path = shard(dir.path(), 2);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let census = census(dir.path());
    assert_eq!(census["complete"], false);
    let problem = census["problems"][0].as_str().unwrap();
    assert!(
        problem.contains("model-00002") && problem.contains("1 missing"),
        "{problem}"
    );
    let shards = census["shards"].as_array().unwrap();
    assert_eq!(
        shards
            .iter()
            .filter(|shard| shard["tensors"].is_null())
            .count(),
        1
    );
    assert!(count_of(&census["tensor_count"]) > 400);
}

#[test]
fn without_configuration_or_index_what_is_there_is_counted() {
    let dir = copy();
    for name in [
        "config.json",
        "model.safetensors.index.json",
        "tiktoken.model",
    ] {
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    let census = census(dir.path());
    assert_eq!(census["complete"], false);
    assert_eq!(census["has_vocabulary"], false);
    assert_eq!(count_of(&census["tensor_count"]), 631);
    assert!(
        census["problems"][0]
            .as_str()
            .unwrap()
            .contains("config.json")
    );
}

#[test]
fn another_model_is_told_from_an_incomplete_one() {
    let dir = copy();
    let other = fixture("odd").join("config.json");
    std::fs::copy(other, dir.path().join("config.json")).unwrap();
    let census = census(dir.path());
    assert_eq!(census["complete"], false);
    assert!(
        !census["problems"].as_array().unwrap().is_empty(),
        "{census}"
    );
}

#[test]
fn no_directory_is_an_error() {
    refusal(2, &["inspect", "/no/such/checkpoint"]);
    let said = refusal(2, &["inspect", &tiny(), "--root", "/no/such/root"]);
    assert!(said.contains("/no/such/root"), "{said}");
}

#[test]
fn without_a_configuration_no_attention_is_invented() {
    let dir = copy();
    std::fs::remove_file(dir.path().join("config.json")).unwrap();
    let without = census(dir.path());
    let layers = without["layers"].as_array().unwrap();
    assert!(!layers.is_empty());
    assert!(
        layers.iter().all(|layer| layer["attention"] == "?"),
        "{without}"
    );
    let kinds = without["kinds"].to_string();
    assert!(!kinds.contains("kda") && !kinds.contains("mla"), "{kinds}");
    assert!(kinds.contains("\"attention\""), "{kinds}");
    let with = census(&fixture("tiny"));
    let told: Vec<_> = with["layers"].as_array().unwrap().iter().collect();
    assert!(told.iter().any(|layer| layer["attention"] == "mla"));
    assert!(told.iter().all(|layer| layer["attention"] != "?"));
}

#[test]
fn further_folders_come_from_option_variable_and_file_as_for_a_run() {
    let (model, other) = (copy(), tempfile::tempdir().unwrap());
    let moved = shard(model.path(), 3);
    std::fs::rename(&moved, other.path().join(moved.file_name().unwrap())).unwrap();
    let path = model.path().display().to_string();
    let root = other.path().display().to_string();
    let file = other.path().join("k3.toml");
    let with = |args: &[&str], name: &str, value: &str| {
        let mut command = crate::common::k3();
        command.args(["inspect", &path]).args(args).env(name, value);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    assert_eq!(with(&[], "K3_NONE", "").0, Some(1));
    assert_eq!(with(&["--root", &root], "K3_NONE", "").0, Some(0));
    assert_eq!(with(&[], "K3_ROOT", &root).0, Some(0));
    std::fs::write(&file, format!("root = [\"{root}\"]\n")).unwrap();
    assert_eq!(with(&[], "K3_SETTINGS", file.to_str().unwrap()).0, Some(0));
    // Those that do not exist, named as a run names them.
    for (args, name, by) in [
        (&["--root", "/no/such"][..], "K3_NONE", "--root"),
        (&[], "K3_ROOT", "K3_ROOT"),
    ] {
        let (code, said) = with(args, name, "/no/such");
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("/no/such") && said.contains(by), "{said}");
        let mut run = crate::common::k3();
        run.args([&path, "--ids", "3"])
            .args(args)
            .env(name, "/no/such");
        let run = String::from_utf8(run.output().unwrap().stderr).unwrap();
        assert_eq!(said, run);
    }
}
