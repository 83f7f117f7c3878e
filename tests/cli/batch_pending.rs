//! `k3 batch`: answers that wait for those before them outlive their run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{k3, names, program, refusal};

/// Answers, the first of which takes as long as all others.
const COUNT: usize = 13;

struct Case {
    dir: tempfile::TempDir,
    input: PathBuf,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("in.jsonl");
        let line = |seed: usize| {
            let gen_count = if seed == 0 { 500 } else { 8 };
            format!(
                "{{\"ids\": [5, 6, {}], \"temperature\": 0.9, \"seed\": {seed}, \
                 \"gen\": {gen_count}}}\n",
                7 + seed
            )
        };
        fs::write(&input, (0..COUNT).map(line).collect::<String>()).unwrap();
        Self { dir, input }
    }

    fn output(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn args(&self, output: &Path, args: &[&str]) -> Vec<String> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let report = text(&output.with_extension("report"));
        let own = ["batch", &text(&self.input), &text(output), "--out", &report];
        let fixed = ["--sequences", "2", "--ignore-eos"];
        let all = [&own[..], &fixed, args].concat();
        all.into_iter().map(str::to_owned).collect()
    }

    /// Starts a run and ends it with `signal` once `waiting` answers wait.
    fn interrupted(&self, output: &Path, args: &[&str], (signal, waiting): (&str, usize)) {
        let mut child = program()
            .args(self.args(output, args))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pending = pending(output);
        let started = Instant::now();
        while lines(&pending).len() < waiting {
            assert!(started.elapsed() < Duration::from_secs(60), "nobody waits");
            assert!(child.try_wait().unwrap().is_none(), "it ended before");
            std::thread::sleep(Duration::from_millis(1));
        }
        send(&child, signal);
        child.wait().unwrap();
    }

    /// A run to its end: its report.
    #[track_caller]
    fn run(&self, output: &Path, args: &[&str]) -> Value {
        let ended = k3().args(self.args(output, args)).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{said}");
        report(output)
    }
}

fn report(output: &Path) -> Value {
    let bytes = fs::read(output.with_extension("report")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn pending(output: &Path) -> PathBuf {
    let name = output.file_name().unwrap().to_str().unwrap();
    output.with_file_name(format!("{name}.pending"))
}

/// Whole lines of a file.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(str::to_owned).collect()
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn nothing_that_was_finished_is_computed_again() {
    let case = Case::new();
    let whole = case.output("whole");
    let want = case.run(&whole, &[]);
    assert_eq!(want["answered"], COUNT);
    assert!(
        !pending(&whole).exists(),
        "nothing stands beside the output"
    );
    let want_text = fs::read_to_string(&whole).unwrap();
    for (index, (signal, waiting)) in [("-KILL", 1), ("-INT", 3), ("-TERM", 6), ("-KILL", 9)]
        .into_iter()
        .enumerate()
    {
        let output = case.output(&format!("out{index}"));
        let mut kept = 0;
        // Twice: what an earlier run took over waits again.
        for more in [0, 2] {
            case.interrupted(&output, &[], (signal, waiting + more));
            let there = lines(&output).len() + lines(&pending(&output)).len();
            assert!(there >= waiting + more && there > kept, "{there}");
            kept = there;
        }
        if signal != "-KILL" {
            let said = report(&output);
            assert_eq!(said["answers_waiting"], kept);
            let done = |key: &str| said[key].as_u64().unwrap();
            assert_eq!(done("answered") + done("answered_before"), kept as u64);
            let notes = said["notes"].to_string();
            assert!(
                notes.contains("answers wait for those before them, in"),
                "{notes}"
            );
        }
        // A line that a power cut tore.
        let mut bytes = fs::read(pending(&output)).unwrap();
        bytes.extend(b"{\"line\": 13, \"requ");
        fs::write(pending(&output), bytes).unwrap();
        let ended = case.run(&output, &[]);
        assert_eq!(ended["answered_before"], kept, "{signal} after {waiting}");
        assert_eq!(ended["answered"], COUNT - kept);
        assert_eq!(ended["answers_waiting"], 0);
        let generated = 500 + 8 * (COUNT - kept - 1);
        assert_eq!(ended["generated_tokens"], generated);
        assert!(ended["notes"].to_string().contains("without its end"));
        assert_eq!(fs::read_to_string(&output).unwrap(), want_text);
        assert!(!pending(&output).exists());
    }
}

#[test]
fn as_completed_takes_them_over() {
    let case = Case::new();
    let output = case.output("out");
    case.interrupted(&output, &[], ("-KILL", 4));
    let kept = lines(&pending(&output)).len();
    let ended = case.run(&output, &["--as-completed"]);
    assert_eq!(ended["answered_before"], kept);
    assert_eq!(lines(&output).len(), COUNT);
    assert!(!pending(&output).exists());
}

#[test]
fn what_waits_for_another_request_and_what_is_no_answer_stay() {
    let case = Case::new();
    let output = case.output("out");
    case.interrupted(&output, &[], ("-KILL", 2));
    let before = fs::read(pending(&output)).unwrap();
    let said = refusal(2, &case.args(&output, &["--logprobs", "1"]));
    assert!(
        said.contains("out.pending: line 1 (offset 0) answers another"),
        "{said}"
    );
    assert!(said.contains("remove this file"), "{said}");
    assert_eq!(fs::read(pending(&output)).unwrap(), before);
    fs::write(pending(&output), "my notes\n").unwrap();
    let said = refusal(2, &case.args(&output, &[]));
    assert!(
        said.contains("out.pending: line 1 (offset 0) is no answer"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(pending(&output)).unwrap(), "my notes\n");
    // The input may have such a name too.
    fs::remove_file(pending(&output)).unwrap();
    fs::copy(&case.input, pending(&output)).unwrap();
    let input = pending(&output).display().to_string();
    let said = refusal(2, &["batch", &input, output.to_str().unwrap()]);
    assert!(said.contains("OUTPUT.pending"), "{said}");
    // A pipe has no answers to go on from.
    let said = refusal(2, &["batch", case.input.to_str().unwrap(), "/dev/stdout"]);
    assert!(said.contains("it is a pipe"), "{said}");
    // A run that is refused leaves nothing either.
    let other = case.output("other");
    refusal(2, &case.args(&other, &["--memory", "1M"]));
    assert!(!names(case.dir.path()).contains(&"other.pending".to_owned()));
}
