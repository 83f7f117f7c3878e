//! What happens before the first token: room is asked for, weights are read,
//! and both can end the run.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k3_testkit::TinySpec;

use crate::common::{names, program, refusal, tiny};

/// A sequence of the most positions the command line takes.
const LONGEST: [&str; 6] = [
    "--ids",
    "3,4,5",
    "--gen",
    "16777000",
    "--context",
    "16777216",
];

/// State of several terabytes, under weights of a few megabytes.
#[test]
fn a_sequence_without_room_is_refused_with_the_figures() {
    let dir = tempfile::tempdir().unwrap();
    let spec = TinySpec::small(1).with(|spec| spec.shape.kv_lora = 1 << 15);
    spec.write_to(dir.path()).unwrap();
    let model = dir.path().display().to_string();
    let cases: [&[&str]; 4] = [
        &[],
        &["--attention", "expanded", "--chunk", "16777216"],
        &["--chunk", "16777216", "--threads", "2"],
        &["--recompute"],
    ];
    for extra in cases {
        let said = refusal(2, &[&[model.as_str()], &LONGEST[..], extra].concat());
        for word in ["sequence states", "smallest plan needs", "--gen"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        let said = refusal(
            2,
            &[&[model.as_str(), "--resident"], &LONGEST[..], extra].concat(),
        );
        for word in [&model, "of state", "available", "--gen"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}

#[test]
fn counts_beyond_any_machine_are_refused_by_name() {
    let model = tiny();
    let cases = [
        ["--context", "100000000000", "--gen", "99999999999"],
        ["--context", "16777216", "--gen", "99999999999"],
        ["--chunk", "18446744073709551615", "--gen", "1"],
        ["--context", "99999999999999999999999", "--gen", "1"],
    ];
    for extra in cases {
        let said = refusal(2, &[&[model.as_str(), "--ids", "3"], &extra[..]].concat());
        assert!(extra.iter().any(|word| said.contains(word)), "{said}");
    }
}

/// A run that stands before its load, until somebody reads `pipe`.
fn start_at_a_pipe(model: &Path, dir: &Path, pipe: &Path) -> Child {
    let made = Command::new("mkfifo").arg(pipe).status().unwrap();
    assert!(made.success());
    let child = program()
        .arg(model)
        .args(["--ids", "3,4,5", "--quiet", "--out"])
        .arg(dir.join("run.json"))
        .arg("--dump-trace")
        .arg(pipe)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The report is opened before the trace, and both before the weights.
    let started = Instant::now();
    while !names(dir).iter().any(|name| name.ends_with(".unfinished")) {
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// The shards are emptied under the open run, so that whatever reads a weight
/// fails: an interrupted run does not get that far.
#[test]
fn an_interrupted_load_reads_nothing_more() {
    for (interrupted, expected) in [(true, 130), (false, 1)] {
        let model = tempfile::tempdir().unwrap();
        TinySpec::small(1).write_to(model.path()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let pipe = model.path().join("trace");
        let child = start_at_a_pipe(model.path(), dir.path(), &pipe);
        for name in names(model.path()) {
            if name.ends_with(".safetensors") {
                let shard = model.path().join(name);
                let file = OpenOptions::new().write(true).open(shard).unwrap();
                file.set_len(0).unwrap();
            }
        }
        if interrupted {
            let id = child.id().to_string();
            let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
            assert!(sent.success());
            // The handler runs beside the run, which still waits.
            std::thread::sleep(Duration::from_millis(300));
        }
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(expected), "{said}");
        assert_eq!(said.contains("interrupted"), interrupted, "{said}");
        assert!(reader.join().unwrap().is_empty());
        assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
    }
}
