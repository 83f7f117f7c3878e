//! What is to be hashed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k3_formats::manifest::MANIFEST_NAME;
use k3_formats::{Identity, ManifestPlan, ReadAt as _, ShardIndex};
use k3_io::{CheckpointFiles, DirectFile, DirectPolicy, FileId, FileTable, IoError, Segment};

use crate::error::PackError;

/// Endings of the files beside the shards that belong to a checkpoint: what
/// configures it, its vocabulary, templates and code.
const ENDINGS: [&str; 5] = ["json", "model", "jinja", "py", "txt"];

/// A file that `k3 fetch` keeps beside the checkpoint; no part of it.
const FETCH_RECORD: &str = "k3-fetch.json";

/// A checkpoint whose headers were read and checked.
#[derive(Debug)]
pub struct ManifestJob {
    pub(super) plan: ManifestPlan,
    pub(super) identity: Identity,
    pub(super) table: Arc<FileTable>,
    pub(super) segments: Vec<Segment>,
}

impl ManifestJob {
    /// Reads the headers of the checkpoint in `model`, whose shards may also lie
    /// in `roots`, and finds the files beside them.
    ///
    /// # Errors
    ///
    /// Files that are missing or cannot be read, and every fault of headers and
    /// index.
    pub fn new(model: &Path, roots: &[PathBuf]) -> Result<Self, PackError> {
        let files = CheckpointFiles::open(model, roots)?;
        let (_, config) = files.config()?;
        let index = ShardIndex::build(&files.views(), files.index_view())?;
        let others = others(model)?;
        let mut table = FileTable::new();
        let mut opened: Vec<(String, FileId)> = Vec::new();
        for shard in &files.shards {
            let file = DirectFile::reopen(shard, DirectPolicy::Probe)?;
            opened.push((shard.file_name(), table.add(file)));
        }
        let mut lengths = Vec::with_capacity(others.len());
        for name in others {
            let file = DirectFile::open(&model.join(&name), DirectPolicy::Probe)?;
            lengths.push((name.clone(), file.len_bytes()));
            opened.push((name, table.add(file)));
        }
        let plan = ManifestPlan::new(&index, lengths);
        let ids: Vec<FileId> = plan
            .files()
            .iter()
            .map(|file| {
                let found = opened.iter().find(|(name, _)| *name == file.name);
                found.expect("each file of the plan was opened").1
            })
            .collect();
        let segments = plan.ranges().iter().map(|range| Segment {
            file: ids[range.file],
            offset: range.offset,
            bytes: range.bytes,
        });
        Ok(Self {
            segments: segments.collect(),
            identity: index.identity(&config),
            table: Arc::new(table),
            plan,
        })
    }

    /// Bytes to be hashed.
    pub fn total_bytes(&self) -> u64 {
        self.plan.total_bytes()
    }

    /// Which checkpoint it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }
}

/// Names of the files beside the shards that belong to the checkpoint.
fn others(model: &Path) -> Result<Vec<String>, PackError> {
    let system = |source| IoError::System {
        path: model.to_path_buf(),
        action: "list the directory",
        source,
    };
    let mut names = Vec::new();
    for entry in model.read_dir().map_err(system)? {
        let entry = entry.map_err(system)?;
        // A name that is no text is none that a model is published with.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = entry.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let belongs = ending.is_some_and(|ending| ENDINGS.contains(&ending))
            && !name.starts_with('.')
            && name != FETCH_RECORD
            && name != MANIFEST_NAME;
        if belongs && path.is_file() {
            names.push(name);
        }
    }
    Ok(names)
}
