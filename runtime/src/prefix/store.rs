//! The prefix cache.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use k3_formats::snapshot::{Snapshot, SnapshotBinding, SnapshotHeader};
use k3_formats::{FormatError, ReadAt as _};
use k3_io::IoError;

use super::error::PrefixError;
use super::file::write_snapshot;
use super::names::{EntryName, PrefixKeys, binding_tag};
use super::partial::PartialFile;
use super::read::{Hit, PassingFile, load};
use super::room::{self, Room};
use super::steps::step;

/// Messages that are kept until somebody asks for them.
const WARNINGS_MAX: usize = 16;

/// What a store did since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefixStatistics {
    /// Lookups that found a prefix.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Bytes of files that were loaded.
    pub read_bytes: u64,
    /// Bytes of files that were saved.
    pub written_bytes: u64,
    /// Entries removed to make room.
    pub evictions: u64,
    /// Entries taken away because they were damaged.
    pub damaged: u64,
}

/// What became of a state that was to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// It is on the disk.
    Stored {
        /// Length of its file.
        file_bytes: u64,
    },
    /// It was there already and counts as used now.
    Present,
    /// It does not fit the limit, or not beside what others are writing.
    NoRoom {
        /// Length that its file would have.
        file_bytes: u64,
        /// The limit of the directory.
        limit_bytes: u64,
    },
}

/// A directory of states with a limit, for one binding.
///
/// Any number of stores, also of other processes and other bindings, may share a
/// directory; entries of all of them count. Each holds the directory to its own limit.
#[derive(Debug)]
pub struct PrefixStore {
    directory: PathBuf,
    limit_bytes: u64,
    binding: SnapshotBinding,
    tag: String,
    statistics: Mutex<PrefixStatistics>,
    warnings: Mutex<Vec<String>>,
}

impl PrefixStore {
    /// Opens or makes `directory`, for its owner alone; removes what killed
    /// processes left, and entries above `limit_bytes`. A directory that can be
    /// read but not written serves lookups.
    ///
    /// # Errors
    ///
    /// A directory that can be neither made nor listed.
    pub fn open(
        directory: &Path,
        limit_bytes: u64,
        binding: SnapshotBinding,
    ) -> Result<Self, PrefixError> {
        step()
            .and_then(|()| {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(directory)
            })
            .map_err(PrefixError::system(directory, "make the directory"))?;
        room::entries(directory)?;
        let store = Self {
            directory: directory.to_path_buf(),
            limit_bytes,
            binding,
            tag: binding_tag(&binding),
            statistics: Mutex::default(),
            warnings: Mutex::default(),
        };
        if let Err(error) = store.trim() {
            store.warn(&error);
        }
        Ok(store)
    }

    /// The longest stored prefix of `tokens` that has at most `at_most` ids. With
    /// `at_most` one less than there are ids, one is left to compute.
    ///
    /// Damaged entries on the way are taken away; they and whatever cannot be read
    /// are passed over and told by [`PrefixStore::take_warnings`].
    pub fn find(&self, tokens: &[u32], at_most: usize) -> Option<Hit> {
        let hit = self.longest(tokens, at_most);
        let mut statistics = self.statistics_mut();
        match &hit {
            Some(_) => statistics.hits += 1,
            None => statistics.misses += 1,
        }
        drop(statistics);
        hit
    }

    /// Hands the state of `hit` to `read`, each byte checked before, and counts the
    /// entry as used now. After an error the state that `read` filled is to be reset.
    ///
    /// # Errors
    ///
    /// [`PrefixError::Damaged`]: the entry was taken away, another lookup finds a
    /// shorter one. What `read` returns, and bytes that it left: the entry stays.
    pub fn load(
        &self,
        hit: Hit,
        read: impl FnOnce(&mut dyn Read) -> io::Result<()>,
    ) -> Result<(), PrefixError> {
        match load(&hit.file, &hit.snapshot, read) {
            Err(PrefixError::File(error)) => {
                self.take_away(&hit.file, &hit.path);
                Err(PrefixError::Damaged(error))
            }
            Err(other) => Err(other),
            Ok(()) => {
                // Where that is not allowed the order is that of saving.
                let _ = step().is_ok() && hit.file.0.touch(SystemTime::now());
                self.statistics_mut().read_bytes += hit.file.len_bytes();
                Ok(())
            }
        }
    }

    /// Saves the state after `tokens`, of which `write` writes exactly
    /// `payload_bytes`, unless it is there. Makes room first: entries that were used
    /// longest ago go.
    ///
    /// # Errors
    ///
    /// What the system reports, a full disk, no ids or too many, and what `write`
    /// returns; nothing half made is visible then.
    pub fn save(
        &self,
        tokens: &[u32],
        payload_bytes: u64,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Saved, PrefixError> {
        let header = SnapshotHeader::new(self.binding, tokens.len(), payload_bytes)?;
        let key = PrefixKeys::new(&self.binding, tokens).key(tokens.len());
        let path = self.path_of(tokens.len(), key);
        if let Ok(present) = PassingFile::open(&path) {
            let _ = present.0.touch(SystemTime::now());
            return Ok(Saved::Present);
        }
        let (file_bytes, limit_bytes) = (header.file_bytes(), self.limit_bytes);
        let no_room = Saved::NoRoom {
            file_bytes,
            limit_bytes,
        };
        if file_bytes > limit_bytes {
            return Ok(no_room);
        }
        let lock = room::lock(&self.directory)?;
        // Before anything goes: a directory that cannot be written loses nothing.
        let owned_bytes = room::tidy(&self.directory);
        let partial = PartialFile::create(&path)?;
        match room::make_room(&self.directory, limit_bytes, file_bytes, owned_bytes)? {
            Room::Taken => return Ok(no_room),
            Room::Made(evicted) => self.statistics_mut().evictions += evicted,
        }
        partial.reserve(file_bytes)?;
        drop(lock);
        write_snapshot(partial, header, tokens, write)?;
        self.statistics_mut().written_bytes += file_bytes;
        Ok(Saved::Stored { file_bytes })
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Most bytes of files in it.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// What the store did so far.
    pub fn statistics(&self) -> PrefixStatistics {
        *self.statistics_mut()
    }

    /// What went wrong without stopping anything, since the last call; the first of
    /// many.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn trim(&self) -> Result<(), PrefixError> {
        let _lock = room::lock(&self.directory)?;
        let owned_bytes = room::tidy(&self.directory);
        match room::make_room(&self.directory, self.limit_bytes, 0, owned_bytes)? {
            Room::Made(evicted) => self.statistics_mut().evictions += evicted,
            Room::Taken => {}
        }
        Ok(())
    }

    fn longest(&self, tokens: &[u32], at_most: usize) -> Option<Hit> {
        let at_most = at_most.min(tokens.len());
        let entries = match room::entries(&self.directory) {
            Ok(entries) => entries,
            Err(error) => {
                self.warn(&error);
                return None;
            }
        };
        let mut stored: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for found in entries {
            if found.name.tag == self.tag && (1..=at_most).contains(&found.name.position) {
                let keys = stored.entry(found.name.position).or_default();
                keys.push(found.name.key);
            }
        }
        let mut hasher = PrefixKeys::new(&self.binding, tokens);
        let mut candidates = Vec::new();
        for (position, keys) in stored {
            let key = hasher.key(position);
            if keys.contains(&key) {
                candidates.push((position, key));
            }
        }
        let candidates = candidates.into_iter().rev();
        candidates
            .filter_map(|(position, key)| self.open_entry(tokens, position, key))
            .next()
    }

    /// One entry, if it is there and what its name says.
    fn open_entry(&self, tokens: &[u32], position: usize, key: String) -> Option<Hit> {
        let path = self.path_of(position, key);
        let file = match PassingFile::open(&path) {
            Ok(file) => file,
            // Another process has evicted it since the directory was listed.
            Err(IoError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return None;
            }
            Err(error) => {
                self.warn(&error);
                return None;
            }
        };
        let result = Snapshot::open_of(&file, &self.binding, &tokens[..position]);
        match result {
            Ok(snapshot) => Some(Hit {
                path,
                file,
                snapshot,
            }),
            Err(error) => {
                self.take_away(&file, &path);
                self.warn::<FormatError>(&error);
                None
            }
        }
    }

    /// Removes a damaged entry, but no other that took its name meanwhile.
    fn take_away(&self, file: &PassingFile, path: &Path) {
        self.statistics_mut().damaged += 1;
        if !file.0.is_at(path) {
            return;
        }
        if let Err(error) = step().and_then(|()| fs::remove_file(path)) {
            self.warn(&PrefixError::system(path, "remove the damaged entry")(
                error,
            ));
        }
    }

    fn path_of(&self, position: usize, key: String) -> PathBuf {
        let tag = self.tag.clone();
        let name = EntryName { tag, position, key };
        self.directory.join(name.file_name())
    }

    fn warn<E: std::fmt::Display>(&self, error: &E) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < WARNINGS_MAX {
            warnings.push(error.to_string());
        }
    }

    fn statistics_mut(&self) -> MutexGuard<'_, PrefixStatistics> {
        self.statistics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
