//! A directory in which the names that documents use stand for something small.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use k3_testkit::FileImage;
use k3_testkit::hub::Hub;

/// Files of a fixture that belong to a checkpoint.
fn is_part(name: &str) -> bool {
    !(name.ends_with(".bin") || matches!(name, "expected.json" | "text.json"))
}

/// Where the commands of one document are run.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    hub: Hub,
}

impl Place {
    /// With `Kimi-K3` and `r8` (a small checkpoint each, of the same layout),
    /// `question.txt`, `fixtures`, the programs on the path and below
    /// `target/release`, and a hub that has `moonshotai/Kimi-K3`.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tiny = root.join("fixtures/tiny");
        let mut files = Vec::new();
        for entry in tiny.read_dir().unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if is_part(&name) {
                let bytes = std::fs::read(tiny.join(&name)).unwrap();
                files.push(FileImage { name, bytes });
            }
        }
        let at = directory.path();
        for model in ["Kimi-K3", "r8"] {
            std::fs::create_dir(at.join(model)).unwrap();
            for file in &files {
                std::fs::write(at.join(model).join(&file.name), &file.bytes).unwrap();
            }
        }
        std::fs::write(at.join("question.txt"), "hello and").unwrap();
        for drive in ["nvme0", "nvme1"] {
            std::fs::create_dir(at.join(drive)).unwrap();
        }
        for name in ["fixtures", "scripts", "examples"] {
            symlink(root.join(name), at.join(name)).unwrap();
        }
        // One copy of the built-in model for all of them, each where a user has it.
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        std::fs::create_dir_all(&cache).unwrap();
        std::fs::create_dir_all(at.join("home/.cache")).unwrap();
        symlink(cache, at.join("home/.cache/k3")).unwrap();
        let release = at.join("target/release");
        std::fs::create_dir_all(&release).unwrap();
        std::fs::write(at.join("large-file"), vec![1; 8 << 20]).unwrap();
        symlink(assert_cmd::cargo::cargo_bin!("k3"), at.join("target/k3")).unwrap();
        script(&release.join("k3"), K3);
        script(&release.join("cargo"), CARGO);
        // This very program, which is the packer under that name.
        let own = std::env::current_exe().unwrap();
        symlink(own, release.join("k3-pack")).unwrap();
        Self {
            directory,
            hub: Hub::start(&files),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Runs `script` as a shell does that stops at the first failure.
    pub(crate) fn run(&self, script: &str) -> Output {
        let place = self.path();
        let release = place.join("target/release");
        let mut command = Command::new("sh");
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let is_ours = name.starts_with("K3_") || name.starts_with("HF_");
            if is_ours || name.to_lowercase().ends_with("_proxy") {
                command.env_remove(name);
            }
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(&place)
            .args(["-euc", script])
            .env("PATH", format!("{}:{path}", release.display()))
            .env("HOME", place.join("home"))
            .env("XDG_CONFIG_HOME", "/nowhere")
            .env_remove("XDG_CACHE_HOME")
            // What a run reserves depends on it.
            .env("K3_THREADS", "2")
            .env("HF_ENDPOINT", self.hub.endpoint())
            .stdin(std::process::Stdio::null());
        command.output().unwrap()
    }
}

/// A program of a few lines.
fn script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// The program. What would measure for minutes is given fewer rounds and smaller
/// buffers where the document does not say how many, too little memory for all of
/// so small a model, a file that is large enough to be measured, and no limit: that
/// is for machines that do nothing else.
const K3: &str = r#"#!/bin/bash
set -eu
if [ "${1-}" = bench ]; then
    small=()
    for argument; do
        case $argument in
            --check) continue ;;
            Kimi-K3) [ "$2" != disk ] || argument=large-file ;;
        esac
        small+=("$argument")
    done
    add() { [[ " ${small[*]} " == *" $1 "* ]] || small+=("$@"); }
    case $2 in
        kernels) add --kernel norm; add --rounds 1; add --seconds 0.001; add --weights 90M ;;
        disk) add --rounds 1; add --seconds 0.001; add --pairs 1 ;;
        overlap) add --rounds 1; add --buffer 1M; add --trunk-gb 0; add --slots 8 ;;
        decode) add --rounds 1; add --buffer 1M ;;
        prefill) add --rounds 1 ;;
        experts) add --rounds 1; add --seconds 0.001 ;;
    esac
    set -- "${small[@]}"
fi
exec "$(dirname "$0")/../k3" "$@"
"#;

/// What stands for cargo: programs are built already, and the tests are what is
/// running.
const CARGO: &str = r#"#!/bin/sh
set -eu
case $1 in
    build | test | xtask) ;;
    run)
        while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
        [ $# -eq 0 ] || shift
        exec k3 "$@"
        ;;
    *) echo "cargo $1: not expected in a document" >&2; exit 2 ;;
esac
"#;
