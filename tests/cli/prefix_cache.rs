//! States that outlive a run, and tokens that are guessed ahead.

use serde_json::Value;

use crate::common::{k3, refusal};

#[track_caller]
fn report(args: &[&str]) -> Value {
    let all = [args, &["--json", "--quiet"]].concat();
    let output = k3().args(&all).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ids(report: &Value, key: &str) -> Vec<String> {
    let ids = report[key].as_array().unwrap().iter();
    ids.map(ToString::to_string).collect()
}

#[test]
fn a_second_turn_reads_its_new_tokens_alone_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let kept = ["--prefix-cache", directory.path().to_str().unwrap()];
    let prompt = "Fellow citizens of the Senate and of the House of Representatives: ";
    let first_args = ["--prompt", prompt, "--gen", "12", "--temperature", "0.8"];
    let first = report(&[&first_args[..], &kept].concat());
    assert_eq!(first["counts"]["reused_positions"], 0);
    assert!(first["prefix_cache"]["written_bytes"].as_u64() > Some(0));
    assert_eq!(first["generated_ids"], report(&first_args)["generated_ids"]);
    // The conversation so far, and five tokens more.
    let known = [ids(&first, "prompt_ids"), ids(&first, "generated_ids")].concat();
    let text = [known.clone(), vec!["11".to_owned(); 5]].concat().join(",");
    let second_args = ["--ids", &text, "--gen", "6"];
    let want = report(&second_args);
    for args in [
        &[][..],
        &["--memory", "60M"],
        &["--isa", "scalar"],
        &["--chunk", "3"],
    ] {
        let got = report(&[&second_args[..], &kept, args].concat());
        assert_eq!(got["generated_ids"], want["generated_ids"], "{args:?}");
        let reused = got["counts"]["reused_positions"].as_u64().unwrap();
        assert!(
            reused >= known.len() as u64 - 1,
            "{reused} of {}",
            known.len()
        );
        let positions = got["counts"]["positions"].as_u64().unwrap();
        assert!(positions <= 6 + 5, "{positions} positions");
    }
    let off = report(&[&second_args[..], &["--no-prefix-cache"]].concat());
    assert_eq!(off["prefix_cache"], Value::Null);
    // Another form of attention has other states.
    let other = report(&[&second_args[..], &kept, &["--attention", "expanded"]].concat());
    assert_eq!(other["counts"]["reused_positions"], 0);
}

#[test]
fn a_cache_that_cannot_be_had_is_refused_and_one_without_room_is_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let said = refusal(2, &["--ids", "5", "--prefix-cache", path]);
    assert!(said.contains(path), "{said}");
    let directory = tempfile::tempdir().unwrap();
    let kept = ["--prefix-cache", directory.path().to_str().unwrap()];
    let small = [
        &["--ids", "5,6", "--gen", "2", "--prefix-cache-gb", "1000B"],
        &kept[..],
    ]
    .concat();
    let told = report(&small);
    let notes = told["notes"].as_array().unwrap();
    assert!(
        notes
            .iter()
            .any(|note| note.as_str().unwrap().contains("no room")),
        "{notes:?}"
    );
}

/// Guesses show in the counts, the plan and the number of sweeps alone.
#[test]
fn guesses_change_no_token() {
    let base = [
        "--prompt",
        "The",
        "--temperature",
        "0",
        "--gen",
        "160",
        "--ignore-eos",
    ];
    let mut all = 0;
    for memory in ["60M", "64M"] {
        let memory = ["--memory", memory];
        let plain = report(&[&base[..], &memory].concat());
        let guessed = report(&[&base[..], &memory, &["--draft", "6"]].concat());
        assert_eq!(guessed["generated_ids"], plain["generated_ids"]);
        let lines = guessed["streaming"]["plan"]["lines"].as_array().unwrap();
        let log = lines
            .iter()
            .find(|line| line["kind"] == "speculation log")
            .unwrap();
        assert!(log["bytes"].as_u64() > Some(0), "{log}");
        let accepted = guessed["counts"]["accepted_tokens"].as_u64().unwrap();
        let sweeps = |report: &Value| report["counts"]["sweeps"].as_u64().unwrap();
        assert_eq!(sweeps(&guessed) + accepted, sweeps(&plain));
        all += accepted;
    }
    assert!(all > 5, "{all} guesses were right");
    let recomputed = [
        "--prompt",
        "The",
        "--gen",
        "5",
        "--draft",
        "4",
        "--recompute",
    ];
    let plain = report(&["--prompt", "The", "--gen", "5"]);
    assert_eq!(report(&recomputed)["generated_ids"], plain["generated_ids"]);
}
