//! Traces replayed against a cache.

use insta::assert_snapshot;

use crate::common::{case, count_of, json, refusal, stdout_of};

/// The trace of a run on the tiny checkpoint.
fn trace() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut args = case("tiny", "p12", "latent").args();
    let path = file.path().display().to_string();
    args.extend(["--gen", "6", "--dump-trace", &path].map(str::to_owned));
    stdout_of(&args);
    file
}

/// Picks of a position in a layer of the tiny checkpoint.
fn top_k(trace: &std::path::Path) -> String {
    let bytes = std::fs::read(trace).unwrap();
    let layer = |at: usize| i32::from_le_bytes(bytes[8 * at..8 * at + 4].try_into().unwrap());
    let first = (0..).take_while(|at| layer(*at) == layer(0)).count();
    (first / 12).to_string()
}

#[test]
fn a_table_for_a_person() {
    let file = trace();
    let path = file.path().display().to_string();
    let top_k = top_k(file.path());
    let args = [
        "replay",
        &path,
        "--topk",
        &top_k,
        "--slots",
        "8,16,32,70",
        "--expert-bytes",
        "3264",
    ];
    let text = String::from_utf8(stdout_of(&args)).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert_snapshot!(text);
}

#[test]
fn a_cache_for_every_expert_hits_all_that_repeats() {
    let file = trace();
    let path = file.path().display().to_string();
    let top_k = top_k(file.path());
    for policy in ["deep-layers", "lru", "decayed-frequency", "belady"] {
        for model in ["pick", "batch"] {
            let args = [
                "replay", &path, "--topk", &top_k, "--slots", "70", "--policy", policy, "--model",
                model, "--json",
            ];
            let report = json(&stdout_of(&args));
            assert_eq!(
                (&report["policy"], &report["model"]),
                (&policy.into(), &model.into())
            );
            let row = &report["rows"][0];
            assert_eq!(row["all"], row["belady"]["all"], "{policy} {model}");
            let read = count_of(&row["all"]["requests"]) - count_of(&row["all"]["hits"]);
            assert!(read <= 70, "{read} experts read, of 70");
            assert_eq!(row["steps"].as_array().unwrap().len(), 6);
        }
    }
}

#[test]
fn traces_and_settings_that_do_not_go_together() {
    let file = trace();
    let path = file.path().display().to_string();
    let said = refusal(2, &["replay", &path, "--topk", "11"]);
    assert!(said.contains("--topk"), "{said}");
    let top_k = top_k(file.path());
    let said = refusal(
        2,
        &[
            "replay",
            &path,
            "--topk",
            &top_k,
            "--slots",
            "4",
            "--transit",
            "5",
        ],
    );
    assert!(said.contains("4 slots"), "{said}");
    let said = refusal(
        2,
        &[
            "replay",
            &path,
            "--topk",
            &top_k,
            "--prompt-positions",
            "999",
        ],
    );
    assert!(said.contains("999"), "{said}");
    for (option, value) in [
        ("--policy", "lur"),
        ("--model", "batches"),
        ("--slots", "0"),
        ("--topk", "0"),
        ("--expert-bytes", "0"),
    ] {
        let said = refusal(2, &["replay", &path, option, value]);
        assert!(said.contains(option) && said.contains(value), "{said}");
    }
    refusal(2, &["replay", "/no/such/trace"]);
    let empty = tempfile::NamedTempFile::new().unwrap();
    refusal(2, &["replay", &empty.path().display().to_string()]);
    std::fs::write(empty.path(), [1, 2, 3]).unwrap();
    let said = refusal(1, &["replay", &empty.path().display().to_string()]);
    assert!(said.contains(&*empty.path().to_string_lossy()), "{said}");
}

#[test]
#[allow(clippy::print_stdout, reason = "tells why nothing was checked")]
fn the_recorded_trace_of_the_released_model() {
    let Some(data) = std::env::var_os("K3_REFERENCE_DATA") else {
        println!("not run: K3_REFERENCE_DATA is not set");
        return;
    };
    let path = std::path::Path::new(&data).join("real/expert_trace.bin");
    let path = path.display().to_string();
    let args = [
        "replay",
        &path,
        "--last-pass",
        "--policy",
        "lru",
        "--model",
        "pick",
        "--slots",
        "2073,2802,3531,4386",
        "--json",
    ];
    let report = json(&stdout_of(&args));
    let rows = report["rows"].as_array().unwrap();
    let last = |row: &serde_json::Value| {
        let share = row["final_step"]["hit_percent"].as_f64().unwrap();
        format!("{share:.2}")
    };
    let last: Vec<String> = rows.iter().map(last).collect();
    assert_eq!(last, ["29.89", "32.20", "33.08", "35.53"]);
}
