//! The hash of a file that has come, and its name.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use k3_io::{
    DirectFile, DirectPolicy, EngineError, FileId, FileTable, HashKind, HashSettings, HashSink,
    Segment, hash_ranges, read_small, rename_to_disk,
};
use sha1::Digest as _;

use super::job::Job;
use super::part::restart;
use super::run::Run;
use crate::check::directory_of;
use crate::error::IntegrityError;
use crate::hub::{ContentId, HubFile};
use crate::record::RecordedFile;
use crate::watch::Watch;

/// Longest file that is known by the id of a git object alone: a hub keeps
/// larger ones apart.
const BLOB_BYTES_MAX: u64 = 1 << 30;

/// Compares all of a file with what was published and gives it its name, or
/// begins it anew.
///
/// # Errors
///
/// A file that cannot be read or named, one begun anew too often, and
/// [`IntegrityError::Interrupted`].
pub(super) fn finish(run: &Run, job: &Job) -> Result<(), IntegrityError> {
    let epoch = job.epoch();
    if let Some(data) = job.data() {
        let synced = data.sync_all();
        synced.map_err(IntegrityError::writing(&job.part, "write to the disk"))?;
    }
    let found = content(&job.part, &job.file, &*run.watch)?;
    let Some(sha256) = found.published(&job.file) else {
        let (published, found) = (job.file.id.hex(), found.shown());
        let reason = format!("its hash is {found}, published is {published}");
        return restart(run, job, epoch, &reason);
    };
    let name = || -> std::io::Result<()> {
        let parent = directory_of(&job.target);
        fs::create_dir_all(parent)?;
        rename_to_disk(&job.part, &job.target)
    };
    name().map_err(IntegrityError::writing(
        &job.target,
        "move the file to its name",
    ))?;
    job.remove_journal();
    job.end();
    run.directory.put(RecordedFile {
        path: job.file.path.clone(),
        bytes: job.file.bytes,
        sha256,
        oid: job.file.id.hex(),
    })
}

/// Hashes of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) sha256: [u8; 32],
    /// Only where that is what it is published by.
    pub(super) blob: Option<[u8; 20]>,
}

impl Content {
    /// Its SHA-256 in hexadecimal, if the content is the one of `file`.
    pub(super) fn published(&self, file: &HubFile) -> Option<String> {
        let is_published = match file.id {
            ContentId::Sha256(hash) => hash == self.sha256,
            ContentId::GitBlob(hash) => Some(hash) == self.blob,
        };
        is_published.then(|| ContentId::Sha256(self.sha256).hex())
    }

    fn shown(&self) -> String {
        let blob = self.blob.map(ContentId::GitBlob);
        blob.unwrap_or(ContentId::Sha256(self.sha256)).hex()
    }
}

/// Hashes the file at `path`, which has the length of `file`.
///
/// # Errors
///
/// A file that cannot be read, and [`IntegrityError::Interrupted`].
pub(super) fn content(
    path: &Path,
    file: &HubFile,
    watch: &dyn Watch,
) -> Result<Content, IntegrityError> {
    if let ContentId::GitBlob(_) = file.id {
        // Even an empty file has an object.
        let bytes = match file.bytes {
            0 => Vec::new(),
            _ => read_small(path, BLOB_BYTES_MAX)?,
        };
        let mut blob = sha1::Sha1::new();
        blob.update(format!("blob {}\0", bytes.len()));
        blob.update(&bytes);
        let mut sha256 = k3_io::Digest::new(HashKind::Sha256);
        sha256.update(&bytes);
        return Ok(Content {
            sha256: sha256.finish(),
            blob: Some(blob.finalize().into()),
        });
    }
    let hash = sha256(&[(path, file.bytes)], 1, watch)?;
    let hash = hash.into_iter().next().expect("one file, one hash");
    Ok(Content {
        sha256: hash?,
        blob: None,
    })
}

/// SHA-256 of the first so many bytes of each file.
///
/// # Errors
///
/// No memory to read into, and [`IntegrityError::Interrupted`].
pub(super) fn sha256(
    files: &[(&Path, u64)],
    threads: usize,
    watch: &dyn Watch,
) -> Result<Vec<Result<[u8; 32], EngineError>>, IntegrityError> {
    let mut table = FileTable::new();
    let mut segments = Vec::with_capacity(files.len());
    for (path, bytes) in files {
        let file: FileId = table.add(DirectFile::open(path, DirectPolicy::Probe)?);
        segments.push(Segment {
            file,
            offset: 0,
            bytes: *bytes,
        });
    }
    let mut settings = HashSettings::new(HashKind::Sha256);
    settings.threads = threads.min(settings.threads);
    let sink = Sink {
        watch,
        hashes: Mutex::new(vec![Err(EngineError::Cancelled); files.len()]),
    };
    let summary = hash_ranges(&Arc::new(table), &segments, &settings, &sink)?;
    if !summary.is_complete {
        return Err(IntegrityError::Interrupted);
    }
    Ok(sink
        .hashes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

struct Sink<'a> {
    watch: &'a dyn Watch,
    hashes: Mutex<Vec<Result<[u8; 32], EngineError>>>,
}

impl HashSink for Sink<'_> {
    fn go_on(&self) -> bool {
        self.watch.go_on()
    }

    /// Bytes count once, when they come.
    fn bytes(&self, _count: u64) {}

    fn range(&self, range: usize, hash: Result<[u8; 32], EngineError>) {
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner)[range] = hash;
    }
}
