//! The examination of the machine.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{fixture, json, names, program, refusal, run, stdout_of, tiny};

/// Large enough that several units of the probe lie in it.
const FILE_BYTES: usize = 24 << 20;

fn file_of_data(dir: &Path) -> String {
    let path = dir.join("weights.bin");
    fs::write(&path, b"some bytes".repeat(FILE_BYTES / 10 + 1)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(FILE_BYTES as u64).unwrap();
    file.sync_all().unwrap();
    path.display().to_string()
}

/// A copy of the tiny checkpoint.
fn copy(to: &Path) {
    for name in names(&fixture("tiny")) {
        let from = fixture("tiny").join(&name);
        if from.is_file() {
            fs::copy(from, to.join(name)).unwrap();
        }
    }
}

fn report(args: &[&str]) -> Value {
    let args = [&["doctor", "--json"], args].concat();
    json(&stdout_of(&args))
}

/// The findings of one severity, as text.
fn findings(report: &Value, severity: &str) -> String {
    let findings = report["findings"].as_array().unwrap().iter();
    let of_it = findings.filter(|finding| finding["severity"] == severity);
    let lines = of_it.map(|finding| {
        assert!(!finding["way_out"].as_str().unwrap().is_empty());
        finding["what"].as_str().unwrap().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_machine_without_a_model() {
    let report = report(&[]);
    assert_eq!(report["doctor_version"], 1);
    assert_eq!(report["usable"], true);
    assert!(report["model"].is_null());
    assert_eq!(report["disks"].as_array().unwrap().len(), 0);
    assert!(findings(&report, "less-than-ideal").contains("no disk was measured"));
    let processors = &report["processors"];
    assert!(
        processors["isas_available"]
            .as_array()
            .unwrap()
            .contains(&processors["isa"])
    );
    // The environment of these tests asks for one.
    assert_eq!(processors["threads"], 1);
    for rate in ["bf16_bytes_per_second", "mxfp4_bytes_per_second"] {
        assert!(report["arithmetic"][rate].as_f64().unwrap() > 1e6, "{rate}");
    }
    let auto = report["memory"]["auto"]["total"].as_u64().unwrap();
    assert!(auto < report["memory"]["total"].as_u64().unwrap());
    let choices = report["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 7);
    for choice in choices {
        let fits =
            choice["memory"].as_u64().unwrap() <= report["memory"]["headroom"].as_u64().unwrap();
        assert_eq!(choice["fits"], fits, "{choice}");
        assert_eq!(choice["obstacle"].is_null(), fits, "{choice}");
        assert!(choice["seconds_per_token"].is_null());
    }
}

#[test]
fn a_disk_is_measured_and_the_model_predicted_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of_data(dir.path());
    let config = fixture("tiny").join("config.json").display().to_string();
    let report = report(&[&file, "--config", &config]);
    let disk = &report["disks"][0];
    assert_eq!(disk["file_bytes"], FILE_BYTES);
    assert!(disk["not_measured"].is_null(), "{disk}");
    let rate = |cell: &Value| cell["bytes_per_second"].as_f64().unwrap();
    assert!(rate(&disk["best"]) >= rate(&disk["run"]));
    assert!(rate(&disk["knee"]) >= rate(&disk["best"]) * 0.95);
    assert_eq!(disk["run"]["request_bytes"], 1 << 20);
    assert_eq!(disk["run"]["depth"], 8);
    let cells = disk["cells"].as_array().unwrap();
    assert!(cells.len() >= 6, "{cells:?}");

    assert_eq!(report["model"]["weights_present"], false);
    let arithmetic = &report["arithmetic"];
    let per_second = |key: &str| arithmetic[key].as_f64().unwrap();
    // Both kinds of weights take their time at their own rate.
    let args = ["plan", "--config", &config, "--slots", "4", "--json"];
    let plan = json(&stdout_of(&args))["plan"].clone();
    let arithmetic_seconds = plan["pins"]["bytes_total"].as_f64().unwrap()
        / per_second("bf16_bytes_per_second")
        + plan["prediction"]["expert_bytes_per_token"]
            .as_f64()
            .unwrap()
            / per_second("mxfp4_bytes_per_second");
    for choice in report["choices"].as_array().unwrap() {
        let value = |key: &str| choice[key].as_f64().unwrap();
        let disk_seconds = value("bytes_per_token") / rate(&disk["run"]);
        assert!((value("disk_seconds") / disk_seconds - 1.0).abs() < 1e-9);
        assert!((value("arithmetic_seconds") / arithmetic_seconds - 1.0).abs() < 1e-9);
        assert_eq!(
            value("seconds_per_token"),
            value("disk_seconds").max(value("arithmetic_seconds"))
        );
    }
    // All presets hold this model whole: the smallest will do.
    assert_eq!(report["recommended"]["preset"], "floor");
}

#[test]
fn the_figures_are_those_of_the_plan() {
    let report = report(&[&tiny(), "--context", "100"]);
    assert_eq!(report["model"]["weights_present"], true);
    assert_eq!(report["context_positions"], 100);
    for name in ["floor", "laptop"] {
        let args = [
            "plan",
            &tiny(),
            "--preset",
            name,
            "--context",
            "100",
            "--json",
        ];
        let plan = json(&stdout_of(&args))["plan"].clone();
        let mut choices = report["choices"].as_array().unwrap().iter();
        let choice = choices.find(|choice| choice["preset"] == name).unwrap();
        assert_eq!(choice["planned"], plan["planned"]);
    }
    let command = report["recommended"]["command"].as_str().unwrap();
    assert!(command.contains("--context 100"), "{command}");
    // What is recommended runs.
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "hello").unwrap();
    let prompt = file.path().display().to_string();
    let words: Vec<String> = command
        .split(' ')
        .skip(1)
        .map(|word| word.replace("question.txt", &prompt))
        .collect();
    stdout_of(&[&words[..], &["--gen".to_owned(), "1".to_owned()]].concat());
}

#[test]
fn holes_do_not_pass_for_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.bin");
    File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let report = report(&[path.to_str().unwrap()]);
    let disk = &report["disks"][0];
    assert!(disk["best"].is_null() && disk["run"].is_null(), "{disk}");
    let reason = disk["not_measured"].as_str().unwrap();
    assert!(reason.contains("1 with holes"), "{reason}");
    assert!(findings(&report, "less-than-ideal").contains("holes"));
}

#[test]
fn a_scratch_file_is_measured_and_gone() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().display().to_string();
    let report = report(&[&place, "--scratch", "64M"]);
    let disk = &report["disks"][0];
    assert_eq!(disk["file_bytes"], 64_000_000);
    assert!(disk["best"]["bytes_per_second"].as_f64().unwrap() > 0.0);
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}

#[test]
fn what_makes_a_run_impossible_ends_with_1() {
    let fails = |path: &str, extra: &[&str]| {
        let args = [&["doctor", path, "--json"], extra].concat();
        let output = run(&args);
        assert_eq!(output.status.code(), Some(1), "{path}");
        let report = json(&output.stdout);
        assert_eq!(report["usable"], false);
        assert!(report["recommended"].is_null(), "{path}");
        findings(&report, "impossible")
    };
    let part = tempfile::tempdir().unwrap();
    copy(part.path());
    let shard = "model-00005-of-00011.safetensors";
    fs::remove_file(part.path().join(shard)).unwrap();
    let said = fails(part.path().to_str().unwrap(), &[]);
    assert!(said.contains(shard), "{said}");

    let foreign = tempfile::tempdir().unwrap();
    copy(foreign.path());
    let config = foreign.path().join("config.json");
    fs::write(&config, r#"{"model_type": "llama"}"#).unwrap();
    let said = fails(foreign.path().to_str().unwrap(), &[]);
    assert!(said.contains("config.json"), "{said}");

    // Half a checkpoint, either half: a run of it would be refused.
    let shards = tempfile::tempdir().unwrap();
    copy(shards.path());
    fs::remove_file(shards.path().join("config.json")).unwrap();
    let said = fails(shards.path().to_str().unwrap(), &[]);
    assert!(said.contains("no config.json"), "{said}");
    let config = fixture("tiny").join("config.json").display().to_string();
    let named = report(&[shards.path().to_str().unwrap(), "--config", &config]);
    let command = named["recommended"]["command"].as_str().unwrap();
    assert!(command.contains(&format!("--config {config}")), "{command}");
    let lone = tempfile::tempdir().unwrap();
    fs::copy(&config, lone.path().join("config.json")).unwrap();
    let said = fails(lone.path().to_str().unwrap(), &[]);
    assert!(said.contains("no shard"), "{said}");

    // A sequence that no preset has room for.
    let large = tempfile::tempdir().unwrap();
    let spec = k3_testkit::TinySpec::small(1).with(|spec| spec.shape.kv_lora = 1 << 15);
    spec.write_to(large.path()).unwrap();
    let said = fails(large.path().to_str().unwrap(), &["--context", "16777216"]);
    assert!(said.contains("no preset fits"), "{said}");
}

#[test]
fn bad_input_is_refused_by_name() {
    let cases: [(&[&str], &str); 5] = [
        (&["/no/such/place"], "/no/such/place"),
        (
            &["--config", "/no/such/config.json"],
            "/no/such/config.json",
        ),
        (&["--scratch", "1M"], "64M"),
        (&["--scratch", "much"], "much"),
        (
            &["--root", "/no/such/root", "fixtures/tiny"],
            "/no/such/root",
        ),
    ];
    for (args, word) in cases {
        let said = refusal(2, &[&["doctor"], args].concat());
        assert!(said.contains(word), "{said}");
    }
    let said = refusal(3, &["doctor", "/proc/self", "--scratch", "64M"]);
    assert!(said.contains("/proc/self"), "{said}");
}

#[test]
fn the_screen_fits_80_columns() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of_data(dir.path());
    for args in [
        &["doctor"][..],
        &["doctor", "fixtures/tiny"],
        &[
            "doctor",
            &file,
            "--config",
            "fixtures/tiny",
            "--engine",
            "pread",
        ],
    ] {
        let text = String::from_utf8(stdout_of(args)).unwrap();
        for word in [
            "processor",
            "memory",
            "reading",
            "huge pages",
            "recommended:",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        for line in text.lines().filter(|line| !line.starts_with("  k3 ")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

/// Whether the process holds a scratch file open.
fn has_scratch(pid: u32) -> bool {
    let Ok(handles) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let targets = handles.filter_map(|handle| fs::read_link(handle.ok()?.path()).ok());
    targets
        .filter_map(|target| Some(target.to_str()?.contains(".k3-doctor-")))
        .any(|is_scratch| is_scratch)
}

/// Nobody can clean up after SIGKILL: there must be nothing to clean up.
#[test]
fn a_kill_leaves_no_scratch_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = program()
        .args(["doctor", "--scratch", "4G"])
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !has_scratch(child.id()) {
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}

/// An interrupted measurement ends at once and leaves nothing behind.
#[test]
fn ctrl_c_ends_it_and_removes_the_scratch_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = program()
        .args(["doctor", "--scratch", "4G"])
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !has_scratch(child.id()) {
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-INT", &id])
        .status();
    assert!(sent.unwrap().success());
    let interrupted = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(interrupted.elapsed() < Duration::from_secs(2));
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(said.contains("interrupted"), "{said}");
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}
