//! The built-in model: the default of every command, and its ladder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::{ISAS, fixture, in_clean_environment, json, k3, program, refusal, stdout_of};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ids(report: &Value) -> Vec<u64> {
    let ids = report["generated_ids"].as_array().expect("a report");
    ids.iter().map(|id| id.as_u64().unwrap()).collect()
}

fn model() -> PathBuf {
    PathBuf::from(text(&stdout_of(&["demo", "path"])).trim_end())
}

#[test]
fn alone_it_writes_a_text_reports_and_says_what_is_next() {
    let cache = tempfile::tempdir().unwrap();
    let output = k3().env("K3_CACHE_DIR", cache.path()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(output.stdout.len() > 100, "{}", text(&output.stdout));
    for part in [
        "Fellow citizens",
        "built-in model",
        &*cache.path().display().to_string(),
        "96 tokens",
        "k3 demo ladder",
        "k3 doctor",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    // The same once it is unpacked, and on every machine: it is seeded.
    let again = k3().env("K3_CACHE_DIR", cache.path()).output().unwrap();
    assert_eq!(again.stdout, output.stdout);
    let quiet = k3().arg("--quiet").output().unwrap();
    assert_eq!(quiet.stdout, output.stdout);
    assert!(quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
    let other = stdout_of(&["--seed", "1", "--quiet"]);
    assert_ne!(other, output.stdout);
}

/// The text has begun only when there is some.
#[test]
fn a_first_run_that_is_refused_says_nothing_else() {
    for args in [&["--memory", "1M"][..], &["--slots", "1"]] {
        // Checks that standard error begins with the error.
        let said = refusal(2, args);
        assert!(!said.contains("Fellow"), "{said}");
    }
    let nothing = k3().args(["--gen", "0"]).output().unwrap();
    assert!(!text(&nothing.stderr).contains("Fellow"));
    // Several answers have it only where they are read.
    let several = k3().args(["--choices", "2", "--gen", "2"]).output();
    assert!(!text(&several.unwrap().stderr).contains("Fellow"));
}

/// What is wrong with MODEL is said before anything that only another MODEL would need.
#[test]
fn a_model_that_is_not_there_is_what_is_refused() {
    for (args, command) in [
        (&["laddr"][..], "ladder"),
        (&["btach", "--gen", "3"], "batch"),
        (&["docter", "--prompt", "x"], "doctor"),
    ] {
        let said = refusal(2, args);
        let hint = format!("did you mean the command `{command}`?");
        assert!(said.contains("no such checkpoint directory"), "{said}");
        assert!(said.contains(&hint), "{said}");
    }
    let said = refusal(2, &["/nowhere"]);
    assert!(said.contains("/nowhere: no such checkpoint"), "{said}");
    for args in [&[][..], &["batch", "-", "never-made"]] {
        let mut k3 = k3();
        let output = k3.env("K3_MODEL", "/nowhere").args(args).output().unwrap();
        let said = text(&output.stderr);
        let want = "/nowhere: no such checkpoint directory (K3_MODEL)";
        assert!(said.contains(want), "{args:?}: {said}");
    }
}

#[test]
fn what_is_given_is_not_filled_in() {
    let report = |args: &[&str]| json(&stdout_of(&[args, &["--json", "--quiet"]].concat()));
    let sampled = report(&["--prompt", "The", "--gen", "3"]);
    assert_eq!(ids(&sampled).len(), 3);
    let temperature = sampled["sampling"]["temperature"].as_f64().unwrap();
    assert!((temperature - 0.8).abs() < 1e-6, "{temperature}");
    let greedy = report(&["--prompt", "The", "--temperature", "0"]);
    assert_eq!(greedy["sampling"]["temperature"], 0.0);
    assert_eq!(ids(&greedy).len(), 96);
    let notes = greedy["notes"].to_string();
    assert!(notes.contains("built-in model"), "{notes}");
    // Another model has no prompt of its own, whoever names it.
    let tiny = fixture("tiny").display().to_string();
    let said = refusal(2, &[&*tiny]);
    assert!(said.contains("no prompt"), "{said}");
    let output = k3().env("K3_MODEL", &tiny).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// The commands that are to be typed next are found by the shell that they are typed in.
#[test]
fn what_is_next_works_as_typed() {
    let next = |mut k3: std::process::Command| {
        let output = k3.args(["--gen", "1"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        let (_, next) = said.split_once("\nnext\n").expect("what is next");
        assert!(next.lines().all(|line| line.len() <= 80), "{next}");
        let first = next.lines().find(|line| line.contains("demo ladder"));
        let (command, _) = first.unwrap().split_once(" demo ladder").unwrap();
        command.trim_start().to_owned()
    };
    let place = tempfile::tempdir().unwrap();
    let bin = place.path().join("a bin");
    fs::create_dir(&bin).unwrap();
    let own = bin.join("k3");
    fs::copy(program().get_program(), &own).unwrap();
    let started = |path: &str, from: &std::path::Path| {
        let mut k3 = in_clean_environment(std::process::Command::new(&own));
        k3.env("PATH", path).current_dir(from);
        k3
    };
    let path = bin.display().to_string();
    assert_eq!(next(started(&path, place.path())), "k3");
    assert_eq!(next(started("/nowhere", place.path())), "'a bin/k3'");
    assert_eq!(next(started("/nowhere", &bin)), "./k3");
    assert_eq!(
        next(started("/nowhere", "/".as_ref())),
        format!("'{}/k3'", &path[1..])
    );
    // Another one of that name comes first.
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::copy(&own, other.join("k3")).unwrap();
    let both = format!("{}:{path}", other.display());
    assert_eq!(next(started(&both, place.path())), "'a bin/k3'");
    // A link to it is as good.
    let linked = place.path().join("linked");
    fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink(&own, linked.join("k3")).unwrap();
    let linked = linked.display().to_string();
    assert_eq!(next(started(&linked, place.path())), "k3");
}

#[test]
fn it_is_the_default_of_every_command_that_takes_a_model() {
    let model = model().display().to_string();
    for args in [
        &["plan"][..],
        &["inspect"],
        &["tokenize", "--text", "hello"],
        &["detokenize", "--ids", "5"],
        &["plan", "--json"],
    ] {
        let named = [&args[..1], &[&*model], &args[1..]].concat();
        let (alone, named) = (stdout_of(args), stdout_of(&named));
        // What there is of memory changes from moment to moment.
        if args[0] != "plan" {
            assert_eq!(alone, named, "{args:?}");
        }
        assert!(!alone.is_empty());
    }
    // Not of those that mend a download.
    for command in ["verify", "repair"] {
        let said = text(&k3().arg(command).output().unwrap().stderr);
        assert!(said.contains("no model"), "{command}: {said}");
    }
}

#[test]
fn its_ids_are_the_same_however_it_is_run() {
    let model = model();
    let scratch = tempfile::tempdir().unwrap();
    let packed = scratch.path().join("packed");
    fs::create_dir(&packed).unwrap();
    let source = k3_pack::trunk::SourcePaths {
        model,
        roots: Vec::new(),
        config: None,
    };
    let source = k3_pack::trunk::TrunkSource::open(&source, None).unwrap();
    let settings = k3_pack::trunk::TrunkSettings::new(vec![packed.clone()]);
    let plan = k3_pack::trunk::TrunkPlan::new(&source, &settings).unwrap();
    let hooks = k3_pack::trunk::Hooks::NONE;
    k3_pack::trunk::pack(&source, &plan, &false.into(), &hooks).unwrap();
    let packed = packed.display().to_string();
    let base = ["--gen", "24", "--json", "--quiet"];
    let run = |more: &[&str]| json(&stdout_of(&[&base[..], more].concat()));
    let expected = ids(&run(&["--resident", "--isa", "scalar"]));
    assert_eq!(expected.len(), 24);
    let least = ["--trunk-gb", "0", "--slots", "4"];
    let some = ["--trunk-gb", "2MB", "--slots", "40"];
    let here = text(&stdout_of(&["--version"]));
    for memory in [&[][..], &least, &some] {
        for trunk in [&[][..], &["--trunk", &packed]] {
            for engine in ["uring", "pread"] {
                for isa in ISAS {
                    if !here.contains(isa) {
                        continue;
                    }
                    let how = ["--engine", engine, "--isa", isa, "--no-disk-probe"];
                    let args = [memory, trunk, &how].concat();
                    assert_eq!(ids(&run(&args)), expected, "{args:?}");
                }
            }
        }
    }
    for more in [
        ["--threads", "2"],
        ["--chunk", "1"],
        ["--policy", "lru"],
        ["--pins", "prefix"],
        ["--lookahead", "4"],
    ] {
        let args = [&more[..], &some, &["--trunk", &packed]].concat();
        assert_eq!(ids(&run(&args)), expected, "{args:?}");
    }
}

#[test]
fn its_ladder_reads_more_with_less_memory_and_makes_the_same_tokens() {
    let ladder = json(&stdout_of(&[
        "demo", "ladder", "--gen", "12", "--json", "-q",
    ]));
    assert_eq!(ladder["same_ids"], true);
    let rows = ladder["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    for half in rows.chunks(3) {
        let read: Vec<u64> = half
            .iter()
            .map(|row| number(row, "trunk_read_bytes"))
            .collect();
        assert!(read[0] > read[1] && read[1] > read[2], "{read:?}");
        // All of it is read once, to be kept; with less some is read every time.
        assert!(read[1] > 2 * read[2], "{read:?}");
        let hits: Vec<f64> = half
            .iter()
            .map(|row| row["hit_rate"].as_f64().unwrap())
            .collect();
        assert!(hits.is_sorted() && hits[2] > 0.5, "{hits:?}");
        let planned: Vec<u64> = half
            .iter()
            .map(|row| number(row, "planned_bytes"))
            .collect();
        assert!(planned.is_sorted(), "{planned:?}");
    }
    for (raw, packed) in rows[..3].iter().zip(&rows[3..]) {
        assert_eq!(packed["is_packed"], true);
        let bytes = |row| number(row, "trunk_read_bytes");
        assert!(bytes(packed) < bytes(raw), "{packed} {raw}");
    }
    // To read: within 80 columns, but for the text.
    let shown = text(&stdout_of(&["demo", "ladder", "--gen", "2", "-q"]));
    let table = shown
        .lines()
        .skip_while(|line| !line.starts_with("in memory"));
    for line in table {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(shown.contains("the same 2 tokens in all 6 runs"), "{shown}");
}

#[test]
fn without_a_place_to_unpack_it_says_what_to_set() {
    let mut alone = k3();
    alone.env_remove("HOME").env_remove("XDG_CACHE_HOME");
    let output = alone.env_remove("K3_CACHE_DIR").output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("K3_CACHE_DIR") && said.contains("MODEL"),
        "{said}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = k3().env("K3_CACHE_DIR", file.path()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(&*file.path().display().to_string()), "{said}");
}

#[test]
fn the_cache_is_where_the_base_directory_specification_has_it() {
    let home = tempfile::tempdir().unwrap();
    let path = |xdg: &str| {
        let mut command = k3();
        command.env_remove("K3_CACHE_DIR").env("HOME", home.path());
        command.env("XDG_CACHE_HOME", xdg).args(["demo", "path"]);
        text(&command.output().unwrap().stdout)
    };
    let below = |place: &str| home.path().join(place).display().to_string();
    assert!(path(&below("xdg")).starts_with(&below("xdg/k3/demo-")));
    // A relative one counts as none.
    assert!(path("xdg").starts_with(&below(".cache/k3/demo-")));
    assert!(path("").starts_with(&below(".cache/k3/demo-")));
}

/// Programs that are started together on an empty cache.
#[test]
fn several_first_runs_at_once_say_the_same() {
    let cache = tempfile::tempdir().unwrap();
    let start = |_| {
        let mut command = program();
        command.env("K3_CACHE_DIR", cache.path());
        command.args(["-q", "-n", "8"]);
        let piped = std::process::Stdio::piped;
        command.stdout(piped()).stderr(piped()).spawn().unwrap()
    };
    let runs: Vec<_> = (0..4).map(start).collect();
    let ended = runs.into_iter().map(|run| run.wait_with_output().unwrap());
    let ended: Vec<_> = ended.collect();
    for output in &ended {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(output.stdout, ended[0].stdout);
    }
}

/// Options that `k3 demo ladder` names in what it says exist, whatever refuses it.
#[test]
fn its_ladder_names_no_option_that_it_does_not_have() {
    let help = text(&stdout_of(&["demo", "ladder", "--help"]));
    for (variable, args) in [
        (None, &["--gen", "5000"][..]),
        (Some(("K3_CONTEXT", "20")), &[]),
        (Some(("K3_MEMORY", "1M")), &[]),
        (Some(("K3_MEMORY", "52M")), &["--gen", "4000"]),
        (Some(("K3_SLOTS", "1")), &[]),
        (Some(("K3_MEMORY", "9000G")), &["--gen", "5000"]),
        (Some(("K3_ISA", "none")), &[]),
    ] {
        let mut ladder = k3();
        let output = ladder.args(["demo", "ladder"]).args(args).envs(variable);
        let output = output.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{variable:?} {args:?}: {said}"
        );
        for word in said.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
            assert!(
                !word.starts_with("--") || help.contains(word),
                "{word} in {said}"
            );
        }
    }
}

#[test]
fn its_ladder_runs_where_the_cache_is_read_only() {
    let cache = tempfile::tempdir().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut k3 = k3();
        k3.env("K3_CACHE_DIR", cache.path());
        k3.env("TMPDIR", temporary.path()).args(args);
        k3.output().unwrap()
    };
    assert_eq!(run(&["demo", "path"]).status.code(), Some(0));
    let mode = |mode| fs::set_permissions(cache.path(), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    let probe = tempfile::tempfile_in(cache.path());
    let output = run(&["demo", "ladder", "--gen", "2"]);
    mode(0o755);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(text(&output.stdout).contains("the same 2 tokens in all 6 runs"));
    // Root writes where it likes; the unit test of the choice has no such exception.
    if probe.is_err() {
        assert!(
            said.contains("note:") && said.contains("cannot be written"),
            "{said}"
        );
    }
    for left in [cache.path(), temporary.path()] {
        let mut entries = fs::read_dir(left).unwrap();
        let is_ours = |name: &str| name.starts_with("demo-") || name.ends_with(".lock");
        assert!(entries.all(|entry| is_ours(entry.unwrap().file_name().to_str().unwrap())));
    }
}
