//! The files a run writes: checked before it starts, complete or absent after.

use std::path::PathBuf;

use k3_runtime::RunReport;

use super::guard::{self, Inputs};
use super::summary;
use crate::cli::args::OutputArgs;
use crate::error::CliError;
use crate::output_file::OutputFile;

/// The files that were asked for.
#[derive(Debug)]
pub(super) struct Outputs {
    report: Option<OutputFile>,
    logits: Option<OutputFile>,
    trace: Option<OutputFile>,
}

impl Outputs {
    /// Opens every file.
    ///
    /// # Errors
    ///
    /// One that could not be written, that is among `inputs`, or two that are
    /// one; nothing has been opened then.
    pub(super) fn create(args: &OutputArgs, inputs: &Inputs) -> Result<Self, CliError> {
        guard::check(args, inputs)?;
        let create = |path: &Option<PathBuf>| path.as_deref().map(OutputFile::create).transpose();
        Ok(Self {
            report: create(&args.out)?,
            logits: create(&args.dump_logits)?,
            trace: create(&args.dump_trace)?,
        })
    }

    /// Appends rows of logits to their dump, if there is one.
    ///
    /// # Errors
    ///
    /// A failed write.
    pub(super) fn write_logits(&mut self, logits: &[f32]) -> Result<(), CliError> {
        self.logits
            .as_mut()
            .map_or(Ok(()), |file| file.write_f32s(logits))
    }

    /// Has no dump appear: what was to be in them is not all there.
    pub(super) fn drop_dumps(&mut self) {
        self.logits = None;
        self.trace = None;
    }

    /// Writes what is left and lets all files appear.
    ///
    /// # Errors
    ///
    /// A failed write.
    pub(super) fn commit(self, trace: &[(u16, u16)], report: &RunReport) -> Result<(), CliError> {
        if let Some(mut file) = self.trace {
            for (layer, expert) in trace {
                file.write(&i32::from(*layer).to_le_bytes())?;
                file.write(&i32::from(*expert).to_le_bytes())?;
            }
            file.commit()?;
        }
        self.logits.map_or(Ok(()), OutputFile::commit)?;
        let Some(mut file) = self.report else {
            return Ok(());
        };
        file.write(summary::json(report).as_bytes())?;
        file.commit()
    }
}
