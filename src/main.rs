//! The `k3` command: generation from a checkpoint, and the tools around it.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | what the command line accepts, and its help |
//! | [`commands`] | what the commands do |
//! | [`render`] | what a person reads: errors, report, tables, progress |
//! | [`error`], [`exit`] | what can go wrong, and the exit code of each |
//! | [`inputs`], [`vocabulary`] | text and ids as the user gives them |
//! | [`settings`], [`planning`] | from options, environment and file to a plan |
//! | [`metrics`] | figures of a run for Prometheus |
//! | [`process`] | what the kernel says about this process |
//! | [`typed`] | what a person can type into a shell |
//! | [`stdout`], [`output_file`], [`interrupt`] | where results go, and how a run stops |
//!
//! # Invariants
//!
//! - Data goes to standard output, everything for a person to standard error.
//! - An output file appears complete or not at all, and is known to be
//!   writable before the run starts.
//! - Every error has a documented exit code and names the way out.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod demo;
mod error;
mod exit;
mod inputs;
mod interrupt;
mod metrics;
mod output_file;
mod planning;
mod process;
mod render;
mod settings;
mod stdout;
mod typed;
mod vocabulary;

use std::io::Write as _;
use std::process::ExitCode;

use cli::args::Cli;
use cli::commands::Command;
use error::CliError;
use exit::Exit;
use k3_terminal::Stream;
use render::style::Style;
use stdout::Stdout;

fn main() -> ExitCode {
    if let Some(entry) = commands::ladder::entry() {
        return end(None, commands::ladder::enter(&entry));
    }
    let arguments = match cli::parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let printed = error.print();
            return if error.use_stderr() {
                // Without standard error the exit code has to do.
                Exit::Refused.into()
            } else {
                // Help goes to standard output, which may be closed or full.
                end(None, Stdout.finish(printed).map(|()| Exit::Done))
            };
        }
    };
    end(arguments.command.as_ref(), run(&arguments))
}

/// Says what went wrong with `command`, if anything did.
fn end(command: Option<&Command>, result: Result<Exit, CliError>) -> ExitCode {
    let exit = result.unwrap_or_else(|error| {
        if !matches!(error, CliError::OutputClosed) {
            let style = Style::detect();
            let mut text = render::error::render(&error, style);
            if let Some(Command::Demo(_)) = command {
                text = demo::spelled_as_variables(&text);
            }
            if style.is_terminal() {
                text = k3_terminal::wrap(&text, k3_terminal::fitting(Stream::Stderr));
            }
            // Without standard error the exit code has to do.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        error.exit()
    });
    exit.into()
}

fn run(arguments: &Cli) -> Result<Exit, CliError> {
    match &arguments.command {
        None if arguments.list_presets => commands::presets::run(arguments.generate.output.json),
        None => commands::generate::run(&arguments.generate),
        Some(Command::Plan(args)) => commands::plan::run(args),
        Some(Command::Doctor(args)) => commands::doctor::run(args),
        Some(Command::Presets(args)) => commands::presets::run(args.json),
        Some(Command::Inspect(args)) => commands::inspect::run(args),
        Some(Command::Fetch(args)) => commands::integrity::fetch::run(args),
        Some(Command::Verify(args)) => commands::integrity::verify::run(args),
        Some(Command::Repair(args)) => commands::integrity::repair::run(args),
        Some(Command::Replay(args)) => commands::replay::run(args),
        Some(Command::Ladder(args)) => commands::ladder::run(args),
        Some(Command::Batch(args)) => commands::batch::run(args),
        Some(Command::Demo(args)) => commands::demo::run(args),
        Some(Command::Bench(args)) => commands::bench::run(args),
        Some(Command::Tokenize(args)) => commands::tokenize::run(args),
        Some(Command::Detokenize(args)) => commands::detokenize::run(args),
        Some(Command::Compare(args)) => commands::compare::run(args),
        Some(Command::Completions(args)) => commands::completions::run(args),
        Some(Command::Man(args)) => commands::man::run(args),
    }
}
