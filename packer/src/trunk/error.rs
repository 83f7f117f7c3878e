//! What can go wrong with a trunk.

use std::io;
use std::path::{Path, PathBuf};

use k3_config::Bytes;
use k3_formats::FormatError;

use crate::error::Exit;

/// Why a trunk was not packed, or does not agree with its checkpoint.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum TrunkError {
    /// Other than one weight for each directory.
    #[error(
        "--stripe-weights has {weights} numbers for {directories} directories; give one for each \
         OUT, for example 2,1"
    )]
    Weights {
        /// Numbers given.
        weights: usize,
        /// Directories given.
        directories: usize,
    },
    /// More directories than stripes can be.
    #[error("{count} directories, but a trunk has at most {max} stripes; name fewer")]
    TooManyDirectories {
        /// Directories given.
        count: usize,
        /// The most there can be.
        max: usize,
    },
    /// The same directory twice.
    #[error(
        "{}: named twice; each stripe needs a directory of its own, on a disk of its own to be of \
         any use", .path.display()
    )]
    SameDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A block that does not fit the memory of a run.
    #[error(
        "a block of {} is more than the {} that packing has memory for; give a smaller \
         --block-bytes", Bytes(*.block_bytes), Bytes(*.limit_bytes)
    )]
    BlockTooLarge {
        /// The largest block.
        block_bytes: u64,
        /// The largest there may be.
        limit_bytes: u64,
    },
    /// A packed trunk is there already.
    #[error(
        "{}: a packed trunk is there already; check it with --verify, or replace it with --restart",
        .path.display()
    )]
    Exists {
        /// A file of it.
        path: PathBuf,
    },
    /// Pieces of a packing whose journal is not there.
    #[error(
        "{}: left by a packing whose journal is not in {}; name the directories in the order of \
         that run to go on with it, or start anew with --restart",
        .path.display(), .directory.display()
    )]
    Leftover {
        /// What was left.
        path: PathBuf,
        /// Where the journal would have to be.
        directory: PathBuf,
    },
    /// The journal of a packing that was asked for otherwise.
    #[error(
        "{}: a packing was begun here with other options:{}\nrepeat it with those to go on, or \
         start anew with --restart", .journal.display(), listed(.differences)
    )]
    OtherPacking {
        /// The journal.
        journal: PathBuf,
        /// Each option that differs: its name, then and now.
        differences: Vec<String>,
    },
    /// The files do not have what the journal says.
    #[error("{}: {detail}; start anew with --restart", .path.display())]
    Damaged {
        /// Journal or stripe.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// Less free space than the trunk needs.
    #[error(
        "{}: {} needed{}, {} to be left free, {} available, {} missing; free some space, name \
         more directories on other disks, or give this one a smaller --stripe-weights",
        .path.display(), Bytes(*.needed_bytes), if *.is_estimate { " by a sample" } else { "" },
        Bytes(*.reserve_bytes), Bytes(*.available_bytes),
        Bytes((.needed_bytes + .reserve_bytes).saturating_sub(*.available_bytes))
    )]
    NoSpace {
        /// A directory on that disk.
        path: PathBuf,
        /// What is still to be written there.
        needed_bytes: u64,
        /// Whether packed sizes were estimated from a sample.
        is_estimate: bool,
        /// What must stay free beside it.
        reserve_bytes: u64,
        /// What is free.
        available_bytes: u64,
    },
    /// The disk filled up, or a limit on files was met.
    #[error(
        "{}: {source}: something else took the space, or a limit holds; {} What was written is \
         kept: make room and run the same command again", .path.display(), Kept(*.done, *.total)
    )]
    DiskFull {
        /// The file being written.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
        /// Blocks that are kept.
        done: u32,
        /// Blocks of the trunk.
        total: u32,
    },
    /// A file cannot be written.
    #[error("{}: cannot {action}: {source}", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The checkpoint cannot be read, or changed meanwhile.
    #[error(transparent)]
    Source(FormatError),
    /// Asked to stop.
    #[error(
        "interrupted; {} Run the same command again to go on, or with --restart to start anew",
        Kept(*.done, *.total)
    )]
    Stopped {
        /// Blocks that are kept.
        done: u32,
        /// Blocks of the trunk.
        total: u32,
    },
    /// A check was asked to stop.
    #[error("interrupted; {checked} of {total} blocks were checked, {differences} of them differ")]
    CheckStopped {
        /// Blocks that were compared.
        checked: u32,
        /// Blocks of the trunk.
        total: u32,
        /// Blocks that differ.
        differences: u32,
    },
    /// What was read and packed is not what the manifest has.
    #[error(
        "{shard}: {matrix} is not what {} says: it is damaged, or was when it was read. Check it \
         with k3 verify, mend it with k3 repair, then pack with --restart", .manifest.display()
    )]
    OtherWeights {
        /// Name of the shard.
        shard: String,
        /// The tensor.
        matrix: String,
        /// The manifest.
        manifest: PathBuf,
    },
    /// What `--verify` was asked to check is not a packed trunk.
    #[error(
        "{}: trunk.json of another tool; --verify checks what k3-pack trunk has written",
        .path.display()
    )]
    ForeignTrunk {
        /// The file.
        path: PathBuf,
    },
    /// The trunk is not that of the checkpoint.
    #[error("{differences} of {total} blocks differ from the checkpoint, the first so: {first}")]
    Differs {
        /// Blocks that differ.
        differences: u32,
        /// Blocks of the trunk.
        total: u32,
        /// File, offset and what is wrong there.
        first: String,
        /// The same of every block that differs, in order.
        all: Vec<String>,
    },
}

impl TrunkError {
    /// [`TrunkError::DiskFull`] for a lack of room, else [`TrunkError::Write`].
    pub(super) fn writing(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::DiskFull {
                path,
                source,
                done: 0,
                total: 0,
            },
            _ => Self::Write {
                path,
                action,
                source,
            },
        }
    }

    /// The same error, with what is kept.
    pub(super) fn with_progress(self, kept: u32, all: u32) -> Self {
        match self {
            Self::DiskFull { path, source, .. } => Self::DiskFull {
                path,
                source,
                done: kept,
                total: all,
            },
            Self::Stopped { .. } => Self::Stopped {
                done: kept,
                total: all,
            },
            other => other,
        }
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Weights { .. }
            | Self::TooManyDirectories { .. }
            | Self::SameDirectory { .. }
            | Self::BlockTooLarge { .. }
            | Self::Exists { .. }
            | Self::Leftover { .. }
            | Self::OtherPacking { .. }
            | Self::Damaged { .. }
            | Self::ForeignTrunk { .. }
            | Self::NoSpace { .. } => Exit::Refused,
            Self::DiskFull { .. } | Self::Write { .. } => Exit::NotWritable,
            Self::Source(_) | Self::Differs { .. } | Self::OtherWeights { .. } => Exit::Failed,
            Self::Stopped { .. } | Self::CheckStopped { .. } => Exit::Interrupted,
        }
    }
}

/// "12 of 340 blocks are on the disk."
struct Kept(u32, u32);

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} blocks are on the disk.", self.0, self.1)
    }
}

fn listed(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  - {line}")).collect()
}
