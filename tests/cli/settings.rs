//! Settings in layers: file, environment, command line.

use std::path::Path;

use crate::common::{json, k3, refusal, stdout_of, tiny};

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

/// What `k3` says on standard error about `args` with `environment` set.
fn said(args: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = k3();
    command.args(args).envs(environment.iter().copied());
    // The lines as they are before they are wrapped.
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn settings_of_memory_beside_resident_are_told_with_their_places() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "pins = \"prefix\"\nlookahead = 2\n").unwrap();
    let path = file.path().display().to_string();
    let model = tiny();
    let args = [
        &model,
        "--ids",
        "3",
        "-n",
        "1",
        "--resident",
        "--settings",
        &path,
    ];
    let environment = [
        ("K3_MEMORY", "1M"),
        ("K3_SLOTS", "5"),
        ("K3_ENGINE", "uring"),
        ("K3_THREADS", "1"),
    ];
    let text = said(&args, &environment);
    let told = format!(
        "K3_MEMORY, K3_SLOTS, `lookahead` in {path}:2, `pins` in {path}:1, K3_ENGINE: no effect \
         beside --resident"
    );
    assert!(text.contains(&told), "{told}: {text}");
    let quiet = said(&args[..6], &[("K3_THREADS", "1")]);
    assert!(!quiet.contains("no effect beside"), "{quiet}");
    let preset = said(&args[..6], &[("K3_PRESET", "floor")]);
    assert!(preset.contains("K3_PRESET: no effect"), "{preset}");
}

#[test]
fn a_chunk_beyond_the_context_is_told_by_every_command() {
    let model = tiny();
    let told = "--chunk asks for sweeps of 5000 positions, and a context has 4096";
    let run = [&model, "--ids", "3", "-n", "1", "--chunk", "5000"];
    for args in [&run[..], &[&run[..], &["--resident"]].concat()] {
        let text = said(args, &[]);
        assert!(text.contains(told), "{args:?}: {text}");
    }
    let plan = ["plan", &model, "--memory", "64M", "--context", "10"];
    let text = String::from_utf8(stdout_of(&plan)).unwrap();
    assert!(!text.contains("asks for sweeps"), "nobody asked: {text}");
}

#[test]
fn variables_of_options_that_are_no_settings_are_told() {
    let model = tiny();
    let args = [&model, "--ids", "3", "-n", "1"];
    let names = [
        "K3_GEN",
        "K3_SEED",
        "K3_LAYERS",
        "K3_CONFIG",
        "K3_PROMPT",
        "K3_TEMPERATURE",
        "K3_DISK_GBPS",
    ];
    let environment: Vec<_> = names.map(|name| (name, "3")).to_vec();
    let text = said(&args, &environment);
    for name in names {
        let option = name[3..].to_ascii_lowercase().replace('_', "-");
        let told = format!("{name} is not a setting and not read: --{option} is an option only");
        assert!(text.contains(&told), "{told}: {text}");
    }
    let text = said(
        &args,
        &[("K3_FOO", "1"), ("K3_SLOW", "1"), ("K3_CHUNK", "2")],
    );
    assert!(!text.contains("is not a setting"), "{text}");
    let help = String::from_utf8(stdout_of(&["--help"])).unwrap();
    let words: Vec<&str> = help.split_whitespace().collect();
    for key in k3_config::SETTING_KEYS {
        assert!(
            words.contains(&key.variable().as_str()),
            "{}",
            key.variable()
        );
    }
}

#[test]
fn a_count_has_one_range_whatever_is_wrong_with_it() {
    let check = |variable: &str, most: &str| {
        for wrong in ["0", "-1", "x", "1.5", "4294967296", "99999999999999999999"] {
            let text = said(&["plan", &tiny()], &[(variable, wrong)]);
            let told = format!("{variable}: `{wrong}` is not a whole number from 1 to {most}");
            assert!(text.contains(&told), "{told}: {text}");
        }
    };
    check("K3_CHUNK", "16777216");
    check("K3_CONTEXT", "16777216");
    check("K3_THREADS", "256");
    check("K3_SLOTS", "4294967295");
    let text = said(&["plan", &tiny()], &[("K3_CHUNK", "4000000000")]);
    assert!(text.contains("from 1 to 16777216"), "{text}");
}

#[test]
fn a_size_that_is_none_is_told_what_is_wrong_with_it() {
    for (option, value, why) in [
        ("--cache-gb", "-1", "below 0"),
        ("--cache-gb", "nan", "does not begin with a number"),
        ("--memory", "-1", "below 0"),
        ("--memory", "1e9", "powers of ten"),
    ] {
        let argument = format!("{option}={value}");
        let text = said(&["plan", &tiny(), &argument], &[]);
        assert!(text.contains(why), "{argument}: {text}");
        assert!(!text.contains("the unit is not"), "{argument}: {text}");
    }
}

#[test]
fn a_path_is_a_text_and_a_settings_file_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k3.toml");
    for (line, named) in [
        ("root = [3]", "root"),
        ("root = 3", "root"),
        ("tokenizer = 1.5", "tokenizer"),
    ] {
        std::fs::write(&file, line).unwrap();
        let path = file.display().to_string();
        let text = said(&["plan", &tiny(), "--settings", &path], &[]);
        let told =
            format!("k3.toml:1: {named}: a path is expected, in quotes, not a value of type");
        assert!(text.contains(&told), "{line}: {text}");
    }
    let place = dir.path().display().to_string();
    let by_flag = said(&["plan", &tiny(), "--settings", &place], &[]);
    assert!(
        by_flag.contains(&format!("{place} (--settings)")),
        "{by_flag}"
    );
    let by_variable = said(&["plan", &tiny()], &[("K3_SETTINGS", &place)]);
    assert!(
        by_variable.contains(&format!("{place} (K3_SETTINGS)")),
        "{by_variable}"
    );
}
