//! What can go wrong with a checkpoint's integrity.

use std::io;
use std::path::PathBuf;

use k3_config::Bytes;
use k3_formats::FormatError;
use k3_io::{EngineError, IoError};

use crate::http::HttpError;

/// A check, a download or a repair could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IntegrityError {
    /// A file that cannot be used.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A file that is not what it should be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// No memory to read into, or no way to read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A request that failed for good.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// Nothing to compare with.
    #[error(
        "{}: has neither k3-manifest.bin nor k3-fetch.json, so nothing says what its bytes \
         should be; when it is known to be right, make a manifest with `k3-pack manifest`",
        directory.display()
    )]
    NoBasis {
        /// The directory.
        directory: PathBuf,
    },
    /// None of the files is there.
    #[error(
        "{}: none of the files the manifest lists is here{}; name the checkpoint's directory, and \
         the others with --root",
        directory.display(),
        example.as_ref().map(|name| format!(" (such as {name})")).unwrap_or_default()
    )]
    NoFiles {
        /// The directory.
        directory: PathBuf,
        /// The first of them.
        example: Option<String>,
    },
    /// A manifest of another checkpoint.
    #[error(
        "{}: is of another checkpoint (identity {identity}): of {all} headers and \
         configurations here, {right} are the manifest's; make one of this checkpoint with \
         `k3-pack manifest`",
        manifest.display()
    )]
    OtherIdentity {
        /// The manifest.
        manifest: PathBuf,
        /// The checkpoint it was made of.
        identity: String,
        /// Headers and configurations that are the manifest's.
        right: usize,
        /// How many there are.
        all: usize,
    },
    /// A layer of whole files.
    #[error(
        "k3-fetch.json has hashes of whole files, not of layers; make a manifest with \
         `k3-pack manifest`"
    )]
    LayersUnknown,
    /// A layer beyond the last.
    #[error("layer {layer}: the checkpoint has layers 0 to {}", count.saturating_sub(1))]
    NoSuchLayer {
        /// What was asked for.
        layer: u16,
        /// How many there are.
        count: u16,
    },
    /// A record of a download that is none.
    #[error(
        "{}: {reason}; remove it, and `k3 fetch` makes it anew from the files that are here",
        path.display()
    )]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A list of bad ranges that is none, or of another manifest.
    #[error("{}: {reason}; use what `k3 verify --json` printed for this checkpoint", path.display())]
    Report {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Repair by ranges without a manifest.
    #[error(
        "{}: has no manifest, so single ranges cannot be repaired; `k3 fetch --recheck` fetches \
         files again whose hash is not the published one",
        directory.display()
    )]
    NoManifest {
        /// The directory.
        directory: PathBuf,
    },
    /// Nowhere to fetch from.
    #[error(
        "{}: nothing tells where this checkpoint came from; name the address that has its files \
         with --from",
        directory.display()
    )]
    NoOrigin {
        /// The directory.
        directory: PathBuf,
    },
    /// A directory with another snapshot.
    #[error(
        "{}: holds {found}, not {wanted}; name another directory",
        directory.display()
    )]
    OtherRepo {
        /// The directory.
        directory: PathBuf,
        /// What is there.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// Another download into the same directory.
    #[error("{}: another download is writing here; wait for it, or name another directory", directory.display())]
    Busy {
        /// The directory.
        directory: PathBuf,
    },
    /// No file is left to fetch.
    #[error("{repo}: none of its {count} files is selected; check --include and --exclude")]
    NothingSelected {
        /// The repository.
        repo: String,
        /// Files it has.
        count: usize,
    },
    /// Something that is no repository, revision or address.
    #[error("{what} {given:?}: {reason}")]
    Unusable {
        /// What it was given as.
        what: &'static str,
        /// What was given.
        given: String,
        /// Why not.
        reason: String,
    },
    /// An answer of the hub that cannot be understood.
    #[error("{url}: {reason}; is this the address of a model hub (HF_ENDPOINT)?")]
    Hub {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// Less free space than needed.
    #[error(
        "{}: {} to be fetched and {} to be left free, but {} are available: {} missing; free some \
         space, name another disk, or fetch less with --include and --exclude",
        directory.display(), Bytes(*needed_bytes), Bytes(*reserve_bytes), Bytes(*available_bytes),
        Bytes((needed_bytes + reserve_bytes).saturating_sub(*available_bytes))
    )]
    NoSpace {
        /// Where.
        directory: PathBuf,
        /// What is still to come.
        needed_bytes: u64,
        /// What must stay free beside it.
        reserve_bytes: u64,
        /// What is free.
        available_bytes: u64,
    },
    /// An output that cannot be written.
    #[error("{}: cannot {action}: {source}", path.display())]
    NotWritable {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Files that could not be had; the others are there.
    #[error("{} of {of} files could not be fetched:{}", failures.len(), list(failures))]
    Incomplete {
        /// What became of each.
        failures: Vec<String>,
        /// Files there were to fetch.
        of: usize,
    },
    /// Stopped.
    #[error("interrupted")]
    Interrupted,
}

/// Failures named in a message.
const LISTED_MAX: usize = 10;

fn list(failures: &[String]) -> String {
    let shown = failures.iter().take(LISTED_MAX);
    let mut text: String = shown.map(|failure| format!("\n  - {failure}")).collect();
    if let Some(more) = failures.len().checked_sub(LISTED_MAX + 1) {
        text.push_str(&format!("\n  - and {} more", more + 1));
    }
    text
}

impl IntegrityError {
    /// [`IntegrityError::NotWritable`] of a path.
    pub(crate) fn writing(
        path: impl Into<PathBuf>,
        action: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::NotWritable {
            path,
            action,
            source,
        }
    }
}
