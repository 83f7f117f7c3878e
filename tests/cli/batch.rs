//! `k3 batch`: the same answers whatever runs together, and nothing lost.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{fixture, k3, program, refusal};

/// Prompts of different lengths, greedy and sampled.
const PROMPTS: &str = r#"{"id": "a", "prompt": "Fellow citizens"}
{"id": 2, "prompt": "It was the whale", "temperature": 0.8, "seed": 3}

{"prompt": "The President of the United States of America", "gen": 20}
{"ids": [5, 6, 7, 8], "temperature": 1, "top_p": 0.9, "seed": 9}
{"prompt": "And", "gen": 1}
{"prompt": "Call me", "gen": 0}
{"prompt": "In the beginning of the war the whole of the people", "temperature": 0.7}
"#;

struct Case {
    dir: tempfile::TempDir,
    input: PathBuf,
}

impl Case {
    fn new(prompts: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("in.jsonl");
        fs::write(&input, prompts).unwrap();
        Self { dir, input }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn args(&self, output: &Path, args: &[&str]) -> Vec<String> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let mut all = vec!["batch".to_owned(), text(&self.input), text(output)];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        all
    }

    /// What the run leaves.
    #[track_caller]
    fn run(&self, name: &str, args: &[&str]) -> (String, String) {
        let output = self.path(name);
        let ended = k3().args(self.args(&output, args)).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {said}");
        assert!(ended.stdout.is_empty());
        (fs::read_to_string(output).unwrap(), said)
    }
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// One of a thing is told as one, and rates have the digits that they are worth.
#[test]
fn the_report_counts_as_people_do() {
    let one = Case::new("{\"prompt\": \"And\", \"gen\": 1}\n");
    let (_, said) = one.run("out", &["--sequences", "1", "--no-disk-probe"]);
    for part in ["1 token after", "in 1 sweep, 1 prompt at a time"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let several = Case::new(PROMPTS);
    let (_, said) = several.run("out", &["--sequences", "2", "--no-disk-probe"]);
    assert!(said.contains(" sweeps, 2 prompts at a time"), "{said}");
    let (before, _) = said.split_once(" tokens a second").expect("a rate");
    let rate = before.rsplit(' ').next().unwrap();
    let (whole, digits) = rate.split_once('.').unwrap();
    assert_eq!(digits.len(), if whole.len() > 1 { 1 } else { 3 }, "{said}");
}

#[test]
fn answers_are_the_same_bytes_whatever_runs_together() {
    let case = Case::new(PROMPTS);
    let (want, said) = case.run("one", &["--sequences", "1", "--gen", "8"]);
    assert!(said.contains("7 of 7"), "{said}");
    let answers = lines(&want);
    let numbers: Vec<_> = answers
        .iter()
        .map(|answer| answer["line"].clone())
        .collect();
    assert_eq!(numbers, [1, 2, 4, 5, 6, 7, 8]);
    assert_eq!(
        (&answers[0]["id"], &answers[1]["id"]),
        (&"a".into(), &2.into())
    );
    assert_eq!(answers[2]["generated_ids"].as_array().unwrap().len(), 20);
    assert_eq!(answers[5]["generated_ids"], Value::Array(Vec::new()));
    assert!(answers[0]["text"].as_str().unwrap().len() > 4);
    for args in [
        &["--sequences", "3"][..],
        &["--sequences", "7", "--chunk", "3"],
        &["--memory", "60M"],
        &["--memory", "62M", "--draft", "5", "--engine", "pread"],
        &["--resident"],
        &["--isa", "scalar", "--threads", "2"],
    ] {
        let args = [args, &["--gen", "8"]].concat();
        let (got, _) = case.run(&args.join("").replace('-', ""), &args);
        assert_eq!(got, want, "{args:?}");
    }
    let (got, _) = case.run("any", &["--as-completed", "--gen", "8", "--sequences", "4"]);
    let (mut got, mut want) = (
        got.lines().collect::<Vec<_>>(),
        want.lines().collect::<Vec<_>>(),
    );
    assert_ne!(got, want, "the short ones are first");
    got.sort_unstable();
    want.sort_unstable();
    assert_eq!(got, want);
}

#[test]
fn what_each_gets_is_what_it_gets_alone() {
    let case = Case::new(PROMPTS);
    let (answers, _) = case.run("out", &["--gen", "8"]);
    let answers = lines(&answers);
    let alone = |args: &[&str]| {
        let args = [args, &["--gen", "8", "--json", "--quiet"]].concat();
        let output = k3().args(&args).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["generated_ids"].clone()
    };
    let whale = [
        "--prompt",
        "It was the whale",
        "--temperature",
        "0.8",
        "--seed",
        "3",
    ];
    assert_eq!(answers[1]["generated_ids"], alone(&whale));
    let ids = [
        "--ids",
        "5,6,7,8",
        "--temperature",
        "1",
        "--top-p",
        "0.9",
        "--seed",
        "9",
    ];
    assert_eq!(answers[3]["generated_ids"], alone(&ids));
}

#[test]
fn a_run_that_is_ended_goes_on_where_it_was() {
    let prompts = (0..16).map(|seed| {
        format!(
            "{{\"ids\": [5, 6, {}], \"temperature\": 0.9, \"seed\": {seed}, \"gen\": 40}}\n",
            7 + seed
        )
    });
    let case = Case::new(&prompts.collect::<String>());
    let (want, _) = case.run("whole", &["--sequences", "2"]);
    for (signal, order) in [
        ("-INT", &[][..]),
        ("-KILL", &[]),
        ("-TERM", &["--as-completed"]),
    ] {
        let name = format!("{signal}{}", order.len());
        let output = case.path(&name);
        let args = [&["--sequences", "2"], order].concat();
        let mut child = program()
            .args(case.args(&output, &args))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while fs::read(&output).map_or(0, |bytes| bytes.len()) < 600 {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(2));
        }
        let pid = child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args([signal, &pid])
            .status();
        assert!(sent.unwrap().success());
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        let status = child.wait().unwrap();
        if signal != "-KILL" {
            assert_eq!(status.code(), Some(5), "{said}");
            assert!(said.contains("run the same command again"), "{said}");
        }
        let left = lines(&fs::read_to_string(&output).unwrap()).len();
        assert!((1..16).contains(&left), "{left} answers were there");
        // And a line that was torn.
        let mut bytes = fs::read(&output).unwrap();
        bytes.extend(b"{\"line\": 2");
        fs::write(&output, bytes).unwrap();
        let (got, said) = case.run(&name, &args);
        assert!(said.contains("without its end"), "{said}");
        assert!(
            said.contains(&format!("{left} of them by an earlier run")),
            "{said}"
        );
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(&got), sorted(&want));
        assert_eq!(got == want, order.is_empty());
        let (again, said) = case.run(&name, &args);
        assert_eq!(again, got);
        assert!(said.contains("all 16 prompts were answered"), "{said}");
    }
}

#[test]
fn an_output_of_something_else_is_refused_and_stays() {
    let case = Case::new(PROMPTS);
    let (whole, _) = case.run("out", &["--gen", "4"]);
    let output = case.path("out");
    let refused = |args: &[&str], content: &str| {
        fs::write(&output, content).unwrap();
        let said = refusal(2, &case.args(&output, args));
        assert_eq!(fs::read_to_string(&output).unwrap(), content);
        said
    };
    // A run that is refused later leaves no empty one.
    fs::remove_file(&output).unwrap();
    refusal(2, &case.args(&output, &["--prefix-cache", "/proc/none"]));
    assert!(!output.exists());
    let said = refused(&["--gen", "5"], &whole);
    assert!(
        said.contains("line 1 (offset 0) answers another request"),
        "{said}"
    );
    assert!(said.contains("name another OUTPUT"), "{said}");
    let tiny = fixture("tiny");
    refused(&["--gen", "4", tiny.to_str().unwrap()], &whole);
    let said = refused(&["--gen", "4"], "{\"some\": \"thing\"}\n");
    assert!(said.contains("no answer of k3 batch"), "{said}");
    let first = whole.lines().next().unwrap();
    let said = refused(&["--gen", "4"], &format!("{first}\n{first}\n"));
    assert!(
        said.contains("line 2 (offset") && said.contains("again"),
        "{said}"
    );
    let second = whole.lines().nth(1).unwrap();
    let said = refused(&["--gen", "4"], &format!("{second}\n"));
    assert!(said.contains("--as-completed"), "{said}");
    // Not over what is read.
    let args = case.args(&case.input, &[]);
    let said = refusal(2, &args);
    assert!(said.contains("OUTPUT"), "{said}");
    assert_eq!(fs::read_to_string(&case.input).unwrap(), PROMPTS);
}

#[test]
fn lines_that_cannot_be_run_are_all_named_before_anything_runs() {
    let case = Case::new("{\"ids\": [1]}\n{\"ids\": [99999]}\n{\"promt\": \"x\"}\n");
    let output = case.path("out");
    let said = refusal(2, &case.args(&output, &[]));
    assert!(said.contains("2 of the lines"), "{said}");
    assert!(said.contains("line 2: token id 99999"), "{said}");
    assert!(said.contains("line 3: unknown field `promt`"), "{said}");
    assert!(!output.exists());
}

#[test]
fn the_report_has_what_it_took() {
    let case = Case::new(PROMPTS);
    let out = case.path("report.json");
    let args = [
        "--gen",
        "8",
        "--memory",
        "60M",
        "--sequences",
        "4",
        "--out",
        out.to_str().unwrap(),
    ];
    case.run("out", &args);
    let report: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_eq!(report["answered"], 7);
    assert_eq!(report["execution"]["sequences"], 4);
    assert_eq!(report["generated_tokens"], 8 * 4 + 20 + 1);
    let sweeps = report["streaming"]["sweeps"].as_array().unwrap();
    let read = |key: &str| -> u64 {
        sweeps
            .iter()
            .map(|sweep| sweep[key].as_u64().unwrap())
            .sum()
    };
    let all = ["trunk_read_bytes", "expert_read_bytes", "embedding_bytes"].map(read);
    assert_eq!(report["read_bytes"], all.iter().sum::<u64>());
}

#[test]
fn choices_share_their_prompt_and_are_lines_of_their_own() {
    let line = |rest: &str| {
        let prompt = "It was the whale that they saw in the morning of the third day";
        format!("{{\"id\": \"w\", \"prompt\": \"{prompt}\", \"temperature\": 0.9{rest}}}\n")
    };
    let case = Case::new(&[line(", \"choices\": 3"), line(", \"seed\": 4")].concat());
    let out = case.path("report.json");
    let (want, _) = case.run("out", &["--gen", "6", "--out", out.to_str().unwrap()]);
    let answers = lines(&want);
    let choices: Vec<_> = answers
        .iter()
        .map(|answer| answer["choice"].as_u64())
        .collect();
    assert_eq!(choices, [Some(0), Some(1), Some(2), None]);
    let ids = |index: usize| answers[index]["generated_ids"].to_string();
    assert!(ids(0) != ids(1) && ids(1) != ids(2));
    let report: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_eq!(
        (&report["prompts"], &report["answers"]),
        (&2.into(), &4.into())
    );
    let prompt = answers[0]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(
        report["prompt_tokens"],
        2 * prompt,
        "read once for three choices"
    );
    // The first is what the prompt gets alone.
    let alone = Case::new(&line(""));
    let (alone, _) = alone.run("out", &["--gen", "6"]);
    assert_eq!(
        lines(&alone)[0]["generated_ids"],
        answers[0]["generated_ids"]
    );
    // One of them is missing.
    let mut kept: Vec<_> = want.lines().collect();
    kept.remove(1);
    fs::write(case.path("out"), kept.join("\n") + "\n").unwrap();
    let (got, _) = case.run("out", &["--gen", "6", "--as-completed"]);
    assert_eq!(got.lines().last(), want.lines().nth(1));
    let said = refusal(2, &case.args(&case.path("x"), &["--sequences", "2"]));
    assert!(said.contains("3 choices"), "{said}");
}

#[test]
fn what_prompts_share_decides_who_waits_and_no_token() {
    let prompts = [(3, 10), (70, 60), (2, 1), (1, 127), (60, 5), (128, 3)];
    let line = |(index, (len, gen_count)): (usize, (usize, usize))| {
        let ids: Vec<usize> = (0..len).map(|at| 5 + (at * 7 + index) % 90).collect();
        format!("{{\"ids\": {ids:?}, \"gen\": {gen_count}, \"temperature\": 0.8}}\n")
    };
    let text: String = prompts.into_iter().enumerate().map(line).collect();
    let case = Case::new(&text);
    let (want, _) = case.run("alone", &["--sequences", "1"]);
    let report = case.path("report.json");
    for (args, positions) in [
        // The four that need most: 3, 3, 2 and 2 pages.
        (&["--memory", "64M"][..], 640),
        (&["--memory", "64M", "--context-total", "131"], 192),
        (&["--memory", "64M", "--context-total", "320"], 320),
        (&["--resident", "--context-total", "193"], 256),
    ] {
        let out = ["--sequences", "4", "--out", report.to_str().unwrap()];
        let name = format!("{positions}{}", args.len());
        let (got, _) = case.run(&name, &[args, &out].concat());
        assert_eq!(got, want, "{args:?}");
        let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        let execution = &report["execution"];
        assert_eq!(execution["context_total_positions"], positions, "{args:?}");
        assert_eq!(execution["context_positions"], 131);
    }
    let output = case.path("refused");
    let said = refusal(2, &case.args(&output, &["--context-total", "130"]));
    let what = "line 6 takes 131 positions, but --context-total is 130";
    assert!(
        said.contains(what) && said.contains("raise --context-total"),
        "{said}"
    );
    assert!(!output.exists());
}
