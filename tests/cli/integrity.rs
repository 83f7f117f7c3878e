//! `fetch`, `verify` and `repair` as a user has them, against a hub on loopback.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use k3_pack::manifest::{ManifestJob, make};
use k3_testkit::FileImage;
use k3_testkit::hub::{HUB_REPO, Hub, HubFault};
use serde_json::Value;

use crate::common::{case, fixture, json, names, program};

/// The tiny checkpoint's own files, as a hub has them.
fn files() -> Vec<FileImage> {
    let mut files = Vec::new();
    for name in names(&fixture("tiny")) {
        if name.ends_with(".bin") || name == "expected.json" || name == "text.json" {
            continue;
        }
        let bytes = std::fs::read(fixture("tiny").join(&name)).unwrap();
        files.push(FileImage { name, bytes });
    }
    files
}

/// The binary with the hub in its environment.
fn k3(hub: &Hub) -> Command {
    let mut command = program();
    for name in [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HF_TOKEN",
    ] {
        command.env_remove(name);
    }
    command.env("HF_ENDPOINT", hub.endpoint());
    command
}

fn run(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let said = [text(stdout), text(stderr)];
    // Results within 80 columns, but for a line that one name fills and for JSON.
    for line in said[0].lines() {
        let is_name = line.split(' ').any(|word| word.len() > 50);
        let is_json = line.trim_start().starts_with(['"', '{', '}']);
        assert!(line.chars().count() <= 80 || is_name || is_json, "{line}");
    }
    let [stdout, stderr] = said;
    (status.code().unwrap(), stdout, stderr)
}

fn make_manifest(model: &Path) {
    let job = ManifestJob::new(model, &[]).unwrap();
    let out = model.join("k3-manifest.bin");
    let never = std::sync::atomic::AtomicBool::new(false);
    make(job, &out, true, None, &never, &|_| ()).unwrap();
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn shard(model: &Path, number: usize) -> PathBuf {
    model.join(format!("model-{number:05}-of-00011.safetensors"))
}

/// What does not change from run to run.
fn stable(text: &str, dir: &Path) -> String {
    let text = text.replace(&dir.display().to_string(), "DIR");
    let lines = text.lines().filter(|line| !line.starts_with("note: "));
    let time = lines.map(|line| match line.split_once("time ") {
        Some((before, _)) => format!("{before}time  …"),
        None => line.to_owned(),
    });
    time.map(|line| line + "\n").collect()
}

/// OWNER/NAME alone would fetch 1.56 TB of something else.
#[test]
fn a_repository_without_a_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fetch = |args: &[&str], endpoint: &str| {
        let mut command = crate::common::k3();
        command.current_dir(dir.path()).env("HF_ENDPOINT", endpoint);
        let output = command.arg("fetch").args(args).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, said) = fetch(&["moonshotai/Kimi-K3"], "http://127.0.0.1:9");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("k3 fetch moonshotai/Kimi-K3 DIR"), "{said}");
    assert!(!dir.path().join("moonshotai").exists());
    let (code, said) = fetch(&["some/where", "out"], "bogus");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("HF_ENDPOINT"), "{said}");
}

#[test]
fn fetched_damaged_found_mended_and_run() {
    let hub = Hub::start(&files());
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    let (code, stdout, stderr) = run(k3(&hub).arg("fetch").arg(HUB_REPO).arg(&model));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert!(
        stderr.contains("k3-pack manifest") && stderr.contains(HUB_REPO),
        "{stderr}"
    );
    for file in files() {
        assert!(
            std::fs::read(model.join(&file.name)).unwrap() == file.bytes,
            "{}",
            file.name
        );
    }
    make_manifest(&model);
    let (code, stdout, stderr) = run(k3(&hub).arg("verify").arg(&model));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert_snapshot!("good", stable(&stdout, dir.path()));
    // Two bits, in an expert and in the trunk.
    flip(&shard(&model, 3), 110_000);
    flip(&shard(&model, 9), 120_000);
    let (code, text, _) = run(k3(&hub).arg("verify").arg(&model));
    assert_eq!(code, 1, "{text}");
    assert_snapshot!("bad", stable(&text, dir.path()));
    let (code, report, _) = run(k3(&hub).arg("verify").arg(&model).arg("--json"));
    assert_eq!(code, 1);
    let bad: Value = json(report.as_bytes());
    let bytes: u64 = bad["bad"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bad| bad["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(bad["bad_bytes"], bytes);
    let list = dir.path().join("bad.json");
    std::fs::write(&list, &report).unwrap();
    hub.clear_log();
    let mut repair = k3(&hub);
    repair.arg("repair").arg(&model).arg("--bad").arg(&list);
    let (code, text, stderr) = run(&mut repair);
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    assert!(text.contains("2 mended, 0 left"), "{text}");
    assert_eq!(hub.sent_bytes(), bytes, "nothing but the bad ranges");
    let (code, stdout, _) = run(k3(&hub).arg("verify").arg(&model));
    assert_eq!(code, 0, "{stdout}");
    // It is the checkpoint it was: the same logits.
    let mut case = case("tiny", "p5", "latent");
    case.model.clone_from(&model);
    case.check(&[]);
}

#[test]
fn repair_tells_what_it_would_do_and_what_it_could_not() {
    let hub = Hub::start(&files());
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    for file in files() {
        std::fs::create_dir_all(&model).unwrap();
        std::fs::write(model.join(&file.name), &file.bytes).unwrap();
    }
    make_manifest(&model);
    flip(&shard(&model, 3), 60_000);
    let (code, _, stderr) = run(k3(&hub).arg("repair").arg(&model));
    assert!(code == 2 && stderr.contains("--from"), "{code}: {stderr}");
    let repair = || {
        let mut command = k3(&hub);
        command
            .arg("repair")
            .arg(&model)
            .args(["--from", &hub.files_address()]);
        command
    };
    let (code, text, _) = run(repair().arg("--dry-run"));
    assert!(
        code == 0 && text.contains("would be fetched") && hub.sent_bytes() == 0,
        "{text}"
    );
    hub.misbehave("safetensors", 0, usize::MAX, HubFault::FlipByte);
    let (code, text, _) = run(&mut repair());
    assert!(
        code == 1 && text.contains("0 mended, 1 left") && text.contains("other bytes"),
        "{text}"
    );
    let (code, text, _) = run(repair().arg("--json"));
    let summary = json(text.as_bytes());
    assert_eq!(code, 1);
    assert!(
        summary["ranges"][0]["fate"]["left"].is_string(),
        "{summary}"
    );
    let (code, _, stderr) = run(k3(&hub)
        .arg("repair")
        .arg(&model)
        .args(["--bad", "Cargo.toml"]));
    assert!(
        code == 2 && stderr.contains("k3 verify --json"),
        "{code}: {stderr}"
    );
}

#[test]
fn samples_layers_and_records_are_verified() {
    let hub = Hub::start(&files());
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    let (code, _, stderr) = run(k3(&hub).arg("fetch").arg(HUB_REPO).arg(&model).arg("-q"));
    assert_eq!((code, stderr.as_str()), (0, ""));
    // No manifest yet: whole files.
    let (code, text, _) = run(k3(&hub).arg("verify").arg(&model));
    assert!(
        code == 0 && text.contains("k3-fetch.json (sha256)"),
        "{text}"
    );
    flip(&shard(&model, 4), 50_000);
    let (code, text, _) = run(k3(&hub).arg("verify").arg(&model));
    assert!(
        code == 1 && text.contains("whole file") && text.contains("k3 fetch --recheck"),
        "{text}"
    );
    let (code, _, stderr) = run(k3(&hub).arg("verify").arg(&model).args(["--layer", "1"]));
    assert!(
        code == 2 && stderr.contains("k3-pack manifest"),
        "{code}: {stderr}"
    );
    let (code, text, _) = run(k3(&hub)
        .arg("fetch")
        .arg(HUB_REPO)
        .arg(&model)
        .args(["--recheck", "--json"]));
    assert_eq!(code, 0);
    let bytes = std::fs::metadata(shard(&model, 4)).unwrap().len();
    assert_eq!(json(text.as_bytes())["fetched_bytes"], bytes);
    make_manifest(&model);
    let sample = |extra: &[&str]| {
        let (code, text, _) = run(k3(&hub).arg("verify").arg(&model).arg("--json").args(extra));
        assert_eq!(code, 0, "{text}");
        json(text.as_bytes())
    };
    let third = sample(&["--sample", "30%", "--seed", "3"]);
    assert_eq!(
        (&third["selection"], &third["seed"]),
        (&"sample".into(), &3.into())
    );
    assert!(third["checked_bytes"].as_u64() < third["total_bytes"].as_u64());
    assert_eq!(sample(&["--sample", "9"])["checked_ranges"], 9);
    assert_eq!(sample(&["--layer", "2"])["layer"], 2);
    let (code, _, stderr) = run(k3(&hub).arg("verify").arg(&model).args(["--layer", "99"]));
    assert!(
        code == 2 && stderr.contains("layers 0 to"),
        "{code}: {stderr}"
    );
    for wrong in [
        &["--sample", "0"][..],
        &["--sample", "5%", "--layer", "1"],
        &["--seed", "1"],
    ] {
        assert_eq!(
            run(k3(&hub).arg("verify").arg(&model).args(wrong)).0,
            2,
            "{wrong:?}"
        );
    }
}

#[test]
fn a_token_is_shown_nowhere_and_a_bad_one_refused() {
    let hub = Hub::start(&files());
    hub.require_token("hf_secret");
    let dir = tempfile::tempdir().unwrap();
    let fetch = |token: &str| {
        let mut command = k3(&hub);
        command
            .arg("fetch")
            .arg(HUB_REPO)
            .arg(dir.path())
            .env("HF_TOKEN", token);
        run(&mut command)
    };
    let (code, _, stderr) = fetch("hf_wrong");
    assert!(
        code == 1 && stderr.contains("401") && !stderr.contains("hf_wrong"),
        "{stderr}"
    );
    let (code, _, stderr) = fetch("hf wrong");
    assert!(
        code == 2 && stderr.contains("HF_TOKEN") && !stderr.contains("hf wrong"),
        "{stderr}"
    );
    let (code, _, stderr) = fetch("hf_secret");
    assert!(code == 0 && !stderr.contains("secret"), "{stderr}");
    for name in names(dir.path()) {
        let bytes = std::fs::read(dir.path().join(&name)).unwrap();
        assert!(!bytes.windows(9).any(|part| part == b"hf_secret"), "{name}");
    }
}

/// Ends a download with `signal` when all but one file have come, and goes on
/// with it; exit code and standard error of the first.
fn ended(signal: &str) -> (Option<i32>, String) {
    let hub = Hub::start(&files());
    let name = "model-00005-of-00011.safetensors";
    hub.misbehave(name, 0, 1, HubFault::Stall(10_000, 30_000));
    let dir = tempfile::tempdir().unwrap();
    let mut command = k3(&hub);
    command.arg("fetch").arg(HUB_REPO).arg(dir.path());
    command.stderr(Stdio::piped()).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let started = Instant::now();
    let all = files();
    let is_here = |file: &&FileImage| dir.path().join(&file.name).exists();
    while all.iter().filter(is_here).count() < all.len() - 1 {
        let seconds = started.elapsed().as_secs();
        assert!(seconds < 30, "{:?}", names(dir.path()));
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    let kill = Command::new("kill").args([signal, &pid]).status();
    assert!(kill.unwrap().success());
    let interrupted = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(interrupted.elapsed() < Duration::from_secs(10));
    hub.clear_log();
    let (code, _, stderr) = run(k3(&hub).arg("fetch").arg(HUB_REPO).arg(dir.path()));
    assert_eq!(code, 0, "{stderr}");
    let asked = hub.log();
    let asked = asked.iter().filter(|exchange| exchange.body_bytes > 0);
    assert!(asked.clone().count() <= 2, "the rest of one file");
    for file in files() {
        assert!(std::fs::read(dir.path().join(&file.name)).unwrap() == file.bytes);
    }
    assert!(!dir.path().join(".k3-fetch").exists());
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn ctrl_c_keeps_what_has_come_and_says_how_to_go_on() {
    let (code, stderr) = ended("-INT");
    assert_eq!(code, Some(5), "{stderr}");
    assert!(stderr.contains("the same command goes on"), "{stderr}");
}

#[test]
fn a_download_that_is_killed_goes_on() {
    assert_eq!(ended("-KILL").0, None);
}

/// A file system that takes no more bytes, whatever it had promised before.
#[test]
fn a_disk_that_takes_no_more_is_told_and_the_download_goes_on() {
    let hub = Hub::start(&files());
    let dir = tempfile::tempdir().unwrap();
    let inner = k3(&hub);
    let mut limited = Command::new("sh");
    // 51,200 bytes a file; a write beyond is an error instead of a signal.
    let script = "ulimit -f 100; trap '' XFSZ; exec \"$0\" \"$@\"";
    limited.args(["-c", script]).arg(inner.get_program());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let (code, _, stderr) = run(limited.arg("fetch").arg(HUB_REPO).arg(dir.path()));
    assert_eq!(code, 3, "{stderr}");
    let place = dir.path().display().to_string();
    for part in [&*place, "safetensors", "cannot write", "way out"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let (code, _, stderr) = run(k3(&hub).arg("fetch").arg(HUB_REPO).arg(dir.path()));
    assert_eq!(code, 0, "{stderr}");
    for file in files() {
        assert!(std::fs::read(dir.path().join(&file.name)).unwrap() == file.bytes);
    }
}

#[test]
fn refusals_name_the_way_out() {
    let hub = Hub::start(&files());
    let dir = tempfile::tempdir().unwrap();
    let (code, _, stderr) = run(k3(&hub).arg("verify").arg(dir.path()));
    assert!(
        code == 2 && stderr.contains("k3-pack manifest"),
        "{code}: {stderr}"
    );
    let (code, _, stderr) = run(k3(&hub).arg("fetch").arg("no-owner").arg(dir.path()));
    assert!(
        code == 2 && stderr.contains("OWNER/NAME"),
        "{code}: {stderr}"
    );
    let (code, _, stderr) = run(k3(&hub).arg("fetch").arg("no/such").arg(dir.path()));
    assert!(code == 1 && stderr.contains("404"), "{code}: {stderr}");
    let (code, _, stderr) = run(k3(&hub).arg("fetch"));
    assert!(code == 2 && stderr.contains("DIR"), "{code}: {stderr}");
    assert_eq!(
        run(k3(&hub)
            .arg("fetch")
            .arg(dir.path())
            .args(["--include", "["]))
        .0,
        2
    );
}
