//! Repository chores, in Rust so that they run wherever the project builds.
//!
//! `cargo xtask tidy` checks what the compiler does not: the crate graph, file
//! sizes, where unsafe code and async may live, and words that do not belong
//! in the tree. The same checks run as a test.
//!
//! `cargo xtask instructions` counts the instructions of kernel bodies and
//! compares them with `benchmarks/instructions/budgets.toml`; `--update` writes
//! that file.
#![forbid(unsafe_code)]

mod graph;
mod instructions;
mod text;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["tidy"] => report(tidy::run()),
        ["instructions"] => counted(instructions::run(false)),
        ["instructions", "--update"] => counted(instructions::run(true)),
        _ => say(
            "usage: cargo xtask tidy | instructions [--update]\n",
            ExitCode::from(2),
        ),
    }
}

fn counted(result: anyhow::Result<(String, bool)>) -> ExitCode {
    match result {
        Ok((text, true)) => say(&text, ExitCode::SUCCESS),
        Ok((text, false)) => say(&text, ExitCode::FAILURE),
        Err(error) => say(
            &format!("instructions could not be counted: {error:#}\n"),
            ExitCode::FAILURE,
        ),
    }
}

fn report(result: anyhow::Result<Vec<String>>) -> ExitCode {
    match result {
        Ok(faults) if faults.is_empty() => say("tidy: no faults\n", ExitCode::SUCCESS),
        Ok(faults) => say(&(faults.join("\n") + "\n"), ExitCode::FAILURE),
        Err(error) => say(
            &format!("tidy could not run: {error:#}\n"),
            ExitCode::FAILURE,
        ),
    }
}

fn say(text: &str, code: ExitCode) -> ExitCode {
    use std::io::Write;
    // A closed stdout is the reader's choice, not a fault of the tree.
    let _ = std::io::stdout().write_all(text.as_bytes());
    code
}
