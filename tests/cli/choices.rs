//! Several answers to one prompt.

use std::fs;

use serde_json::Value;

use crate::common::{k3, refusal, run, stdout_of};

const BASE: [&str; 8] = [
    "--prompt",
    "It was the whale that they saw",
    "--gen",
    "7",
    "--temperature",
    "0.9",
    "--seed",
    "3",
];

#[track_caller]
fn report(extra: &[&str]) -> Value {
    let args = [&BASE[..], &["--json", "--quiet"], extra].concat();
    serde_json::from_slice(&stdout_of(&args)).unwrap()
}

#[test]
fn each_is_what_a_batch_draws_and_the_first_what_comes_alone() {
    let alone = report(&[]);
    assert_eq!(alone["choices"], Value::Null);
    let three = report(&["--choices", "3", "--logprobs", "1"]);
    let choices = three["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    assert_eq!(three["generated_ids"], alone["generated_ids"]);
    assert_eq!(three["generated_ids"], choices[0]["generated_ids"]);
    assert_eq!(three["logprobs"], choices[0]["logprobs"]);
    let prompt = three["prompt_ids"].as_array().unwrap().len() as u64;
    let positions = three["counts"]["positions"].as_u64().unwrap();
    assert_eq!(positions, prompt + 3 * 6, "the prompt is read once");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (input, output) = (path("in"), path("out"));
    let line = "{\"prompt\": \"It was the whale that they saw\", \"gen\": 7, \"seed\": 3, \
                \"temperature\": 0.9, \"choices\": 3}\n";
    fs::write(&input, line).unwrap();
    stdout_of(&["batch", &input, &output]);
    let text = fs::read_to_string(&output).unwrap();
    for (index, (line, choice)) in text.lines().zip(choices).enumerate() {
        let answer: Value = serde_json::from_str(line).unwrap();
        assert_eq!(answer["generated_ids"], choice["generated_ids"], "{index}");
        assert_eq!(answer["text"], choice["generated_text"]);
        assert_eq!(choice["choice"], index);
        assert_eq!(choice["logprobs"].as_array().unwrap().len(), 7);
        assert_eq!(
            (&choice["stop_reason"], &choice["error"]),
            (&"length".into(), &Value::Null)
        );
    }
    // The same whatever else is set.
    for extra in [
        &["--draft", "4"][..],
        &["--memory", "64M"],
        &["--resident"],
        &["--chunk", "2"],
    ] {
        let got = report(&[&["--choices", "3", "--logprobs", "1"], extra].concat());
        assert_eq!(got["choices"], three["choices"], "{extra:?}");
    }
}

#[test]
fn all_are_shown_each_below_its_number() {
    let report = report(&["--choices", "3"]);
    let texts = report["choices"].as_array().unwrap().iter().enumerate();
    let want: String = texts
        .map(|(index, choice)| {
            let text = choice["generated_text"].as_str().unwrap();
            format!("--- {} of 3 ---\n{text}\n", index + 1)
        })
        .collect();
    let args = [&BASE[..], &["--choices", "3"]].concat();
    let output = run(&args);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), want);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("21 tokens of 3 answers"), "{said}");
    // Ids where there is no vocabulary; a stop string ends one and not the others.
    let odd = crate::common::fixture("odd").display().to_string();
    let ids = ["--ids", "3,4", "--gen", "3", "--choices", "2", "--quiet"];
    let text = String::from_utf8(stdout_of(&[&[&*odd], &ids[..]].concat())).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!((lines[0], lines[2]), ("--- 1 of 2 ---", "--- 2 of 2 ---"));
    assert_eq!(lines[1], lines[3], "all are the likeliest");
    let one = [&BASE[..], &["--choices", "1", "--quiet"]].concat();
    let none = ["--ids", "3", "--gen", "0", "--choices", "3", "--quiet"];
    assert_eq!(stdout_of(&none), b"", "no headings of nothing");
    let plain = [&BASE[..], &["--quiet"]].concat();
    assert_eq!(stdout_of(&one), stdout_of(&plain));
}

#[test]
fn a_stop_string_ends_one_of_them() {
    let all = report(&["--choices", "3"]);
    let text = all["choices"][1]["generated_text"].as_str().unwrap();
    let stop: String = text.chars().skip(6).take(4).collect();
    let got = report(&["--choices", "3", "--stop", &stop]);
    let second = &got["choices"][1];
    assert_eq!(second["stop_reason"], "stop-string");
    assert_eq!(second["generated_text"], text[..text.find(&stop).unwrap()]);
    assert_eq!(
        got["choices"][0]["generated_ids"],
        all["choices"][0]["generated_ids"]
    );
}

#[test]
fn what_makes_no_sense_is_refused_or_told() {
    for extra in [
        &["--choices", "0"][..],
        &["--choices", "65"],
        &["--choices", "2", "--recompute"],
        &["--choices", "2", "--tf-check"],
        &["--choices", "2", "--save-state", "x"],
    ] {
        let said = refusal(2, &[&BASE[..], extra].concat());
        assert!(said.contains("--choices"), "{extra:?}: {said}");
    }
    let output = k3()
        .args([
            "--ids",
            "3,4",
            "--gen",
            "2",
            "--choices",
            "2",
            "--temperature",
            "0",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("all answers are the same at temperature 0"),
        "{said}"
    );
    let said = refusal(
        2,
        &[&BASE[..], &["--choices", "64", "--memory", "62M"]].concat(),
    );
    assert!(
        said.contains("is too small") || said.contains("short"),
        "{said}"
    );
}
