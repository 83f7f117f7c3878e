//! Control groups that hold a child process to a memory limit.
//!
//! A measurement of what a program needs is worth nothing on a machine that
//! has more than it was allowed. So each run gets a group of its own with the
//! limit on it and swap shut off, made below the group of this process: limits
//! above bind it too, and nobody else's groups are touched.
//!
//! Both versions of the interface are used as they are found. In version 2 a
//! group has limits only if the one above hands the memory controller down;
//! that is left to whoever owns the tree, and said when it is missing.

mod usage;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bytes::Bytes;
use crate::host::cgroup::group_levels_of;
use crate::host::files::Report;
use crate::host::{CgroupVersion, ProblemArea};

pub use usage::{GroupPeaks, GroupReading};

/// The controller this is all about.
const CONTROLLER: &str = "memory";
/// What every group's name starts with; the maker's process id follows.
const NAME_PREFIX: &str = "k3-ladder-";
/// The file of a group through which processes enter it.
pub const GROUP_PROCS: &str = "cgroup.procs";
/// What a group hands down, in version 2.
const SUBTREE: &str = "cgroup.subtree_control";
const V1_LIMIT: &str = "memory.limit_in_bytes";
const V1_LIMIT_WITH_SWAP: &str = "memory.memsw.limit_in_bytes";
const V2_LIMIT: &str = "memory.max";
const V2_SWAP_LIMIT: &str = "memory.swap.max";
/// Pages have at least this many bytes, and at most that many.
const PAGE_BYTES: u64 = 4 << 10;
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// A group stays busy for a moment after its last process has ended.
const REMOVE_TRIES: u32 = 50;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);

/// Why there is no group with a limit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// No mounted hierarchy has a memory controller and shows the group.
    #[error("no mounted control group hierarchy shows the memory group of process {process}")]
    NotFound {
        /// Its id, or `self`.
        process: String,
    },
    /// The group above does not pass the controller on.
    #[error(
        "{path}: hands down `{found}`, but not the memory controller, so that groups below \
         have no limits; whoever owns the group can hand it down with \
         `echo +memory > {path}`, if no process is directly in the group"
    )]
    ControllerOff {
        /// Its `cgroup.subtree_control`.
        path: PathBuf,
        /// What it hands down.
        found: String,
    },
    /// A file or directory of a group.
    #[error("{path}: cannot {doing}")]
    System {
        /// Which.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A limit that reads back as another.
    #[error("{path}: was set to {asked} and reads back as `{found}`")]
    NotTaken {
        /// The file.
        path: PathBuf,
        /// What was written, in bytes.
        asked: u64,
        /// What it says.
        found: String,
    },
}

fn system(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> GroupError {
    let path = path.to_owned();
    move |source| GroupError::System {
        path,
        doing,
        source,
    }
}

/// The group below which groups are made: that of this process.
#[derive(Debug, Clone)]
pub struct GroupParent {
    path: PathBuf,
    version: CgroupVersion,
}

impl GroupParent {
    /// The own group, in the file tree that starts at `root`, usually `/`.
    ///
    /// # Errors
    ///
    /// [`GroupError::NotFound`] without a memory controller,
    /// [`GroupError::ControllerOff`] if groups below would have no limits.
    /// Whether a group can be made is known once one has been.
    pub fn own(root: &Path) -> Result<Self, GroupError> {
        let (version, path) = group_of(root, "self")?;
        if version == CgroupVersion::V2 {
            let subtree = path.join(SUBTREE);
            let found = fs::read_to_string(&subtree).map_err(system(&subtree, "be read"))?;
            if !found.split_whitespace().any(|name| name == CONTROLLER) {
                return Err(GroupError::ControllerOff {
                    path: subtree,
                    found: found.trim().to_owned(),
                });
            }
        }
        Ok(Self { path, version })
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose interface it has.
    #[must_use]
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Makes the group with the name of process `pid` and `number`, limited to
    /// `limit` with swap shut off.
    ///
    /// The kernel counts whole pages and rounds down: the limit is rounded up
    /// to one before, so that a plan for all of `limit` fits.
    ///
    /// # Errors
    ///
    /// The system refuses, or the limit does not hold; nothing is left then.
    pub fn create(&self, pid: u32, number: u32, limit: Bytes) -> Result<MemoryGroup, GroupError> {
        let path = self.path.join(group_name(pid, number));
        fs::create_dir(&path).map_err(system(&path, "be made"))?;
        // From here on dropping it removes it.
        let group = MemoryGroup {
            reader: GroupReader {
                path,
                version: self.version,
            },
        };
        group.limit(Bytes(limit.0.div_ceil(PAGE_BYTES) * PAGE_BYTES))?;
        Ok(group)
    }

    /// Removes groups whose maker is no longer alive, and tells which.
    ///
    /// A group that still has processes stays: the kernel sees to that.
    pub fn remove_leftovers(&self, root: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let is_left = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.and_then(maker).is_some_and(|pid| {
                let process = root.join("proc").join(pid.to_string());
                !process.exists()
            })
        };
        entries
            .map(|entry| entry.path())
            .filter(is_left)
            .filter(|path| fs::remove_dir(path).is_ok())
            .collect()
    }
}

/// The name of a group, which tells who made it.
#[must_use]
fn group_name(pid: u32, number: u32) -> String {
    format!("{NAME_PREFIX}{pid}-{number}")
}

/// The process that made the group `name`; `None` for others' groups.
fn maker(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix(NAME_PREFIX)?.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

fn group_of(root: &Path, process: &str) -> Result<(CgroupVersion, PathBuf), GroupError> {
    let mut report = Report::new(root);
    let found = group_levels_of(&mut report, process, CONTROLLER, ProblemArea::Memory);
    let own = |(version, levels): (CgroupVersion, Vec<PathBuf>)| {
        Some((version, levels.into_iter().next()?))
    };
    found
        .into_iter()
        .find_map(own)
        .ok_or_else(|| GroupError::NotFound {
            process: process.to_owned(),
        })
}

/// A memory group to read from, whoever made it.
#[derive(Debug, Clone)]
pub struct GroupReader {
    path: PathBuf,
    version: CgroupVersion,
}

impl GroupReader {
    /// The group that process `pid` is in now.
    ///
    /// # Errors
    ///
    /// [`GroupError::NotFound`], also once the process has ended.
    pub fn of_process(root: &Path, pid: u32) -> Result<Self, GroupError> {
        let (version, path) = group_of(root, &pid.to_string())?;
        Ok(Self { path, version })
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds at the moment, and what it has come to so far.
    #[must_use]
    pub fn read(&self) -> GroupReading {
        GroupReading::read(&self.path, self.version)
    }

    /// Its own limit; `None` without one.
    #[must_use]
    pub fn limit(&self) -> Option<Bytes> {
        usage::number(&self.path.join(match self.version {
            CgroupVersion::V1 => V1_LIMIT,
            CgroupVersion::V2 => V2_LIMIT,
        }))
        .map(Bytes)
    }

    /// Whether nothing of the group can go to swap.
    #[must_use]
    pub fn swap_is_off(&self) -> bool {
        match self.version {
            CgroupVersion::V1 => {
                let both = usage::number(&self.path.join(V1_LIMIT_WITH_SWAP));
                both.is_some() && both == self.limit().map(|limit| limit.0)
            }
            CgroupVersion::V2 => usage::number(&self.path.join(V2_SWAP_LIMIT)) == Some(0),
        }
    }
}

/// A group that was made here, with a limit; dropping it removes it.
#[derive(Debug)]
pub struct MemoryGroup {
    reader: GroupReader,
}

impl MemoryGroup {
    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.reader.path()
    }

    /// What is in it.
    #[must_use]
    pub fn reader(&self) -> &GroupReader {
        &self.reader
    }

    fn limit(&self, limit: Bytes) -> Result<(), GroupError> {
        match self.reader.version {
            CgroupVersion::V1 => {
                self.set(V1_LIMIT, limit.0)?;
                // Memory and swap together cannot be less than memory alone:
                // equal to it, no page has a place in swap. A kernel that does
                // not account for swap lacks the file, and can only be asked to
                // avoid it.
                self.set_if_present(V1_LIMIT_WITH_SWAP, limit.0)?;
                self.set_if_present("memory.swappiness", 0)
            }
            CgroupVersion::V2 => {
                self.set(V2_LIMIT, limit.0)?;
                self.set_if_present(V2_SWAP_LIMIT, 0)
            }
        }
    }

    /// Writes `value` to `file` and reads back a value that is no greater and
    /// at most a page smaller.
    fn set(&self, file: &str, value: u64) -> Result<(), GroupError> {
        let path = self.path().join(file);
        fs::write(&path, value.to_string()).map_err(system(&path, "be set"))?;
        let found = fs::read_to_string(&path).map_err(system(&path, "be read"))?;
        let is_taken = |found: u64| found <= value && value - found < PAGE_BYTES_MAX;
        if found.trim().parse().is_ok_and(is_taken) {
            return Ok(());
        }
        Err(GroupError::NotTaken {
            path,
            asked: value,
            found: found.trim().to_owned(),
        })
    }

    fn set_if_present(&self, file: &str, value: u64) -> Result<(), GroupError> {
        if self.path().join(file).exists() {
            self.set(file, value)?;
        }
        Ok(())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Whatever ended the run. What cannot be removed now is recognised by
        // its name later.
        let _ = remove_group(self.path());
    }
}

/// Removes the group at `path`, whose last process has ended or is about to.
///
/// # Errors
///
/// It still has processes after a second, or the system refuses.
pub fn remove_group(path: &Path) -> io::Result<()> {
    for _ in 1..REMOVE_TRIES {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(REMOVE_PAUSE);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_who_made_a_group() {
        assert_eq!(maker(&group_name(4711, 3)), Some(4711));
        for other in [
            "k3-ladder-",
            "k3-ladder-12",
            "k3-ladder-x-1",
            "k3-ladder-1-y",
            "k3-ladder-1-2.scope",
            "system.slice",
        ] {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
