//! The files a run writes: checked before it starts, complete or absent after.

use std::path::{Path, PathBuf};

use k3_runtime::RunReport;

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
    /// One that could not be written, or two that are one.
    pub(super) fn create(args: &OutputArgs) -> Result<Self, CliError> {
        let named = [
            ("--out", &args.out),
            ("--dump-logits", &args.dump_logits),
            ("--dump-trace", &args.dump_trace),
        ];
        let given: Vec<_> = named
            .iter()
            .filter_map(|(flag, path)| Some((*flag, path.as_ref()?)))
            .collect();
        for (index, (second, path)) in given.iter().enumerate() {
            let same = |(_, other): &&(&str, &PathBuf)| {
                place(other).is_some_and(|other| place(path) == Some(other))
            };
            if let Some((first, _)) = given[..index].iter().find(same) {
                return Err(CliError::SameOutput {
                    first,
                    second,
                    path: (*path).clone(),
                });
            }
        }
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

/// Where a path leads, as far as it exists. Devices are no places: several
/// outputs may go to /dev/null.
fn place(path: &Path) -> Option<PathBuf> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => None,
        Ok(_) => path.canonicalize().ok(),
        Err(_) => {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(parent.join(path.file_name()?))
        }
    }
}
