//! Help, version and completions.

use std::process::Stdio;

use insta::assert_snapshot;

use crate::common::{k3, program, refusal, run, stdout_of};

const COMMANDS: [&str; 17] = [
    "batch",
    "plan",
    "demo",
    "doctor",
    "presets",
    "inspect",
    "fetch",
    "verify",
    "repair",
    "replay",
    "ladder",
    "bench",
    "tokenize",
    "detokenize",
    "compare",
    "completions",
    "man",
];

fn text(args: &[&str]) -> String {
    String::from_utf8(stdout_of(args)).unwrap()
}

#[test]
fn short_help() {
    assert_snapshot!(text(&["-h"]));
}

#[test]
fn long_help() {
    assert_snapshot!(text(&["--help"]));
}

#[test]
fn help_of_commands() {
    for command in COMMANDS {
        assert_snapshot!(command, text(&[command, "--help"]));
    }
}

/// What `k3 bench` measures.
const MEASUREMENTS: [&str; 6] = ["decode", "disk", "experts", "kernels", "overlap", "prefill"];

#[test]
fn help_of_measurements() {
    for what in MEASUREMENTS {
        let name = format!("bench_{what}");
        assert_snapshot!(name, text(&["bench", what, "--help"]));
    }
}

#[test]
fn help_of_the_built_in_model() {
    for what in ["ladder", "path"] {
        let name = format!("demo_{what}");
        assert_snapshot!(name, text(&["demo", what, "--help"]));
    }
}

#[test]
fn help_fits_80_columns_and_names_every_command() {
    for args in [vec!["-h"], vec!["--help"]] {
        let help = text(&args);
        for command in COMMANDS {
            assert!(
                help.contains(&format!("\n  {command}")),
                "{command} is missing"
            );
        }
    }
    let below = MEASUREMENTS.map(|what| vec!["bench", what]);
    let demo = [vec!["demo", "ladder"], vec!["demo", "path"]];
    let commands = COMMANDS.map(|command| vec![command]);
    for command in [vec![]]
        .into_iter()
        .chain(commands)
        .chain(below)
        .chain(demo)
    {
        for flag in ["-h", "--help"] {
            let args = [&command[..], &[flag]].concat();
            for columns in ["80", "200"] {
                let output = k3().args(&args).env("COLUMNS", columns).output().unwrap();
                for line in String::from_utf8(output.stdout).unwrap().lines() {
                    let width = line.chars().count();
                    assert!(width <= 80, "{args:?}: {width} columns: {line}");
                }
            }
        }
    }
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    for args in [
        &["--help"][..],
        &["-h"],
        &["--version"],
        &["-V"],
        &["help"],
        &["help", "plan"],
        &["plan", "--help"],
        &["bench", "disk", "-h"],
        &["completions", "bash"],
        &["--list-presets"],
    ] {
        let output = program().args(args).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
        assert!(said.starts_with("error: standard output: "), "{said}");
        // Who has read enough is no error.
        let mut child = program().args(args).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
    }
    // What goes to standard error does not need the other.
    let output = program()
        .args(["--no-such"])
        .stdout(full())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn examples_in_the_help_start_with_the_program() {
    let help = text(&["--help"]);
    let examples = help.split_once("Examples:").unwrap().1;
    assert!(examples.matches("    k3 ").count() >= 4, "{examples}");
}

#[test]
fn version_tells_what_results_depend_on() {
    let version = text(&["--version"]);
    let mut lines = version.lines();
    assert_eq!(
        lines.next(),
        Some(concat!("k3 ", env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(
        lines.next(),
        Some("numerics: version 1 (attention: latent, expanded)")
    );
    let isas = lines.next().unwrap();
    assert!(isas.starts_with("instruction sets here: scalar"), "{isas}");
    assert_eq!(lines.next(), None);
    assert_eq!(
        text(&["-V"]),
        concat!("k3 ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

/// What has a few names is offered by the shell, and is refused under any other.
#[test]
fn names_of_closed_choices_are_offered() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&["completions", shell]);
        for name in [
            "deep-layers",
            "decayed-frequency",
            "workstation",
            "pread",
            "spread",
            "expanded",
            "avx512",
        ] {
            assert!(script.contains(name), "{name} for {shell}");
        }
    }
    for (option, name) in [("--policy", "LRU"), ("--pins", "Prefix"), ("--isa", "auto")] {
        let args = ["--ids", "3", "-n", "0", "--quiet", option, name];
        assert_eq!(run(&args).status.code(), Some(0), "{option} {name}");
        let said = run(&[option, "none"]).stderr;
        let said = String::from_utf8(said).unwrap();
        assert!(
            said.contains(option) && said.contains(&name.to_lowercase()),
            "{said}"
        );
    }
    for args in [
        &["bench", "prefill", "--isa", "auto", "--help"][..],
        &["bench", "experts", "--isa", "auto", "--help"],
    ] {
        assert_eq!(run(args).status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn completions_are_scripts() {
    for (shell, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef k3"),
        ("fish", "complete -c k3"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = text(&["completions", shell]);
        assert!(script.contains(mark), "{shell}");
        assert!(script.contains("dump-logits"), "{shell}");
        let packer = text(&["completions", shell, "--program", "k3-pack"]);
        assert!(packer.contains("stripe-weights"), "{shell}");
    }
    assert_eq!(run(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn every_command_has_a_manual_page_with_its_examples() {
    let pages = tempfile::tempdir().unwrap();
    let directory = pages.path().display().to_string();
    stdout_of(&["man", &directory]);
    let read = |name: &str| {
        let path = pages.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    assert!(read("k3.1").contains("metrics\\-listen"));
    let names = COMMANDS.map(|command| format!("k3-{command}.1"));
    let below = MEASUREMENTS.map(|what| format!("k3-bench-{what}.1"));
    let packer = ["synth", "trunk", "manifest"].map(|what| format!("k3-pack-{what}.1"));
    for name in names.iter().chain(&below).chain(&packer) {
        let page = read(name);
        assert!(
            page.starts_with(".ie") && page.contains(".TH k3"),
            "{name}: {page}"
        );
        let needs_none = ["presets", "demo"]
            .iter()
            .any(|what| *name == format!("k3-{what}.1"));
        assert!(page.contains("Examples") || needs_none, "{name}: {page}");
    }
    // Again, to the same bytes; and nowhere else.
    let before = read("k3-plan.1");
    stdout_of(&["man", &directory]);
    assert_eq!(read("k3-plan.1"), before);
    let said = refusal(3, &["man", "/no/such/directory"]);
    assert!(said.contains("/no/such/directory"), "{said}");
}
