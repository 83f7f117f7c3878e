//! Several budgets, each held to by the kernel.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k3_testkit::gates;
use serde_json::Value;

use crate::common::{case, fixture, ids_of, json, k3, list, names, refusal, run, stdout_of, tiny};

pub(crate) const RUNGS: &str = "56M,64M";
/// Below the smallest plan of the tiny checkpoint.
const TOO_SMALL: &str = "1M";

/// A ladder over a prompt whose answer is known.
pub(crate) fn ladder(extra: &[&str]) -> Vec<String> {
    let case = case("tiny", "p12", "latent");
    let model = tiny();
    let ids = list(&case.ids);
    let count = case.generated_ids.len().to_string();
    let fixed = ["ladder", &model, "--ids", &ids, "--gen", &count, "--quiet"];
    let args = fixed.iter().chain(extra);
    args.map(|&arg| arg.to_owned()).collect()
}

/// The memory group of this process, if groups can be made below it; says that
/// a test is not run if not.
pub(crate) fn groups() -> Option<PathBuf> {
    let output = run(&ladder(&[
        "--rungs",
        "64M",
        "--repeats",
        "1",
        "--limits",
        "group",
        "--json",
    ]));
    if output.status.code() == Some(2) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("control group: "), "{said}");
        gates::not_run(said.lines().nth(1).unwrap_or(&said));
        return None;
    }
    let report = json(&output.stdout);
    Some(report["group"].as_str().unwrap().into())
}

/// Groups below `parent` that ladders of process `pid` made.
fn left_by(parent: &Path, pid: u32) -> Vec<String> {
    let own = format!("k3-ladder-{pid}-");
    let mut left = names(parent);
    left.retain(|name| name.starts_with(&own));
    left
}

pub(crate) fn rung(report: &Value, index: usize) -> &Value {
    &report["rungs"][index]
}

#[test]
fn rungs_hold_within_their_groups_and_make_the_same_ids() {
    let Some(parent) = groups() else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("ladder.tsv").display().to_string();
    let args = ladder(&["--rungs", RUNGS, "--repeats", "2", "--out", &out, "--json"]);
    let report = json(&stdout_of(&args));
    let limits = report["limits"].as_str().unwrap();
    assert!(limits.starts_with("control groups of version "), "{limits}");
    assert_eq!(report["ids"]["agree"], true);
    let seen = report["ids"]["seen"].as_array().unwrap();
    assert_eq!(seen.len(), 1);
    let want = case("tiny", "p12", "latent").generated_ids;
    assert_eq!(ids_of(&seen[0]["generated_ids"]), want);
    assert_eq!(seen[0]["runs"].as_array().unwrap().len(), 4);
    for (index, budget) in [56_000_000u64, 64_000_000].into_iter().enumerate() {
        let rung = rung(&report, index);
        assert_eq!(rung["status"], "ok", "{rung}");
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{rung}"));
        assert_eq!(number(&rung["budget_bytes"]), budget);
        let planned = number(&rung["planned_bytes"]);
        assert!(planned <= budget && number(&rung["figures"]["peak_bytes"]) <= planned);
        let group = &rung["group"];
        // Memory was counted where the run was: a run in no group reads 0.
        assert!(number(&group["anon_and_kernel"]) > 500_000, "{group}");
        assert!(
            number(&group["peak"]) <= budget.next_multiple_of(4096),
            "{group}"
        );
        assert_eq!(
            (number(&group["oom_kills"]), number(&group["swap"])),
            (0, 0)
        );
        let token = &rung["figures"]["token_seconds"];
        assert!(token["min"].as_f64() <= token["median"].as_f64());
        assert!(token["median"].as_f64() <= token["max"].as_f64());
    }
    let text = fs::read_to_string(&out).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0][..2], ["budget_bytes", "status"]);
    assert_eq!(rows[1][..2], ["56000000", "ok"]);
    let ended = |name: &String| !name.starts_with("k3-ladder-") || is_of_a_process(name);
    assert!(names(&parent).iter().all(ended), "{:?}", names(&parent));
}

/// Whether the maker of a group still runs: other tests have groups too.
fn is_of_a_process(name: &str) -> bool {
    let pid = name.split('-').nth(2).unwrap();
    Path::new("/proc").join(pid).exists()
}

#[test]
fn a_table_for_a_person() {
    let mut args = ladder(&["--rungs", RUNGS, "--repeats", "1", "--limits", "none"]);
    args.retain(|arg| arg != "--quiet");
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let path = fixture("tiny").display().to_string();
    for line in text.replace(&path, "tiny").lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for part in [
        "limits  nothing",
        "note: --limits none",
        "56 MB",
        "64 MB",
        "status",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.starts_with("run 1 of 2: 56 MB, repeat 1: "), "{told}");
}

#[test]
fn a_rung_that_is_refused_is_a_row_and_the_others_go_on() {
    let rungs = format!("{TOO_SMALL},64M");
    let args = ["--rungs", &rungs, "--repeats", "1", "--limits", "none"];
    let report = json(&stdout_of(&ladder(&[&args[..], &["--json"]].concat())));
    let refused = rung(&report, 0);
    assert_eq!(refused["status"], "refused");
    assert_eq!(refused["runs"].as_array().unwrap().len(), 0);
    assert_eq!(rung(&report, 1)["status"], "ok");
    // The figure that is named would do, and one byte less would not.
    let smallest = refused["smallest_budget_bytes"].as_u64().unwrap();
    let rungs = format!("{},{smallest}", smallest - 1);
    let args = ["--rungs", &rungs, "--repeats", "1", "--limits", "none"];
    let report = json(&stdout_of(&ladder(&[&args[..], &["--json"]].concat())));
    assert_eq!(rung(&report, 0)["status"], "refused");
    assert_eq!(rung(&report, 1)["status"], "ok");
    let text = String::from_utf8(stdout_of(&ladder(&args))).unwrap();
    let way_out = format!("way out: a rung that fits is --rungs {smallest}");
    assert!(text.contains(&way_out), "{text}");
}

#[test]
fn a_ladder_without_a_rung_that_fits_is_refused() {
    let said = refusal(2, &ladder(&["--rungs", TOO_SMALL, "--limits", "none"]));
    assert!(said.contains("raise --memory to "), "{said}");
}

#[test]
fn a_run_that_fails_is_a_row_and_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    for name in names(&fixture("tiny")) {
        let from = fixture("tiny").join(&name);
        if from.is_file() {
            fs::copy(from, dir.path().join(&name)).unwrap();
        }
    }
    // Not a number, over and over: found out when it is computed with.
    let mut shards = names(dir.path());
    shards.retain(|name| name.ends_with(".safetensors"));
    for name in shards {
        let path = dir.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        let size = |number: &Value| usize::try_from(number.as_u64().unwrap()).unwrap();
        let start = 8 + usize::from_le_bytes(bytes[..8].try_into().unwrap());
        let header = json(&bytes[8..start]);
        for (name, tensor) in header.as_object().unwrap() {
            if name.ends_with("lm_head.weight") {
                let offsets = &tensor["data_offsets"];
                bytes[start + size(&offsets[0])..start + size(&offsets[1])].fill(0xFF);
            }
        }
        fs::write(&path, bytes).unwrap();
    }
    let model = dir.path().display().to_string();
    let args = [
        "ladder",
        &model,
        "--ids",
        "1",
        "--rungs",
        RUNGS,
        "--repeats",
        "1",
        "--limits",
        "none",
        "--json",
        "--quiet",
    ];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output.stdout);
    for index in [0, 1] {
        let rung = rung(&report, index);
        assert_eq!(rung["status"], "failed");
        let reason = rung["reason"].as_str().unwrap();
        assert!(reason.contains("finite"), "{reason}");
    }
}

#[test]
fn standard_input_is_read_once_for_all_runs() {
    let case = case("tiny", "p12", "latent");
    let model = tiny();
    let args = [
        "ladder",
        &model,
        "--ids-file",
        "-",
        "--gen",
        "2",
        "--rungs",
        RUNGS,
        "--repeats",
        "2",
        "--limits",
        "none",
        "--json",
        "--quiet",
    ];
    let mut command = k3();
    let output = command.args(args).write_stdin(list(&case.ids));
    let report = json(&output.output().unwrap().stdout);
    assert_eq!(ids_of(&report["prompt_ids"]), case.ids);
    let seen = &report["ids"]["seen"][0];
    assert_eq!(ids_of(&seen["generated_ids"]), case.generated_ids[..2]);
    assert_eq!(seen["runs"].as_array().unwrap().len(), 4);
}

#[test]
fn what_does_not_go_with_a_ladder() {
    let model = tiny();
    for extra in [
        &["--memory", "64M"][..],
        &["--preset", "floor"],
        &["--resident"],
        &["--tf-check"],
    ] {
        let args = [&["ladder", &model, "--ids", "1", "--rungs", "64M"], extra].concat();
        let said = refusal(2, &args);
        assert!(
            said.contains(extra[0]) && said.contains("--rungs"),
            "{said}"
        );
    }
    refusal(2, &["ladder", &model, "--ids", "1"]);
    for rungs in ["", "0", "64M,", "64M,x", "-1"] {
        refusal(2, &["ladder", &model, "--ids", "1", "--rungs", rungs]);
    }
    refusal(2, &["ladder", &model, "--rungs", "64M"]);
    refusal(2, &ladder(&["--rungs", "64M", "--repeats", "0"]));
    refusal(2, &ladder(&["--rungs", "64M", "--limits", "some"]));
    // The output would become a part of what is read.
    let shard = fixture("tiny").join("config.json").display().to_string();
    refusal(2, &ladder(&["--rungs", "64M", "--out", &shard]));
    refusal(3, &ladder(&["--rungs", "64M", "--out", "/no/such/dir/x"]));
}

#[test]
fn without_any_way_to_limit_nothing_is_run() {
    let mut command = k3();
    // No systemd-run there.
    let command = command.env("PATH", "/nowhere");
    let output = command
        .args(ladder(&["--rungs", "64M", "--limits", "scope"]))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("systemd scope: systemd-run: "), "{said}");
    assert!(said.contains("--limits none"), "{said}");
    assert!(output.stdout.is_empty());
}

/// A stand-in for systemd-run that makes a group with the unit's name.
const FAKE_SYSTEMD_RUN: &str = r#"#!/bin/sh
for word; do
    shift
    case $word in
        --unit=*) group=$FAKE_PARENT/${word#*=} ;;
        --property=MemoryMax=*) limit=${word##*=} ;;
        --) break ;;
    esac
done
mkdir "$group"
for name in limit_in_bytes memsw.limit_in_bytes max; do
    file=$group/memory.$name
    [ -e "$file" ] && echo "$FAKE_LIMIT$limit" > "$file"
done
echo $$ > "$group/cgroup.procs"
exec "$@"
"#;

#[test]
fn a_scope_is_found_by_its_name_and_its_limit_is_checked() {
    let Some(parent) = groups() else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("systemd-run");
    fs::write(&script, FAKE_SYSTEMD_RUN).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    // Ten times the limit in the second round.
    for (extra, status) in [("", "ok"), ("1", "failed")] {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", dir.path().display());
        let mut command = k3();
        let args = [
            "--rungs",
            "64M",
            "--repeats",
            "1",
            "--limits",
            "scope",
            "--json",
        ];
        // Long enough to be looked at.
        let mut args = ladder(&args);
        let count = args.iter().position(|arg| arg == "--gen").unwrap() + 1;
        args[count] = "400".to_owned();
        let output = command
            .args(args)
            .env("PATH", path)
            .env("FAKE_PARENT", &parent)
            .env("FAKE_LIMIT", extra)
            .output()
            .unwrap();
        let scopes = names(&parent);
        let scopes = scopes.iter().filter(|name| name.ends_with(".scope"));
        scopes.for_each(|name| fs::remove_dir(parent.join(name)).unwrap());
        let report = json(&output.stdout);
        assert_eq!(report["limits"], "scopes of systemd");
        let rung = rung(&report, 0);
        assert_eq!(rung["status"], status, "{rung}");
        assert!(rung["group"]["peak"].as_u64().unwrap() > 500_000, "{rung}");
    }
}

/// A ladder that takes long, its standard error, and what it has said so far.
fn start(extra: &[&str]) -> Child {
    let model = tiny();
    let fixed = [
        "ladder",
        &model,
        "--ids",
        "3,4,5",
        "--ignore-eos",
        "--context",
        "2000000",
        "--rungs",
        "200M,300M",
        "--json",
    ];
    Command::new(k3().get_program())
        .args(fixed.iter().chain(extra))
        .env_remove("K3_MODEL")
        .env("K3_THREADS", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn send(pid: u32, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{what} did not happen"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes whose parent is `pid`.
fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// Whether the run `pid` has begun to compute: it has its threads.
fn computes(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 3)
}

#[test]
fn interrupted_after_a_run_it_shows_what_there_is() {
    let mut child = start(&["--gen", "100", "--repeats", "1000", "--limits", "none"]);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("run 1 of 2000: "), "{line}");
    // Whatever run is under way. The pipe must not fill up meanwhile.
    send(child.id(), "-INT");
    let rest = std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    let mut stdout = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut stdout)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    rest.join().unwrap().unwrap();
    let report = json(&stdout);
    assert_eq!(report["interrupted"], true);
    let first = rung(&report, 0);
    assert!(
        first["figures"]["run_count"].as_u64().unwrap() >= 1,
        "{first}"
    );
    assert_eq!(report["ids"]["agree"], true);
}

#[test]
fn interrupted_in_the_first_run_it_leaves_nothing() {
    let parent = groups();
    let limits = if parent.is_some() { "group" } else { "none" };
    let mut child = start(&["--gen", "200000", "--repeats", "1", "--limits", limits]);
    let pid = child.id();
    wait_for("the run", || children(pid).iter().any(|&run| computes(run)));
    let run = children(pid)[0];
    send(pid, "-INT");
    let started = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert!(!Path::new("/proc").join(run.to_string()).exists());
    if let Some(parent) = parent {
        assert_eq!(left_by(&parent, pid), [""; 0]);
    }
}

#[test]
fn a_second_ctrl_c_ends_at_once_and_still_cleans_up() {
    let Some(parent) = groups() else { return };
    let mut child = start(&["--gen", "200000", "--repeats", "1", "--limits", "group"]);
    let pid = child.id();
    wait_for("the run", || children(pid).iter().any(|&run| computes(run)));
    let run = children(pid)[0];
    // It cannot answer the first.
    send(run, "-STOP");
    send(pid, "-INT");
    std::thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none());
    send(pid, "-INT");
    let started = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(left_by(&parent, pid), [""; 0]);
}

#[test]
fn a_run_ends_with_a_ladder_that_is_killed_and_its_group_goes_with_the_next() {
    let Some(parent) = groups() else { return };
    let mut child = start(&["--gen", "200000", "--repeats", "1", "--limits", "group"]);
    let pid = child.id();
    wait_for("the run", || children(pid).iter().any(|&run| computes(run)));
    let run = children(pid)[0];
    assert_eq!(left_by(&parent, pid).len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let procs = parent.join(format!("k3-ladder-{pid}-1/cgroup.procs"));
    // Another test's ladder may already have removed it.
    wait_for("the end of the run", || {
        fs::read_to_string(&procs).map_or(true, |pids| !pids.contains(&run.to_string()))
    });
    stdout_of(&ladder(&[
        "--rungs",
        "64M",
        "--repeats",
        "1",
        "--limits",
        "group",
    ]));
    assert_eq!(left_by(&parent, pid), [""; 0]);
}

#[test]
fn the_way_into_a_group_is_no_command_for_people() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout_of(&["completions", shell]);
        assert!(
            !String::from_utf8(script).unwrap().contains("enter-group"),
            "{shell}"
        );
    }
}

#[test]
fn nobody_enters_a_group_for_somebody_else() {
    // The caller is named wrongly: as if it had died meanwhile.
    let output = run(&["enter-group", "--parent", "1", "--", "true"]);
    assert_eq!(output.status.code(), Some(130));
    let pid = std::process::id().to_string();
    let args = [
        "enter-group",
        "--parent",
        &pid,
        "--group",
        "/nowhere",
        "--",
        "true",
    ];
    let said = refusal(1, &args);
    assert!(
        said.contains("/nowhere") && said.contains("cannot be entered"),
        "{said}"
    );
    let said = refusal(1, &["enter-group", "--parent", &pid, "--", "/no/such"]);
    assert!(said.contains("/no/such: cannot be started"), "{said}");
    assert_eq!(
        stdout_of(&["enter-group", "--parent", &pid, "--", "echo", "-x"]),
        b"-x\n"
    );
}
