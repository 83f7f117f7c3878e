//! Reading as it goes: the same bytes at every budget, and what is told of it.

use serde_json::Value;

use crate::common::{case, cases, json, refusal, run, stdout_of, tiny};

/// The smallest budget that `extra` is accepted with.
pub(crate) fn smallest(extra: &[&str]) -> u64 {
    let case = case("tiny", "p12", "latent");
    let mut args = case.args();
    args.extend(["--gen", "24", "--memory", "1"].map(str::to_owned));
    args.extend(extra.iter().map(|&arg| arg.to_owned()));
    let said = refusal(2, &args);
    let line = said.lines().find(|line| line.contains("raise --memory"));
    let mut words = line.unwrap().split_whitespace();
    words.find_map(|word| word.parse().ok()).unwrap()
}

/// The report of the tiny model's second prompt with `extra` arguments.
pub(crate) fn report(extra: &[&str]) -> Value {
    let mut args = case("tiny", "p12", "latent").args();
    args.extend(["--gen", "6", "--json"].map(str::to_owned));
    args.extend(extra.iter().map(|&arg| arg.to_owned()));
    json(&stdout_of(&args))
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn every_budget_gives_the_same_bytes() {
    let case = case("tiny", "p12", "latent");
    let least = smallest(&[]);
    // The whole model is two and a half million bytes more.
    for step in 0..=6 {
        let memory = (least + step * 400_000).to_string();
        case.check(&["--memory", &memory]);
    }
    for memory in ["1G", "auto", "floor"] {
        case.check(&["--memory", memory]);
    }
    case.check(&["--resident"]);
}

#[test]
fn engines_pins_policies_slots_and_blocks_change_no_byte() {
    let least = smallest(&["--slots", "4"]).to_string();
    for checkpoint in ["tiny", "odd"] {
        for case in cases(checkpoint)
            .into_iter()
            .filter(|case| case.name == "p12")
        {
            for extra in [
                &["--engine", "pread", "--pins", "prefix"][..],
                &["--engine", "uring", "--pins", "spread"],
                &["--policy", "lru", "--slots", "9"],
                &["--policy", "decayed-frequency", "--slots", "9"],
                &["--policy", "deep-layers", "--slots", "9", "--chunk", "3"],
                &["--slots", "4"],
                &["--block-bytes", "1", "--memory", "64M"],
                &["--block-bytes", "1MiB"],
                &["--trunk-gb", "0.0003", "--cache-gb", "0.0001"],
                &["--trunk-gb", "0", "--cache-gb", "0", "--threads", "1"],
            ] {
                case.check(extra);
            }
        }
    }
    let case = case("tiny", "p12", "latent");
    case.check(&["--slots", "4", "--memory", &least]);
    case.check(&[
        "--recompute",
        "--chunk",
        "5",
        "--memory",
        &smallest(&[]).to_string(),
    ]);
}

#[test]
fn payload_bytes_are_exact_from_the_second_sweep_on() {
    let memory = (smallest(&[]) + 500_000).to_string();
    let report = report(&["--memory", &memory, "--chunk", "4"]);
    let streaming = &report["streaming"];
    let plan = &streaming["plan"];
    let trunk = number(&plan["pins"]["bytes_total"]);
    let pinned = number(&plan["pins"]["bytes"]);
    assert!(0 < pinned && pinned < trunk, "{pinned} of {trunk}");
    let head = number(&plan["prediction"]["head_bytes_per_sweep"]);
    let per_sweep = number(&plan["prediction"]["trunk_bytes_per_sweep"]);
    let sweeps = streaming["sweeps"].as_array().unwrap();
    // Three chunks of the prompt and five steps after the first token.
    assert_eq!(sweeps.len(), 8);
    let positions: Vec<u64> = sweeps
        .iter()
        .map(|sweep| number(&sweep["positions"]))
        .collect();
    assert_eq!(positions, [4, 4, 4, 1, 1, 1, 1, 1]);
    let expert = 3264;
    for (index, sweep) in sweeps.iter().enumerate() {
        let misses = number(&sweep["misses"]);
        assert_eq!(number(&sweep["expert_read_bytes"]), misses * expert);
        assert_eq!(number(&sweep["embedding_bytes"]), 144 * positions[index]);
        assert_eq!(sweep["is_prompt"], index < 3);
        let read = number(&sweep["trunk_read_bytes"]);
        // The first sweep fills the pins, and the first two leave out the
        // head, whose pins the third fills.
        match index {
            0 | 2 => assert!(read > per_sweep - head, "{index}"),
            1 => assert_eq!(read, per_sweep - head),
            _ => assert_eq!(read, per_sweep),
        }
    }
    let sum = |key: &str| -> u64 { sweeps.iter().map(|sweep| number(&sweep[key])).sum() };
    let bytes = &streaming["bytes"];
    for key in [
        "trunk_read_bytes",
        "trunk_pinned_bytes",
        "expert_read_bytes",
    ] {
        assert_eq!(number(&bytes[key]), sum(key), "{key}");
    }
    assert_eq!(
        number(&report["counts"]["trunk_bytes"]),
        sum("trunk_read_bytes") + sum("trunk_pinned_bytes")
    );
    let payload = sum("trunk_read_bytes") + sum("expert_read_bytes") + sum("embedding_bytes");
    assert!(number(&bytes["device_bytes"]) >= payload);
}

#[test]
fn the_report_keeps_plan_and_peak_side_by_side() {
    let report = report(&["--memory", "64M", "--engine", "pread"]);
    let streaming = &report["streaming"];
    assert_eq!(report["execution"]["source"], "streaming");
    let memory = &streaming["memory"];
    assert_eq!(memory["budget_bytes"], 64_000_000);
    let planned = number(&memory["planned_bytes"]);
    assert_eq!(streaming["plan"]["planned"], planned);
    let peak = number(&memory["peak_bytes"]);
    assert!(peak > 1_000_000 && peak <= planned, "{peak} of {planned}");
    assert_eq!(streaming["engine"]["kind"], "pread");
    let share = |value: &Value| value.as_f64().unwrap();
    assert!((0.0..=1.0).contains(&share(&streaming["time"]["io_share"])));
    assert!(share(&streaming["time"]["overlap"]) > 0.0);
    assert_eq!(share(&streaming["cache"]["pinned_share"]), 1.0);
    let cache = &streaming["cache"];
    let (hits, misses) = (number(&cache["hits"]), number(&cache["misses"]));
    assert!(hits > 0 && misses > 0);
    assert_eq!(number(&report["counts"]["experts"]), hits + misses);

    let resident = self::report(&["--resident"]);
    assert!(resident["streaming"].is_null());
    assert_eq!(resident["execution"]["source"], "resident");
}

#[test]
fn the_report_for_a_person_fits_80_columns() {
    let output = run(&[
        "fixtures/tiny",
        "--ids",
        "3,4,5",
        "--gen",
        "2",
        "--memory",
        "64M",
    ]);
    let text = String::from_utf8(output.stderr).unwrap();
    for word in ["memory", "planned", "pinned", "hits", "overlap", "streamed"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn a_budget_that_is_too_small_is_refused_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run.json").display().to_string();
    let said = refusal(2, &[&tiny(), "--ids", "3", "--memory", "1M", "--out", &out]);
    for word in [
        "1.00 MB",
        "process baseline",
        "raise --memory to",
        "--chunk",
        "--gen",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    let exact = smallest(&[]);
    let case = case("tiny", "p12", "latent");
    case.check(&["--memory", &exact.to_string()]);
    let mut args = case.args();
    let less = (exact - 1).to_string();
    args.extend(["--gen", "24", "--memory", &less].map(str::to_owned));
    refusal(2, &args);
}

#[test]
fn keeping_everything_in_memory_excludes_a_budget() {
    for extra in [
        ["--memory", "1G"],
        ["--policy", "lru"],
        ["--engine", "pread"],
    ] {
        let said = refusal(
            2,
            &[&tiny(), "--ids", "3", "--resident", extra[0], extra[1]],
        );
        assert!(said.contains("--resident"), "{said}");
    }
}

#[test]
fn a_row_for_every_sweep_where_one_is_asked_for() {
    let mut args = case("tiny", "p12", "latent").args();
    args.retain(|arg| arg != "--quiet");
    args.extend(["--gen", "3", "--chunk", "5", "--per-token"].map(str::to_owned));
    let output = run(&args);
    let text = String::from_utf8(output.stderr).unwrap();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("sweep "));
    let header: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(header[..4], ["sweep", "of", "tokens", "seconds"]);
    let rows: Vec<Vec<_>> = lines
        .map(|line| line.split_whitespace().collect())
        .collect();
    let of: Vec<_> = rows.iter().map(|row| row[..3].to_vec()).collect();
    // 12 ids in chunks of 5; the first token's sweep belongs to the prompt.
    let want = [
        ["1", "prompt", "5"],
        ["2", "prompt", "5"],
        ["3", "prompt", "2"],
        ["4", "token", "1"],
        ["5", "token", "1"],
    ];
    assert_eq!(of, want);
    refusal(
        2,
        &[&args[0], "--ids", "1", "--per-token", "--quiet"].map(str::to_owned),
    );
}
