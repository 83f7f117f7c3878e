//! Files: complete or absent, writable before the run, and what is in them.

use std::io::Read as _;
use std::process::Stdio;

use crate::common::{case, count_of, json, k3, names, refusal, run, stdout_of, tiny};

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
    assert_eq!(json(&std::fs::read(&path).unwrap())["report_version"], 1);
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
    let mut child = std::process::Command::new(k3().get_program())
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
        let output = std::process::Command::new(k3().get_program())
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
