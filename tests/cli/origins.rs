//! Who asked for what: refusals and notes name the option, the variable, or the
//! key and line of the settings file that a value came from.

use std::path::Path;

use crate::common::{fixture, json, k3, tiny};

/// Every way to give a setting.
struct Ways {
    directory: tempfile::TempDir,
}

impl Ways {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    /// What `command` says with `key` set to `value`, in the file as `literal`,
    /// in each of the three ways; and what each way is called.
    fn each(
        &self,
        command: &[&str],
        (key, value, literal): (&str, &str, &str),
        code: i32,
    ) -> Vec<(String, String)> {
        let flag = format!("--{}", key.replace('_', "-"));
        let variable = format!("K3_{}", key.to_ascii_uppercase());
        let file = self.directory.path().join("k3.toml");
        std::fs::write(&file, format!("# A comment.\n{key} = {literal}\n")).unwrap();
        let file = file.display().to_string();
        let run = |args: &[&str], environment: Option<(&str, &str)>| {
            let mut all = k3();
            all.args(command).args(args).envs(environment);
            let output = all.output().unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(output.status.code(), Some(code), "{key}: {said}");
            said
        };
        let in_file = format!("`{key}` in {file}:2");
        vec![
            (run(&[&flag, value], None), flag.clone()),
            (run(&[], Some((&variable, value))), variable.clone()),
            (run(&["--settings", &file], None), in_file),
        ]
    }
}

/// Arguments that plan the tiny model.
fn plan<'a>(model: &'a str, extra: &[&'a str]) -> Vec<&'a str> {
    [&["plan", model], extra].concat()
}

#[test]
fn a_refused_value_is_named_by_where_it_came_from() {
    let (ways, model) = (Ways::new(), tiny());
    let generate = [&model, "--ids", "3,4,5", "--gen", "5"];
    let small = plan(&model, &["--chunk", "4096"]);
    for (command, setting, more) in [
        (
            &plan(&model, &[])[..],
            ("slots", "3", "3"),
            "raise NAME to 4",
        ),
        (
            &plan(&model, &[]),
            ("memory", "10M", "\"10M\""),
            "raise NAME to ",
        ),
        (
            &small,
            ("memory", "64M", "\"64M\""),
            "lower --chunk from 4096 to ",
        ),
        (
            &plan(&model, &["--memory", "53M"]),
            ("chunk", "4096", "4096"),
            "lower NAME from 4096 to ",
        ),
        (
            &plan(&model, &["--memory", "53M"]),
            ("context", "90000", "90000"),
            "lower NAME from 90000 to ",
        ),
        (&generate, ("context", "7", "7"), "raise NAME to 8"),
        (
            &generate,
            ("tokenizer", "/no/such", "\"/no/such\""),
            "/no/such: no such file",
        ),
        (
            &generate,
            ("metrics_listen", "192.0.2.1:1", "\"192.0.2.1:1\""),
            "192.0.2.1:1 (NAME)",
        ),
    ] {
        for (said, name) in ways.each(command, setting, 2) {
            assert!(said.contains(&name), "{name}: {said}");
            let more = more.replace("NAME", &name);
            assert!(said.contains(&more), "`{more}`: {said}");
            let (key, ..) = setting;
            let flag = format!("--{}", key.replace('_', "-"));
            assert!(name == flag || !said.contains(&flag), "{flag}: {said}");
        }
    }
}

#[test]
fn directories_that_are_not_there_are_named_by_what_lists_them() {
    let (ways, model) = (Ways::new(), tiny());
    let here = ways.directory.path().display().to_string();
    let bad = format!("{here}/absent");
    let overlap = ["bench", "overlap", &model];
    let generate = [&model, "--ids", "3"];
    for command in [&generate[..], &plan(&model, &[]), &overlap] {
        let list = format!("[\"{here}\", \"absent\"]");
        for (said, name) in ways.each(command, ("root", &bad, &list), 2) {
            let what = format!("{bad}: no such directory ({name})");
            assert!(said.contains(&what), "{what}: {said}");
        }
    }
    let file = fixture("tiny").join("config.json").display().to_string();
    let quoted = format!("{file:?}");
    for (said, name) in ways.each(&generate, ("root", &file, &quoted), 2) {
        let what = format!("{file}: is not a directory ({name})");
        assert!(said.contains(&what), "{what}: {said}");
    }
}

#[test]
fn a_presets_memory_is_named_by_the_preset() {
    let (ways, model) = (Ways::new(), tiny());
    let command = plan(&model, &["--context", "16000000"]);
    for (said, _) in ways.each(&command, ("preset", "floor", "\"floor\""), 2) {
        assert!(
            said.contains("instead of preset floor give --memory "),
            "{said}"
        );
        assert!(said.contains(" from preset floor ("), "{said}");
    }
}

#[test]
fn forced_splits_are_ways_out_under_their_own_name() {
    let (ways, model) = (Ways::new(), tiny());
    let command = plan(&model, &["--memory", "52.6M", "--threads", "1"]);
    for setting in [
        ("trunk_gb", "0.1", "0.1"),
        ("cache_gb", "0.1", "0.1"),
        ("slots", "70", "70"),
    ] {
        let (key, asked, _) = setting;
        for (said, name) in ways.each(&command, setting, 2) {
            let lower = format!("lower {name} from {asked} to ");
            let line = said.lines().find(|line| line.contains(&lower));
            let line = line.unwrap_or_else(|| panic!("`{lower}`: {said}"));
            assert!(line.ends_with(", or leave it out"), "{line}");
            // What is named is accepted.
            let figure = line
                .split(&lower)
                .nth(1)
                .unwrap()
                .split(',')
                .next()
                .unwrap();
            let accepted = |value: &str| {
                let flag = format!("--{}", key.replace('_', "-"));
                let output = k3().args(&command).args([&flag, value]).output().unwrap();
                output.status.success()
            };
            assert!(accepted(figure), "{key} {figure}");
            assert!(!accepted(asked));
        }
    }
    // Two that are each too much.
    let both = ["--trunk-gb", "0.1", "--slots", "70", "--memory", "52.5M"];
    let output = k3().args(plan(&model, &both)).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let together = "leave out --trunk-gb and --slots together";
    assert!(said.contains(together), "{said}");
    assert!(said.contains("not enough alone: "), "{said}");
    // What helps is not among what does not, and the reverse.
    let args = plan(&model, &["--memory", "10M", "--slots", "9"]);
    let output = k3().args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let (ways_out, vain) = said.split_once("not enough alone: ").unwrap();
    assert!(
        vain.contains("--slots") && vain.contains("--context"),
        "{said}"
    );
    assert!(ways_out.ends_with("or more\n    "), "{said}");
}

#[test]
fn two_ways_to_size_the_cache_are_both_named() {
    let output = k3()
        .args(plan(&tiny(), &["--cache-gb", "0.001"]))
        .env("K3_SLOTS", "9")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("K3_SLOTS and --cache-gb both decide"),
        "{said}"
    );
}

#[test]
fn variables_that_name_files_are_named() {
    for (variable, args) in [
        ("K3_MODEL", &["plan"][..]),
        ("K3_MODEL", &["--ids", "3"]),
        ("K3_MODEL", &["inspect"]),
        ("K3_SETTINGS", &["plan", "fixtures/tiny"]),
    ] {
        let output = k3().args(args).env(variable, "/no/such").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("/no/such") && said.contains(variable),
            "{said}"
        );
    }
    let file = fixture("tiny").join("config.json");
    let output = k3()
        .args(["--ids", "3"])
        .env("K3_MODEL", file)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("is a file") && said.contains("(K3_MODEL)"),
        "{said}"
    );
}

/// The notes of a report.
fn notes(report: &[u8]) -> String {
    let report = json(report);
    let notes = report["notes"].as_array().unwrap().iter();
    let notes: Vec<&str> = notes.map(|note| note.as_str().unwrap()).collect();
    notes.join("\n")
}

#[test]
fn more_than_the_model_can_use_is_noted_with_what_it_can() {
    let (ways, model) = (Ways::new(), tiny());
    let generate = [&model, "--ids", "3,4", "--gen", "1", "--memory", "64M"];
    let planned = plan(&model, &["--memory", "64M"]);
    for (setting, asks, uses) in [
        (("slots", "1000", "1000"), "1000 slots", "70 experts"),
        (
            ("cache_gb", "7", "7"),
            "7.00 GB",
            "all 70 experts take 573.44 kB",
        ),
        (
            ("trunk_gb", "100", "100"),
            "100.00 GB",
            "whole trunk takes ",
        ),
        (
            ("lookahead", "999999", "999999"),
            "999999 experts",
            "a layer picks 3",
        ),
    ] {
        for command in [&generate[..], &planned] {
            for (said, name) in ways.each(command, setting, 0) {
                let note = format!("note: {name} asks for {asks}");
                let text = said.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(text.contains(&note), "`{note}`: {text}");
                assert!(text.contains(uses), "`{uses}`: {text}");
            }
            let with_json = [command, &["--json"]].concat();
            for (said, name) in ways.each(&with_json, setting, 0) {
                let report = said.split_once("\n\n").map_or(&*said, |(report, _)| report);
                let report = &report[..=report.rfind('}').unwrap()];
                let notes = notes(report.as_bytes());
                let note = format!("{name} asks for {asks}");
                assert!(notes.contains(&note) && notes.contains(uses), "{notes}");
            }
        }
    }
    let wide = plan(&model, &["--memory", "80M", "--context", "10"]);
    for (said, name) in ways.each(&wide, ("chunk", "20", "20"), 0) {
        let text = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let note = format!("{name} asks for sweeps of 20 positions, and a context has 10");
        assert!(text.contains(&note), "{text}");
    }
}

#[test]
fn what_the_model_can_use_is_not_noted() {
    let model = tiny();
    for extra in [
        &["--slots", "70"][..],
        &["--slots", "9"],
        &["--cache-gb", "0.0001"],
        // All of it, in pages.
        &["--cache-gb", "0.00057344"],
        &["--trunk-gb", "0.0003"],
        &["--lookahead", "3"],
        &["--lookahead", "0"],
        &["--chunk", "4096", "--memory", "200M"],
        &["--preset", "floor"],
    ] {
        let memory = match extra
            .iter()
            .any(|arg| ["--memory", "--preset"].contains(arg))
        {
            true => &[][..],
            false => &["--memory", "64M"],
        };
        let args = [&plan(&model, extra)[..], memory, &["--json"]].concat();
        let output = k3().args(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(notes(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn a_preset_beside_a_size_is_noted_in_every_layer() {
    let model = tiny();
    let run = |args: &[&str], environment: &[(&str, &str)]| {
        let mut command = k3();
        command.args(["plan", &model, "--json"]).args(args);
        let output = command.envs(environment.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let report = json(&output.stdout);
        let budget = report["plan"]["budget"]["total"].as_u64().unwrap();
        (budget, notes(&output.stdout))
    };
    let flags = ["--preset", "laptop", "--memory", "64M"];
    let (budget, note) = run(&flags, &[]);
    assert_eq!(budget, 64_000_000);
    assert!(
        note.contains("--preset laptop has no effect: --memory 64.00 MB"),
        "{note}"
    );
    let variables = [("K3_PRESET", "laptop"), ("K3_MEMORY", "64M")];
    let (budget, note) = run(&[], &variables);
    assert_eq!(budget, 64_000_000);
    assert!(
        note.contains("K3_PRESET laptop has no effect: K3_MEMORY 64.00 MB"),
        "{note}"
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k3.toml");
    std::fs::write(&file, "preset = \"laptop\"\nmemory = \"64M\"\n").unwrap();
    let file = file.to_str().unwrap();
    let (_, note) = run(&["--settings", file], &[]);
    assert!(
        note.contains(&format!("`preset` in {file}:1 laptop has no effect")),
        "{note}"
    );
    // A layer that overrides another is what layers are for.
    let (budget, note) = run(&["--memory", "64M"], &[("K3_PRESET", "laptop")]);
    assert_eq!((budget, &*note), (64_000_000, ""));
    let (budget, note) = run(&["--preset", "floor"], &[("K3_MEMORY", "64M")]);
    assert_eq!((budget, &*note), (1_610_612_736, ""));
    // A run says so too.
    let run = k3()
        .args([&model, "--ids", "3", "-n", "1"])
        .args(flags)
        .output()
        .unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(
        said.contains("note: --preset laptop has no effect"),
        "{said}"
    );
    assert!(Path::new(file).exists());
}
