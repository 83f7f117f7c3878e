//! `k3 batch`: penalties, bias, stops and logprobs, by line and by option.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::{k3, refusal};

struct Batch {
    dir: tempfile::TempDir,
}

impl Batch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn args(&self, prompts: &str, output: &str, args: &[&str]) -> Vec<String> {
        let input = self.path("in.jsonl");
        fs::write(&input, prompts).unwrap();
        let paths = [input, self.path(output)].map(|path| path.display().to_string());
        let own = ["batch", &paths[0], &paths[1], "--quiet"];
        let all = [&own, args].concat();
        all.into_iter().map(str::to_owned).collect()
    }

    #[track_caller]
    fn answers(&self, prompts: &str, output: &str, args: &[&str]) -> Vec<Value> {
        let ended = k3()
            .args(self.args(prompts, output, args))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {said}");
        let text = fs::read_to_string(self.path(output)).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// What `k3` itself answers.
#[track_caller]
fn alone(args: &[&str]) -> Value {
    let args = [args, &["--json", "--quiet"]].concat();
    let output = k3().args(&args).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

const PROMPT: &str = "It was the whale";

#[test]
fn a_line_and_its_options_draw_the_same_as_k3_alone() {
    let options = [
        "--temperature",
        "0.9",
        "--seed",
        "5",
        "--repetition-penalty",
        "1.2",
        "--frequency-penalty",
        "0.4",
        "--presence-penalty",
        "-0.1",
        "--logit-bias",
        "13=1.5,10=-inf",
        "--logprobs",
        "2",
        "--gen",
        "30",
    ];
    let line = format!(
        "{{\"prompt\": \"{PROMPT}\", \"temperature\": 0.9, \"seed\": 5, \
         \"repetition_penalty\": 1.2, \"frequency_penalty\": 0.4, \"presence_penalty\": -0.1, \
         \"logit_bias\": {{\"13\": 1.5, \"10\": \"-inf\"}}, \"logprobs\": 2, \"gen\": 30}}\n"
    );
    let want = alone(&[&["--prompt", PROMPT], &options[..]].concat());
    let batch = Batch::new();
    let other = format!("{{\"prompt\": \"{PROMPT}\"}}\n");
    let by_line = batch.answers(&[&*line, &other].concat(), "line", &["--draft", "3"]);
    let by_option = batch.answers(&other, "option", &options);
    for answer in [&by_line[0], &by_option[0]] {
        assert_eq!(answer["generated_ids"], want["generated_ids"]);
        assert_eq!(answer["logprobs"], want["logprobs"]);
        assert_eq!(answer["logprobs"].as_array().unwrap().len(), 30);
        assert_eq!(answer["request"], by_line[0]["request"], "one request");
    }
    assert_eq!(by_line[1].get("logprobs"), None, "where nobody asked");
    assert_ne!(by_line[1]["generated_ids"], by_line[0]["generated_ids"]);
}

#[test]
fn stops_end_an_answer_as_they_do_alone() {
    let batch = Batch::new();
    let whole = alone(&["--prompt", PROMPT, "--gen", "40", "--temperature", "0"]);
    let text = whole["generated_text"].as_str().unwrap();
    let ids = whole["generated_ids"].as_array().unwrap();
    // Two characters in the middle, wherever tokens begin there.
    let chars: Vec<char> = text.chars().collect();
    let stop: String = chars[20..22].iter().collect();
    let end = text.find(&stop).unwrap();
    let quoted = serde_json::to_string(&stop).unwrap();
    let id = &ids[6];
    let prompts = format!(
        "{{\"prompt\": \"{PROMPT}\", \"stop\": {quoted}}}\n\
         {{\"prompt\": \"{PROMPT}\", \"stop\": [\"\\u0001\", {quoted}], \"choices\": 2}}\n\
         {{\"prompt\": \"{PROMPT}\", \"stop_ids\": [{id}]}}\n\
         {{\"prompt\": \"{PROMPT}\", \"stop_ids\": []}}\n"
    );
    let args = ["--gen", "40", "--stop-id", &ids[3].to_string()];
    let answers = batch.answers(&prompts, "out", &args);
    let at = [
        "--prompt",
        PROMPT,
        "--gen",
        "40",
        "--temperature",
        "0",
        "--stop",
        &stop,
    ];
    let want = alone(&[&at[..], &["--stop-id", &ids[3].to_string()]].concat());
    for answer in &answers[..3] {
        assert_eq!(answer["generated_ids"], want["generated_ids"]);
        assert_eq!(answer["text"], want["generated_text"]);
        assert_eq!(answer["stop_reason"], want["stop_reason"]);
    }
    let first = |id: &Value| ids.iter().position(|one| one == id).unwrap();
    let length = |answer: &Value| answer["generated_ids"].as_array().unwrap().len();
    assert_eq!(
        length(&answers[3]),
        first(id) + 1,
        "the line's and not the option's"
    );
    assert_eq!(answers[3]["stop_reason"], "stop");
    assert_eq!(
        (length(&answers[4]), &answers[4]["stop_reason"]),
        (40, &"length".into())
    );
    // Without the option's id the text decides.
    let answers = batch.answers(&prompts, "text", &["--gen", "40"]);
    assert_eq!(answers[0]["text"], text[..end]);
    assert_eq!(answers[0]["stop_reason"], "stop-string");
    assert_eq!(answers[0]["generated_ids"], answers[2]["generated_ids"]);
    let by_option = batch.answers(
        &format!("{{\"prompt\": \"{PROMPT}\"}}\n"),
        "option",
        &["--gen", "40", "--stop", &stop],
    );
    assert_eq!(by_option[0]["request"], answers[0]["request"]);
    assert_eq!(by_option[0]["text"], answers[0]["text"]);
}

#[test]
fn other_settings_are_another_request() {
    let batch = Batch::new();
    let prompts = "{\"ids\": [5, 6]}\n";
    batch.answers(prompts, "out", &["--gen", "2"]);
    for option in [
        ["--repetition-penalty", "1.1"],
        ["--frequency-penalty", "0.1"],
        ["--presence-penalty", "0.1"],
        ["--logit-bias", "9=1"],
        ["--stop", "x"],
        ["--stop-id", "9"],
        ["--logprobs", "0"],
    ] {
        let args = batch.args(prompts, "out", &[&["--gen", "2"], &option[..]].concat());
        let said = refusal(2, &args);
        assert!(
            said.contains("answers another request"),
            "{option:?}: {said}"
        );
    }
    let said = refusal(2, &batch.args(prompts, "x", &["--stop-id", "999999"]));
    assert!(
        said.contains("--stop-id") && !said.contains("line 1"),
        "{said}"
    );
    let wrong = "{\"ids\": [5], \"stop\": 3}\n{\"ids\": [5], \"logprobs\": \"x\"}\n";
    let said = refusal(2, &batch.args(wrong, "x", &[]));
    assert!(
        said.contains("line 1: \"stop\" is 3, where a text"),
        "{said}"
    );
    assert!(
        said.contains("line 2: \"logprobs\" is \"x\", where a whole"),
        "{said}"
    );
}
