//! The command as a user has it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k3_formats::KimiK3Config;
use k3_formats::synth::{Vision, config_json};

use crate::support::{names, open, small_config};

pub(crate) fn k3_pack() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("k3-pack"))
}

/// Exit code, standard output, standard error.
pub(crate) fn output(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

#[test]
fn help_and_version_go_to_standard_output() {
    let (code, version, _) = output(k3_pack().arg("--version"));
    assert_eq!(
        (code, version.as_str()),
        (0, concat!("k3-pack ", env!("CARGO_PKG_VERSION"), "\n"))
    );
    let (code, help, _) = output(k3_pack().arg("--help"));
    assert!(
        code == 0 && help.contains("Exit codes:") && help.contains("130"),
        "{help}"
    );
    let (code, help, _) = output(k3_pack().args(["synth", "--help"]));
    assert!(code == 0 && help.contains("Examples:"), "{help}");
    assert!(
        help.contains("Names, types, shapes and shards are those"),
        "{help}"
    );
    let wide = help.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None);
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for arguments in [&["--help"][..], &["--version"], &["synth", "-h"]] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let (code, _, error) = output(k3_pack().args(arguments).stdout(full.unwrap()));
        assert!(
            code == 3 && error.contains("standard output"),
            "{code}: {error}"
        );
        let mut child = k3_pack()
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn usage_errors_are_refusals() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    for arguments in [
        &["--layers", "1"][..],
        &["--experts", "0"],
        &["--seed", "x"],
    ] {
        let (code, _, error) = output(k3_pack().arg("synth").arg(&out).args(arguments));
        assert!(code == 2 && error.contains(arguments[0]), "{code}: {error}");
    }
    let (code, _, _) = output(&mut k3_pack());
    assert_eq!(code, 2);
    let missing = dir.path().join("no.json");
    let (code, _, error) = output(
        k3_pack()
            .arg("synth")
            .arg(&out)
            .arg("--config")
            .arg(&missing),
    );
    assert!(code == 2 && error.contains("no.json"), "{code}: {error}");
    assert!(names(dir.path()).is_empty());
}

fn write_config(directory: &Path, config: &KimiK3Config) -> std::path::PathBuf {
    let path = directory.join("base.json");
    std::fs::write(&path, config_json(config, Vision::Left)).unwrap();
    path
}

#[test]
fn a_small_model_is_made_reported_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let config = write_config(dir.path(), &small_config(5, 16));
    let out = dir.path().join("model");
    let mut command = k3_pack();
    command.arg("synth").arg(&out).arg("--config").arg(&config);
    command.args(["--layers", "3", "--experts", "6", "--seed", "11"]);
    let (code, stdout, stderr) = output(&mut command);
    if code == 2 && stderr.contains("to be left free") {
        k3_formats::gates::not_run("less than 5 GB are free here");
        return;
    }
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    for part in [
        "3 layers, 6 experts a layer, 4 picked",
        "in 4 shards",
        "GB/s",
    ] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert_eq!(open(&out).config().num_hidden_layers, 3);
    let (code, _, stderr) = output(&mut command);
    assert!(code == 2 && stderr.contains("--force"), "{code}: {stderr}");
    let (code, _, stderr) = output(command.args(["--force", "--quiet", "--vision"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(names(&out).len(), 3 + 1 + 2 + 2);
    let (code, _, stderr) = output(command.args(["--sparse", "--no-vision"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(names(&out).len(), 3 + 1 + 2);
    assert_eq!(names(dir.path()), ["base.json", "model"]);
}

#[test]
fn the_whole_model_does_not_fit_and_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let available = nix::sys::statvfs::statvfs(dir.path()).unwrap();
    if u128::from(available.blocks_available()) * u128::from(available.fragment_size())
        > 1_500_000_000_000
    {
        k3_formats::gates::not_run("this disk could hold the whole model");
        return;
    }
    let (code, _, stderr) = output(k3_pack().arg("synth").arg(dir.path().join("model")));
    // 1,560,860,324,864 less the vision tower.
    assert!(
        code == 2 && stderr.contains("1560.") && stderr.contains("missing"),
        "{code}: {stderr}"
    );
    assert!(names(dir.path()).is_empty());
}

#[test]
fn ctrl_c_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    // 7.9 GB, of which a moment's worth is written.
    let mut child = k3_pack()
        .arg("synth")
        .arg(&out)
        .args(["--layers", "2", "--experts", "4"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let shard = dir
        .path()
        .join("model.partial/model-00001-of-000003.safetensors");
    while !shard.exists() {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(2), "refused for lack of space");
            k3_formats::gates::not_run("less than 13 GB are free here");
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let interrupted = Instant::now();
    let result = child.wait_with_output().unwrap();
    let seconds = interrupted.elapsed().as_secs_f64();
    let stderr = String::from_utf8(result.stderr).unwrap();
    assert_eq!(result.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("nothing was kept"), "{stderr}");
    assert!(names(dir.path()).is_empty());
    // A piece for each thread, and the removal of a file.
    assert!(seconds < 10.0, "{seconds}");
    println!("ended {seconds:.2} s after the signal");
}
