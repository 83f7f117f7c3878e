//! The files a run writes: checked before it starts, complete or absent after.

use std::path::{Path, PathBuf};

use k3_models::SequenceState;
use k3_runtime::RunReport;
use k3_runtime::prefix::{Binding, ConversationIds};
use k3_runtime::report::StateReport;

use super::guard::{self, Inputs};
use super::state::ToSave;
use super::summary;
use crate::cli::args::OutputArgs;
use crate::error::{CliError, chain};
use crate::output_file::OutputFile;

/// What became of a conversation that was to be saved.
#[derive(Debug)]
pub(super) enum Saved {
    /// It is in its file.
    State(StateReport),
    /// There was no whole state; the former file is as it was.
    Nothing,
}

/// The files that were asked for.
#[derive(Debug)]
pub(super) struct Outputs {
    report: Option<OutputFile>,
    logits: Option<OutputFile>,
    trace: Option<OutputFile>,
    state: Option<ToSave>,
    /// What could not be written. The others are written all the same.
    failures: Vec<CliError>,
}

impl Outputs {
    /// Opens every file.
    ///
    /// # Errors
    ///
    /// One that could not be written, that is among `inputs`, or two that are
    /// one; nothing has been opened then.
    pub(super) fn create(
        args: &OutputArgs,
        save: Option<(&Path, Binding)>,
        inputs: &Inputs,
    ) -> Result<Self, CliError> {
        guard::check(args, save.map(|(path, _)| path), inputs)?;
        let create = |option, path: &Option<PathBuf>| {
            let path = path.as_deref();
            path.map(|path| OutputFile::create_as(option, path))
                .transpose()
        };
        Ok(Self {
            report: create("--out", &args.out)?,
            logits: create("--dump-logits", &args.dump_logits)?,
            trace: create("--dump-trace", &args.dump_trace)?,
            state: save
                .map(|(path, binding)| ToSave::create(path, binding))
                .transpose()?,
            failures: Vec::new(),
        })
    }

    /// Appends rows of logits to their dump, if there is one. A dump that cannot
    /// take them is given up; the run goes on.
    pub(super) fn write_logits(&mut self, logits: &[f32]) {
        if let Some(file) = &mut self.logits
            && let Err(error) = file.write_f32s(logits)
        {
            self.failures.push(error);
            self.logits = None;
        }
    }

    /// Saves the conversation, if that was asked for: what there is to tell of it.
    pub(super) fn save_state<S: SequenceState>(
        &mut self,
        conversation: Option<(ConversationIds<'_>, &S)>,
    ) -> Option<Saved> {
        let state = self.state.take()?;
        let Some((ids, from)) = conversation else {
            return Some(Saved::Nothing);
        };
        match state.save(ids, from) {
            Ok(report) => Some(Saved::State(report)),
            Err(error) => {
                self.failures.push(error);
                None
            }
        }
    }

    /// Has no dump appear: what was to be in them is not all there.
    pub(super) fn drop_dumps(&mut self) {
        self.logits = None;
        self.trace = None;
    }

    /// Lets the dumps appear, and tells what could not be written so far, one
    /// sentence each.
    pub(super) fn commit_dumps(&mut self, trace: &[(u16, u16)]) -> Vec<String> {
        let traced = self.trace.take().map(|file| write_trace(file, trace));
        let dumped = self.logits.take().map(OutputFile::commit);
        let failed = [dumped, traced]
            .into_iter()
            .flatten()
            .filter_map(Result::err);
        self.failures.extend(failed);
        self.failures.iter().map(|error| chain(error)).collect()
    }

    /// Writes the report and lets it appear; everything that could not be
    /// written.
    pub(super) fn commit_report(self, report: &RunReport) -> Vec<CliError> {
        let mut failures = self.failures;
        let written = self.report.map_or(Ok(()), |mut file| {
            file.write(summary::json(report).as_bytes())?;
            file.commit()
        });
        failures.extend(written.err());
        failures
    }
}

fn write_trace(mut file: OutputFile, trace: &[(u16, u16)]) -> Result<(), CliError> {
    for (layer, expert) in trace {
        file.write(&i32::from(*layer).to_le_bytes())?;
        file.write(&i32::from(*expert).to_le_bytes())?;
    }
    file.commit()
}
