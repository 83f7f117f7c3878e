//! Repository chores, in Rust so that they run wherever the project builds.
//!
//! `cargo xtask tidy` checks what the compiler does not: the crate graph, file
//! sizes, where unsafe code and async may live, and words that do not belong
//! in the tree. The same checks run as a test.
#![forbid(unsafe_code)]

mod graph;
mod text;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    match command.as_deref() {
        Some("tidy") => report(tidy::run()),
        _ => say("usage: cargo xtask tidy\n", ExitCode::from(2)),
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
