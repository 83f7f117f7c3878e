//! A ladder of which one run cannot be held to its budget: the others stay.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use crate::common::{json, k3};
use crate::ladder::{RUNGS, groups, ladder, rung};

/// A stand-in for systemd-run that holds nothing and has no room for the third
/// run.
const FULL_SYSTEMD_RUN: &str = r#"#!/bin/sh
for word; do
    shift
    case $word in
        --unit=*-3.scope) echo "no room for ${word#*=}" >&2; exit 1 ;;
        --) break ;;
    esac
done
exec "$@"
"#;

/// Checks a ladder of two rungs and two repeats whose third run, the second of
/// the first rung, could not be held.
#[track_caller]
fn check_without_third(output: &std::process::Output, reason: &str) {
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output.stdout);
    let first = rung(&report, 0);
    assert_eq!(first["status"], "failed", "{first}");
    let said = first["reason"].as_str().unwrap();
    assert!(said.contains(reason), "{said}");
    // What was measured before and after is there.
    assert_eq!(first["figures"]["run_count"], 1, "{first}");
    assert!(first["figures"]["token_seconds"]["median"].as_f64() > Some(0.0));
    let second = rung(&report, 1);
    assert_eq!(second["status"], "ok", "{second}");
    assert_eq!(second["figures"]["run_count"], 2);
    assert_eq!(report["ids"]["agree"], true);
    let seen = &report["ids"]["seen"][0];
    assert_eq!(seen["runs"].as_array().unwrap().len(), 3);
    assert_eq!(report["interrupted"], false);
}

#[test]
fn a_scope_that_cannot_be_made_midway_takes_nothing_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("systemd-run");
    fs::write(&script, FULL_SYSTEMD_RUN).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let args = [
        "--rungs",
        RUNGS,
        "--repeats",
        "2",
        "--limits",
        "scope",
        "--json",
    ];
    let output = k3()
        .args(ladder(&args))
        .env("PATH", format!("{}:{path}", dir.path().display()))
        .output()
        .unwrap();
    check_without_third(&output, "no room for k3-ladder-");
}

#[test]
fn a_group_that_cannot_be_made_midway_takes_nothing_from_the_others() {
    let Some(parent) = groups() else { return };
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("ladder.tsv");
    let path = out.display().to_string();
    let args = ["--rungs", RUNGS, "--repeats", "2", "--limits", "group"];
    let child = Command::new(k3().get_program())
        .args(ladder(&args))
        .args(["--json", "--out", &path])
        .env_remove("K3_MODEL")
        .env("K3_THREADS", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Its place is taken before the first two runs can be over.
    let taken = parent.join(format!("k3-ladder-{}-3", child.id()));
    fs::create_dir(&taken).unwrap();
    let output = child.wait_with_output().unwrap();
    fs::remove_dir(&taken).unwrap();
    check_without_third(&output, "cannot be made");
    let rows = fs::read_to_string(&out).unwrap();
    let row = |index: usize| rows.lines().nth(index).unwrap().to_owned();
    assert!(row(1).starts_with("56000000\tfailed\t"), "{rows}");
    assert!(row(2).starts_with("64000000\tok\t"), "{rows}");
}
