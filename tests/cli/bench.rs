//! `k3 bench`: what it tells and refuses. How fast anything is depends on the
//! machine, and no test asks.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{count_of, fixture, json, k3, refusal, run, stdout_of, tiny};

/// Arguments of a measurement of the tiny model with the least memory.
fn overlap(extra: &[&str]) -> Vec<String> {
    let tiny = tiny();
    let mut args = vec!["bench", "overlap", &tiny, "--buffer", "1M"];
    args.extend(extra);
    let said = refusal(2, &[&args[..], &["--memory", "1"]].concat());
    assert!(said.contains("--positions"), "{said}");
    assert!(!said.contains("--chunk"), "{said}");
    let line = said.lines().find(|line| line.contains("raise --memory"));
    let mut words = line.unwrap().split_whitespace();
    let least = words.find(|word| word.parse::<u64>().is_ok()).unwrap();
    args.extend(["--memory", least]);
    args.into_iter().map(str::to_owned).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn every_number_of_positions_has_its_triples() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("overlap.json");
    let mut args = overlap(&["--positions", "1,auto,6", "--json", "--rounds", "2"]);
    args.extend(["--out".to_owned(), out.display().to_string()]);
    let printed = stdout_of(&args);
    assert_eq!(std::fs::read(&out).unwrap(), printed);
    let report = json(&printed);
    assert_eq!(report["interrupted"], false);
    assert_eq!(report["execution"]["threads"], 1);
    let points = report["points"].as_array().unwrap();
    let positions: Vec<u64> = points
        .iter()
        .map(|point| count_of(&point["positions"]) as u64)
        .collect();
    assert!(positions.is_sorted(), "{positions:?}");
    for wanted in [1, 6] {
        assert!(positions.contains(&wanted), "{positions:?}");
    }
    let closest = points.iter().filter(|point| point["is_closest"] == true);
    assert_eq!(closest.count(), 1);
    for point in points {
        assert_eq!(point["reads_are_equal"], true);
        let trunk = number(&report["memory"]["trunk_bytes"]);
        let pinned = number(&report["memory"]["pinned_bytes"]);
        let has_head = point["positions"] == 1;
        assert_eq!(point["has_head"], has_head);
        let read = number(&point["trunk_bytes"]);
        if has_head {
            assert_eq!(read, trunk - pinned);
        } else {
            assert!(read < trunk - pinned, "{read}");
        }
        assert_eq!(
            number(&point["row_bytes"]),
            144.0 * number(&point["positions"])
        );
        let triples = point["triples"].as_array().unwrap();
        assert_eq!(triples.len(), 2);
        for side in ["wall_seconds", "io_seconds", "compute_seconds"] {
            let [a, b] = [0, 1].map(|index| number(&triples[index][side]));
            let median = number(&point[side]["median"]);
            assert!((median - (a + b) / 2.0).abs() < 1e-9, "{side}: {point}");
            assert!(a > 0.0 && b > 0.0, "{side}: {point}");
        }
    }
}

#[test]
fn the_tables_fit_80_columns_and_the_limit_decides_only_when_asked() {
    let strict = ["--positions", "2", "--limit", "0.001", "--rounds", "2"];
    let args = overlap(&strict);
    let text = String::from_utf8(stdout_of(&args)).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for part in ["wall", "I/O", "compute", "in series", "missed at 1 of 1"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let args: Vec<String> = args.into_iter().chain(["--check".to_owned()]).collect();
    assert_eq!(run(&args).status.code(), Some(1));
    let args = overlap(&["--positions", "2", "--limit", "1000", "--check"]);
    let output = run(&args);
    let text = String::from_utf8(output.stdout).unwrap();
    // On a busy machine the sides of so small a sweep may be anything.
    let (code, verdict) = match text.contains("? not comparable") {
        true => (1, "limit 1000: not known at 1 of 1"),
        false => (0, "limit 1000: kept"),
    };
    assert!(text.contains(verdict), "{text}");
    assert_eq!(output.status.code(), Some(code), "{text}");
}

#[test]
fn overlaps_that_cannot_be_measured() {
    let tiny = tiny();
    // The default budget holds all of it.
    let said = refusal(2, &["bench", "overlap", &tiny, "--buffer", "1M"]);
    assert!(said.contains("lower the budget"), "{said}");
    for wrong in ["0", "x", "1,,2", "5000", ""] {
        let args = ["bench", "overlap", &tiny, "--positions", wrong];
        let said = refusal(2, &args);
        assert!(said.contains("--positions"), "{wrong}: {said}");
    }
    let config = fixture("tiny").join("config.json").display().to_string();
    let args = ["bench", "overlap", &tiny, "--out", &config];
    let said = refusal(2, &args);
    assert!(said.contains("overwrite"), "{said}");
    let said = refusal(2, &["bench", "overlap", "/no/such/model"]);
    assert!(said.contains("/no/such/model"), "{said}");
    let said = refusal(2, &["bench", "overlap", &config]);
    assert!(said.contains("is a file"), "{said}");
    let said = refusal(2, &["bench", "overlap", &tiny, "--buffer", "99999G"]);
    assert!(
        said.contains("MemAvailable") || said.contains("memory"),
        "{said}"
    );
}

#[test]
fn every_share_of_a_token_has_a_name() {
    let tiny = tiny();
    let decode = |extra: &[&str]| {
        let args = ["bench", "decode", &tiny, "--buffer", "1M", "--rounds", "3"];
        run(&[&args[..], extra].concat())
    };
    let report = json(&decode(&["--json", "--context", "5"]).stdout);
    let phases = report["phases"].as_array().unwrap();
    let sum: f64 = phases
        .iter()
        .map(|phase| number(&phase["token_core_seconds"]))
        .sum();
    let total = number(&report["token_core_seconds"]);
    assert!((sum - total).abs() <= 1e-9 * total, "{sum} {total}");
    // Other widths than the released model's: told for itself.
    assert_eq!(report["layers"], report["target_layers"]);
    for phase in phases {
        assert_eq!(number(&phase["scale"]), 1.0, "{phase}");
        assert!(number(&phase["wall_seconds"]["median"]) >= 0.0, "{phase}");
    }
    for name in [
        "router",
        "lm_head",
        "recurrence",
        "experts w1, w3",
        "attention",
    ] {
        assert!(phases.iter().any(|phase| phase["phase"] == name), "{name}");
    }
    let text = String::from_utf8(decode(&[]).stdout).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let missed = decode(&["--limit", "0.000000001", "--check"]);
    assert_eq!(missed.status.code(), Some(1));
    assert!(String::from_utf8(missed.stdout).unwrap().contains("missed"));
}

#[test]
fn a_token_is_told_for_a_model_of_the_same_widths() {
    let tiny = tiny();
    let config = fixture("tiny").join("config.json");
    let directory = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(config).unwrap();
    let mut config = json(text.as_bytes());
    let place = match config.get_mut("text_config") {
        Some(inner) => inner,
        None => &mut config,
    };
    let hidden = count_of(&place["hidden_size"]) as u64;
    place["hidden_size"] = (2 * hidden).into();
    let other = directory.path().join("config.json");
    std::fs::write(&other, config.to_string()).unwrap();
    let other = other.display().to_string();
    let said = refusal(2, &["bench", "decode", &tiny, "--target", &other]);
    assert!(said.contains("other widths"), "{said}");
    assert!(said.contains(&other), "{said}");
}

#[test]
fn no_part_of_a_model_counts_as_nothing() {
    // The first layer has neither experts nor latent attention.
    let tiny = tiny();
    let args = ["bench", "decode", &tiny, "--layers", "1", "--buffer", "1M"];
    let report = json(&stdout_of(&[&args[..], &["--json"]].concat()));
    assert_eq!(report["target_layers"], 1, "{report}");
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("the whole model") && notes.contains("moe"),
        "{notes}"
    );
    let config = fixture("tiny").join("config.json").display().to_string();
    let said = refusal(2, &[&args[..], &["--target", &config]].concat());
    assert!(
        said.contains("moe") && said.contains("more layers"),
        "{said}"
    );
}

#[test]
fn every_measurement_computes_as_it_is_told() {
    let tiny = tiny();
    let scalar = ["--isa", "scalar", "--rounds", "1", "--json"];
    let report = json(&stdout_of(&overlap(
        &[&["--positions", "1"], &scalar[..]].concat(),
    )));
    assert_eq!(report["execution"]["isa"], "scalar");
    for what in ["decode", "prefill"] {
        let own = match what {
            "decode" => ["--buffer", "1M"],
            _ => ["--chunks", "1"],
        };
        let args = [&["bench", what, &tiny], &own[..], &scalar[..]].concat();
        let report = json(&stdout_of(&args));
        assert_eq!(report["isa"], "scalar", "{what}");
        assert!(report["fallbacks"].is_array(), "{what}: {report}");
    }
}

#[test]
fn results_do_not_overwrite_what_was_read() {
    let tiny = tiny();
    let directory = tempfile::tempdir().unwrap();
    let settings = directory.path().join("s.toml");
    let config = directory.path().join("config.json");
    std::fs::write(&settings, "threads = 1\n").unwrap();
    std::fs::copy(fixture("tiny").join("config.json"), &config).unwrap();
    let [settings, config] = [settings, config].map(|path| path.display().to_string());
    for what in ["decode", "experts", "overlap", "prefill"] {
        let cases = [
            ("--settings", &settings),
            ("--config", &config),
            ("--target", &config),
        ];
        for (flag, path) in cases {
            let is_lacking = match flag {
                "--target" => what != "decode",
                "--settings" => what == "experts",
                _ => false,
            };
            if is_lacking {
                continue;
            }
            let before = std::fs::read(path).unwrap();
            let args = ["bench", what, &tiny, flag, path, "--out", path];
            let said = refusal(2, &args);
            assert!(said.contains("overwrite"), "{what} {flag}: {said}");
            assert_eq!(std::fs::read(path).unwrap(), before, "{what} {flag}");
        }
    }
}

#[test]
fn a_buffer_beyond_the_machine_is_the_buffers_fault() {
    let tiny = tiny();
    let said = refusal(2, &["bench", "decode", &tiny, "--buffer", "99999G"]);
    assert!(said.contains("lower --buffer"), "{said}");
}

#[test]
fn a_larger_chunk_reads_less_for_each_position() {
    let tiny = tiny();
    let args = [
        "bench", "prefill", &tiny, "--chunks", "1,3", "--rounds", "2", "--memory",
    ];
    let refused = refusal(2, &[&args[..], &["1"]].concat());
    assert!(refused.contains("smaller --chunks"), "{refused}");
    let line = refused.lines().find(|line| line.contains("raise --memory"));
    let mut words = line.unwrap().split_whitespace();
    let least = words.find(|word| word.parse::<u64>().is_ok()).unwrap();
    let report = json(&stdout_of(&[&args[..], &[least, "--json"]].concat()));
    let points = report["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    let bytes = |index: usize, kind: &str| number(&points[index][kind]["median"]);
    // The trunk is read once, whatever the chunk; experts for their union.
    assert_eq!(bytes(0, "trunk_bytes"), bytes(1, "trunk_bytes"));
    assert!(bytes(1, "expert_bytes") <= 3.0 * bytes(0, "expert_bytes"));
    assert!(bytes(1, "experts") >= bytes(0, "experts"));
    let text = String::from_utf8(stdout_of(&[&args[..], &[least]].concat())).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// The code and the output of a measurement that gets an interrupt `after` its
/// start.
fn interrupted(args: &[String], after: Duration) -> (Option<i32>, Vec<u8>) {
    let mut child = std::process::Command::new(k3().get_program())
        .envs([("XDG_CONFIG_HOME", "/nowhere"), ("K3_THREADS", "1")])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(after);
    let id = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-INT", &id])
        .status();
    assert!(sent.unwrap().success());
    let started = Instant::now();
    let code = child.wait().unwrap().code();
    assert!(started.elapsed() < Duration::from_secs(1));
    let mut printed = Vec::new();
    child.stdout.unwrap().read_to_end(&mut printed).unwrap();
    (code, printed)
}

#[test]
fn an_interrupted_measurement_keeps_what_is_complete() {
    // The second number of positions takes many times as long as the first:
    // one of the doubled times lies between their ends.
    let args = overlap(&["--positions", "1,300", "--json", "--rounds", "40"]);
    let mut after = Duration::from_millis(25);
    loop {
        let (code, printed) = interrupted(&args, after);
        if code == Some(5) {
            let report = json(&printed);
            assert_eq!(report["interrupted"], true);
            assert_eq!(report["passed"], false);
            assert_eq!(report["points"].as_array().unwrap().len(), 1);
            return;
        }
        // Before the handler is there, the signal simply ends the program.
        assert!(matches!(code, Some(130) | None), "{after:?}: {code:?}");
        assert!(printed.is_empty(), "{after:?}");
        after *= 2;
    }
}

/// A file that is large enough to be measured.
fn large(directory: &Path) -> String {
    let path = directory.join("large");
    std::fs::write(&path, vec![7; 24 << 20]).unwrap();
    path.display().to_string()
}

#[test]
fn the_reader_stands_beside_the_best_cell() {
    let directory = tempfile::tempdir().unwrap();
    let large = large(directory.path());
    let out = directory.path().join("disk.json").display().to_string();
    let quick = ["--seconds", "0.001", "--rounds", "1", "--pairs", "3"];
    let args = [
        &["bench", "disk", &large, "--json", "--out", &out],
        &quick[..],
    ]
    .concat();
    let printed = stdout_of(&args);
    assert_eq!(std::fs::read(&out).unwrap(), printed);
    let report = json(&printed);
    assert_eq!(report["files"], 1);
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 1);
    let device = &devices[0];
    let cells = device["cells"].as_array().unwrap();
    let rate = |cell: &Value| number(&cell["bytes_per_second"]["median"]);
    let best = cells
        .iter()
        .max_by(|a, b| rate(a).total_cmp(&rate(b)))
        .unwrap();
    assert_eq!(device["best"], best["way"]);
    // What a run is set to.
    assert_eq!(device["reader"]["request_bytes"], 4 << 20);
    assert!(count_of(&device["reader"]["in_flight_bytes"]) <= 16 << 20);
    let pairs = device["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 3);
    let ratios = pairs.iter().map(|pair| {
        number(&pair["reader_bytes_per_second"]) / number(&pair["best_bytes_per_second"])
    });
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    assert_eq!(number(&device["ratio"]["median"]), ratios[1]);

    // The directory holds the file and the result.
    let folder = directory.path().display().to_string();
    let args = [&["bench", "disk", &folder, "--engine", "pread"], &quick[..]].concat();
    let text = String::from_utf8(stdout_of(&args)).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for part in ["2 of ", "io_uring, GB/s", "pread, GB/s", "reader / best"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let strict = [&args[..], &["--limit", "1000", "--check"]].concat();
    assert_eq!(run(&strict).status.code(), Some(1));
}

#[test]
fn disks_that_cannot_be_measured() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().display().to_string();
    let said = refusal(2, &["bench", "disk", &folder]);
    assert!(said.contains("no files"), "{said}");
    let said = refusal(2, &["bench", "disk", "/no/such/file"]);
    assert!(said.contains("/no/such/file"), "{said}");
    // Nothing in them to read.
    std::fs::write(directory.path().join("empty"), "").unwrap();
    let said = refusal(2, &["bench", "disk", &folder]);
    assert!(said.contains("holds no files to read\n"), "{said}");
    std::fs::create_dir(directory.path().join("below")).unwrap();
    let said = refusal(2, &["bench", "disk", &folder]);
    assert!(said.contains("only directories"), "{said}");
    let empty = format!("{folder}/empty");
    let pipe = format!("{folder}/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(format!("{folder}/socket")).unwrap();
    let socket = format!("{folder}/socket");
    for (path, kind) in [
        ("/dev/null", "a character device"),
        (&*pipe, "a pipe"),
        (&*socket, "a socket"),
        (&*empty, "an empty file"),
    ] {
        for command in [&["bench", "disk", path][..], &["doctor", path]] {
            let said = refusal(2, command);
            let what = format!("{path}: is {kind}");
            assert!(
                said.contains(&what) && said.contains("way out: give"),
                "{said}"
            );
        }
    }
    // Shards smaller than a block.
    let said = refusal(1, &["bench", "disk", &tiny()]);
    assert!(said.contains("4194304 bytes"), "{said}");
    let large = large(directory.path());
    let said = refusal(2, &["bench", "disk", &large, "--out", &large]);
    assert!(said.contains("overwrite"), "{said}");
    for (option, wrong) in [("--seconds", "0"), ("--seconds", "-1"), ("--limit", "0")] {
        let said = refusal(2, &["bench", "disk", &large, option, wrong]);
        assert!(said.contains(option), "{said}");
    }
    assert_eq!(run(&["bench"]).status.code(), Some(2));
}

/// Arguments of a measurement that takes little time and memory.
const QUICK: [&str; 8] = [
    "--weights",
    "16Mi",
    "--rounds",
    "2",
    "--seconds",
    "0.001",
    "--threads",
    "1,2",
];

fn kernels(extra: &[&str]) -> Vec<String> {
    let args = [&["bench", "kernels"], &QUICK[..], extra].concat();
    args.into_iter().map(str::to_owned).collect()
}

#[test]
fn kernels_stand_beside_reading_and_have_the_definitions_bits() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (out, tsv) = (file("kernels.json"), file("kernels.tsv"));
    let args = kernels(&["--json", "--out", &out, "--tsv", &tsv]);
    let printed = stdout_of(&args);
    assert_eq!(std::fs::read(&out).unwrap(), printed);
    let report = json(&printed);
    assert_eq!(report["mismatches"], 0);
    assert_eq!(report["interrupted"], false);
    let rows = report["rows"].as_array().unwrap();
    let of = |kernel: &str, threads: u64| {
        let of_kernel = |row: &&Value| row["kernel"] == kernel && row["threads"] == threads;
        rows.iter().filter(of_kernel).collect::<Vec<_>>()
    };
    // Five numbers of positions for each set; what reads weights on both numbers of threads.
    let sets = of("read", 1).len();
    for kernel in ["bf16", "mxfp4", "mxfp4 prepared"] {
        for threads in [1, 2] {
            assert_eq!(of(kernel, threads).len(), 5 * sets, "{kernel} on {threads}");
        }
        let beside = |row: &&Value| number(&row["of_read"]["median"]) > 0.0;
        assert!(of(kernel, 1).iter().all(beside));
    }
    for kernel in [
        "router",
        "kda step",
        "mix latent",
        "exp",
        "tanh",
        "situ",
        "rmsnorm",
    ] {
        assert_eq!(of(kernel, 1).len(), sets, "{kernel}");
        assert!(of(kernel, 2).is_empty());
    }
    for row in rows {
        assert!(number(&row["compared"]) > 0.0, "{row}");
    }
    assert_eq!(report["fork_join"].as_array().unwrap().len(), 1);
    let bounded = |limit: &Value| limit["what"].as_str().unwrap().contains("empty job");
    assert!(report["limits"].as_array().unwrap().iter().any(bounded));
    let tsv = std::fs::read_to_string(&tsv).unwrap();
    // A header, a line for reading on each number of threads, two for the pool.
    assert_eq!(tsv.lines().count(), 1 + 2 + rows.len() + 2);
}

#[test]
fn the_tables_of_kernels_fit_80_columns_and_limits_decide_only_when_asked() {
    let text = String::from_utf8(stdout_of(&kernels(&[]))).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for part in [
        "scalar, 1 thread",
        "/reading",
        "scores latent",
        "of other bits: 0",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // The definitions have no limits.
    let args = ["--isa", "scalar", "--kernel", "norm,kda", "--check"];
    let text = String::from_utf8(stdout_of(&kernels(&args))).unwrap();
    assert!(!text.contains("limits") && !text.contains("bf16"), "{text}");
    let args = kernels(&["--kernel", "pool", "--check", "--json"]);
    let output = run(&args);
    let report = json(&output.stdout);
    let is_kept = report["passed"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!is_kept)));
    assert_eq!(report["limits"][0]["kept"], is_kept);
}

#[test]
fn kernels_that_cannot_be_measured() {
    let said = refusal(2, &["bench", "kernels", "--weights", "99999G"]);
    assert!(said.contains("lower --weights"), "{said}");
    let said = refusal(2, &["bench", "kernels", "--weights", "1M"]);
    assert!(said.contains("16777216"), "{said}");
    let said = refusal(2, &["bench", "kernels", "--kernel", "bf17"]);
    assert!(said.contains("bf16"), "{said}");
    let said = refusal(2, &["bench", "kernels", "--isa", "sse2"]);
    assert!(said.contains("scalar"), "{said}");
    let said = refusal(2, &["bench", "kernels", "--threads", "0"]);
    assert!(said.contains("`all`"), "{said}");
    let said = refusal(
        2,
        &["bench", "kernels", "--kernel", "pool", "--threads", "1"],
    );
    assert!(said.contains("--threads above 1"), "{said}");
    let same = ["bench", "kernels", "--out", "a", "--tsv", "a"];
    let said = refusal(2, &same);
    assert!(said.contains("same file"), "{said}");
}

#[test]
fn a_disk_is_measured_with_the_shards_that_a_setting_finds() {
    let parts = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for entry in fixture("tiny").read_dir().unwrap() {
        let name = entry.unwrap().file_name();
        let is_moved = name.to_str().unwrap().starts_with("model-00003");
        std::fs::copy(
            fixture("tiny").join(&name),
            parts[usize::from(is_moved)].path().join(&name),
        )
        .unwrap();
    }
    let [model, root] = parts
        .each_ref()
        .map(|part| part.path().display().to_string());
    let args = [
        "bench",
        "disk",
        &model,
        "--pairs",
        "1",
        "--rounds",
        "1",
        "--seconds",
        "0.001",
    ];
    let said = refusal(2, &args);
    assert!(said.contains("model-00003"), "{said}");
    let output = k3().args(args).env("K3_ROOT", &root).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // All of them are there, and too small to measure anything.
    assert!(said.contains("of 11 file(s)"), "{said}");
}
