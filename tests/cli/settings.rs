//! Settings in layers: file, environment, command line.

use std::path::Path;

use crate::common::{json, k3, refusal, tiny};

/// The settings of a plan: key, value and origin, with `environment` set.
fn settings(args: &[&str], environment: &[(&str, &Path)]) -> Vec<(String, String, String)> {
    let mut command = k3();
    command.args(["plan", &tiny(), "--json"]).args(args);
    command.envs(environment.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report = json(&output.stdout);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    let rows = report["settings"].as_array().unwrap();
    rows.iter()
        .map(|row| (text(&row["key"]), text(&row["value"]), text(&row["origin"])))
        .collect()
}

#[track_caller]
fn check(rows: &[(String, String, String)], key: &str, value: &str, origin: &str) {
    let (_, found, from) = rows.iter().find(|(name, _, _)| name == key).unwrap();
    assert_eq!((found.as_str(), from.as_str()), (value, origin), "{key}");
}

#[test]
fn an_option_comes_before_the_environment_and_that_before_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k3.toml");
    std::fs::write(&file, "memory = \"1G\"\ncontext = 100\nchunk = 5\n").unwrap();
    let path = file.display().to_string();
    let rows = settings(
        &["--settings", &path, "--chunk", "3"],
        &[("K3_CONTEXT", Path::new("50"))],
    );
    check(
        &rows,
        "memory",
        "1.00 GB (953.67 MiB)",
        &format!("{path}:1"),
    );
    check(&rows, "context", "50", "K3_CONTEXT");
    check(&rows, "chunk", "3", "--chunk");
    check(&rows, "pins", "spread", "default");
    check(&rows, "lookahead", "0", "default");
    // The variable names the file when no option does.
    let rows = settings(&[], &[("K3_SETTINGS", &file)]);
    check(&rows, "context", "100", &format!("{path}:2"));
}

#[test]
fn the_users_own_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("k3")).unwrap();
    let file = dir.path().join("k3/settings.toml");
    std::fs::write(&file, "preset = \"floor\"\n").unwrap();
    let rows = settings(&[], &[("XDG_CONFIG_HOME", dir.path())]);
    check(&rows, "memory", "floor", &format!("{}:1", file.display()));
    check(&rows, "chunk", "16", "preset floor");
    let named = dir.path().join("other.toml");
    std::fs::write(&named, "").unwrap();
    let rows = settings(
        &["--memory", "1G", "--settings", &named.display().to_string()],
        &[("XDG_CONFIG_HOME", dir.path())],
    );
    check(&rows, "memory", "1.00 GB (953.67 MiB)", "--memory");
}

#[test]
fn settings_reach_generation() {
    let run = |environment: &[(&str, &str)]| {
        let mut command = k3();
        command.args([&tiny(), "--ids", "3,4,5", "--gen", "1", "--json", "-q"]);
        command.envs(environment.iter().copied());
        command.output().unwrap()
    };
    let output = run(&[("K3_ISA", "scalar"), ("K3_THREADS", "1"), ("K3_CHUNK", "2")]);
    let report = json(&output.stdout);
    assert_eq!(report["execution"]["isa"], "scalar");
    assert_eq!(report["execution"]["threads"], 1);
    assert_eq!(report["execution"]["chunk_positions"], 2);
    let output = run(&[("K3_MEMORY", "1000")]);
    assert_eq!(output.status.code(), Some(2));
    let output = run(&[("K3_MEMROY", "1000")]);
    let report = json(&output.stdout);
    assert!(report["notes"][0].as_str().unwrap().contains("K3_MEMORY"));
}

#[test]
fn every_mistake_is_told_at_once_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k3.toml");
    std::fs::write(&file, "memory = \"8X\"\nchunks = 5\n").unwrap();
    let path = file.display().to_string();
    let said = refusal(2, &["plan", &tiny(), "--settings", &path]);
    for word in ["k3.toml:1", "k3.toml:2", "8X", "`chunk`"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let said = refusal(2, &["plan", &tiny(), "--settings", "/no/such.toml"]);
    assert!(
        said.contains("/no/such.toml") && said.contains("--settings"),
        "{said}"
    );
}
