//! `scripts/install.sh`, on programs that are built already.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use assert_cmd::cargo::cargo_bin;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/install.sh")
}

/// A directory with both programs. Of the packer any program will do: it is
/// installed, not run.
fn programs() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["k3", "k3-pack"] {
        fs::copy(cargo_bin!("k3"), directory.path().join(name)).unwrap();
    }
    directory
}

fn install(args: &[&str]) -> Output {
    Command::new("sh")
        .arg(script())
        .args(args)
        .output()
        .unwrap()
}

/// A program of the shell in `directory`.
fn tool(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// The variable PATH, `directory` first.
fn path_with(directory: &Path) -> String {
    let path = std::env::var("PATH").unwrap();
    format!("{}:{path}", directory.display())
}

fn said(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(all).unwrap()
}

/// Every file below `root`, by its name from there.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    found
}

#[test]
fn everything_is_installed_and_nothing_is_left_afterwards() {
    let programs = programs();
    let bin_dir = programs.path().display().to_string();
    let root = tempfile::tempdir().unwrap();
    let prefix = root.path().join("usr local").display().to_string();
    let args = ["--prefix", &prefix, "--bin-dir", &bin_dir];
    let output = install(&args);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("PATH"), "{}", said(&output));
    let installed = files(Path::new(&prefix));
    for name in [
        "bin/k3",
        "bin/k3-pack",
        "share/man/man1/k3.1",
        "share/man/man1/k3-bench-disk.1",
        "share/man/man1/k3-pack-trunk.1",
        "share/bash-completion/completions/k3-pack",
        "share/zsh/site-functions/_k3",
        "share/fish/vendor_completions.d/k3.fish",
    ] {
        assert!(installed.contains(name), "{name} of {installed:?}");
    }
    let version = Command::new(Path::new(&prefix).join("bin/k3"))
        .arg("-V")
        .output();
    assert!(version.unwrap().status.success());
    // Again, with a page of an older one that this one does not have.
    let old = Path::new(&prefix).join("share/man/man1/k3-old.1");
    fs::write(&old, "").unwrap();
    let list = Path::new(&prefix).join("share/k3/installed-files");
    let listed = fs::read_to_string(&list).unwrap() + "share/man/man1/k3-old.1\n";
    fs::write(&list, listed).unwrap();
    assert_eq!(install(&args).status.code(), Some(0));
    assert_eq!(files(Path::new(&prefix)), installed);
    // Only what it wrote goes.
    let own = Path::new(&prefix).join("bin/own");
    fs::write(&own, "").unwrap();
    let output = install(&["--prefix", &prefix, "--uninstall"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(files(Path::new(&prefix)), ["bin/own".to_owned()].into());
}

#[test]
fn packagers_put_it_below_another_root() {
    let programs = programs();
    let bin_dir = programs.path().display().to_string();
    let root = tempfile::tempdir().unwrap();
    let destdir = root.path().display().to_string();
    let args = [
        "--destdir",
        &destdir,
        "--prefix",
        "/usr",
        "--bin-dir",
        &bin_dir,
    ];
    let output = install(&args);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(root.path().join("usr/bin/k3").exists());
}

#[test]
fn what_cannot_be_done_is_said() {
    let empty = tempfile::tempdir().unwrap();
    let place = empty.path().display().to_string();
    let missing = ["--prefix", &place, "--bin-dir", &place];
    let nothing = ["--prefix", &place, "--uninstall"];
    let unknown = ["--perfix", &place];
    for (args, code, part) in [
        (&missing[..], 1, "no such program"),
        (&nothing, 1, "nothing to remove"),
        (&unknown, 2, "unknown option --perfix"),
        (&["--prefix"], 2, "needs a directory"),
        (&["--prefix", ""], 2, "no name"),
    ] {
        let output = install(args);
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(said(&output).contains(part), "{}", said(&output));
    }
    assert!(files(empty.path()).is_empty());
    let help = install(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(said(&help).lines().all(|line| line.chars().count() <= 80));
    // A list that somebody else wrote removes nothing.
    let share = empty.path().join("share/k3");
    fs::create_dir_all(&share).unwrap();
    let kept = empty.path().join("kept");
    fs::write(&kept, "").unwrap();
    fs::write(share.join("installed-files"), "share/../kept\n").unwrap();
    assert_eq!(install(&nothing).status.code(), Some(1));
    assert!(kept.exists());
}

#[test]
fn it_builds_what_the_readme_builds_and_takes_it_from_where_cargo_put_it() {
    let programs = programs();
    let source = tempfile::tempdir().unwrap();
    let scripts = source.path().join("scripts");
    fs::create_dir(&scripts).unwrap();
    fs::copy(script(), scripts.join("install.sh")).unwrap();
    let tools = tempfile::tempdir().unwrap();
    // Stands for cargo: puts the programs where it is told, and says what it was told.
    let cargo = format!(
        "echo \"$@\" >> cargo-said\n\
         while [ $# -gt 0 ] && [ \"$1\" != --target-dir ]; do shift; done\n\
         mkdir -p \"$2/release\" && cp {}/* \"$2/release\"",
        programs.path().display()
    );
    tool(tools.path(), "cargo", &cargo);
    let elsewhere = tempfile::tempdir().unwrap();
    let prefix = elsewhere.path().join("own");
    let absolute = elsewhere.path().join("built").display().to_string();
    for (variable, built) in [
        (None, source.path().join("target")),
        (Some("out"), source.path().join("out")),
        (Some(&*absolute), PathBuf::from(&absolute)),
    ] {
        let mut command = Command::new("sh");
        command.env_remove("CARGO_TARGET_DIR");
        if let Some(variable) = variable {
            command.env("CARGO_TARGET_DIR", variable);
        }
        let output = command
            .arg(scripts.join("install.sh"))
            .arg("--prefix")
            .arg(&prefix)
            .current_dir(elsewhere.path())
            .env("PATH", path_with(tools.path()))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(built.join("release/k3").exists(), "{variable:?}");
        assert!(prefix.join("bin/k3").exists());
        fs::remove_dir_all(&prefix).unwrap();
    }
    let told = fs::read_to_string(source.path().join("cargo-said")).unwrap();
    assert_eq!(told.lines().count(), 3);
    // No selection of packages: as in the README.
    assert!(
        told.lines()
            .all(|line| line.starts_with("build --release --locked --target-dir /")),
        "{told}"
    );
}

#[test]
fn what_fails_says_so_once_and_leaves_nothing_half_written() {
    let programs = programs();
    let bin_dir = programs.path().display().to_string();
    let root = tempfile::tempdir().unwrap();
    // Nothing can be made below a file.
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let prefix = file.display().to_string();
    let output = install(&["--prefix", &prefix, "--bin-dir", &bin_dir]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    assert!(said(&output).contains("another --prefix"));
    // A file that cannot get its name.
    let tools = tempfile::tempdir().unwrap();
    tool(tools.path(), "mv", "echo mv: no room >&2; exit 1");
    let prefix = root.path().join("own");
    let output = Command::new("sh")
        .arg(script())
        .arg("--prefix")
        .arg(&prefix)
        .args(["--bin-dir", &bin_dir])
        .env("PATH", path_with(tools.path()))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    assert!(said(&output).contains("no room"), "{}", said(&output));
    let left = files(&prefix);
    assert_eq!(left, ["share/k3/installed-files".to_owned()].into());
}
