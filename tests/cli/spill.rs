//! Contexts that memory does not hold.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{
    in_clean_environment, json, k3, names, program, refusal, run, stdout_of, tiny,
};

/// A prompt of `len` ids with `gen_count` tokens behind it.
fn args(len: usize, gen_count: usize) -> Vec<String> {
    let ids: Vec<String> = (0..len).map(|at| (3 + at * 7 % 50).to_string()).collect();
    let options = ["--chunk", "32", "--ignore-eos", "--threads", "1", "--gen"];
    let mut args = vec![tiny(), "--ids".to_owned(), ids.join(",")];
    args.extend(options.map(str::to_owned));
    args.push(gen_count.to_string());
    args
}

fn with(args: &[String], more: &[&str]) -> Vec<String> {
    let more = more.iter().map(|arg| (*arg).to_owned());
    args.iter().cloned().chain(more).collect()
}

/// The memory that a refusal of `args` asks for.
#[track_caller]
fn least(args: &[String]) -> String {
    let said = refusal(2, &with(args, &["--memory", "1"]));
    let line = said.lines().find(|line| line.contains("raise --memory to"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    let mut words = line.split(|c: char| !c.is_ascii_digit());
    words.find(|word| !word.is_empty()).unwrap().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn a_context_beyond_memory_gives_the_same_tokens_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let args = args(1500, 40);
    let report = |more: &[&str]| {
        let more = [more, &["--json", "--quiet"]].concat();
        json(&stdout_of(&with(&args, &more)))
    };
    let want = report(&["--memory", "1G"]);
    assert_eq!(want["streaming"]["bytes"]["page_read_bytes"], 0);
    let spilled = with(&args, &["--spill", path]);
    let memory = least(&spilled);
    // Without it so little is not enough.
    refusal(2, &with(&args, &["--memory", &memory]));
    for more in [&[][..], &["--engine", "pread"], &["--draft", "3"]] {
        let memory = least(&with(&spilled, more));
        let given = ["--spill", path, "--memory", &memory];
        let got = report(&[&given[..], more].concat());
        assert_eq!(got["generated_ids"], want["generated_ids"], "{more:?}");
        let (plan, bytes) = (&got["streaming"]["plan"], &got["streaming"]["bytes"]);
        let pages = &plan["pages"];
        assert_eq!(
            number(&pages["memory_page_count"]) + number(&pages["file_page_count"]),
            1540_u64.div_ceil(64)
        );
        let page_bytes = number(&pages["page_bytes"]);
        let written = number(&bytes["page_written_bytes"]);
        assert!(written > 0 && written.is_multiple_of(page_bytes));
        let sweeps = got["streaming"]["sweeps"].as_array().unwrap();
        let read = sweeps.iter().map(|sweep| number(&sweep["page_read_bytes"]));
        assert_eq!(number(&bytes["page_read_bytes"]), read.sum::<u64>());
        let predicted = number(&plan["prediction"]["past_bytes_per_sweep"]);
        let last = number(&sweeps.last().unwrap()["page_read_bytes"]);
        assert!(last > 0 && last <= predicted, "{last} of {predicted}");
        assert_eq!(names(dir.path()), [] as [String; 0]);
    }
    // A budget that holds everything writes nothing.
    let got = report(&["--spill", path, "--memory", "1G"]);
    assert_eq!(got["generated_ids"], want["generated_ids"]);
    assert_eq!(got["streaming"]["bytes"]["page_written_bytes"], 0);
}

#[test]
fn prompts_together_get_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.jsonl");
    let line = |(index, len): (usize, usize)| {
        let ids: Vec<usize> = (0..len).map(|at| 3 + (at * 5 + index) % 50).collect();
        format!("{{\"ids\": {ids:?}, \"gen\": 9, \"temperature\": 0.7}}\n")
    };
    let lines = [300, 20, 640, 127, 128, 500].into_iter().enumerate();
    std::fs::write(&input, lines.map(line).collect::<String>()).unwrap();
    let spill = dir.path().join("pages");
    std::fs::create_dir(&spill).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let batch = |name: &str, more: &[&str]| {
        let output = dir.path().join(name);
        let args = ["batch".to_owned(), text(&input), text(&output), tiny()];
        let more = [&["--ignore-eos", "--chunk", "32"], more].concat();
        let args = with(&args, &more);
        (args, output)
    };
    let (args, output) = batch("want", &["--memory", "1G"]);
    stdout_of(&args);
    let want = std::fs::read(output).unwrap();
    for (name, sequences, more) in [
        ("one", "1", &[][..]),
        ("three", "3", &[]),
        ("six", "6", &["--draft", "2"]),
        ("shared", "3", &["--context-total", "600"]),
    ] {
        let given = ["--sequences", sequences, "--spill", &text(&spill)];
        let (args, output) = batch(name, &[&given[..], more].concat());
        let memory = least(&args);
        // What was refused has left no answers.
        let out = dir.path().join("report.json");
        let report = text(&out);
        stdout_of(&with(&args, &["--memory", &memory, "--out", &report]));
        assert_eq!(std::fs::read(output).unwrap(), want, "{name}");
        let report = json(&std::fs::read(&out).unwrap());
        let read = &report["streaming"]["bytes"]["page_read_bytes"];
        assert!(number(read) > 0, "{name}");
        assert_eq!(names(&spill), [] as [String; 0]);
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let args = args(400, 4);
    let missing = dir.path().join("none");
    let said = refusal(2, &with(&args, &["--spill", missing.to_str().unwrap()]));
    assert!(said.contains("no such directory") && said.contains("--spill"));
    let said = refusal(
        2,
        &with(&args, &["--spill", path, "--attention", "expanded"]),
    );
    assert!(said.contains("--attention"), "{said}");
    let spilled = with(&args, &["--spill", path]);
    let memory = least(&spilled);
    let little = ["--memory", &memory, "--spill-gb", "0.00001"];
    let said = refusal(2, &with(&spilled, &little));
    assert!(
        said.contains("--spill-gb is 10.00 kB") && said.contains("of the disk"),
        "{said}"
    );
    // It is a setting like others.
    let output = k3()
        .args(with(&args, &["--memory", &memory, "--quiet"]))
        .env("K3_SPILL", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let output = run(&with(&spilled, &["--resident"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("--spill: no effect beside --resident"),
        "{said}"
    );
}

/// A disk that has no room: here a limit on the length of files.
#[test]
fn a_file_that_finds_no_room_is_refused_with_what_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let spilled = with(&args(1500, 4), &["--spill", path, "--quiet"]);
    let memory = least(&spilled);
    let mut shell = in_clean_environment(Command::new("sh"));
    let limited = "trap '' XFSZ; ulimit -f 100; exec \"$@\"";
    let output = shell
        .args(["-c", limited, "sh"])
        .arg(program().get_program())
        .args(with(&spilled, &["--memory", &memory]))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
    assert!(
        said.contains("bytes are needed for positions") && said.contains(path),
        "{said}"
    );
    assert_eq!(names(dir.path()), [] as [String; 0]);
}

#[test]
fn a_run_that_is_killed_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let spilled = with(&args(3, 30_000), &["--context", "100000", "--spill", path]);
    let memory = least(&spilled);
    let mut child = program()
        .args(with(&spilled, &["--memory", &memory, "--quiet"]))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let fds = format!("/proc/{}/fd", child.id());
    let has_file = || {
        let fds = std::fs::read_dir(&fds).into_iter().flatten().flatten();
        let mut links = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        links.any(|link| link.starts_with(path))
    };
    let started = Instant::now();
    while !has_file() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(names(dir.path()), [] as [String; 0], "it has no name");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(dir.path()), [] as [String; 0]);
}

#[test]
fn a_plan_says_what_stays_and_what_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let plan = |more: &[&str]| {
        let args = ["plan", "fixtures/tiny", "--threads", "1", "--chunk", "32"];
        let context = ["--context", "20000", "--spill", path];
        let all = [&args[..], &context, more].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for sequences in ["1", "3"] {
        let memory = least(&plan(&["--sequences", sequences]));
        let given = ["--sequences", sequences, "--memory", &memory];
        let text = String::from_utf8(stdout_of(&plan(&given))).unwrap();
        for wanted in ["pages read back", "pages per sweep", "pages on disk"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let table = text.lines().filter(|line| !line.contains(path));
        let widest = table.map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        // It is all counted: a byte less is too little.
        let less = (memory.parse::<u64>().unwrap() - 1).to_string();
        refusal(2, &plan(&["--sequences", sequences, "--memory", &less]));
    }
}
