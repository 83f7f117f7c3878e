//! Files: complete or absent, writable before the run, and what is in them.

use std::io::Read as _;
use std::process::Stdio;

use crate::common::{case, count_of, json, list, names, program, refusal, run, stdout_of, tiny};

const OPTIONS: [&str; 3] = ["--out", "--dump-logits", "--dump-trace"];

#[test]
fn an_output_that_cannot_be_written_is_told_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().display().to_string();
    let model = tiny();
    for option in OPTIONS {
        // Not even root may write these.
        for path in ["/no/such/directory/file", "/proc/k3-output", &directory] {
            let said = refusal(3, &[&model, "--ids", "3", option, path]);
            assert!(
                said.contains("cannot be written"),
                "{option} {path}: {said}"
            );
        }
    }
    assert!(names(dir.path()).is_empty());
}

#[test]
fn one_bad_output_leaves_none_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.json").display().to_string();
    refusal(
        3,
        &[
            &tiny(),
            "--ids",
            "3",
            "--out",
            &good,
            "--dump-trace",
            "/no/such/file",
        ],
    );
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_refused_run_leaves_the_former_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.json");
    std::fs::write(&path, "former").unwrap();
    let out = path.display().to_string();
    refusal(2, &[&tiny(), "--ids", "99999999", "--out", &out]);
    assert_eq!(std::fs::read(&path).unwrap(), b"former");
    assert_eq!(names(dir.path()), ["run.json"]);
    stdout_of(&[&tiny(), "--ids", "3", "--gen", "1", "-q", "--out", &out]);
    assert_eq!(json(&std::fs::read(&path).unwrap())["report_version"], 2);
    assert_eq!(names(dir.path()), ["run.json"]);
}

#[test]
fn two_outputs_into_one_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x").display().to_string();
    let other = dir.path().join("./x").display().to_string();
    let said = refusal(
        2,
        &[
            &tiny(),
            "--ids",
            "3",
            "--out",
            &path,
            "--dump-logits",
            &other,
        ],
    );
    assert!(
        said.contains("--out") && said.contains("--dump-logits"),
        "{said}"
    );
}

/// A copy of the tiny checkpoint that a test may lose.
fn copy_of_tiny() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(tiny()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    dir
}

#[test]
fn outputs_onto_what_the_run_reads_are_refused_and_nothing_is_lost() {
    let model = copy_of_tiny();
    let elsewhere = tempfile::tempdir().unwrap();
    let at = |dir: &tempfile::TempDir, name: &str| dir.path().join(name).display().to_string();
    let shard = names(model.path())
        .into_iter()
        .find(|name| name.ends_with(".safetensors"))
        .unwrap();
    let hard = at(&elsewhere, "hard");
    std::fs::hard_link(model.path().join(&shard), &hard).unwrap();
    let soft = at(&elsewhere, "soft");
    std::os::unix::fs::symlink(model.path().join("config.json"), &soft).unwrap();
    let prompt = at(&elsewhere, "prompt");
    std::fs::write(&prompt, "3 4").unwrap();
    let config = at(&elsewhere, "own-config.json");
    std::fs::copy(model.path().join("config.json"), &config).unwrap();
    let settings = at(&elsewhere, "settings.toml");
    std::fs::write(&settings, "threads = 1\n").unwrap();
    let before = |dir: &tempfile::TempDir| -> Vec<(String, Vec<u8>)> {
        let read = |name: String| (name.clone(), std::fs::read(dir.path().join(name)).unwrap());
        names(dir.path()).into_iter().map(read).collect()
    };
    let kept = (before(&model), before(&elsewhere));

    let directory = model.path().display().to_string();
    let targets = [
        at(&model, &shard),
        at(&model, "config.json"),
        at(&model, "tiktoken.model"),
        at(&model, "new.safetensors"),
        at(&model, "model.safetensors.index.json"),
        hard,
        soft,
        prompt.clone(),
        config.clone(),
        settings.clone(),
    ];
    for target in &targets {
        for option in OPTIONS {
            let said = refusal(
                2,
                &[
                    &directory,
                    "--ids-file",
                    &prompt,
                    "--config",
                    &config,
                    "--settings",
                    &settings,
                    option,
                    target,
                ],
            );
            let named = said.contains(option) && said.contains(target.as_str());
            assert!(named, "{option} {target}: {said}");
        }
    }
    let text = at(&elsewhere, "text");
    std::fs::write(&text, "hello").unwrap();
    refusal(2, &[&directory, "--prompt-file", &text, "--out", &text]);
    std::fs::remove_file(text).unwrap();
    assert!((before(&model), before(&elsewhere)) == kept);
    // A name of its own beside the checkpoint is no harm, even twice.
    let own = at(&model, "run.json");
    for _ in 0..2 {
        stdout_of(&[&directory, "--ids", "3", "-n", "1", "-q", "--out", &own]);
    }
}

#[test]
fn outputs_onto_files_of_roots_and_vocabularies_are_refused() {
    let model = copy_of_tiny();
    let root = tempfile::tempdir().unwrap();
    let shard = names(model.path())
        .into_iter()
        .find(|name| name.ends_with(".safetensors"))
        .unwrap();
    std::fs::rename(model.path().join(&shard), root.path().join(&shard)).unwrap();
    let vocabulary = tempfile::tempdir().unwrap();
    let ranks = vocabulary.path().join("ranks");
    std::fs::copy(model.path().join("tiktoken.model"), &ranks).unwrap();
    let specials = "tokenizer_config.json";
    std::fs::copy(
        model.path().join(specials),
        vocabulary.path().join(specials),
    )
    .unwrap();
    let specials = vocabulary.path().join(specials).display().to_string();
    let (shard, ranks) = (root.path().join(&shard), ranks.display().to_string());
    let shard = shard.display().to_string();
    let roots = root.path().display().to_string();
    let directory = model.path().display().to_string();
    for target in [&shard, &ranks, &specials] {
        let args = [
            &directory, "--root", &roots, "--tok", &ranks, "--ids", "3", "--out", target,
        ];
        let said = refusal(2, &args);
        assert!(said.contains("would overwrite"), "{said}");
    }
}

#[test]
fn two_names_of_one_file_are_one_output() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("a"), "former").unwrap();
    std::fs::hard_link(at("a"), at("b")).unwrap();
    std::os::unix::fs::symlink(at("a"), at("c")).unwrap();
    for other in ["b", "c"] {
        let other = at(other);
        let args = [
            &tiny(),
            "--ids",
            "3",
            "--out",
            &at("a"),
            "--dump-logits",
            &other,
        ];
        let said = refusal(2, &args);
        assert!(said.contains("--out and --dump-logits"), "{said}");
        assert_eq!(std::fs::read(at("a")).unwrap(), b"former");
    }
    // Standard output may be a file as well.
    let stdout = std::fs::File::create(at("d")).unwrap();
    let output = program()
        .args([&tiny(), "--ids", "3", "-n", "1", "--out", &at("d")])
        .stdout(stdout)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard output and --out"), "{said}");
}

#[test]
fn a_dash_is_no_output() {
    for option in OPTIONS {
        let said = refusal(2, &[&tiny(), "--ids", "3", option, "-"]);
        assert!(said.contains(option) && said.contains("--json"), "{said}");
    }
}

#[test]
fn devices_are_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt as _;
    let null = "/dev/null";
    stdout_of(&[
        &tiny(),
        "--ids",
        "3",
        "-n",
        "1",
        "-q",
        "--out",
        null,
        "--dump-logits",
        null,
    ]);
    assert!(
        std::fs::metadata(null)
            .unwrap()
            .file_type()
            .is_char_device()
    );
    let full = run(&[&tiny(), "--ids", "3", "-n", "1", "-q", "--out", "/dev/full"]);
    assert_eq!(full.status.code(), Some(3));
}

/// Runs with an output that fills up: its error is told, and `kept` is there.
#[track_caller]
fn check_kept(args: &[&str], full: &[&str], kept: &[&std::path::Path]) {
    let fixed = ["--ids", "3,4", "-n", "2", "-q"];
    let output = run(&[&[tiny().as_str()], &fixed[..], args].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    for name in full {
        assert!(
            said.contains(&format!("{name}: cannot be written")),
            "{said}"
        );
    }
    assert_eq!(
        said.matches("cannot be written").count(),
        full.len(),
        "{said}"
    );
    for path in kept {
        assert!(std::fs::metadata(path).unwrap().len() > 0);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn an_output_that_fills_up_takes_nothing_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let [report, logits, trace] = ["run.json", "logits", "trace"].map(|name| dir.path().join(name));
    let [out, dump, picks] = [&report, &logits, &trace].map(|path| path.to_str().unwrap());
    let (full, stdout) = ("/dev/full", "standard output");
    let others = ["--out", out, "--dump-trace", picks];
    // More logits than a buffer holds: it fails in the prompt, or at the end.
    for ids in ["3,4", &list(&[5; 40])] {
        let args = [&others[..], &["--dump-logits", full, "--all-positions"]].concat();
        let fixed = ["-n", "2", "-q", "--ids", ids];
        let output = run(&[&[tiny().as_str()], &fixed[..], &args].concat());
        assert_eq!(output.status.code(), Some(3));
        // The run went on, and its report tells.
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1);
        let told = json(&std::fs::read(&report).unwrap());
        assert_eq!(told["generated_ids"].as_array().unwrap().len(), 2);
        assert_eq!(told["stop_reason"], "length");
        let notes = told["notes"].to_string();
        assert!(notes.contains("/dev/full: cannot be written"), "{notes}");
        assert!(std::fs::metadata(&trace).unwrap().len() > 0);
    }
    let dumps = ["--dump-logits", dump, "--dump-trace", picks];
    let both = [&logits, &trace].map(|path| path.as_path());
    check_kept(&[&dumps[..], &["--out", full]].concat(), &[full], &both);
    let args = ["--out", out, "--dump-logits", dump, "--dump-trace", full];
    check_kept(&args, &[full], &[&report, &logits]);
    // Each of several is named.
    let other = dir.path().join("other-full");
    std::os::unix::fs::symlink("/dev/full", &other).unwrap();
    let other = other.to_str().unwrap();
    let args = [
        "--out",
        out,
        "--dump-logits",
        other,
        "--dump-trace",
        "/dev/full",
    ];
    // One device under two names is refused as one output.
    let refused = run(&[&[tiny().as_str(), "--ids", "3"], &args[..]].concat());
    let code = refused.status.code();
    assert!(code == Some(2) || code == Some(3), "{code:?}");
    // Standard output is an output too.
    for extra in [&["--json"][..], &[]] {
        let device = std::fs::File::options().write(true).open(full).unwrap();
        let output = program()
            .args([tiny().as_str(), "--ids", "3,4", "-n", "2", "-q"])
            .args([&dumps[..], &["--out", out], extra].concat())
            .stdout(device)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(stdout), "{said}");
        for path in [&report, &logits, &trace] {
            assert!(std::fs::metadata(path).unwrap().len() > 0, "{extra:?}");
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn files_have_the_usual_permissions() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let (usual, path) = (dir.path().join("usual"), dir.path().join("run.json"));
    std::fs::write(&usual, "").unwrap();
    let out = path.display().to_string();
    stdout_of(&[&tiny(), "--ids", "3", "-n", "1", "-q", "--out", &out]);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&usual));
}

#[test]
fn the_file_and_json_on_standard_output_have_one_schema() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.json");
    let out = path.display().to_string();
    let printed = stdout_of(&[
        &tiny(),
        "--ids",
        "3,4",
        "-n",
        "2",
        "-q",
        "--json",
        "--out",
        &out,
    ]);
    assert_eq!(printed, std::fs::read(&path).unwrap());
}

#[test]
fn the_trace_is_pairs_in_pick_order() {
    let case = case("tiny", "p12", "latent");
    let dir = tempfile::tempdir().unwrap();
    let trace = |name: &str, option: &str, extra: &[&str]| {
        let path = dir.path().join(name);
        let mut args = case.args();
        args.extend(["--gen", "3", "--json", option].map(str::to_owned));
        args.push(path.display().to_string());
        args.extend(extra.iter().map(|&arg| arg.to_owned()));
        let report = json(&stdout_of(&args));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() % 8, 0);
        let pairs: Vec<[i32; 2]> = bytes
            .chunks_exact(8)
            .map(|pair| [0, 4].map(|at| i32::from_le_bytes(pair[at..at + 4].try_into().unwrap())))
            .collect();
        (report, pairs)
    };
    let (report, pairs) = trace("trace", "--dump-trace", &["--chunk", "64"]);
    assert_eq!(
        trace("alias", "--dump-cache-trace", &["--chunk", "64"]).1,
        pairs
    );
    // A new sweep starts where the layer falls: the prompt and two steps.
    let falls = pairs
        .windows(2)
        .filter(|pair| pair[1][0] < pair[0][0])
        .count();
    assert_eq!(falls + 1, 3);
    assert_eq!(report["counts"]["sweeps"], 3);
    // Each position of each MoE layer has top-k picks, all different.
    let positions = count_of(&report["counts"]["positions"]);
    let layers: std::collections::BTreeSet<i32> = pairs.iter().map(|pair| pair[0]).collect();
    let top_k = pairs.len() / positions / layers.len();
    assert_eq!(pairs.len(), positions * layers.len() * top_k);
    for picks in pairs.chunks_exact(top_k) {
        assert!(picks.iter().all(|pick| pick[0] == picks[0][0]));
        let distinct: std::collections::BTreeSet<i32> = picks.iter().map(|pick| pick[1]).collect();
        assert_eq!(distinct.len(), top_k);
    }
    // Chunks order sweeps otherwise; what each position picks stays.
    let sorted = |mut pairs: Vec<[i32; 2]>| {
        pairs.sort_unstable();
        pairs
    };
    assert_eq!(
        sorted(trace("chunks", "--dump-trace", &["--chunk", "1"]).1),
        sorted(pairs)
    );
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let mut child = program()
        .args([
            &tiny(),
            "--ids",
            "3,4,5",
            "--gen",
            "100000",
            "--context",
            "200000",
            "--ignore-eos",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        !said.contains("panicked") && !said.contains("error"),
        "{said}"
    );
}

#[test]
fn standard_output_that_is_full_is_an_error() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let tools: [&[&str]; 3] = [
        &["--ids", "3,4,5", "-n", "2"],
        &["--ids", "3,4", "--tf-check"],
        &["--ids", "3", "--json"],
    ];
    for args in tools {
        let output = program()
            .arg(tiny())
            .args(args)
            .stdout(full.try_clone().unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("standard output"), "{said}");
    }
}

#[test]
fn each_output_that_fails_is_told_once_with_its_option() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run.json").display().to_string();
    let said = |args: &[&str]| {
        let output = run(&[&[tiny().as_str(), "--ids", "3", "-n", "1"], args].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        said
    };
    let one = said(&["-o", &out, "--dump-logits", "/dev/full"]);
    assert_eq!(one.matches("cannot be written").count(), 1, "{one}");
    // Who reads the report alone is told there.
    let report = crate::common::json(&std::fs::read(&out).unwrap());
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("/dev/full: cannot be written (--dump-logits)"),
        "{notes}"
    );
    let full = OPTIONS.map(|option| [option, "/dev/full"]).concat();
    let all = said(&full);
    for option in OPTIONS {
        let told = format!("/dev/full: cannot be written ({option})");
        assert_eq!(all.matches(&told).count(), 1, "{all}");
        let said = refusal(3, &[&tiny(), "--ids", "3", option, "/no/such/file"]);
        assert!(
            said.contains(&format!("cannot be written ({option})")),
            "{said}"
        );
    }
}
