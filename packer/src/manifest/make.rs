//! Hashing a checkpoint, and writing what came of it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use k3_formats::Manifest;
use k3_io::{
    EngineError, HashKind, HashSettings, HashSink, HashSummary, hash_ranges, replace_file,
};

use super::job::ManifestJob;
use crate::error::PackError;

/// What a finished run has to tell.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestSummary {
    /// How the hashing went.
    pub hashing: HashSummary,
    /// Files that are covered.
    pub file_count: usize,
    /// Ranges with a hash of their own.
    pub range_count: usize,
    /// Length of the manifest.
    pub manifest_bytes: u64,
    /// Root hash of the manifest.
    pub root: [u8; 32],
}

/// Hashes every byte of the checkpoint and writes the manifest to `out`, which
/// appears complete or not at all. `on_bytes` hears of what was hashed, from
/// any thread.
///
/// # Errors
///
/// [`PackError::Exists`] unless `replace` is set, a file that cannot be read,
/// an output that cannot be written, and [`PackError::Interrupted`] soon after
/// `cancel` is set.
pub fn make(
    job: ManifestJob,
    out: &Path,
    replace: bool,
    threads: Option<usize>,
    cancel: &AtomicBool,
    on_bytes: &(dyn Fn(u64) + Sync),
) -> Result<ManifestSummary, PackError> {
    if !replace && out.exists() {
        return Err(PackError::ManifestExists {
            path: out.to_owned(),
        });
    }
    let mut settings = HashSettings::new(HashKind::Blake3);
    settings.threads = threads.unwrap_or(settings.threads);
    let sink = Sink {
        cancel,
        on_bytes,
        hashes: Mutex::new(vec![[0; 32]; job.segments.len()]),
        failure: Mutex::new(None),
        failed: AtomicBool::new(false),
    };
    let hashing = hash_ranges(&job.table, &job.segments, &settings, &sink)?;
    if let Some(error) = sink
        .failure
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
        return Err(error.into());
    }
    if !hashing.is_complete {
        return Err(PackError::Interrupted);
    }
    for file in job.table.files() {
        if file.current_len_bytes()? != file.len_bytes() {
            return Err(PackError::Changed {
                path: file.path().to_owned(),
            });
        }
    }
    let hashes = sink
        .hashes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let manifest = job.plan.finish(job.identity, &hashes);
    let manifest_bytes = write(&manifest, out)?;
    Ok(ManifestSummary {
        hashing,
        file_count: manifest.files().len(),
        range_count: manifest.ranges().len(),
        manifest_bytes,
        root: manifest.root(),
    })
}

struct Sink<'a> {
    cancel: &'a AtomicBool,
    on_bytes: &'a (dyn Fn(u64) + Sync),
    hashes: Mutex<Vec<[u8; 32]>>,
    failure: Mutex<Option<EngineError>>,
    failed: AtomicBool,
}

impl HashSink for Sink<'_> {
    fn go_on(&self) -> bool {
        !self.cancel.load(Ordering::Relaxed) && !self.failed.load(Ordering::Relaxed)
    }

    fn bytes(&self, count: u64) {
        (self.on_bytes)(count);
    }

    fn range(&self, range: usize, hash: Result<[u8; 32], EngineError>) {
        match hash {
            Ok(hash) => {
                self.hashes.lock().unwrap_or_else(PoisonError::into_inner)[range] = hash;
            }
            Err(error) => {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error);
                self.failed.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Writes the manifest under its name: complete or not at all. The length of the
/// file.
fn write(manifest: &Manifest, out: &Path) -> Result<u64, PackError> {
    if out.file_name().is_none() {
        return Err(PackError::BadTarget {
            path: out.to_owned(),
        });
    }
    let bytes = manifest.to_bytes();
    replace_file(out, &bytes).map_err(PackError::writing(out, "write"))?;
    Ok(bytes.len() as u64)
}
