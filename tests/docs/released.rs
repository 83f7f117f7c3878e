//! Plans of the released model: its whole shape, with holes for weights.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// Threads of every plan: a laptop's.
const THREADS: &str = "8";

/// Where the checkpoint is to be made.
static PLACE: OnceLock<PathBuf> = OnceLock::new();

/// A directory for the checkpoint, which goes with what is returned: to be called first.
pub(crate) fn place() -> TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    PLACE.set(directory.path().to_owned()).unwrap();
    directory
}

/// The checkpoint that `k3-pack synth DIR --sparse` writes, made when it is first needed.
pub(crate) fn checkpoint() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let place = PLACE.get().unwrap();
        let model = place.join("Kimi-K3");
        // This very program, which is the packer under that name.
        let packer = place.join("k3-pack");
        symlink(std::env::current_exe().unwrap(), &packer).unwrap();
        let mut pack = Command::new(packer);
        let pack = pack.arg("synth").arg(&model).args(["--sparse", "--quiet"]);
        let output = pack.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        model
    });
    made.clone()
}

/// The plan at these options as `k3 plan --json` prints it; `None` where it is refused.
pub(crate) fn plan(options: &[&str]) -> Option<Value> {
    let checkpoint = checkpoint();
    let model = checkpoint.to_str().unwrap();
    let args = [&["plan", model, "--threads", THREADS, "--json"], options].concat();
    let output = k3(&args);
    match output.status.code() {
        Some(0) => Some(serde_json::from_slice(&output.stdout).unwrap()),
        Some(2) => None,
        _ => panic!("{args:?}: {output:?}"),
    }
}

/// The program, with nothing set but what it is given.
pub(crate) fn k3(args: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("k3"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("K3_") {
            command.env_remove(name);
        }
    }
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    command
        .args(args)
        .env("XDG_CONFIG_HOME", "/nowhere")
        .env("K3_CACHE_DIR", cache);
    command.output().unwrap()
}
