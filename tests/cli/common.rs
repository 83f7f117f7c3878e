//! Running the binary, and the committed checkpoints it runs on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

/// Instruction sets and thread counts that must not change a byte.
pub(crate) const ISAS: [&str; 3] = ["scalar", "avx2", "avx512"];

/// The binary, in an environment that cannot reach into the tests.
pub(crate) fn k3() -> Command {
    let mut command = Command::from_std(program());
    command.timeout(std::time::Duration::from_secs(120));
    command
}

/// As [`k3`], to be started and watched.
pub(crate) fn program() -> std::process::Command {
    in_clean_environment(std::process::Command::new(assert_cmd::cargo::cargo_bin!(
        "k3"
    )))
}

/// `command`, which runs the binary sooner or later, in that environment.
pub(crate) fn in_clean_environment(mut command: std::process::Command) -> std::process::Command {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("K3_")) {
            command.env_remove(name);
        }
    }
    for name in ["NO_COLOR", "COLUMNS"] {
        command.env_remove(name);
    }
    // No settings of whoever runs the tests.
    command.env("XDG_CONFIG_HOME", "/nowhere");
    // One copy of the built-in model for all of them.
    command.env(
        "K3_CACHE_DIR",
        concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"),
    );
    // Tests run side by side: threads of all of them would wait for each other.
    command.env("K3_THREADS", "1");
    command
}

/// Runs the binary with `args`.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Output {
    k3().args(args).output().unwrap()
}

/// Runs the binary, which must succeed, and gives its standard output.
#[track_caller]
pub(crate) fn stdout_of<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(args: &[S]) -> Vec<u8> {
    let output = run(args);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Runs the binary, which must exit with `code`, and gives what it says on
/// standard error. Nothing refused may leave anything on standard output.
#[track_caller]
pub(crate) fn refusal<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(
    code: i32,
    args: &[S],
) -> String {
    let output = run(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert!(
        output.stdout.is_empty(),
        "{args:?} printed {:?}",
        output.stdout
    );
    assert!(stderr.starts_with("error: "), "{args:?}: {stderr}");
    assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
    assert!(stderr.lines().count() <= 24, "more than a screen: {stderr}");
    assert!(
        !stderr.contains('\u{1b}'),
        "colours outside a terminal: {stderr}"
    );
    stderr
}

/// A committed fixture.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// The tiny checkpoint with a vocabulary, as an argument.
pub(crate) fn tiny() -> String {
    fixture("tiny").display().to_string()
}

/// One prompt of a fixture, in one form of attention.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Directory of the checkpoint.
    pub(crate) model: PathBuf,
    /// Name of the prompt.
    pub(crate) name: String,
    /// Form of attention.
    pub(crate) form: &'static str,
    /// Prompt.
    pub(crate) ids: Vec<u32>,
    /// Greedy continuation.
    pub(crate) generated_ids: Vec<u32>,
    /// Logits of the last prompt position.
    pub(crate) logits: Vec<u8>,
    /// Logits of every prompt position, for one prompt of each checkpoint.
    pub(crate) all_logits: Option<Vec<u8>>,
}

impl Case {
    /// Arguments that run the prompt.
    pub(crate) fn args(&self) -> Vec<String> {
        let model = self.model.display().to_string();
        let own = [
            "--ids",
            &list(&self.ids),
            "--attention",
            self.form,
            "--quiet",
        ];
        [&[model.as_str()], &own[..]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    /// Runs the prompt with `extra` arguments and checks ids and logits.
    #[track_caller]
    pub(crate) fn check(&self, extra: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        let dump = dir.path().join("logits.bin");
        let report = dir.path().join("run.json");
        let mut args = self.args();
        args.extend(["--gen".to_owned(), self.generated_ids.len().to_string()]);
        args.extend(["--dump-logits".to_owned(), dump.display().to_string()]);
        args.extend(["--out".to_owned(), report.display().to_string()]);
        args.extend(extra.iter().map(|&arg| arg.to_owned()));
        let stdout = stdout_of(&args);
        let what = format!(
            "{} {} {} {extra:?}",
            self.model.display(),
            self.name,
            self.form
        );
        assert!(
            std::fs::read(&dump).unwrap() == self.logits,
            "{what}: other logits"
        );
        let report = json(&std::fs::read(&report).unwrap());
        assert_eq!(
            ids_of(&report["generated_ids"]),
            self.generated_ids,
            "{what}"
        );
        if report["generated_text"].is_null() {
            let text = list(&self.generated_ids).replace(',', " ") + "\n";
            assert_eq!(String::from_utf8(stdout).unwrap(), text, "{what}");
        }
    }
}

/// Every prompt of a committed checkpoint in both forms of attention.
pub(crate) fn cases(checkpoint: &str) -> Vec<Case> {
    let model = fixture(checkpoint);
    let path = model.join("expected.json");
    let expected = json(&std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}", path.display());
    }));
    let prompts = expected["prompts"].as_object().unwrap();
    let mut cases = Vec::new();
    for (name, prompt) in prompts {
        for form in ["latent", "expanded"] {
            let entry = &prompt[form];
            let file = |key: &str| {
                let name = entry[key].as_str()?;
                Some(std::fs::read(model.join(name)).unwrap())
            };
            cases.push(Case {
                model: model.clone(),
                name: name.clone(),
                form,
                ids: ids_of(&prompt["ids"]),
                generated_ids: ids_of(&entry["generated_ids"]),
                logits: file("logits").unwrap(),
                all_logits: file("all_positions_logits"),
            });
        }
    }
    assert!(!cases.is_empty(), "{} has no prompts", path.display());
    cases
}

/// The case of one prompt in one form.
pub(crate) fn case(checkpoint: &str, name: &str, form: &str) -> Case {
    let found = cases(checkpoint)
        .into_iter()
        .find(|case| case.name == name && case.form == form);
    found.unwrap_or_else(|| panic!("{checkpoint} has no {name} in {form} form"))
}

/// The instruction sets that run here, as `k3 --version` tells.
pub(crate) fn isas() -> Vec<&'static str> {
    let version = String::from_utf8(stdout_of(&["--version"])).unwrap();
    let line = version
        .lines()
        .find(|line| line.contains("instruction sets"))
        .unwrap();
    let available = line.split_once(" (used").unwrap().0;
    ISAS.into_iter()
        .filter(|isa| available.contains(isa))
        .collect()
}

/// Ids as `--ids` takes them.
pub(crate) fn list(ids: &[u32]) -> String {
    ids.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

/// Parsed JSON.
#[track_caller]
pub(crate) fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(bytes));
    })
}

/// A JSON count.
#[track_caller]
pub(crate) fn count_of(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// A JSON array of ids.
#[track_caller]
pub(crate) fn ids_of(value: &Value) -> Vec<u32> {
    let id = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    value.as_array().unwrap().iter().map(id).collect()
}

/// Names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names: BTreeMap<String, ()> = entries
        .map(|entry| (entry.unwrap().file_name().into_string().unwrap(), ()))
        .collect();
    names.into_keys().collect()
}
