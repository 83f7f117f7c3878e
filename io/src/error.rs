//! What can go wrong between a path and its bytes.

use std::io;
use std::path::{Path, PathBuf};

use k3_formats::FormatError;

use crate::engine::EngineError;

/// A file or directory could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The system refused to open or inspect a path.
    #[error("{}: cannot {action}: {source}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },

    /// A path that should be a regular file is something else.
    #[error("{}: is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },

    /// The model directory does not exist.
    #[error(
        "{}: no such directory; give the directory of a downloaded checkpoint (config.json, \
         *.safetensors, tiktoken.model)",
        path.display()
    )]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },

    /// The model path is a file.
    #[error(
        "{}: is not a directory; give the directory that holds the checkpoint's files, not one \
         of them",
        path.display()
    )]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },

    /// The directory has no file of this name.
    #[error("{}: has no {name}; {remedy}", directory.display())]
    NoSuchFile {
        /// The directory.
        directory: PathBuf,
        /// What is missing.
        name: &'static str,
        /// Where to get it.
        remedy: &'static str,
    },

    /// The directory has no shards.
    #[error(
        "{}: has no *.safetensors files; fetch the checkpoint's weights into it",
        directory.display()
    )]
    NoShards {
        /// The directory.
        directory: PathBuf,
    },

    /// The index names shard files that are in no directory searched.
    #[error("{}: {}", index.display(), missing_shards(shards, *missing_count))]
    MissingShards {
        /// The index file.
        index: PathBuf,
        /// How many files are missing.
        missing_count: usize,
        /// A description of the first ones: file, layers, size where known.
        shards: Vec<String>,
    },

    /// No directory has a packed trunk.
    #[error("{}", no_trunk(directories, unfinished.as_deref()))]
    NoTrunk {
        /// The directories.
        directories: Vec<PathBuf>,
        /// A file of a packing that was not finished.
        unfinished: Option<PathBuf>,
    },

    /// More than one trunk in the directories.
    #[error(
        "{} and {}: two trunks; name the directories of one of them",
        first.display(), second.display()
    )]
    SeveralTrunks {
        /// A file of one.
        first: PathBuf,
        /// A file of the other.
        second: PathBuf,
    },

    /// Stripes of a packed trunk are missing, and one that is not finished is there.
    #[error(
        "{source}; {} was left by a packing that did not finish: run the same k3-pack trunk \
         again to finish it", unfinished.display()
    )]
    UnfinishedStripe {
        /// What is missing.
        source: Box<FormatError>,
        /// The file.
        unfinished: PathBuf,
    },

    /// A manifest of other files than those beside it.
    #[error(
        "{}: is the manifest of another checkpoint than the one it lies beside; make its own with \
         k3-pack manifest", path.display()
    )]
    OtherManifest {
        /// The manifest.
        path: PathBuf,
    },

    /// A file is empty.
    #[error("{}: is empty: the download did not finish; fetch it again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },

    /// A file is longer than its kind ever is.
    #[error(
        "{}: has {found_bytes} bytes, but a file of this kind has at most {limit_bytes}; is it \
         the right file?",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        found_bytes: u64,
        /// The most that is accepted.
        limit_bytes: u64,
    },

    /// A file has another length than when it was opened.
    #[error(
        "{}: had {opened_bytes} bytes when it was opened and has {current_bytes} now: it was \
         changed while in use; restore it and start again",
        path.display()
    )]
    LengthChanged {
        /// The file.
        path: PathBuf,
        /// Length at the opening.
        opened_bytes: u64,
        /// Length now.
        current_bytes: u64,
    },

    /// Memory for weights could not be had, or a read of weights failed.
    #[error(transparent)]
    Engine(#[from] EngineError),

    /// A read failed, or a file's content is wrong.
    #[error(transparent)]
    Format(#[from] FormatError),
}

fn no_trunk(directories: &[PathBuf], unfinished: Option<&Path>) -> String {
    let names: Vec<_> = directories
        .iter()
        .map(|directory| directory.display().to_string())
        .collect();
    let names = names.join(", ");
    match unfinished {
        Some(file) => format!(
            "{names}: holds a packed trunk that is not finished ({}); run the same k3-pack trunk \
             again to finish it",
            file.display()
        ),
        None => format!(
            "{names}: holds no packed trunk (trunk-00-of-01.k3trunk, or trunk.json beside \
             trunk.bin); make one with k3-pack trunk"
        ),
    }
}

fn missing_shards(shards: &[String], missing_count: usize) -> String {
    let more = missing_count.saturating_sub(shards.len());
    let mut text = format!("{missing_count} of the shard files it names are missing:");
    for shard in shards {
        text.push_str("\n  - ");
        text.push_str(shard);
    }
    if more > 0 {
        text.push_str(&format!("\n  - and {more} more"));
    }
    text.push_str(
        "\nfetch them again with the tool the checkpoint came from (for example `hf download \
         REPOSITORY FILE --local-dir DIRECTORY`), or name the directory that holds them",
    );
    text
}
