//! Measurements: what the disk and the kernels give, and how well reading hides
//! behind arithmetic.
//!
//! | module | holds |
//! |---|---|
//! | [`decode`] | the arithmetic of a token, every share of it by name |
//! | [`decode_text`] | the same, to read |
//! | [`disk`] | the reader against the best of the disk |
//! | [`experts`] | what coding experts would save and cost |
//! | [`kernels`] | kernels against reading their memory |
//! | [`kernels_text`] | the same, to read |
//! | [`overlap`] | streamed sweeps against their two sides alone |
//! | [`overlap_text`] | the same, to read |
//! | [`opened`] | a model that is measured |
//! | [`prefill`] | what a position of a prompt costs |
//! | [`streamed`] | a model that is streamed: opened and planned |
//! | [`watch`] | how far it is, on the screen and for metrics |

mod decode;
mod decode_text;
mod disk;
mod experts;
mod kernels;
mod kernels_text;
mod opened;
mod overlap;
mod overlap_text;
mod prefill;
mod streamed;
mod watch;

use crate::cli::bench::{BenchArgs, BenchCommand, CheckArgs, ResultArgs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output_file::OutputFile;
use crate::stdout::Stdout;
use serde::Serialize;
use watch::Watch;

/// Measures.
///
/// # Errors
///
/// What cannot be measured, and results that cannot be written.
pub(crate) fn run(args: &BenchArgs) -> Result<Exit, CliError> {
    let watch = Watch::default();
    match &args.what {
        BenchCommand::Decode(args) => {
            let _metrics = watch.serve(&args.result, args.settings.as_deref())?;
            decode::run(args, &watch)
        }
        BenchCommand::Disk(args) => {
            let _metrics = watch.serve(&args.result, None)?;
            disk::run(args, &watch)
        }
        BenchCommand::Experts(args) => {
            let _metrics = watch.serve(&args.result, None)?;
            experts::run(args, &watch)
        }
        BenchCommand::Overlap(args) => {
            let _metrics = watch.serve(&args.result, args.streamed.memory.settings.as_deref())?;
            overlap::run(args, &watch)
        }
        BenchCommand::Prefill(args) => {
            let settings = args.streamed.memory.settings.as_deref();
            let _metrics = watch.serve(&args.result, settings)?;
            prefill::run(args, &watch)
        }
        BenchCommand::Kernels(args) => {
            let _metrics = watch.serve(&args.result, None)?;
            kernels::run(args, &watch)
        }
    }
}

/// A result as it leaves the program.
struct Finished<'a, R: Serialize> {
    /// As data.
    report: &'a R,
    /// To read.
    text: String,
    /// Whether the limit was kept everywhere.
    passed: bool,
    interrupted: bool,
}

impl<R: Serialize> Finished<'_, R> {
    /// Writes the result where it was asked for; `check` is `None` where there is
    /// no limit.
    fn hand_over(
        self,
        args: &ResultArgs,
        check: Option<CheckArgs>,
        file: Option<OutputFile>,
    ) -> Result<Exit, CliError> {
        let json =
            || serde_json::to_string_pretty(self.report).expect("plain data serialises") + "\n";
        let shown = if args.json { &json() } else { &self.text };
        let shown = Stdout.write(shown.as_bytes());
        // Each gets what it was promised, whatever becomes of the other.
        if let Some(mut file) = file {
            file.write(json().as_bytes())?;
            file.commit()?;
        }
        shown?;
        Ok(if self.interrupted {
            Exit::InterruptedKept
        } else if check.is_some_and(|check| check.check) && !self.passed {
            Exit::Failed
        } else {
            Exit::Done
        })
    }
}

/// A count that the command line's parser has bounded.
fn size(count: u64) -> usize {
    usize::try_from(count).expect("bounded by the parser")
}
