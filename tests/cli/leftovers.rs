//! Unfinished files of runs that were killed, and of runs that still go on.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{json, names, program, stdout_of, tiny};

/// A run into `out` that goes on until it is killed, once it has its file.
fn endless(out: &Path) -> Child {
    let directory = out.parent().unwrap();
    let child = program()
        .args([
            &tiny(),
            "--ids",
            "3,4,5",
            "--gen",
            "1000000",
            "--ignore-eos",
        ])
        .args(["--context", "2000000", "--quiet", "--out"])
        .arg(out)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let own = format!(".{}-0.unfinished", child.id());
    while !names(directory).iter().any(|name| name.ends_with(&own)) {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn finish(out: &Path) {
    let path = out.display().to_string();
    stdout_of(&[&tiny(), "--ids", "3", "--gen", "1", "-q", "--out", &path]);
    assert_eq!(json(&std::fs::read(out).unwrap())["report_version"], 2);
}

#[test]
fn what_a_killed_run_left_goes_with_the_next_run_of_the_same_output() {
    let dir = tempfile::tempdir().unwrap();
    let (out, other) = (dir.path().join("run.json"), dir.path().join("other.json"));
    // Names that nobody but their owner may touch.
    let foreign = [
        ".run.json.unfinished",
        ".run.json.x-0.unfinished",
        "run.json.1-0.unfinished",
    ];
    for name in foreign {
        std::fs::write(dir.path().join(name), "mine").unwrap();
    }
    kill(endless(&out));
    kill(endless(&out));
    // The second run has removed what the first one left, and left its own.
    let left = |name: &str| {
        let mut left = names(dir.path());
        left.retain(|found| found.starts_with(name) && !foreign.contains(&found.as_str()));
        left
    };
    assert_eq!(left(".run.json.").len(), 1, "{:?}", names(dir.path()));
    // Another output does not concern it.
    finish(&other);
    assert_eq!(left(".run.json.").len(), 1);
    finish(&out);
    assert_eq!(left(".run.json.").len(), 0, "{:?}", names(dir.path()));
    assert_eq!(names(dir.path()).len(), foreign.len() + 2);
}

#[test]
fn what_a_run_still_writes_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run.json");
    let child = endless(&out);
    let unfinished = names(dir.path());
    finish(&out);
    let mut kept = names(dir.path());
    kept.retain(|name| name != "run.json");
    assert_eq!(kept, unfinished);
    kill(child);
    finish(&out);
    assert_eq!(names(dir.path()), ["run.json"]);
}
