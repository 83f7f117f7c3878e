//! The files that are measured.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k3_formats::ReadAt as _;
use k3_io::{CONFIG_NAME, CheckpointFiles, DirectPolicy, FileTable, IoError};
use k3_runtime::Cancel;

use super::findings::Finding;
use crate::cli::commands::DoctorArgs;
use crate::commands::{named_model, not_measured};
use crate::error::CliError;

/// Files of a directory without shards that are measured, the largest.
const FILES_MAX: usize = 256;
/// Bytes of a scratch file that are written at a time.
const WRITE_BYTES: usize = 8 << 20;

/// What is measured, and where a model may be.
#[derive(Debug)]
pub(super) struct Target {
    /// What was named.
    pub(super) path: Option<PathBuf>,
    /// Files whose disks are measured.
    pub(super) files: Vec<PathBuf>,
    /// Whether they are a checkpoint's.
    pub(super) has_shards: bool,
    /// What a checkpoint lacks.
    pub(super) missing: Option<Finding>,
    /// Gone when the measuring is over.
    scratch: Option<Scratch>,
}

impl Target {
    /// Finds the files, or writes the one that was asked for.
    ///
    /// # Errors
    ///
    /// A path that does not exist or cannot be looked into, and a file that
    /// cannot be written.
    pub(super) fn resolve(
        args: &DoctorArgs,
        roots: &[PathBuf],
        cancel: &Cancel,
    ) -> Result<Self, CliError> {
        let path = named_model(args.path.as_deref());
        let mut target = Self {
            files: Vec::new(),
            has_shards: false,
            missing: None,
            scratch: None,
            path,
        };
        match target.path.clone() {
            Some(path) if path.is_dir() => target.look_into(&path, roots)?,
            Some(path) => match not_measured(&path, args.path.as_deref()) {
                Some(error) => return Err(error),
                None => target.files = vec![path],
            },
            None => {}
        }
        if target.missing.is_none() && args.config.is_none() {
            target.missing = target.half();
        }
        if let Some(bytes) = args.scratch {
            let directory = match &target.path {
                Some(path) if path.is_dir() => path.clone(),
                Some(path) => path.parent().map(Path::to_owned).unwrap_or_default(),
                None => PathBuf::from("."),
            };
            let scratch = Scratch::write(&directory, bytes.0, cancel)?;
            target.files = vec![scratch.path()];
            target.scratch = Some(scratch);
        }
        Ok(target)
    }

    /// The shards of `directory` and `roots`, or whatever files are there.
    fn look_into(&mut self, directory: &Path, roots: &[PathBuf]) -> Result<(), CliError> {
        match CheckpointFiles::open(directory, roots) {
            Ok(files) => {
                let paths = files.shards.iter().map(|shard| shard.label().to_owned());
                self.files = paths.collect();
                self.has_shards = true;
            }
            Err(error @ (IoError::NoShards { .. } | IoError::MissingShards { .. })) => {
                if matches!(error, IoError::MissingShards { .. }) {
                    let way_out = "fetch the rest, or name where it lies with --root; `k3 inspect` \
                                   lists what is missing";
                    self.missing = Some(Finding::impossible(error.to_string(), way_out));
                }
                for place in std::iter::once(directory).chain(roots.iter().map(PathBuf::as_path)) {
                    self.files.extend(regular_files(place)?);
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A checkpoint of which only shards or only the configuration is there.
    fn half(&self) -> Option<Finding> {
        let path = self.path.as_deref().filter(|path| path.is_dir())?;
        let shown = path.display();
        match (self.has_shards, self.model_directory().is_some()) {
            (true, false) => Some(Finding::impossible(
                format!("{shown}: there are shards, but no {CONFIG_NAME}"),
                "fetch the config.json that came with the shards, or name it with --config",
            )),
            (false, true) => Some(Finding::impossible(
                format!("{shown}: there is {CONFIG_NAME}, but no shard"),
                "fetch the shards, or name where they lie with --root; a configuration without \
                 them is examined with --config",
            )),
            _ => None,
        }
    }

    /// Whether a run with these arguments finds its files in `path`.
    pub(super) fn is_model(&self, args: &DoctorArgs) -> bool {
        self.has_shards && (args.config.is_some() || self.model_directory().is_some())
    }

    /// The directory that a model is looked for in.
    pub(super) fn model_directory(&self) -> Option<&Path> {
        let path = self.path.as_deref()?;
        path.join(CONFIG_NAME).exists().then_some(path)
    }

    /// Where the engine is tried out when there is nothing to measure: a file
    /// that is there for certain.
    pub(super) fn open(&self) -> Result<Arc<FileTable>, CliError> {
        let own = match &self.files[..] {
            [] => std::env::current_exe().ok(),
            _ => None,
        };
        let paths = self.files.iter().chain(&own);
        Ok(Arc::new(FileTable::open(paths, DirectPolicy::Probe)?))
    }
}

/// The largest regular files of a directory, hidden ones left out.
fn regular_files(directory: &Path) -> Result<Vec<PathBuf>, CliError> {
    let fail = |source| CliError::Unreadable {
        path: directory.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // A link to a shard is as good as a shard.
        match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_file() && !hidden && metadata.len() > 0 => {
                found.push((metadata.len(), entry.path()));
            }
            _ => {}
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found.truncate(FILES_MAX);
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// A file that was written to be measured. It has no name from the start, so
/// that the system takes it back however this process ends.
#[derive(Debug)]
struct Scratch {
    file: File,
}

impl Scratch {
    fn write(directory: &Path, bytes: u64, cancel: &Cancel) -> Result<Self, CliError> {
        let name = format!(".k3-doctor-{}.unfinished", std::process::id());
        let path = directory.join(name);
        let fail = |source: io::Error| CliError::NotWritable {
            path: path.clone(),
            named: Some("--scratch"),
            source,
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(fail)?;
        fs::remove_file(&path).map_err(fail)?;
        let mut scratch = Self { file };
        if !fill(&mut scratch.file, bytes, cancel).map_err(fail)? {
            return Err(CliError::MeasuringInterrupted);
        }
        Ok(scratch)
    }

    /// Where the kernel lets this process open it once more.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

/// Writes `bytes` that no drive can shrink, to the disk itself; whether it was
/// not interrupted.
fn fill(file: &mut File, bytes: u64, cancel: &Cancel) -> io::Result<bool> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut buffer = vec![0; WRITE_BYTES];
    let mut left = bytes;
    while left > 0 {
        if cancel.is_requested() {
            return Ok(false);
        }
        for word in buffer.chunks_exact_mut(8) {
            // Marsaglia's xorshift: no two blocks alike is all that is asked.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(WRITE_BYTES);
        file.write_all(&buffer[..count])?;
        left -= count as u64;
    }
    file.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_files_come_first_and_hidden_ones_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [("a", 10), ("b", 30), (".c", 50), ("empty", 0)] {
            fs::write(dir.path().join(name), vec![1; bytes]).unwrap();
        }
        fs::create_dir(dir.path().join("directory")).unwrap();
        let files = regular_files(dir.path()).unwrap();
        assert_eq!(files, [dir.path().join("b"), dir.path().join("a")]);
    }

    #[test]
    fn a_scratch_file_is_as_long_as_asked_and_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = WRITE_BYTES as u64 + 5;
        let scratch = Scratch::write(dir.path(), bytes, &Cancel::default()).unwrap();
        assert_eq!(fs::metadata(scratch.path()).unwrap().len(), bytes);
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());

        let cancel = Cancel::default();
        cancel.request();
        let error = Scratch::write(dir.path(), bytes, &cancel).unwrap_err();
        assert!(matches!(error, CliError::MeasuringInterrupted));
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
