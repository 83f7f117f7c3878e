//! Conversations in files: what is gone on with, and what is saved.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k3_formats::snapshot::SNAPSHOT_MAGIC;
use k3_models::SequenceState;
use k3_runtime::SnapshotFile;
use k3_runtime::prefix::{Binding, ConversationIds, SnapshotDraft};
use k3_runtime::report::StateReport;

use crate::error::CliError;

/// Why a conversation can be neither gone on with nor saved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    /// It is not there.
    #[error("--load-state {path}: no such file")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// There are no logits to go on from.
    #[error("{path}: the state has consumed all of its {id_count} ids: nothing is left to compute")]
    NothingLeft {
        /// The file.
        path: PathBuf,
        /// Its ids.
        id_count: usize,
    },
    /// Ids that the model does not have.
    #[error("{path}: id {id} is outside the vocabulary of {vocab_size} ids")]
    UnknownId {
        /// The file.
        path: PathBuf,
        /// The id.
        id: u32,
        /// Ids of the model.
        vocab_size: usize,
    },
    /// Something that is worth more than a state may stand there.
    #[error("--save-state {path} would overwrite {what}")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
}

impl StateError {
    /// What the user can do.
    pub(crate) fn way_out(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "name one that --save-state wrote",
            Self::NothingLeft { .. } => {
                "say how it goes on, with --prompt, --prompt-file, --ids or --ids-file"
            }
            Self::UnknownId { .. } => "name the checkpoint that it was made with",
            Self::NotOurs { .. } => "name another file",
        }
    }
}

/// A conversation to go on with.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Where it was named.
    pub path: PathBuf,
    /// What is there.
    pub file: Arc<SnapshotFile>,
}

impl Loaded {
    /// Opens the conversation at `path` and checks all but its state.
    ///
    /// # Errors
    ///
    /// A file that is not there, is damaged, or belongs to another model or other
    /// settings.
    pub(super) fn open(
        path: &Path,
        binding: &Binding,
        vocab_size: usize,
    ) -> Result<Self, CliError> {
        if matches!(path.try_exists(), Ok(false)) {
            let path = path.to_owned();
            return Err(StateError::Missing { path }.into());
        }
        let file = SnapshotFile::open(path, binding)?;
        let is_unknown = |id: &&u32| usize::try_from(**id).is_ok_and(|id| id >= vocab_size);
        if let Some(&id) = file.tokens().iter().find(is_unknown) {
            let path = path.to_owned();
            return Err(StateError::UnknownId {
                path,
                id,
                vocab_size,
            }
            .into());
        }
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
        })
    }

    /// Its ids and then `new` ones, and how many of the last of all of them are the
    /// beginning of the answer to come.
    ///
    /// # Errors
    ///
    /// Nothing is left to compute.
    pub(super) fn ids(&self, new: &[u32]) -> Result<(Vec<u32>, usize), CliError> {
        let file = &self.file;
        if new.is_empty() && file.position() == file.tokens().len() {
            return Err(StateError::NothingLeft {
                path: self.path.clone(),
                id_count: file.position(),
            }
            .into());
        }
        let output_len = match new {
            [] => file.answer_len(),
            _ => 0,
        };
        Ok(([file.tokens(), new].concat(), output_len))
    }

    /// What it was, for the report.
    pub(super) fn report(&self) -> StateReport {
        StateReport {
            path: self.path.display().to_string(),
            ids: self.file.tokens().len(),
            position: self.file.position(),
            file_bytes: self.file.file_bytes(),
        }
    }
}

/// A conversation that is to be saved.
#[derive(Debug)]
pub(super) struct ToSave {
    path: PathBuf,
    binding: Binding,
    draft: SnapshotDraft,
}

impl ToSave {
    /// Sees that `path` can be written and holds nothing else.
    ///
    /// # Errors
    ///
    /// It cannot, or it does.
    pub(super) fn create(path: &Path, binding: Binding) -> Result<Self, CliError> {
        check_ours(path)?;
        // A link is followed, not replaced.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            path: path.to_owned(),
            binding,
            draft: SnapshotFile::create(&target)?,
        })
    }

    /// Saves `state`, which has come along `ids`.
    ///
    /// # Errors
    ///
    /// What the system reports; the former file stays then.
    pub(super) fn save(
        self,
        ids: ConversationIds<'_>,
        state: &impl SequenceState,
    ) -> Result<StateReport, CliError> {
        let bytes = state.saved_bytes(ids.position);
        let saved = self
            .draft
            .save(&self.binding, ids, bytes, |out| state.save(out));
        Ok(StateReport {
            path: self.path.display().to_string(),
            ids: ids.tokens.len(),
            position: ids.position,
            file_bytes: saved?,
        })
    }
}

/// Refuses to overwrite anything but a saved conversation.
fn check_ours(path: &Path) -> Result<(), CliError> {
    let refuse = |what| {
        let path = path.to_owned();
        Err(StateError::NotOurs { path, what }.into())
    };
    let metadata = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|source| unreadable(path, source))?,
    };
    if !metadata.is_file() {
        return refuse("what is no file");
    }
    let mut file = File::open(path).map_err(|source| unreadable(path, source))?;
    let mut found = [0; SNAPSHOT_MAGIC.len()];
    match file.read_exact(&mut found) {
        Ok(()) if found == SNAPSHOT_MAGIC => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(unreadable(path, error)),
        _ => refuse("a file that is no saved conversation"),
    }
}

fn unreadable(path: &Path, source: io::Error) -> CliError {
    CliError::Unreadable {
        path: path.to_owned(),
        source,
    }
}
