//! What is here already, and what is to come.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::sys::statvfs::statvfs;

use super::FetchSettings;
use super::finish::content;
use super::job::{Job, journal_path};
use crate::error::IntegrityError;
use crate::hub::{Hub, HubFile};
use crate::record::{FetchRecord, RecordedFile};
use crate::watch::Watch;

/// Where unfinished files are, inside the directory.
const PARTS_NAME: &str = ".k3-fetch";
/// What keeps a second download out, inside that.
const LOCK_NAME: &str = "lock";

/// Files to fetch, and where to.
#[derive(Debug)]
pub(super) struct FetchPlan {
    pub(super) jobs: Vec<Job>,
    pub(super) directory: Directory,
}

/// A directory that is this download's alone.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    record: Mutex<FetchRecord>,
    /// Gone with the process.
    lock: File,
}

impl Directory {
    /// Makes the directory and takes it.
    ///
    /// # Errors
    ///
    /// A directory that cannot be written, is in use, or holds another snapshot.
    pub(super) fn open(
        settings: &FetchSettings,
        commit: &str,
        watch: &dyn Watch,
    ) -> Result<Self, IntegrityError> {
        let path = settings.directory.clone();
        let parts = path.join(PARTS_NAME);
        fs::create_dir_all(&parts)
            .map_err(IntegrityError::writing(&parts, "create the directory"))?;
        let lock_path = parts.join(LOCK_NAME);
        let lock = File::create(&lock_path)
            .map_err(IntegrityError::writing(&lock_path, "create the file"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(IntegrityError::Busy { directory: path });
            }
            // File systems without locks.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => {
                return Err(IntegrityError::writing(lock_path, "lock the file")(error));
            }
        }
        let new = FetchRecord::new(
            &settings.endpoint,
            &settings.repo,
            &settings.revision,
            commit,
        );
        let record = match FetchRecord::read(&path)? {
            None => new,
            Some(former) if former.repo != settings.repo => {
                return Err(IntegrityError::OtherRepo {
                    directory: path,
                    found: former.repo,
                    wanted: settings.repo.clone(),
                });
            }
            Some(former) => {
                if former.commit != commit {
                    watch.message(&format!(
                        "{} was {} here and is {commit} now: what differs is fetched anew",
                        settings.revision, former.commit
                    ));
                }
                FetchRecord {
                    files: former.files,
                    ..new
                }
            }
        };
        Ok(Self {
            path,
            record: Mutex::new(record),
            lock,
        })
    }

    /// Looks at each of `files`, and makes a job of those that are not here.
    ///
    /// # Errors
    ///
    /// Too little space, a directory that cannot be written, and
    /// [`IntegrityError::Interrupted`].
    pub(super) fn plan(
        self,
        files: &[HubFile],
        all: &[HubFile],
        settings: &FetchSettings,
        hub: &Hub,
        watch: &dyn Watch,
    ) -> Result<FetchPlan, IntegrityError> {
        self.forget_former(all);
        let commit = self.record().commit.clone();
        let doubtful = files
            .iter()
            .filter(|file| self.is_doubtful(file, settings.recheck));
        watch.phase("checking", doubtful.map(|file| file.bytes).sum());
        let mut jobs = Vec::new();
        let space = Space::of(&self.path)?;
        for file in files {
            // A job lists its parts: the length is what the hub says, whatever
            // that is.
            if file.bytes > space.capacity_bytes.min(FILE_BYTES_MAX) {
                return Err(space.lacks(&self.path, file.bytes, settings.reserve_bytes));
            }
            if !watch.go_on() {
                return Err(IntegrityError::Interrupted);
            }
            let part = self.path.join(PARTS_NAME).join(part_name(&file.path));
            if self.is_here(file, settings.recheck, watch)? {
                forget_unfinished(&part);
                continue;
            }
            let address = hub.file_address(&commit, &file.path);
            let target = self.path.join(&file.path);
            let (job, reason) = Job::new(file.clone(), target, part, address, settings.part_bytes);
            if let Some(reason) = reason {
                watch.message(&format!("{}: {reason}: begun anew", file.path));
            }
            jobs.push(job);
        }
        let record = self.record().clone();
        record.write(&self.path)?;
        require_space(&self.path, &jobs, settings.reserve_bytes)?;
        Ok(FetchPlan {
            jobs,
            directory: self,
        })
    }

    fn record(&self) -> std::sync::MutexGuard<'_, FetchRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the commit does not have, or has otherwise, is not recorded as a
    /// part of it.
    fn forget_former(&self, all: &[HubFile]) {
        let mut record = self.record();
        record.files.retain(|recorded| {
            all.iter()
                .any(|file| file.path == recorded.path && file.id.hex() == recorded.oid)
        });
    }

    /// Whether only its hash can tell what a file is.
    fn is_doubtful(&self, file: &HubFile, recheck: bool) -> bool {
        let found = self.path.join(&file.path).metadata();
        let has_length = found.is_ok_and(|found| found.is_file() && found.len() == file.bytes);
        has_length && (recheck || self.record().file(&file.path).is_none())
    }

    /// Whether a file is here and the one that was published.
    fn is_here(
        &self,
        file: &HubFile,
        recheck: bool,
        watch: &dyn Watch,
    ) -> Result<bool, IntegrityError> {
        let path = self.path.join(&file.path);
        let length = match path.metadata() {
            Ok(found) if found.is_file() => found.len(),
            Ok(_) => {
                let source = std::io::Error::from(ErrorKind::AlreadyExists);
                return Err(IntegrityError::writing(
                    path,
                    "put a file where a directory is",
                )(source));
            }
            Err(_) => {
                self.forget(&file.path);
                return Ok(false);
            }
        };
        let is_recorded = self.record().file(&file.path).is_some();
        if length == file.bytes && is_recorded && !recheck {
            return Ok(true);
        }
        if length == file.bytes {
            let found = content(&path, file, watch)?;
            watch.bytes(file.bytes);
            if let Some(sha256) = found.published(file) {
                self.record().put(RecordedFile {
                    path: file.path.clone(),
                    bytes: file.bytes,
                    sha256,
                    oid: file.id.hex(),
                });
                return Ok(true);
            }
        }
        self.forget(&file.path);
        let path = &file.path;
        watch.message(&format!(
            "{path}: what is here is not what was published: fetched anew"
        ));
        Ok(false)
    }

    fn forget(&self, path: &str) {
        self.record().files.retain(|file| file.path != path);
    }

    /// Records a file that is complete.
    ///
    /// # Errors
    ///
    /// A directory that cannot be written.
    pub(super) fn put(&self, file: RecordedFile) -> Result<(), IntegrityError> {
        let mut record = self.record();
        record.put(file);
        record.write(&self.path)
    }

    /// Everything is complete: removes what held unfinished files.
    pub(super) fn close(&self) {
        let parts = self.path.join(PARTS_NAME);
        // Files of other selections may be unfinished still; then it stays.
        let names = parts.read_dir().map(|entries| entries.flatten().count());
        if names.is_ok_and(|count| count <= 1) {
            let _ = fs::remove_file(parts.join(LOCK_NAME));
            let _ = fs::remove_dir(parts);
        }
        let _ = self.lock.unlock();
    }
}

/// Removes what a download may have left that ended between giving a file its name
/// and this. It is of no use: the file is here.
fn forget_unfinished(part: &Path) {
    for path in [part.to_owned(), journal_path(part)] {
        let _ = fs::remove_file(path);
    }
}

/// One name for a path, however deep.
fn part_name(path: &str) -> String {
    path.replace('%', "%25").replace('/', "%2F") + ".part"
}

fn require_space(directory: &Path, jobs: &[Job], reserve_bytes: u64) -> Result<(), IntegrityError> {
    let needed = jobs.iter().map(Job::needed_bytes);
    let needed_bytes = needed.fold(0, u64::saturating_add);
    if needed_bytes == 0 {
        return Ok(());
    }
    let space = Space::of(directory)?;
    if space.available_bytes < needed_bytes.saturating_add(reserve_bytes) {
        return Err(space.lacks(directory, needed_bytes, reserve_bytes));
    }
    Ok(())
}

/// Longest file that is fetched, 64 TiB: no released file comes near it.
const FILE_BYTES_MAX: u64 = 1 << 46;

/// What a disk has.
#[derive(Debug, Clone, Copy)]
struct Space {
    capacity_bytes: u64,
    available_bytes: u64,
}

impl Space {
    fn of(directory: &Path) -> Result<Self, IntegrityError> {
        let found = statvfs(directory).map_err(|error| {
            IntegrityError::writing(directory, "ask for free space")(error.into())
        })?;
        let fragment = found.fragment_size();
        Ok(Self {
            capacity_bytes: found.blocks().saturating_mul(fragment),
            available_bytes: found.blocks_available().saturating_mul(fragment),
        })
    }

    fn lacks(self, directory: &Path, needed_bytes: u64, reserve_bytes: u64) -> IntegrityError {
        IntegrityError::NoSpace {
            directory: directory.to_owned(),
            needed_bytes,
            reserve_bytes,
            available_bytes: self.available_bytes,
        }
    }
}
