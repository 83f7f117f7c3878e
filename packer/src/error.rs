//! What can go wrong, and the exit code of each.

use std::io;
use std::path::PathBuf;

use k3_config::Bytes;
use k3_formats::FormatError;
use k3_io::{EngineError, IoError};
use k3_models::ModelError;

use crate::trunk::TrunkError;

/// How the program ends; the numbers are those of `k3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for was done.
    Done = 0,
    /// The run failed.
    Failed = 1,
    /// Refused before anything was created.
    Refused = 2,
    /// The output cannot be written.
    NotWritable = 3,
    /// Interrupted (128 + SIGINT, as shells have it).
    Interrupted = 130,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what was asked.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A configuration that is not one, or not one that can be resized so.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A configuration that cannot be read.
    #[error(transparent)]
    Input(#[from] IoError),
    /// A checkpoint that cannot be read.
    #[error(transparent)]
    Reading(#[from] EngineError),
    /// A file that was changed meanwhile.
    #[error("{}: was changed while it was read; nothing was kept; let whatever writes there finish, then run again", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A manifest is there already.
    #[error("{}: exists; name another file with --out, or replace it with --force", .path.display())]
    ManifestExists {
        /// The file.
        path: PathBuf,
    },
    /// A target that is no name for a directory.
    #[error("{}: not a name for a new directory; name one inside an existing directory", .path.display())]
    BadTarget {
        /// What was given.
        path: PathBuf,
    },
    /// There is nowhere to put the target.
    #[error("{}: no such directory; create it, or name another place", .path.display())]
    NoParent {
        /// The directory above the target.
        path: PathBuf,
    },
    /// The target exists.
    #[error("{}: exists and is not empty; name another directory, or replace it with --force", .path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The target holds what no synthetic checkpoint has.
    #[error(
        "{}: holds {entry:?}, which is no part of a synthetic checkpoint, so --force does not \
         replace it; remove it yourself, or name another directory", .path.display()
    )]
    Foreign {
        /// The target.
        path: PathBuf,
        /// An entry of it.
        entry: String,
    },
    /// The directory that is written to exists.
    #[error(
        "{}: a run that was killed left it; remove it, or let --force do so", .path.display()
    )]
    PartialExists {
        /// The directory.
        path: PathBuf,
    },
    /// Another run writes to the same target.
    #[error("{}: another run is writing there; wait for it, or name another directory", .path.display())]
    Busy {
        /// The directory it writes to.
        path: PathBuf,
    },
    /// Less free space than needed.
    #[error(
        "{}: {} needed ({} for the checkpoint, {} to be left free), {} available, {} missing; \
         free some space, name another disk, or ask for fewer --layers or --experts",
        .path.display(), Bytes(.checkpoint_bytes + .reserve_bytes), Bytes(*.checkpoint_bytes),
        Bytes(*.reserve_bytes), Bytes(*.available_bytes),
        Bytes((.checkpoint_bytes + .reserve_bytes).saturating_sub(*.available_bytes))
    )]
    NoSpace {
        /// Where the checkpoint was to be.
        path: PathBuf,
        /// What it takes.
        checkpoint_bytes: u64,
        /// What must stay free beside it.
        reserve_bytes: u64,
        /// What is free.
        available_bytes: u64,
    },
    /// The disk filled up during the run.
    #[error(
        "{}: the disk is full: something else took the space that was free at the start; \
         nothing was kept; free some space and run again", .path.display()
    )]
    DiskFull {
        /// The file being written.
        path: PathBuf,
    },
    /// A file system that stores holes as zeros.
    #[error(
        "{}: this file system stores no holes ({} on disk instead of at most {}); use another \
         for --sparse, such as ext4, xfs, btrfs or tmpfs",
        .path.display(), Bytes(*.disk_bytes), Bytes(*.expected_bytes)
    )]
    NoHoles {
        /// The file tried.
        path: PathBuf,
        /// What it takes on disk.
        disk_bytes: u64,
        /// What it should take at most.
        expected_bytes: u64,
    },
    /// The output cannot be written.
    #[error("{}: cannot {action}: {source}", .path.display())]
    NotWritable {
        /// File or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Ctrl-C.
    #[error("interrupted; nothing was kept")]
    Interrupted,
    /// A trunk was not packed or does not agree with its checkpoint.
    #[error(transparent)]
    Trunk(#[from] TrunkError),
    /// A checkpoint whose tensors are not those of its configuration.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The system refuses the handler for signals.
    #[error("cannot listen for signals: {0}")]
    Signal(io::Error),
}

impl PackError {
    /// [`PackError::NotWritable`], or [`PackError::DiskFull`] when it is that.
    pub(crate) fn writing(
        path: impl Into<PathBuf>,
        action: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| {
            if source.kind() == io::ErrorKind::StorageFull {
                Self::DiskFull { path }
            } else {
                Self::NotWritable {
                    path,
                    action,
                    source,
                }
            }
        }
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Format(_)
            | Self::Input(_)
            | Self::BadTarget { .. }
            | Self::NoParent { .. }
            | Self::Exists { .. }
            | Self::ManifestExists { .. }
            | Self::Foreign { .. }
            | Self::PartialExists { .. }
            | Self::Busy { .. }
            | Self::Model(_)
            | Self::NoSpace { .. } => Exit::Refused,
            Self::DiskFull { .. } | Self::NoHoles { .. } | Self::NotWritable { .. } => {
                Exit::NotWritable
            }
            Self::Interrupted => Exit::Interrupted,
            Self::Signal(_) | Self::Reading(_) | Self::Changed { .. } => Exit::Failed,
            Self::Trunk(error) => error.exit(),
        }
    }
}
