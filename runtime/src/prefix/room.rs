//! Room in the directory: what is there, and what goes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::error::PrefixError;
use super::names::EntryName;
use super::partial::{available_bytes, remove_unowned, target_of};
use super::steps::step;

/// Room on the disk that an entry leaves to others.
const DISK_RESERVE_BYTES: u64 = 64 << 20;

const LOCK_NAME: &str = ".lock";
const LOCK_TRIES_MAX: u32 = 500;
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// An entry of the directory, by its name.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: EntryName,
    pub(super) path: PathBuf,
}

/// All entries, in no order.
pub(super) fn entries(directory: &Path) -> Result<Vec<Found>, PrefixError> {
    let error = |source| PrefixError::system(directory, "list the directory")(source);
    step().map_err(error)?;
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(error)? {
        let entry = entry.map_err(error)?;
        if let Some(name) = entry.file_name().to_str().and_then(EntryName::parse) {
            let path = entry.path();
            found.push(Found { name, path });
        }
    }
    Ok(found)
}

/// One process makes room at a time; the lock goes with the file.
pub(super) fn lock(directory: &Path) -> Result<File, PrefixError> {
    let path = directory.join(LOCK_NAME);
    let error = |source| PrefixError::system(&path, "lock the directory")(source);
    step().map_err(error)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(error)?;
    for _ in 0..LOCK_TRIES_MAX {
        match file.try_lock() {
            // Without locks processes may make room at once and take too much.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_WAIT),
        }
    }
    let wait_seconds = (LOCK_WAIT * LOCK_TRIES_MAX).as_secs();
    Err(PrefixError::Busy { path, wait_seconds })
}

/// Removes unfinished files without an owner; bytes of those that have one.
pub(super) fn tidy(directory: &Path) -> u64 {
    let mut owned_bytes = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let target = name.to_str().and_then(target_of);
        if target.is_some_and(|target| EntryName::parse(target).is_some())
            && !remove_unowned(&entry.path())
        {
            owned_bytes += entry.metadata().map_or(0, |metadata| metadata.len());
        }
    }
    owned_bytes
}

/// What making room came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is room; so many entries went for it.
    Made(u64),
    /// What others are writing leaves too little below the limit; nothing went.
    Taken,
}

/// Removes entries, those that were used longest ago first, until `needed_bytes`
/// fit the limit beside `owned_bytes` and the disk. Removes none if that is not
/// enough.
pub(super) fn make_room(
    directory: &Path,
    limit_bytes: u64,
    needed_bytes: u64,
    owned_bytes: u64,
) -> Result<Room, PrefixError> {
    let mut entries: Vec<(SystemTime, PathBuf, u64)> = entries(directory)?
        .into_iter()
        .filter_map(|found| {
            // One that vanished meanwhile takes no room.
            let metadata = found.path.symlink_metadata().ok()?;
            // Nor does what is none, whatever it is called.
            let is_entry = metadata.is_file() || metadata.is_symlink();
            is_entry.then_some((metadata.modified().ok()?, found.path, metadata.len()))
        })
        .collect();
    entries.sort();
    let held_bytes: u64 = entries.iter().map(|entry| entry.2).sum();
    let total_bytes = held_bytes.saturating_add(owned_bytes);
    let over_bytes = total_bytes
        .saturating_add(needed_bytes)
        .saturating_sub(limit_bytes);
    if needed_bytes > 0 && over_bytes > held_bytes {
        return Ok(Room::Taken);
    }
    let mut wanted_bytes = over_bytes;
    if needed_bytes > 0 {
        let path = directory.join(LOCK_NAME);
        let available_bytes = available_bytes(&path)
            .map_err(PrefixError::system(directory, "ask for the free space"))?;
        let needed_bytes = needed_bytes.saturating_add(DISK_RESERVE_BYTES);
        let short_bytes = needed_bytes.saturating_sub(available_bytes);
        if short_bytes > held_bytes {
            return Err(PrefixError::DiskFull {
                path: directory.to_path_buf(),
                needed_bytes,
                available_bytes,
            });
        }
        wanted_bytes = wanted_bytes.max(short_bytes);
    }
    let mut freed_bytes = 0;
    let mut evicted = 0;
    let mut kept = None;
    for (_, path, bytes) in entries {
        if freed_bytes >= wanted_bytes {
            break;
        }
        match step().and_then(|()| fs::remove_file(&path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // Others may go instead of it.
                kept.get_or_insert(PrefixError::system(&path, "remove the entry")(error));
            }
            _ => {
                freed_bytes += bytes;
                evicted += 1;
            }
        }
    }
    match kept {
        Some(error) if freed_bytes < wanted_bytes => Err(error),
        _ => Ok(Room::Made(evicted)),
    }
}
