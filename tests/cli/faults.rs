//! The whole program on systems that fail, forbid or lack something: a typed
//! error or a reported fallback, never a hang, never a wrong token.
//!
//! What needs another user, another mount or a control group is prepared by a
//! shell that ends in running the program; where it cannot be had, the test
//! says that it is not run. The engine's own tests inject what no system can
//! be made to do from outside.

use std::fs::{self, File};
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use k3_formats::ExpertTrace;
use k3_io::UringCall;
use k3_runtime::{Checkpoint, CheckpointPaths};
use k3_testkit::{TinySpec, gates};
use serde_json::Value;

use crate::common::{
    case, fixture, ids_of, in_clean_environment, json, list, names, program, stdout_of, tiny,
};

/// No run of a tiny model may take longer, whatever fails.
const LONGEST: Duration = Duration::from_secs(60);
/// The errno of a drive that cannot read.
const EIO: i32 = 5;
/// The errno of what is forbidden.
const EPERM: i32 = 1;
/// Codes of a shell that could not prepare what was asked of it.
const NOT_PREPARED: [i32; 3] = [90, 126, 127];

/// A copy of the tiny checkpoint that everybody may read.
fn copy_of_tiny() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in names(&fixture("tiny")) {
        let from = fixture("tiny").join(&name);
        if from.is_file() {
            fs::copy(from, dir.path().join(name)).unwrap();
        }
    }
    dir
}

/// Arguments that continue the second prompt of the tiny checkpoint in `model`,
/// reading nearly everything again and again.
fn run_args(model: &Path) -> Vec<String> {
    let case = case("tiny", "p12", "latent");
    let count = case.generated_ids.len().to_string();
    let fixed = ["--trunk-gb", "0", "--slots", "4", "--json", "--gen", &count];
    let model = [model.display().to_string()];
    let ids = ["--ids".to_owned(), list(&case.ids)];
    let fixed = fixed.map(str::to_owned);
    [&model[..], &ids, &fixed].concat()
}

/// Checks that a run went right: its ids are the fixture's. Its report.
#[track_caller]
fn right(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report = json(&output.stdout);
    let want = case("tiny", "p12", "latent").generated_ids;
    assert_eq!(ids_of(&report["generated_ids"]), want);
    report
}

/// What a run did without, as one text.
fn fallbacks(report: &Value) -> String {
    let lines = report["streaming"]["fallbacks"].as_array().unwrap();
    let lines: Vec<_> = lines.iter().map(|line| line.as_str().unwrap()).collect();
    lines.join("\n")
}

/// Runs the program with `args` through a shell script that prepares its
/// surroundings and ends in running `"$@"`; `None`, and a line that says so,
/// where they cannot be had.
fn prepared(script: &str, directory: &Path, binary: &Path, args: &[String]) -> Option<Output> {
    let mut shell = in_clean_environment(Command::new("sh"));
    let output = shell
        .args(["-c", script, "sh"])
        .arg(binary)
        .args(args)
        .env("PLACE", directory)
        .output()
        .unwrap();
    if output
        .status
        .code()
        .is_some_and(|code| NOT_PREPARED.contains(&code))
    {
        let said = String::from_utf8_lossy(&output.stderr);
        gates::not_run(&format!("the surroundings cannot be had: {}", said.trim()));
        return None;
    }
    Some(output)
}

fn binary() -> PathBuf {
    PathBuf::from(program().get_program())
}

/// A checkpoint in one file, whose offsets therefore name one tensor each, with
/// experts of many reads.
fn large_experts() -> (tempfile::TempDir, Checkpoint) {
    let dir = tempfile::tempdir().unwrap();
    let spec = TinySpec::small(11).experts(16, 2).with(|spec| {
        spec.shape.hidden = 256;
        spec.shape.latent = 256;
        spec.shape.moe_width = 320;
    });
    spec.write_to(dir.path()).unwrap();
    let checkpoint = Checkpoint::open(&CheckpointPaths {
        model_dir: dir.path().to_owned(),
        roots: Vec::new(),
        config: None,
    })
    .unwrap();
    assert_eq!(checkpoint.shard_paths().count(), 1);
    (dir, checkpoint)
}

/// Offsets at which only reads of the bytes `from..to` can start.
fn inside(from: u64, to: u64) -> Range<u64> {
    let page = 4096;
    from.next_multiple_of(page) + page..to - page
}

/// Runs the program while reads that start at `offsets` fail. `None`, and a
/// line that says so, where they cannot be made to.
fn run_failing_at(offsets: Range<u64>, args: &[&str]) -> Option<Output> {
    let mut program = program();
    program.args(args);
    let run = move || {
        // Holds for this thread and the program it starts.
        if !k3_io::refuse_preads(offsets, EIO) {
            gates::not_run("filters of system calls are not allowed here");
            return None;
        }
        Some(program.output().unwrap())
    };
    let start = Instant::now();
    let output = std::thread::spawn(run).join().unwrap();
    assert!(start.elapsed() < LONGEST, "{:?}", start.elapsed());
    output
}

/// Checks the message of a drive that cannot read.
#[track_caller]
fn names_the_drive(output: &Output, checkpoint: &Checkpoint, offsets: &Range<u64>) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let shard = checkpoint
        .shard_paths()
        .next()
        .unwrap()
        .display()
        .to_string();
    for word in [&shard, "errno 5", "4 tries", "dmesg"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let offset = said.split("at offset ").nth(1).unwrap();
    let offset: u64 = offset.split(' ').next().unwrap().parse().unwrap();
    assert!(offsets.contains(&offset), "{offset} is not in {offsets:?}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn an_io_error_in_the_third_read_of_a_layer_ends_the_run_with_its_place() {
    let (dir, checkpoint) = large_experts();
    let layer = "layers.3.";
    let mut matrices: Vec<_> = checkpoint
        .index()
        .tensors()
        .filter(|(name, tensor)| name.contains(layer) && tensor.bytes >= 32 << 10)
        .map(|(_, tensor)| tensor)
        .collect();
    matrices.sort_by_key(|tensor| tensor.offset);
    let third = matrices[2];
    let offsets = inside(third.offset, third.offset + third.bytes);
    let model = dir.path().display().to_string();
    let out = tempfile::tempdir().unwrap();
    let report = out.path().join("run.json").display().to_string();
    let args = [
        &model, "--ids", "3,4,5", "--gen", "4", "--engine", "pread", "--quiet", "--out", &report,
    ];
    let Some(output) = run_failing_at(offsets.clone(), &args) else {
        return;
    };
    names_the_drive(&output, &checkpoint, &offsets);
    assert!(output.stdout.is_empty(), "{:?}", output.stdout);
    // What there is to tell is kept all the same.
    let kept = crate::common::json(&fs::read(&report).unwrap());
    assert_eq!(kept["stop_reason"], "failed");
    assert!(kept["error"].as_str().unwrap().contains("errno 5"));
    assert_eq!(kept["generated_ids"].as_array().unwrap().len(), 0);
    // Nothing but that place was wrong.
    stdout_of(&args);
}

/// The expert that cannot be read is first asked for after some tokens: they
/// are the right ones, and no other follows.
#[test]
fn an_io_error_after_some_tokens_follows_right_ones_only() {
    let (dir, checkpoint) = large_experts();
    let model = dir.path().display().to_string();
    let trace = dir.path().join("trace").display().to_string();
    let fixed = [&model, "--ids", "3,4,5", "--gen", "12", "--quiet"];
    let right = stdout_of(&[&fixed[..], &["--resident", "--dump-trace", &trace]].concat());
    let right = String::from_utf8(right).unwrap();
    let trace = ExpertTrace::parse(Path::new(&trace), &fs::read(&trace).unwrap()).unwrap();
    let mut seen = std::collections::HashSet::new();
    let mut late = None;
    for (sweep, picks) in trace.sweeps().enumerate() {
        for pick in picks.pairs() {
            let new = seen.insert((pick.layer, pick.expert));
            if new && sweep >= 4 && late.is_none() {
                late = Some((sweep, *pick));
            }
        }
    }
    let (sweep, pick) = late.expect("twelve tokens ask for more than the first four");
    let experts = checkpoint.index().experts();
    let expert = experts.get(pick.layer as usize, pick.expert as usize);
    let segment = expert.unwrap().segments()[0];
    let offsets = inside(segment.offset, segment.offset + segment.bytes);
    let args = [&fixed[..], &["--engine", "pread"]].concat();
    let Some(output) = run_failing_at(offsets.clone(), &args) else {
        return;
    };
    names_the_drive(&output, &checkpoint, &offsets);
    let shown = String::from_utf8(output.stdout).unwrap();
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    assert_eq!(words(&shown), words(&right)[..sweep], "{shown}");
    assert_eq!(stdout_of(&args), right.into_bytes());
}

#[test]
fn a_shard_cut_short_after_the_start_is_an_error_not_a_wrong_token() {
    for engine in ["pread", "uring"] {
        let dir = copy_of_tiny();
        let model = dir.path().display().to_string();
        let kept = tempfile::tempdir().unwrap();
        let report = kept.path().join("run.json");
        let args = ["--ids", "3,4,5", "--gen", "1000", "--context", "4000"];
        let args = [&args[..], &["--ignore-eos", "--quiet", "--memory", "1G"]].concat();
        let right = stdout_of(&[&[tiny().as_str(), "--resident"], &args[..8]].concat()[..]);
        let args = [&args[..], &["--trunk-gb", "0", "--engine", engine]].concat();
        let mut child = program()
            .arg(&model)
            .args(&args)
            .arg("--out")
            .arg(&report)
            .arg("--dump-trace")
            .arg(kept.path().join("trace"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut shown = vec![0; 8];
        stdout.read_exact(&mut shown).unwrap();
        let name = "model-00005-of-00011.safetensors";
        let file = File::options()
            .write(true)
            .open(dir.path().join(name))
            .unwrap();
        file.set_len(5000).unwrap();
        stdout.read_to_end(&mut shown).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for word in [name, "truncated", "the file ends at 5000;"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        let shown = shown.strip_suffix(b"\n").unwrap_or(&shown);
        assert!(right.starts_with(shown), "tokens of a cut shard");
        // The report tells of what came before; a trace would be half of one.
        assert_eq!(names(kept.path()), ["run.json"]);
        let report = crate::common::json(&fs::read(&report).unwrap());
        assert_eq!(report["stop_reason"], "failed");
        let why = report["error"].as_str().unwrap();
        assert!(why.contains(name) && why.contains("truncated"), "{why}");
        let text = report["generated_text"].as_str().unwrap();
        assert_eq!(text.trim_end().as_bytes(), shown.trim_ascii_end());
    }
}

/// Another file in a shard's place is not the one whose header was read.
#[test]
fn a_shard_that_is_replaced_as_the_run_starts_is_refused() {
    let dir = copy_of_tiny();
    let mut args = run_args(dir.path());
    let trace = dir.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&trace)
            .status()
            .unwrap()
            .success()
    );
    args.extend(["--dump-trace".to_owned(), trace.display().to_string()]);
    let out = tempfile::tempdir().unwrap();
    let report = out.path().join("run.json").display().to_string();
    args.extend(["--out".to_owned(), report]);
    let child = program()
        .args(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The report is opened after the headers were read and before the trace,
    // whose pipe holds the run up before it opens the weights.
    let start = Instant::now();
    while names(out.path()).is_empty() {
        assert!(start.elapsed() < LONGEST);
        std::thread::sleep(Duration::from_millis(5));
    }
    replace_shards(dir.path());
    let reader = std::thread::spawn(move || fs::read(trace).unwrap());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "tokens of other weights");
    assert!(said.contains("model-00001-of-00011.safetensors"), "{said}");
    assert!(said.contains("replaced"), "{said}");
    assert!(reader.join().unwrap().is_empty());
}

/// Puts other files of the same kind in the places of the shards.
fn replace_shards(dir: &Path) {
    for name in names(dir) {
        if name.ends_with(".safetensors") {
            let other = dir.join("other");
            fs::write(&other, vec![0x55; 1 << 20]).unwrap();
            fs::rename(&other, dir.join(name)).unwrap();
        }
    }
}

/// Once they are open, their names may go to others.
#[test]
fn a_shard_that_is_replaced_while_it_is_read_changes_nothing() {
    let dir = copy_of_tiny();
    let case = case("tiny", "p12", "latent");
    let ids = list(&case.ids);
    let fixed = [
        "--ids",
        &ids,
        "--gen",
        "1000",
        "--context",
        "4000",
        "--quiet",
    ];
    let right = stdout_of(&[&[tiny().as_str(), "--resident", "--ignore-eos"], &fixed[..]].concat());
    let mut child = program()
        .arg(dir.path())
        .args(fixed)
        .args(["--ignore-eos", "--trunk-gb", "0", "--slots", "4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut shown = vec![0; 8];
    stdout.read_exact(&mut shown).unwrap();
    replace_shards(dir.path());
    stdout.read_to_end(&mut shown).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(shown == right, "other tokens");
}

/// ramfs refuses direct reads; tmpfs may or may not.
#[test]
fn file_systems_in_memory_give_the_same_tokens() {
    for (file_system, buffered) in [("ramfs", Some(true)), ("tmpfs", None)] {
        for engine in ["uring", "pread"] {
            let place = tempfile::tempdir().unwrap();
            let script = format!(
                "unshare --mount true || exit 90; exec unshare --mount sh -c 'mount -t \
                 {file_system} none \"$PLACE\" || exit 90; cp {}/* \"$PLACE\" || exit 90; exec \
                 \"$@\"' sh \"$@\"",
                tiny()
            );
            let mut args = run_args(place.path());
            args.extend(["--engine", engine].map(str::to_owned));
            let Some(output) = prepared(&script, place.path(), &binary(), &args) else {
                return;
            };
            let report = right(&output);
            let fallbacks = fallbacks(&report);
            if buffered == Some(true) {
                assert!(
                    fallbacks.contains("buffered reads for 11 file(s)"),
                    "{fallbacks}"
                );
            }
            assert!(report["streaming"]["bytes"]["device_bytes"].as_u64() > Some(0));
        }
    }
}

#[test]
fn io_uring_forbidden_by_a_filter_is_a_reported_fallback() {
    let engines = ["auto", "uring"];
    let ways = UringCall::ALL.map(|call| engines.map(|engine| (call, engine)));
    for (call, engine) in ways.into_iter().flatten() {
        let mut program = program();
        program
            .args(run_args(Path::new(&tiny())))
            .args(["--engine", engine]);
        let run = move || k3_io::refuse_io_uring(call, EPERM).then(|| program.output().unwrap());
        let Some(output) = std::thread::spawn(run).join().unwrap() else {
            gates::not_run("filters of system calls are not allowed here");
            return;
        };
        let report = right(&output);
        assert_eq!(report["streaming"]["engine"]["kind"], "pread");
        let fallbacks = fallbacks(&report);
        for word in ["io_uring is not available", "forbidden", "EPERM"] {
            assert!(fallbacks.contains(word), "{call:?}, {word}: {fallbacks}");
        }
    }
}

#[test]
fn an_unprivileged_user_with_little_lockable_memory_is_told() {
    let dir = copy_of_tiny();
    let copy = dir.path().join("k3-copy");
    fs::copy(binary(), &copy).unwrap();
    let user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let script =
        format!("ulimit -l 64 || exit 90; {user} test -x \"$1\" || exit 90; exec {user} \"$@\"");
    let Some(output) = prepared(&script, dir.path(), &copy, &run_args(dir.path())) else {
        return;
    };
    let report = right(&output);
    let fallbacks = fallbacks(&report);
    assert!(fallbacks.contains("RLIMIT_MEMLOCK"), "{fallbacks}");
}

/// Runs the program in a memory group of `limit` bytes, in which another process
/// holds `taken` bytes by then.
fn in_memory_group(limit: u64, taken: u64, args: &[String]) -> Option<Output> {
    let script = r#"
        own() { sed -n "s/^$1:\(.*\)$/\1/p" /proc/self/cgroup; }
        if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
            base=/sys/fs/cgroup/memory; group=$(own '[0-9]*:memory'); file=memory.limit_in_bytes
            usage=memory.usage_in_bytes
        else
            base=/sys/fs/cgroup; group=$(own '0:'); file=memory.max
            usage=memory.current
        fi
        [ -d "$base$group" ] && base=$base$group
        dir=$base/k3-test-$$
        mkdir "$dir" || exit 90
        trap 'for id in $(cat "$dir/cgroup.procs"); do kill -9 $id; done
            until rmdir "$dir"; do sleep 0.05; done 2>/dev/null' EXIT
        echo "$LIMIT" > "$dir/$file" || exit 90
        if [ "$TAKEN" -gt 0 ]; then
            # The last bytes of a stream that does not end yet are held.
            sh -c 'echo $$ > "$0/cgroup.procs" || exit 90
                { head -c "$1" /dev/zero; sleep 60; } | tail -c "$1"' \
                "$dir" "$TAKEN" > /dev/null &
            for _ in $(seq 400); do
                [ "$(cat "$dir/$usage")" -ge "$TAKEN" ] && break
                sleep 0.05
            done
            [ "$(cat "$dir/$usage")" -ge "$TAKEN" ] || exit 90
        fi
        sh -c 'echo $$ > "$0/cgroup.procs" || exit 90; exec "$@"' "$dir" "$@"
    "#;
    let script = format!("LIMIT={limit}; TAKEN={taken}; {script}");
    prepared(&script, Path::new("/"), &binary(), args)
}

#[test]
fn a_memory_group_below_the_plan_is_refused_before_the_kernel_ends_the_run() {
    let mut args = run_args(Path::new(&tiny()));
    args.extend(["--memory", "64M"].map(str::to_owned));
    let Some(output) = in_memory_group(40_000_000, 0, &args) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
    for word in ["the plan reserves", "memory.", "k3-test-", "lower --memory"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn what_others_hold_in_a_memory_group_is_not_planned_again() {
    let mut args = run_args(Path::new(&tiny()));
    args.extend(["--memory", "64M"].map(str::to_owned));
    // The plan alone fits twice.
    let Some(output) = in_memory_group(160_000_000, 120_000_000, &args) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
    for word in ["the plan reserves", "k3-test-", "lower --memory"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let output = in_memory_group(160_000_000, 20_000_000, &args).unwrap();
    right(&output);
}

#[test]
fn auto_keeps_within_a_memory_group() {
    let mut args = run_args(Path::new(&tiny()));
    args.extend(["--memory", "auto"].map(str::to_owned));
    // What is left of it for a run is not enough for the smallest plan.
    let Some(output) = in_memory_group(540_000_000, 0, &args) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("smallest plan needs"), "{said}");

    let output = in_memory_group(620_000_000, 0, &args).unwrap();
    let report = right(&output);
    let memory = &report["streaming"]["memory"];
    let bytes = |key: &str| memory[key].as_u64().unwrap();
    assert!(bytes("budget_bytes") <= 620_000_000 - (512 << 20));
    assert!(bytes("peak_bytes") <= bytes("planned_bytes"), "{memory}");
    assert!(bytes("planned_bytes") <= bytes("budget_bytes"), "{memory}");
}
