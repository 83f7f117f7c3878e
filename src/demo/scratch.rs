//! Where the packed trunk of the ladder lies while it runs.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use k3_config::Bytes;
use k3_pack::PackError;
use k3_pack::trunk::TrunkError;
use tempfile::TempDir;

use super::BuiltInError;

/// What the directories begin with.
const PREFIX: &str = ".ladder-";
/// Age from which one that nobody holds was left by a program that was killed: its maker
/// holds it a moment after it has made it.
const ABANDONED: Duration = Duration::from_secs(60);
/// The same where the file system knows no locks.
const ABANDONED_UNLOCKED: Duration = Duration::from_secs(3600);

/// A directory that goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: TempDir,
    /// Tells other programs that this one still runs.
    _lock: File,
}

/// Why a place does not serve.
#[derive(Debug)]
enum Unfit {
    /// Nothing can be written there.
    Io(io::Error),
    /// Too little is free there.
    NoRoom { needed: u64, available: u64 },
}

impl Scratch {
    /// A directory below `cache`, or below `temporary` where that does not serve, with
    /// what `fill` puts in it; and a sentence if it had to be the other place.
    ///
    /// # Errors
    ///
    /// [`BuiltInError::Scratch`]: neither can be written or has the room. An error of
    /// `fill` that another place would not mend.
    pub(crate) fn filled(
        cache: &Path,
        temporary: &Path,
        fill: impl Fn(&Path) -> Result<(), PackError>,
    ) -> Result<(Self, Option<String>), BuiltInError> {
        let first = match Self::below(cache, &fill)? {
            Ok(scratch) => return Ok((scratch, None)),
            Err(unfit) => format!("{}: {unfit}", cache.display()),
        };
        match Self::below(temporary, &fill)? {
            Ok(scratch) => {
                let place = temporary.display();
                let note =
                    format!("{first}, so the packed trunk is made in {place} and goes afterwards");
                Ok((scratch, Some(note)))
            }
            Err(unfit) => Err(BuiltInError::Scratch {
                path: temporary.to_owned(),
                unfit: unfit.to_string(),
                cache: first,
            }),
        }
    }

    fn below(
        place: &Path,
        fill: impl Fn(&Path) -> Result<(), PackError>,
    ) -> Result<Result<Self, Unfit>, PackError> {
        remove_abandoned(place);
        let scratch = match Self::new(place) {
            Ok(scratch) => scratch,
            Err(error) => return Ok(Err(Unfit::Io(error))),
        };
        match fill(scratch.path()) {
            Ok(()) => Ok(Ok(scratch)),
            Err(error) => Unfit::of(error).map(Err),
        }
    }

    fn new(place: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        let lock = File::open(directory.path())?;
        // Where there are no locks, its age tells.
        let _ = lock.try_lock();
        Ok(Self {
            directory,
            _lock: lock,
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Unfit {
    /// What `error` says against the place, or the error if it says something else.
    fn of(error: PackError) -> Result<Self, PackError> {
        match error {
            PackError::Trunk(TrunkError::NoSpace {
                needed_bytes,
                reserve_bytes,
                available_bytes,
                ..
            }) => Ok(Self::NoRoom {
                needed: needed_bytes + reserve_bytes,
                available: available_bytes,
            }),
            PackError::Trunk(
                TrunkError::DiskFull { source, .. } | TrunkError::Write { source, .. },
            )
            | PackError::NotWritable { source, .. } => Ok(Self::Io(source)),
            PackError::DiskFull { .. } => Ok(Self::Io(io::ErrorKind::StorageFull.into())),
            other => Err(other),
        }
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be written ({})", error.kind()),
            Self::NoRoom { needed, available } => write!(
                f,
                "has too little room ({} needed, {} available)",
                Bytes(*needed),
                Bytes(*available)
            ),
        }
    }
}

/// Removes what a program that was killed left below `place`. What cannot be removed
/// stays: it is in nobody's way.
fn remove_abandoned(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_scratch = name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
        // Of a link, itself: what it leads to is not ours.
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_dir);
        let modified = metadata.and_then(|metadata| metadata.modified().ok());
        let age = modified.and_then(|time| time.elapsed().ok());
        let Some(age) = age.filter(|_| is_scratch) else {
            continue;
        };
        let Ok(directory) = File::open(entry.path()) else {
            continue;
        };
        let limit = match directory.try_lock() {
            Ok(()) => ABANDONED,
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(_)) => ABANDONED_UNLOCKED,
        };
        if age > limit {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use super::*;

    fn nothing(_: &Path) -> Result<(), PackError> {
        Ok(())
    }

    fn no_space(path: &Path) -> PackError {
        PackError::Trunk(TrunkError::NoSpace {
            path: path.to_owned(),
            needed_bytes: 5_000_000,
            is_estimate: false,
            reserve_bytes: 0,
            available_bytes: 1_000_000,
        })
    }

    fn full(path: &Path) -> PackError {
        PackError::Trunk(TrunkError::DiskFull {
            path: path.to_owned(),
            source: io::ErrorKind::StorageFull.into(),
            done: 1,
            total: 2,
        })
    }

    #[test]
    fn where_the_cache_cannot_be_written_a_temporary_directory_serves_and_is_told() {
        let place = tempfile::tempdir().unwrap();
        let nowhere = Path::new("/nowhere");
        let (kept, note) = Scratch::filled(place.path(), nowhere, nothing).unwrap();
        assert!(kept.path().starts_with(place.path()) && note.is_none());
        // What is no directory cannot be written even by root.
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let (kept, note) = Scratch::filled(&file, temporary.path(), nothing).unwrap();
        assert!(kept.path().starts_with(temporary.path()));
        let note = note.unwrap();
        for path in [&file, temporary.path()] {
            assert!(note.contains(&path.display().to_string()), "{note}");
        }
        let error = Scratch::filled(&file, &file, nothing).unwrap_err();
        assert!(error.way_out().unwrap().contains("TMPDIR"), "{error}");
        assert!(error.to_string().contains(&file.display().to_string()));
    }

    #[test]
    fn a_place_without_room_is_none() {
        let [cache, temporary] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [cache, temporary] = [cache.path(), temporary.path()];
        for (error, why) in [
            (
                no_space as fn(&Path) -> PackError,
                "too little room (5.00 MB",
            ),
            (full, "cannot be written (no storage space)"),
        ] {
            let only = |good: PathBuf| {
                move |path: &Path| match path.starts_with(&good) {
                    true => Ok(()),
                    false => Err(error(path)),
                }
            };
            let filled = Scratch::filled(cache, temporary, only(temporary.to_owned()));
            let (kept, note) = filled.unwrap();
            assert!(kept.path().starts_with(temporary));
            let note = note.unwrap();
            assert!(note.contains(why), "{note}");
            assert_eq!(fs::read_dir(cache).unwrap().count(), 0, "nothing stays");
            // Neither: what can be done is something that the program knows.
            let filled = Scratch::filled(cache, temporary, only(PathBuf::from("/nowhere")));
            let error = filled.unwrap_err();
            assert_eq!(error.exit(), crate::exit::Exit::NotWritable);
            let said = format!("{error} {}", error.way_out().unwrap());
            for part in [why, "K3_CACHE_DIR", "TMPDIR"] {
                assert!(said.contains(part), "{said}");
            }
            assert!(!said.contains("--"), "{said}");
        }
        // What no other place mends is told as it is.
        let broken = |_: &Path| Err(PackError::Interrupted);
        let error = Scratch::filled(cache, temporary, broken).unwrap_err();
        assert!(matches!(error, BuiltInError::Pack(_)), "{error}");
    }

    #[test]
    fn what_a_killed_program_left_goes_and_what_another_uses_stays() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str, seconds: u32| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("trunk"), "packed").unwrap();
            let directory = File::open(&path).unwrap();
            let before = SystemTime::now() - seconds * Duration::from_secs(1);
            directory.set_modified(before).unwrap();
            (path, directory)
        };
        let (left, _) = make(".ladder-left", 120);
        let (used, held) = make(".ladder-used", 7200);
        held.lock().unwrap();
        let (new, _) = make(".ladder-new", 0);
        let (other, _) = make("demo-1", 7200);
        let link = place.path().join(".ladder-link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let (kept, _) = Scratch::filled(place.path(), place.path(), nothing).unwrap();
        assert!(!left.exists());
        for path in [&used, &new, &other, &link, kept.path()] {
            assert!(path.exists(), "{}", path.display());
        }
        assert!(other.join("trunk").exists());
    }
}
