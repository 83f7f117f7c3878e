//! What can go wrong between a request and its bytes in memory.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// Memory could not be provided, or a read did not deliver.
///
/// Clonable, so that one failed read can be told to every sequence that waits
/// for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No memory of this size.
    #[error(
        "cannot reserve {bytes} bytes of memory: {reason}; lower --memory, or raise the limit \
         (ulimit -v, vm.overcommit_memory) that refuses it"
    )]
    Reserve {
        /// Bytes asked for.
        bytes: u64,
        /// The system's reason.
        reason: String,
    },

    /// An owner asked for a range of an arena that it cannot have.
    #[error(
        "range {range:?} of an arena of {arena_bytes} bytes is {}",
        if *overlaps { "in use" } else { "empty or not inside it" }
    )]
    Claim {
        /// The range.
        range: Range<usize>,
        /// Size of the arena.
        arena_bytes: usize,
        /// Whether somebody else owns a part of it.
        overlaps: bool,
    },

    /// Memory that was planned is not there.
    #[error(
        "cannot provide {bytes} bytes at offset {offset} of an arena: {reason}; the plan is \
         larger than the memory there is: lower --memory"
    )]
    Prefault {
        /// Offset in the arena.
        offset: usize,
        /// Bytes of the step.
        bytes: usize,
        /// The system's reason.
        reason: String,
    },

    /// A file could not be opened for reading weights.
    #[error("{}: cannot {action}: {}", path.display(), io::Error::from_raw_os_error(*errno))]
    Open {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        errno: i32,
    },

    /// A path that should be a regular file is something else.
    #[error("{}: is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },

    /// The path names another file than before.
    #[error(
        "{}: is not the file that was opened before: it was replaced meanwhile; let whatever \
         writes there finish, then start again",
        path.display()
    )]
    Replaced {
        /// The path.
        path: PathBuf,
    },

    /// The system refused a read, after the retries that make sense for the
    /// reason.
    #[error(
        "{}: reading {bytes} bytes at offset {offset} failed after {tries} tries: {} (errno \
         {errno}); if it is an I/O error, check the drive (dmesg, smartctl) and fetch the file \
         again",
        path.display(),
        io::Error::from_raw_os_error(*errno)
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// First byte of the piece that failed.
        offset: u64,
        /// Bytes of it.
        bytes: u64,
        /// The system's reason.
        errno: i32,
        /// Tries made.
        tries: u32,
    },

    /// The file ended inside the wanted bytes.
    #[error(
        "{}: wanted {bytes} bytes at offset {offset}, but {}; it had {opened_bytes} bytes when it \
         was opened: it was truncated while in use; restore it and start again",
        path.display(),
        found_instead(*offset + *bytes, *stopped_at, *found_bytes)
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// First byte wanted.
        offset: u64,
        /// Bytes wanted.
        bytes: u64,
        /// Where a read brought nothing: its end then, or beyond.
        stopped_at: u64,
        /// Its length when that was noticed.
        found_bytes: u64,
        /// Its length when it was opened.
        opened_bytes: u64,
    },

    /// A request reaches past the end the file had when it was opened.
    #[error(
        "{}: {bytes} bytes at offset {offset} were asked for, but the file has {file_bytes} \
         bytes: it does not belong to this index, or its download did not finish",
        path.display()
    )]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// First byte wanted.
        offset: u64,
        /// Bytes wanted.
        bytes: u64,
        /// Length of the file.
        file_bytes: u64,
    },

    /// A request does not fit the memory it brought.
    #[error("a request for {bytes} bytes brought memory for {target_bytes}")]
    TargetTooSmall {
        /// Bytes of all segments.
        bytes: u64,
        /// Bytes of the target.
        target_bytes: u64,
    },

    /// The request was withdrawn before all of it was read.
    #[error("the read was cancelled")]
    Cancelled,

    /// The engine stopped before the request was read.
    #[error("the read engine has stopped")]
    Stopped,

    /// This kind of engine cannot run here.
    #[error("{engine} is not available: {reason}")]
    Unavailable {
        /// Name of the engine.
        engine: &'static str,
        /// Why.
        reason: String,
    },
}

/// What was found of a file that should reach to `wanted_end`.
fn found_instead(wanted_end: u64, stopped_at: u64, found_bytes: u64) -> String {
    if found_bytes < wanted_end {
        format!("the file ends at {found_bytes}")
    } else {
        // Somebody is writing it anew.
        format!("a read at {stopped_at} brought nothing, though it has {found_bytes} bytes again")
    }
}

impl EngineError {
    /// An open error from the standard library's.
    pub(crate) fn open(path: &std::path::Path, action: &'static str, error: &io::Error) -> Self {
        Self::Open {
            path: path.to_path_buf(),
            action,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}
