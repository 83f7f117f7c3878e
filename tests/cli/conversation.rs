//! A conversation in a file: what goes on there is one long run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{count_of, fixture, ids_of, list, names, program, refusal, run, stdout_of};

const PROMPT: &str = "It was a dark night, and the whole of the people ";
/// Everything that a draw may depend on.
const DRAWN: [&str; 8] = [
    "--temperature",
    "0.9",
    "--seed",
    "7",
    "--frequency-penalty",
    "0.5",
    "--repetition-penalty",
    "1.1",
];

#[track_caller]
fn report(args: &[&str]) -> Value {
    let all = [args, &["--json", "--quiet"]].concat();
    serde_json::from_slice(&stdout_of(&all)).unwrap()
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

/// What was taken up is told, and is no part of what was computed in that time.
#[test]
fn the_rate_of_a_prompt_leaves_out_what_was_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    let state = path(dir.path(), "talk.k3state");
    let said = |args: &[&str]| String::from_utf8(run(args).stderr).unwrap();
    let prompt_line = |said: &str| {
        let line = said.lines().find(|line| line.starts_with("prompt "));
        line.unwrap().to_owned()
    };
    let first = ["--prompt", PROMPT, "--gen", "9", "--save-state", &state];
    let first = prompt_line(&said(&first));
    assert!(!first.contains("reused"), "{first}");
    let next = said(&["--load-state", &state, "--gen", "2", "--prompt", " and"]);
    let next = prompt_line(&next);
    let words: Vec<_> = next.split([' ', ',', '(']).collect();
    let number = |at: usize| words[at].parse::<f64>().unwrap();
    let after = |word| words.iter().position(|one| *one == word).unwrap() + 1;
    let tokens = number(words.iter().position(|one| *one == "tokens").unwrap() - 1);
    let reused = number(words.iter().position(|one| *one == "of").unwrap() - 1);
    assert!(reused > 8.0 && reused < tokens, "{next}");
    let seconds = number(after("in"));
    let rate = words.iter().position(|one| one.starts_with("tokens/s"));
    let rate = number(rate.unwrap() - 1);
    // To the digits that are shown.
    let computed = rate * seconds;
    let expected = tokens - reused;
    assert!((computed / expected - 1.0).abs() < 0.5, "{next}");
}

#[test]
fn going_on_is_one_long_run() {
    let dir = tempfile::tempdir().unwrap();
    let state = path(dir.path(), "talk.k3state");
    let first = ["--prompt", PROMPT, "--gen", "9", "--save-state", &state];
    let first = report(&[&first[..], &DRAWN].concat());
    let prompt = ids_of(&first["prompt_ids"]);
    let count = prompt.len() + 9;
    assert_eq!(count_of(&first["saved_state"]["ids"]), count);
    assert_eq!(count_of(&first["saved_state"]["position"]), count - 1);
    let bytes = fs::read(&state).unwrap();
    assert_eq!(count_of(&first["saved_state"]["file_bytes"]), bytes.len());
    assert_eq!(
        fs::metadata(&state).unwrap().permissions().mode() & 0o777,
        0o600
    );
    // Without a word: also what counts the answer so far goes on.
    let long = report(&[&["--prompt", PROMPT, "--gen", "20"], &DRAWN[..]].concat());
    let long = ids_of(&long["generated_ids"]);
    for extra in [
        &[][..],
        &["--memory", "62M"],
        &["--draft", "3"],
        &["--isa", "scalar"],
    ] {
        let args = ["--load-state", &state, "--gen", "11"];
        let rest = report(&[&args[..], &DRAWN, extra].concat());
        assert_eq!(ids_of(&rest["generated_ids"]), long[9..], "{extra:?}");
        assert_eq!(count_of(&rest["counts"]["reused_positions"]), count - 1);
        let positions = count_of(&rest["counts"]["positions"]);
        let guessed = count_of(&rest["counts"]["guessed_tokens"]);
        assert_eq!(
            positions,
            11 + guessed - count_of(&rest["counts"]["accepted_tokens"])
        );
    }
    // With a word: as if all of it had been the prompt.
    let word = [
        "--load-state",
        &state,
        "--prompt",
        " and then",
        "--gen",
        "6",
    ];
    let second = report(&[&word[..], &DRAWN].concat());
    let all = ids_of(&second["prompt_ids"]);
    assert_eq!(
        all[..count],
        [prompt, ids_of(&first["generated_ids"])].concat()
    );
    let want = report(&[&["--ids", &list(&all), "--gen", "6"], &DRAWN[..]].concat());
    assert_eq!(second["generated_ids"], want["generated_ids"]);
    let new = all.len() - count;
    assert_eq!(count_of(&second["counts"]["positions"]), 1 + new + 5);
    assert_eq!(fs::read(&state).unwrap(), bytes, "loading changes nothing");
    // Saved where it came from, again and again.
    for _ in 0..2 {
        let args = ["--load-state", &state, "--save-state", &state, "--gen", "4"];
        report(&[&args[..], &DRAWN].concat());
    }
    let rest = report(&[&["--load-state", &*state, "--gen", "3"], &DRAWN[..]].concat());
    assert_eq!(ids_of(&rest["generated_ids"]), long[17..20]);
    assert_eq!(
        names(dir.path()),
        ["talk.k3state"],
        "nothing is left beside"
    );
}

#[test]
fn a_prompt_that_was_read_ahead_serves_many_questions() {
    let dir = tempfile::tempdir().unwrap();
    let state = path(dir.path(), "read.k3state");
    let read = report(&["--prompt", PROMPT, "--gen", "0", "--save-state", &state]);
    let count = count_of(&read["saved_state"]["ids"]);
    assert_eq!(count_of(&read["saved_state"]["position"]), count);
    for question in ["Why", "The end", "x"] {
        let args = [
            "--load-state",
            &state,
            "--prompt",
            question,
            "--gen",
            "5",
            "--choices",
            "2",
        ];
        let got = report(&args);
        let ids = list(&ids_of(&got["prompt_ids"]));
        let want = report(&["--ids", &ids, "--gen", "5", "--choices", "2"]);
        assert_eq!(got["choices"], want["choices"]);
        assert_eq!(count_of(&got["counts"]["reused_positions"]), count);
    }
    let said = refusal(2, &["--load-state", &state]);
    assert!(said.contains("nothing is left to compute"), "{said}");
    assert!(said.contains("--prompt"), "{said}");
}

#[test]
fn a_stop_string_ends_the_state_too() {
    let dir = tempfile::tempdir().unwrap();
    let state = path(dir.path(), "s.k3state");
    let greedy = ["--prompt", PROMPT, "--gen", "30", "--temperature", "0"];
    let whole = report(&greedy);
    let text = whole["generated_text"].as_str().unwrap();
    let stop: String = text.chars().skip(15).take(3).collect();
    let save = ["--stop", &stop, "--save-state", &state, "--draft", "6"];
    let ended = report(&[&greedy[..], &save].concat());
    let drawn = ids_of(&ended["generated_ids"]);
    assert_eq!(ended["stop_reason"], "stop-string");
    let prompt = ids_of(&ended["prompt_ids"]).len();
    assert_eq!(count_of(&ended["saved_state"]["ids"]), prompt + drawn.len());
    let rest = report(&["--load-state", &state, "--gen", "5", "--temperature", "0"]);
    let all = ids_of(&whole["generated_ids"]);
    assert_eq!(
        ids_of(&rest["generated_ids"]),
        all[drawn.len()..drawn.len() + 5]
    );
}

#[test]
fn what_does_not_belong_is_refused_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let state = path(dir.path(), "a.k3state");
    report(&["--prompt", PROMPT, "--gen", "3", "--save-state", &state]);
    let bytes = fs::read(&state).unwrap();
    let refused = |code, extra: &[&str]| {
        let args = [&["--load-state", &*state, "--gen", "2"], extra].concat();
        refusal(code, &args)
    };
    let tiny = fixture("tiny").display().to_string();
    for (extra, says) in [
        (&[&*tiny][..], "made with checkpoint"),
        (&["--attention", "expanded"], "attention form latent"),
        (&["--layers", "3"], "made with layer count"),
        (&["--context", "12"], "--context"),
        (&["--recompute"], "--load-state"),
    ] {
        let said = refused(2, extra);
        assert!(said.contains(says), "{extra:?}: {said}");
    }
    for length in [0, 7, 100, 140, bytes.len() - 1] {
        fs::write(&state, &bytes[..length]).unwrap();
        let said = refused(2, &[]);
        assert!(said.contains("a.k3state: offset"), "{length}: {said}");
    }
    for at in [3, 9, 60, 130] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        fs::write(&state, damaged).unwrap();
        assert!(refused(2, &[]).contains("a.k3state: offset"), "{at}");
    }
    // Damage of the state itself is found when it is read.
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 4;
    fs::write(&state, &damaged).unwrap();
    let output = run(&["--load-state", &state, "--gen", "2", "--save-state", &state]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty());
    assert!(
        said.contains("error:") && said.contains("hash of chunk 0"),
        "{said}"
    );
    assert_eq!(
        fs::read(&state).unwrap(),
        damaged,
        "it stays for whoever looks"
    );
    fs::remove_file(&state).unwrap();
    let said = refused(2, &[]);
    assert!(
        said.contains("no such file") && said.contains("--save-state wrote"),
        "{said}"
    );
    assert_eq!(names(dir.path()), Vec::<String>::new());
}

#[test]
fn nothing_but_a_conversation_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| path(dir.path(), name);
    fs::write(at("notes"), "my notes").unwrap();
    fs::write(at("empty"), "").unwrap();
    for name in ["notes", "empty"] {
        let said = refusal(2, &["--ids", "3", "--save-state", &at(name)]);
        assert!(said.contains("would overwrite a file"), "{said}");
    }
    let said = refusal(2, &["--ids", "3", "--save-state", "/dev/null"]);
    assert!(said.contains("what is no file"), "{said}");
    let nowhere = at("no/such/place");
    let said = refusal(2, &["--ids", "3", "--save-state", &nowhere]);
    assert!(said.contains("cannot create the file"), "{said}");
    let both = ["--ids", "3", "--save-state", &at("x"), "--out", &at("x")];
    assert!(refusal(2, &both).contains("name the same file"));
    assert_eq!(fs::read(at("notes")).unwrap(), b"my notes");
    // Through a link, and what a killed run left is gone.
    report(&["--ids", "3,4", "--gen", "1", "--save-state", &at("real")]);
    std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
    fs::write(at(".real.1-0.partial"), "x").unwrap();
    report(&["--ids", "3,4,5", "--gen", "1", "--save-state", &at("link")]);
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(names(dir.path()), ["empty", "link", "notes", "real"]);
    let got = report(&["--load-state", &at("real"), "--gen", "1"]);
    assert_eq!(ids_of(&got["prompt_ids"])[..3], [3, 4, 5]);
    let over = [
        "--load-state",
        &at("real"),
        "--gen",
        "1",
        "--out",
        &at("link"),
    ];
    assert!(refusal(2, &over).contains("would overwrite the saved conversation"));
}

/// Starts a run of many tokens and sends it `signal` once it has shown some.
fn interrupted(args: &[&str], signal: &str) -> (Option<i32>, Vec<u8>, String) {
    let mut child = program()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut shown = vec![0; 24];
    std::io::Read::read_exact(&mut stdout, &mut shown).unwrap();
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status();
    assert!(sent.unwrap().success());
    let started = Instant::now();
    std::io::Read::read_to_end(&mut stdout, &mut shown).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(20));
    let said = String::from_utf8(ended.stderr).unwrap();
    (ended.status.code(), shown, said)
}

#[test]
fn an_interrupted_run_is_saved_and_a_killed_one_leaves_the_former() {
    let dir = tempfile::tempdir().unwrap();
    let state = path(dir.path(), "i.k3state");
    let out = path(dir.path(), "run.json");
    let many = [
        "--prompt",
        PROMPT,
        "--gen",
        "2000",
        "--temperature",
        "0",
        "--ignore-eos",
    ];
    let save = ["--save-state", &state, "--out", &out];
    let (code, _, said) = interrupted(&[&many[..], &save].concat(), "-INT");
    assert_eq!(code, Some(5), "{said}");
    let kept: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_eq!(kept["stop_reason"], "interrupted");
    let drawn = ids_of(&kept["generated_ids"]);
    let prompt = ids_of(&kept["prompt_ids"]).len();
    assert_eq!(count_of(&kept["saved_state"]["ids"]), prompt + drawn.len());
    let go_on = [
        "--load-state",
        &state,
        "--gen",
        "4",
        "--temperature",
        "0",
        "--ignore-eos",
    ];
    let rest = report(&go_on);
    let all = (drawn.len() + 4).to_string();
    let whole = [
        "--prompt",
        PROMPT,
        "--gen",
        &all,
        "--temperature",
        "0",
        "--ignore-eos",
    ];
    let whole = ids_of(&report(&whole)["generated_ids"]);
    assert_eq!(ids_of(&rest["generated_ids"]), whole[drawn.len()..]);
    let before = fs::read(&state).unwrap();
    let (code, ..) = interrupted(&[&many[..], &save].concat(), "-KILL");
    assert_eq!(code, None);
    assert_eq!(fs::read(&state).unwrap(), before);
    // The next run removes what the killed one left.
    report(&["--ids", "3", "--gen", "1", "--save-state", &state]);
    assert!(
        !names(dir.path())
            .iter()
            .any(|name| name.ends_with(".partial"))
    );
}
