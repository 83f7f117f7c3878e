//! Ctrl-C, SIGTERM and SIGHUP: what was made is kept, and the end comes quickly.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k3_testkit::{TinySpec, gates};

use crate::common::{count_of, ids_of, in_clean_environment, json, names, program, tiny};

fn start(args: &[&str]) -> Child {
    program()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn interrupt(child: &Child) {
    send(child, "-INT");
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// The exit code, and how long it took from now.
fn wait(child: &mut Child) -> (Option<i32>, Duration) {
    let started = Instant::now();
    let code = child.wait().unwrap().code();
    (code, started.elapsed())
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

fn unfinished_exists(dir: &Path) -> bool {
    names(dir).iter().any(|name| name.ends_with(".unfinished"))
}

#[test]
fn tokens_and_report_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (out, logits, trace) = (path("run.json"), path("logits"), path("trace"));
    let model = tiny();
    let mut child = start(&[
        &model,
        "--ids",
        "3,4,5",
        "--gen",
        "1000000",
        "--context",
        "2000000",
        "--ignore-eos",
        "--out",
        &out,
        "--dump-logits",
        &logits,
        "--dump-trace",
        &trace,
    ]);
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 16];
    stdout.read_exact(&mut first).unwrap();
    interrupt(&child);
    // A full pipe must not hold up the end.
    let reader = std::thread::spawn(move || {
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        rest
    });
    let (code, elapsed) = wait(&mut child);
    assert_eq!(code, Some(5));
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    let rest = reader.join().unwrap();
    assert!(rest.ends_with(b"\n"));

    let report = json(&std::fs::read(dir.path().join("run.json")).unwrap());
    assert_eq!(report["stop_reason"], "interrupted");
    let generated = ids_of(&report["generated_ids"]);
    assert!(!generated.is_empty());
    let text = report["generated_text"].as_str().unwrap();
    let shown = [&first[..], &rest].concat();
    assert_eq!(String::from_utf8(shown).unwrap(), format!("{text}\n"));
    assert_eq!(names(dir.path()), ["logits", "run.json", "trace"]);
    // The sweep that was cut short left nothing in the trace.
    let pairs = std::fs::read(dir.path().join("trace")).unwrap().len() / 8;
    let positions = count_of(&report["counts"]["positions"]);
    assert_eq!(pairs % positions, 0);
}

/// Starts a run whose prompt takes minutes, in many short sweeps.
fn start_long_prompt(extra: &[&str]) -> (tempfile::NamedTempFile, Child) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec!["3"; 200_000].join(" ")).unwrap();
    let model = tiny();
    let ids = file.path().to_str().unwrap();
    let args = [&model, "--ids-file", ids, "--context", "1000000"];
    let child = start(&[&args, &["--chunk", "8"][..], extra].concat());
    (file, child)
}

fn said_by(child: &mut Child) -> String {
    let mut said = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn before_the_first_token_a_report_is_kept_where_one_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (out, logits, trace) = (path("run.json"), path("logits"), path("trace"));
    let outputs = ["--out", &out, "--dump-logits", &logits, "--all-positions"];
    let extra = [&outputs[..], &["--dump-trace", &trace]].concat();
    let (_ids, mut child) = start_long_prompt(&extra);
    wait_for("the run", || unfinished_exists(dir.path()));
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    let (code, elapsed) = wait(&mut child);
    let said = said_by(&mut child);
    assert_eq!(code, Some(5), "{said}");
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    // Half a dump would pass for a whole one.
    assert_eq!(names(dir.path()), ["run.json"]);
    let report = json(&std::fs::read(dir.path().join("run.json")).unwrap());
    assert_eq!(report["stop_reason"], "interrupted");
    assert!(report["error"].is_null());
    assert_eq!(ids_of(&report["generated_ids"]).len(), 0);
    assert!(count_of(&report["counts"]["positions"]) < 200_000);
    assert!(said.contains("200000 tokens, of which "), "{said}");
}

#[test]
fn before_the_first_token_there_is_nothing_to_keep_otherwise() {
    let (_ids, mut child) = start_long_prompt(&[]);
    std::thread::sleep(Duration::from_secs(2));
    interrupt(&child);
    let (code, elapsed) = wait(&mut child);
    let said = said_by(&mut child);
    assert_eq!(code, Some(130), "{said}");
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    assert!(said.contains("nothing was kept"), "{said}");
}

/// The very first sweep, of seconds: what the device read until then is told.
#[test]
fn the_first_sweep_ends_within_a_second_with_a_partial_report() {
    let model = tempfile::tempdir().unwrap();
    wide_model(model.path());
    let model = model.path().display().to_string();
    let ids = vec!["3"; 1500].join(",");
    let args = [&model, "--ids", &ids, "--chunk", "1500", "--trunk-gb", "0"];
    let small = [
        "--slots",
        "4",
        "--block-bytes",
        "65536",
        "--quiet",
        "--json",
    ];
    let mut child = start(&[&args[..], &small].concat());
    std::thread::sleep(Duration::from_millis(1500));
    interrupt(&child);
    let (code, elapsed) = wait(&mut child);
    let said = said_by(&mut child);
    assert_eq!(code, Some(5), "{said}");
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    let mut stdout = Vec::new();
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_to_end(&mut stdout).unwrap();
    let report = json(&stdout);
    assert_eq!(report["stop_reason"], "interrupted");
    assert_eq!(count_of(&report["counts"]["positions"]), 0);
    let read = &report["streaming"]["bytes"]["device_bytes"];
    assert!(read.as_u64() > Some(0), "{report}");
}

#[test]
fn a_request_to_terminate_is_like_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run.json").display().to_string();
    let model = tiny();
    let args = ["--ids", "3,4,5", "--gen", "1000000", "--context", "2000000"];
    let mut child = start(&[&[&model, "--ignore-eos", "--out", &out], &args[..]].concat());
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 16]).unwrap();
    send(&child, "-TERM");
    let reader = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()).unwrap());
    assert_eq!(wait(&mut child).0, Some(5));
    reader.join().unwrap();
    let report = json(&std::fs::read(dir.path().join("run.json")).unwrap());
    assert_eq!(report["stop_reason"], "interrupted");
    assert_eq!(names(dir.path()), ["run.json"]);
}

#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    let model = tiny();
    let mut child = in_clean_environment(Command::new("nohup"))
        .arg(program().get_program())
        .args([&model, "--ids", "3,4,5", "--gen", "1000000"])
        .args(["--context", "2000000", "--ignore-eos"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 16]).unwrap();
    send(&child, "-HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None);
    interrupt(&child);
    let reader = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()).unwrap());
    assert_eq!(wait(&mut child).0, Some(5));
    reader.join().unwrap();
}

#[test]
fn a_second_one_ends_at_once_and_leaves_no_unfinished_file() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run.json").display().to_string();
    let model = tiny();
    // Nobody reads standard output: the run stands still in a write.
    let mut child = start(&[
        &model,
        "--ids",
        "3,4,5",
        "--gen",
        "1000000",
        "--context",
        "2000000",
        "--ignore-eos",
        "--out",
        &out,
    ]);
    wait_for("the run", || unfinished_exists(dir.path()));
    std::thread::sleep(Duration::from_secs(2));
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(100));
    interrupt(&child);
    let (code, elapsed) = wait(&mut child);
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    // The first one may have been enough if the pipe had not filled up yet.
    assert!(matches!(code, Some(130 | 5)), "{code:?}");
    assert!(!unfinished_exists(dir.path()));
}

/// A model whose sweep over some hundred positions takes seconds, in many
/// blocks: the wider its matrices, the less a single block weighs.
fn wide_model(dir: &Path) {
    let spec = TinySpec::small(5).experts(16, 4).with(|spec| {
        spec.shape.hidden = 512;
        spec.shape.latent = 256;
        spec.shape.moe_width = 512;
        spec.shape.dense_width = 2048;
    });
    spec.write_to(dir).unwrap();
}

/// `--recompute` walks over the whole text for each token: the first is shown
/// before the second sweep, which is the one that is cut short.
#[test]
fn a_long_streamed_sweep_ends_within_a_second_with_a_partial_report() {
    let model = tempfile::tempdir().unwrap();
    wide_model(model.path());
    let model = model.path().display().to_string();
    let ids = vec!["3"; 150].join(",");
    let fixed = [
        &model,
        "--ids",
        &ids,
        "--gen",
        "3",
        "--recompute",
        "--chunk",
        "512",
        "--trunk-gb",
        "0",
        "--slots",
        "4",
        "--block-bytes",
        "65536",
    ];
    for signal in ["-INT", "-TERM"] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run.json");
        let started = Instant::now();
        let mut child = start(&[&fixed[..], &["--out", out.to_str().unwrap()]].concat());
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0]).unwrap();
        let sweep = started.elapsed();
        // Into the middle of a sweep that takes as long as the one before.
        std::thread::sleep(sweep / 3);
        send(&child, signal);
        let (code, elapsed) = wait(&mut child);
        assert_eq!(code, Some(5));
        assert!(elapsed < Duration::from_secs(1), "{elapsed:?} of {sweep:?}");
        assert!(
            sweep > 2 * elapsed,
            "{sweep:?} is no long sweep: {elapsed:?}"
        );
        let report = json(&std::fs::read(&out).unwrap());
        assert_eq!(report["stop_reason"], "interrupted");
        assert_eq!(ids_of(&report["generated_ids"]).len(), 1);
        // The sweep that was cut short is none of those that count.
        let sweeps = report["streaming"]["sweeps"].as_array().unwrap();
        assert_eq!(sweeps.len(), 1);
        assert_eq!(sweeps[0]["positions"], 150);
        let read = &report["streaming"]["bytes"];
        let counted = |key: &str| read[key].as_u64().unwrap();
        assert!(
            counted("device_bytes") > counted("trunk_read_bytes") + counted("expert_read_bytes"),
            "the second sweep had begun: {read}"
        );
        assert_eq!(names(dir.path()), ["run.json"]);
    }
}

/// A run of many tokens whose report goes to `out`, once it has shown some.
fn start_many_tokens(command: &mut Command, out: &str) -> Child {
    let args = ["--ids", "3,4,5", "--gen", "1000000", "--context", "2000000"];
    command
        .args([&tiny(), "--out", out, "--ignore-eos"])
        .args(args);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = [0; 16];
    let stdout = child.stdout.as_mut().unwrap();
    stdout.read_exact(&mut first).unwrap();
    child
}

/// Whether this process, and so what it starts, ignores SIGHUP.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    u64::from_str_radix(mask.unwrap().trim(), 16).unwrap() & 1 != 0
}

/// The exit code of `child`, whose output nobody keeps.
fn code_of(mut child: Child) -> Option<i32> {
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let (code, _) = wait(&mut child);
    reader.join().unwrap().unwrap();
    code
}

#[test]
fn a_terminal_that_hangs_up_interrupts_as_often_as_it_says_so() {
    if hangups_are_ignored() {
        gates::not_run("hang-ups are ignored here, and whatever is started ignores them too");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run.json").display().to_string();
    let child = start_many_tokens(&mut program(), &out);
    // The kernel says it, and the shell says it again.
    (0..3).for_each(|_| send(&child, "-HUP"));
    assert_eq!(code_of(child), Some(5));
    let report = json(&std::fs::read(&out).unwrap());
    assert_eq!(report["stop_reason"], "interrupted");
    assert!(!ids_of(&report["generated_ids"]).is_empty());
}
