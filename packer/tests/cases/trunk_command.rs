//! `k3-pack trunk` as a user has it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{k3_pack, output};
use crate::support::names;
use crate::trunk_support::{Model, all_files, pack_all, trunk_settings, wide_config};

/// `k3-pack trunk MODEL OUT…`.
fn trunk(model: &Model, outs: &[std::path::PathBuf]) -> Command {
    let mut command = k3_pack();
    command.arg("trunk").arg(model.path()).args(outs);
    command
}

#[test]
fn help_is_explained_in_80_columns() {
    for arguments in [
        &["--help"][..],
        &["synth", "--help"],
        &["trunk", "--help"],
        &["trunk", "-h"],
    ] {
        for columns in ["80", "200"] {
            let (code, help, _) = output(k3_pack().args(arguments).env("COLUMNS", columns));
            assert_eq!(code, 0);
            let wide = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{arguments:?}");
            if columns == "80" {
                insta::assert_snapshot!(arguments.join(" ").replace('-', ""), help);
            }
        }
    }
}

#[test]
fn a_trunk_is_packed_reported_and_checked() {
    let model = Model::wide(2);
    let outs = model.outs("out", 2);
    let mut command = trunk(&model, &outs);
    let (code, stdout, stderr) = output(command.args(["--stripe-weights", "2,1"]));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    for part in [
        "packed trunk of",
        "bf16-x3",
        "of raw",
        "escapes",
        "GB/s",
        "out1/trunk-01-of-02",
    ] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let (code, _, stderr) = output(trunk(&model, &outs).arg("--verify"));
    assert!(
        code == 0 && stderr.contains("blocks agree"),
        "{code}: {stderr}"
    );
    let (code, stdout, stderr) = output(trunk(&model, &outs).args(["--verify", "--json"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&result["schema"], &result["packed"]),
        (&1.into(), &serde_json::Value::Null)
    );
    assert!(
        result["verified"]["blocks"].as_u64().unwrap() > 30,
        "{result}"
    );
    let (code, _, stderr) = output(&mut trunk(&model, &outs));
    assert!(
        code == 2 && stderr.contains("--restart"),
        "{code}: {stderr}"
    );
    let mut again = trunk(&model, &outs[..1]);
    again.args(["--restart", "--verify-after", "--json", "--codec", "raw"]);
    let (code, stdout, _) = output(&mut again);
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &result["packed"]["bf16_x3_blocks"]), (0, &0.into()));
    assert_eq!(result["packed"]["blocks"], result["verified"]["blocks"]);
    let (code, stdout, stderr) = output(again.arg("--quiet"));
    assert!(
        code == 0 && stderr.is_empty() && stdout.starts_with('{'),
        "{stderr}"
    );
}

#[test]
fn programs_hear_of_every_block_that_differs() {
    let model = Model::wide(2);
    let outs = model.outs("out", 1);
    pack_all(&model.source(), &trunk_settings(&outs, 2)).unwrap();
    let file = outs[0].join("trunk-00-of-01.k3trunk");
    let mut bytes = std::fs::read(&file).unwrap();
    let (half, quarter) = (bytes.len() / 2, bytes.len() / 4);
    bytes[half] ^= 1;
    bytes[quarter] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (code, stdout, stderr) = output(trunk(&model, &outs).args(["--verify", "--json"]));
    assert!(code == 1 && stderr.contains("2 of"), "{code}: {stderr}");
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(result["verified"].is_null());
    let list = result["differences"].as_array().unwrap();
    assert_eq!(list.len(), 2, "{result}");
    assert!(stderr.contains(list[0].as_str().unwrap()), "{stderr}");
}

#[test]
fn usage_errors_are_refusals() {
    let model = Model::wide(2);
    let outs = model.outs("out", 2);
    for (arguments, wanted) in [
        (&["--stripe-weights", "1"][..], "--stripe-weights"),
        (&["--stripe-weights", "1,0"], "--stripe-weights"),
        (&["--codec", "zip"], "neither `auto` nor `raw`"),
        (&["--block-bytes", "0"], "--block-bytes"),
        (&["--block-bytes", "x"], "not a size"),
        (&["--verify", "--restart"], "cannot be used with"),
        (&["--config", "/no.json"], "no.json"),
        (&["--root", "/nowhere"], "/nowhere"),
        (&["--verify"], "out0"),
    ] {
        let (code, _, stderr) = output(trunk(&model, &outs).args(arguments));
        assert!(
            code == 2 && stderr.contains(wanted),
            "{arguments:?}: {code}: {stderr}"
        );
    }
    let (code, _, _) = output(k3_pack().arg("trunk").arg(model.path()));
    assert_eq!(code, 2);
    assert_eq!(
        names(model.dir.path()),
        ["model"],
        "nothing is made for a refusal"
    );
}

/// A child that packs slowly enough to be disturbed.
fn start(model: &Model, outs: &[std::path::PathBuf]) -> std::process::Child {
    trunk(model, outs)
        .args(["--threads", "1", "--record-bytes", "100k"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until `path` has more than `bytes`; `false` if the child ended before.
fn grows(child: &mut std::process::Child, path: &Path, bytes: u64) -> bool {
    let started = Instant::now();
    while !path.metadata().is_ok_and(|metadata| metadata.len() > bytes) {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Whether this process ignores hang-ups, as under nohup.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    u64::from_str_radix(mask.unwrap().trim(), 16).unwrap() & 1 != 0
}

#[test]
fn signals_keep_what_is_written_and_the_next_run_goes_on() {
    let model = Model::wide(12);
    let whole = model.outs("whole", 1);
    pack_all(&model.source(), &trunk_settings(&whole, 2)).unwrap();
    for signal in ["INT", "TERM", "HUP"] {
        if signal == "HUP" && hangups_are_ignored() {
            // So does whatever is started here.
            continue;
        }
        let outs = model.outs(signal, 1);
        let mut child = start(&model, &outs);
        let partial = outs[0].join("trunk-00-of-01.k3trunk.partial");
        assert!(
            grows(&mut child, &partial, 300_000),
            "{signal}: ended too soon"
        );
        let pid = child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status();
        assert!(sent.unwrap().success());
        let result = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(result.stderr).unwrap();
        assert_eq!(result.status.code(), Some(130), "{signal}: {stderr}");
        assert!(stderr.contains("Run the same command again"), "{stderr}");
        assert_eq!(
            names(&outs[0]),
            ["trunk-00-of-01.k3trunk.partial", "trunk.k3journal"]
        );
        let (code, _, stderr) = output(&mut trunk(&model, &outs));
        assert!(code == 0 && stderr.contains("resumed"), "{code}: {stderr}");
        assert!(all_files(&outs) == all_files(&whole), "{signal}");
    }
}

#[test]
fn a_limit_on_files_is_a_full_disk() {
    let model = Model::wide(4);
    let whole = model.outs("whole", 1);
    pack_all(&model.source(), &trunk_settings(&whole, 2)).unwrap();
    let outs = model.outs("out", 1);
    let mut limited = Command::new("bash");
    // In units of 1024 bytes.
    limited.args(["-c", "ulimit -f 1000; exec \"$@\"", "bash"]);
    limited
        .arg(assert_cmd::cargo::cargo_bin!("k3-pack"))
        .arg("trunk");
    limited
        .arg(model.path())
        .args(&outs)
        .args(["--record-bytes", "100k"]);
    let (code, _, stderr) = output(&mut limited);
    assert!(
        code == 3 && stderr.contains("same command"),
        "{code}: {stderr}"
    );
    let (code, _, stderr) = output(&mut trunk(&model, &outs));
    assert!(code == 0 && stderr.contains("resumed"), "{code}: {stderr}");
    assert!(all_files(&outs) == all_files(&whole));
}

/// The most memory a child had, as far as it could be watched.
fn peak_bytes(child: &mut std::process::Child) -> u64 {
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        peak = peak.max(number.unwrap_or(0) * 1024);
        std::thread::sleep(Duration::from_millis(2));
    }
    peak
}

#[test]
fn memory_stays_below_512_mib_whatever_the_threads_and_blocks() {
    if !k3_formats::gates::slow_only() {
        return;
    }
    let mut config = wide_config(9);
    (config.hidden_size, config.intermediate_size) = (4096, 33_792);
    (config.vocab_size, config.eos_token_ids) = (60_000, vec![59_999]);
    let model = Model::new(config);
    for (threads, block) in [("1", "4Mi"), ("16", "4Mi"), ("64", "4Mi"), ("64", "60Mi")] {
        let outs = model.outs("out", 2);
        let mut command = trunk(&model, &outs);
        command.args([
            "--threads",
            threads,
            "--block-bytes",
            block,
            "--restart",
            "--json",
        ]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let peak = peak_bytes(&mut child);
        let result = child.wait_with_output().unwrap();
        assert_eq!(result.status.code(), Some(0));
        let result: serde_json::Value = serde_json::from_slice(&result.stdout).unwrap();
        let packed = &result["packed"];
        println!(
            "{threads} threads, blocks of {block}: {} MB at most; {:.0} MB/s, ratio {}",
            peak / 1_000_000,
            packed["bytes_per_second"].as_f64().unwrap() / 1e6,
            packed["ratio"]
        );
        assert!(
            packed["raw_bytes"].as_u64().unwrap() > 1_000_000_000,
            "{packed}"
        );
        assert!(peak > 10_000_000 && peak <= 512 << 20, "{peak}");
        outs.iter()
            .for_each(|out| std::fs::remove_dir_all(out).unwrap());
    }
}
