//! The directory that appears complete or not at all.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k3_io::{CONFIG_NAME, INDEX_NAME};

use crate::error::PackError;
use crate::interrupt::note_unfinished;

/// How often a lock that another run holds is tried for, and how far apart.
const LOCK_TRIES: u32 = 20;
const LOCK_WAIT: Duration = Duration::from_millis(20);

/// The directory above `out`.
///
/// # Errors
///
/// [`PackError::BadTarget`] when `out` names no entry of a directory.
pub(crate) fn parent(out: &Path) -> Result<PathBuf, PackError> {
    if out.file_name().is_none() {
        return Err(PackError::BadTarget {
            path: out.to_owned(),
        });
    }
    match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => Ok(parent.to_owned()),
        _ => Ok(PathBuf::from(".")),
    }
}

/// `OUT.partial`, removed unless it becomes `OUT`.
#[derive(Debug)]
pub(super) struct Target {
    out: PathBuf,
    partial: PathBuf,
    /// Held while this run lives, so that no other takes the directory for a
    /// dead one's.
    _lock: File,
    is_committed: bool,
}

impl Target {
    /// Makes the directory to write to, once it is clear that `out` may
    /// appear.
    ///
    /// # Errors
    ///
    /// What is in the way, and whatever the system reports.
    pub(super) fn create(out: &Path, replace: bool) -> Result<Self, PackError> {
        let above = parent(out)?;
        if !above.is_dir() {
            return Err(PackError::NoParent { path: above });
        }
        require_replaceable(out, replace)?;
        let partial = beside(out, "partial");
        match fs::create_dir(&partial) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Another run holds its lock; a dead one left none.
                drop(lock(&partial)?);
                if !replace {
                    return Err(PackError::PartialExists { path: partial });
                }
                remove_checkpoint(&partial)?;
                fs::create_dir(&partial)
                    .map_err(PackError::writing(&partial, "create the directory"))?;
            }
            Err(error) => return Err(PackError::writing(partial, "create the directory")(error)),
        }
        note_unfinished(Some(&partial));
        let locked = lock(&partial);
        match locked {
            Ok(lock) => Ok(Self {
                out: out.to_owned(),
                partial,
                _lock: lock,
                is_committed: false,
            }),
            Err(error) => {
                note_unfinished(None);
                Err(error)
            }
        }
    }

    /// Where to write.
    pub(super) fn directory(&self) -> &Path {
        &self.partial
    }

    /// Makes the directory appear under its name.
    ///
    /// # Errors
    ///
    /// What the system reports; a checkpoint that was to be replaced is there
    /// again then.
    pub(super) fn commit(mut self) -> Result<(), PackError> {
        let out = self.out.clone();
        let fail = |action| PackError::writing(&out, action);
        sync_directory(&self.partial).map_err(fail("write to the disk"))?;
        let former = beside(&out, "replaced");
        let is_replaced = out.is_dir() && !is_empty(&out).map_err(fail("list"))?;
        if is_replaced {
            fs::rename(&out, &former).map_err(fail("move the former checkpoint"))?;
        }
        if let Err(error) = fs::rename(&self.partial, &out) {
            if is_replaced {
                // The report is about the first failure.
                let _ = fs::rename(&former, &out);
            }
            return Err(fail("move the checkpoint to its name")(error));
        }
        self.is_committed = true;
        note_unfinished(None);
        if is_replaced {
            remove_checkpoint(&former)?;
        }
        sync_directory(&parent(&out)?).map_err(fail("write to the disk"))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_committed {
            // Nothing can be done about files that refuse to go.
            let _ = fs::remove_dir_all(&self.partial);
            note_unfinished(None);
        }
    }
}

fn beside(out: &Path, ending: &str) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    out.with_file_name(name)
}

/// A lock on a directory, gone with the process.
pub(crate) fn lock(path: &Path) -> Result<File, PackError> {
    let directory = File::open(path).map_err(PackError::writing(path, "open the directory"))?;
    // A run that is just ending lets go in a moment.
    let mut tries = LOCK_TRIES;
    let locked = loop {
        tries -= 1;
        match directory.try_lock() {
            Err(TryLockError::WouldBlock) if tries > 0 => std::thread::sleep(LOCK_WAIT),
            other => break other,
        }
    };
    match locked {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => Err(PackError::Busy {
            path: path.to_owned(),
        }),
        // File systems without locks: the directory's existence has to do.
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(directory),
        Err(TryLockError::Error(error)) => {
            Err(PackError::writing(path, "lock the directory")(error))
        }
    }
}

/// Whether something at `out` is in the way.
fn require_replaceable(out: &Path, replace: bool) -> Result<(), PackError> {
    let fail = |source| PackError::writing(out, "list")(source);
    match fs::symlink_metadata(out) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fail(error)),
        // A file, or a link that a rename would not follow.
        Ok(found) if !found.is_dir() => {
            return Err(PackError::BadTarget {
                path: out.to_owned(),
            });
        }
        Ok(_) => {}
    }
    if is_empty(out).map_err(fail)? {
        return Ok(());
    }
    if !replace {
        return Err(PackError::Exists {
            path: out.to_owned(),
        });
    }
    require_checkpoint(out)
}

/// Whether a directory holds nothing but what a synthetic checkpoint has.
fn require_checkpoint(path: &Path) -> Result<(), PackError> {
    let entries = path.read_dir().map_err(PackError::writing(path, "list"))?;
    for entry in entries {
        let entry = entry.map_err(PackError::writing(path, "list"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_shard = name.starts_with("model-") && name.ends_with(".safetensors");
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !(is_file && (is_shard || name == CONFIG_NAME || name == INDEX_NAME)) {
            return Err(PackError::Foreign {
                path: path.to_owned(),
                entry: name,
            });
        }
    }
    Ok(())
}

fn remove_checkpoint(path: &Path) -> Result<(), PackError> {
    require_checkpoint(path)?;
    fs::remove_dir_all(path).map_err(PackError::writing(path, "remove"))
}

fn is_empty(path: &Path) -> io::Result<bool> {
    Ok(path.read_dir()?.next().is_none())
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let entries = path.read_dir().unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn appears_on_commit_and_only_then() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("model");
        let target = Target::create(&out, false).unwrap();
        fs::write(target.directory().join(CONFIG_NAME), "{}").unwrap();
        assert_eq!(names(dir.path()), ["model.partial"]);
        drop(target);
        assert!(names(dir.path()).is_empty());
        let target = Target::create(&out, false).unwrap();
        fs::write(target.directory().join(CONFIG_NAME), "{}").unwrap();
        target.commit().unwrap();
        assert_eq!(names(dir.path()), ["model"]);
        assert_eq!(names(&out), [CONFIG_NAME]);
    }

    #[test]
    fn what_is_there_is_replaced_only_on_request_and_only_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("model");
        fs::create_dir(&out).unwrap();
        // Nothing is lost in an empty directory.
        Target::create(&out, false).unwrap().commit().unwrap();
        fs::write(out.join(CONFIG_NAME), "former").unwrap();
        let error = Target::create(&out, false).unwrap_err();
        assert!(matches!(error, PackError::Exists { .. }), "{error}");
        let target = Target::create(&out, true).unwrap();
        fs::write(target.directory().join(CONFIG_NAME), "new").unwrap();
        target.commit().unwrap();
        assert_eq!(fs::read(out.join(CONFIG_NAME)).unwrap(), b"new");
        fs::write(out.join("thesis.tex"), "years of work").unwrap();
        let error = Target::create(&out, true).unwrap_err();
        assert!(
            matches!(&error, PackError::Foreign { entry, .. } if entry == "thesis.tex"),
            "{error}"
        );
        assert_eq!(names(dir.path()), ["model"]);
        let file = out.join("thesis.tex");
        for (bad, replace) in [(file.as_path(), true), (Path::new("/"), false)] {
            let error = Target::create(bad, replace).unwrap_err();
            assert!(matches!(error, PackError::BadTarget { .. }), "{error}");
        }
        let error = Target::create(&dir.path().join("no/model"), true).unwrap_err();
        assert!(matches!(error, PackError::NoParent { .. }), "{error}");
    }

    #[test]
    fn a_dead_run_is_told_from_a_living_one() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("model");
        fs::create_dir(dir.path().join("model.partial")).unwrap();
        let error = Target::create(&out, false).unwrap_err();
        assert!(matches!(error, PackError::PartialExists { .. }), "{error}");
        let living = Target::create(&out, true).unwrap();
        let error = Target::create(&out, true).unwrap_err();
        assert!(matches!(error, PackError::Busy { .. }), "{error}");
        assert_eq!(names(dir.path()), ["model.partial"]);
        drop(living);
        assert!(names(dir.path()).is_empty());
    }
}
