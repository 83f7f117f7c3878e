//! The files, and where they are written.

use std::fs::{self, File as OpenFile, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::Builder;

/// A file of the checkpoint.
#[derive(Debug, Clone, Copy)]
pub struct File {
    /// Its name in the checkpoint's directory.
    pub name: &'static str,
    /// What it holds.
    pub bytes: &'static [u8],
}

/// All files of the checkpoint, by name.
pub const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Bytes that are compared at once.
const PIECE_BYTES: usize = 64 << 10;
/// What half-written files begin with.
const PARTIAL: &str = ".partial-";
/// Age from which a half-written file is nobody's any more.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Time after which a person wonders.
const NOTICED: Duration = Duration::from_millis(500);
/// Time between two looks at a lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of the address that name the directory.
const ADDRESS_BYTES: usize = 8;

/// Why the model could not be unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A directory or a file could not be made.
    #[error("{path}: the built-in model ({bytes} bytes) cannot be unpacked here")]
    Unpack {
        /// What could not be made.
        path: PathBuf,
        /// Bytes of the whole model.
        bytes: u64,
        /// Why.
        source: io::Error,
    },
}

impl DemoError {
    /// What kind of thing the system says.
    #[must_use]
    pub fn io_kind(&self) -> io::ErrorKind {
        match self {
            Self::Unpack { source, .. } => source.kind(),
        }
    }
}

/// Bytes of all files.
#[must_use]
pub fn total_bytes() -> u64 {
    FILES.iter().map(|file| file.bytes.len() as u64).sum()
}

/// The name of the directory below a cache: it follows from what is in it.
#[must_use]
pub fn directory_name() -> String {
    let mut hasher = blake3::Hasher::new();
    for file in FILES {
        for part in [file.name.as_bytes(), file.bytes] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    let address = &hasher.finalize().to_hex()[..2 * ADDRESS_BYTES];
    format!("demo-{address}")
}

/// Unpacks the model below `cache`, or finds it there complete. The checkpoint's
/// directory.
///
/// Several programs may do so at once: one writes while the others wait, and no
/// file is replaced that is right. Whoever has opened one keeps what is there.
///
/// # Errors
///
/// [`DemoError::Unpack`] with the file that could not be written. What was
/// written before it stays and is not written again.
pub fn unpack(cache: &Path) -> Result<PathBuf, DemoError> {
    unpack_telling(cache, || {})
}

/// The same. `on_wait` is called once if another program keeps this one waiting for
/// longer than a person takes for nothing.
///
/// # Errors
///
/// As [`unpack`].
pub fn unpack_telling(cache: &Path, on_wait: impl FnOnce()) -> Result<PathBuf, DemoError> {
    let directory = cache.join(directory_name());
    let is_missing = |file: &&File| !holds(&directory.join(file.name), file.bytes);
    if !FILES.iter().any(|file| is_missing(&file)) {
        // Nothing is written then, so that the cache may be read-only.
        return Ok(directory);
    }
    let fail = |path: &Path, source| DemoError::Unpack {
        path: path.to_owned(),
        bytes: total_bytes(),
        source,
    };
    fs::create_dir_all(&directory).map_err(|source| fail(&directory, source))?;
    let _alone = lock(cache, on_wait).map_err(|source| fail(cache, source))?;
    for file in FILES.iter().filter(is_missing) {
        let path = directory.join(file.name);
        write(&path, file.bytes).map_err(|source| fail(&path, source))?;
    }
    Ok(directory)
}

/// Waits until no other program unpacks below `cache`, and keeps them waiting
/// while the file is open.
fn lock(cache: &Path, on_wait: impl FnOnce()) -> io::Result<OpenFile> {
    let path = cache.join(format!(".{}.lock", directory_name()));
    let file = OpenFile::options().create(true).append(true).open(path)?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            // A file system without locks: others may write the same at once.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                return Ok(file);
            }
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if started.elapsed() < NOTICED => {
                thread::sleep(LOCK_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => break,
        }
    }
    on_wait();
    file.lock()?;
    Ok(file)
}

/// Whether the file is there and holds exactly `bytes`.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    let same = || -> io::Result<bool> {
        let mut file = OpenFile::open(path)?;
        if file.metadata()?.len() != bytes.len() as u64 {
            return Ok(false);
        }
        let mut piece = vec![0; PIECE_BYTES.min(bytes.len())];
        for expected in bytes.chunks(PIECE_BYTES) {
            let found = &mut piece[..expected.len()];
            file.read_exact(found)?;
            if found != expected {
                return Ok(false);
            }
        }
        Ok(true)
    };
    // What cannot be read is written anew, and if that fails too it says why.
    same().unwrap_or(false)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().expect("a file in a directory");
    remove_abandoned(directory);
    // As others share the cache, what they may read is for the umask to say.
    let everybody = Permissions::from_mode(0o666);
    let mut file = Builder::new()
        .prefix(PARTIAL)
        .permissions(everybody)
        .tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Removes what a program that was killed left. What cannot be removed stays: it
/// is in nobody's way.
fn remove_abandoned(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_partial = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PARTIAL.as_bytes());
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|time| time.elapsed().ok());
        if is_partial && age.is_some_and(|age| age > ABANDONED) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn node(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn everything_is_unpacked_once_and_mended_where_it_differs() {
        let cache = tempfile::tempdir().unwrap();
        let below = cache.path().join("not/there/yet");
        let model = unpack(&below).unwrap();
        assert_eq!(model, below.join(directory_name()));
        for file in FILES {
            assert_eq!(fs::read(model.join(file.name)).unwrap(), file.bytes);
        }
        assert_eq!(fs::read_dir(&model).unwrap().count(), FILES.len());
        let [first, second] = [FILES[0].name, FILES[1].name].map(|name| model.join(name));
        let nodes = [node(&first), node(&second)];
        unpack(&below).unwrap();
        assert_eq!([node(&first), node(&second)], nodes, "nothing to do");
        // Another byte, a byte less, a file that is gone.
        let mut bytes = FILES[0].bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        for damaged in [&bytes[..], &bytes[1..], &[]] {
            fs::write(&first, damaged).unwrap();
            unpack(&below).unwrap();
            assert_eq!(fs::read(&first).unwrap(), FILES[0].bytes);
        }
        fs::remove_file(&first).unwrap();
        unpack(&below).unwrap();
        assert_eq!(fs::read(&first).unwrap(), FILES[0].bytes);
        assert_eq!(node(&second), nodes[1]);
    }

    #[test]
    fn whoever_waits_for_another_says_so_and_whoever_does_not_is_silent() {
        let cache = tempfile::tempdir().unwrap();
        let first = unpack_telling(cache.path(), || panic!("nobody is there"));
        let damaged = first.unwrap().join(FILES[0].name);
        // Complete, it needs no lock.
        let held = lock(cache.path(), || {}).unwrap();
        unpack_telling(cache.path(), || panic!("nothing is to be written")).unwrap();
        fs::remove_file(damaged).unwrap();
        let mut held = Some(held);
        let mut said = 0;
        let on_wait = || {
            said += 1;
            held.take();
        };
        unpack_telling(cache.path(), on_wait).unwrap();
        assert_eq!(said, 1);
    }

    /// Whoever shares the cache reads the model, unless the umask says no.
    #[test]
    fn files_have_the_mode_that_new_files_have() {
        let cache = tempfile::tempdir().unwrap();
        let model = unpack(cache.path()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let usual = cache.path().join("usual");
        fs::write(&usual, "").unwrap();
        for file in FILES {
            assert_eq!(mode(&model.join(file.name)), mode(&usual), "{}", file.name);
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let cache = tempfile::tempdir().unwrap();
        let file = cache.path().join("file");
        fs::write(&file, "").unwrap();
        let error = unpack(&file).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(&file.display().to_string()), "{said}");
        assert!(said.contains(&total_bytes().to_string()), "{said}");
    }

    #[test]
    fn what_a_killed_program_left_goes_and_what_another_writes_stays() {
        let cache = tempfile::tempdir().unwrap();
        let model = unpack(cache.path()).unwrap();
        let [old, new] = ["old", "new"].map(|name| model.join(format!("{PARTIAL}{name}")));
        for path in [&old, &new] {
            fs::write(path, "half").unwrap();
        }
        let before = std::time::SystemTime::now() - 2 * ABANDONED;
        let file = OpenFile::options().write(true).open(&old).unwrap();
        file.set_modified(before).unwrap();
        fs::remove_file(model.join(FILES[0].name)).unwrap();
        unpack(cache.path()).unwrap();
        assert!(!old.exists() && new.exists());
    }

    /// Whoever has unpacked opens the files and reads them for as long as it
    /// likes: nobody who comes later may replace one.
    #[test]
    fn many_unpack_at_once_and_no_file_is_replaced() {
        for damage in [false, true] {
            let cache = tempfile::tempdir().unwrap();
            if damage {
                let model = unpack(cache.path()).unwrap();
                for file in FILES {
                    fs::write(model.join(file.name), "damaged").unwrap();
                }
            }
            let nodes = || {
                let model = unpack(cache.path()).unwrap();
                FILES
                    .iter()
                    .map(|file| node(&model.join(file.name)))
                    .collect::<Vec<_>>()
            };
            let seen = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(nodes)).collect();
                let seen = threads.into_iter().map(|thread| thread.join().unwrap());
                seen.collect::<Vec<_>>()
            });
            assert!(seen.iter().all(|nodes| *nodes == seen[0]), "{damage}");
            let model = cache.path().join(directory_name());
            assert_eq!(fs::read_dir(model).unwrap().count(), FILES.len());
        }
    }

    #[test]
    fn a_complete_model_is_found_where_nothing_may_be_written() {
        let cache = tempfile::tempdir().unwrap();
        unpack(cache.path()).unwrap();
        fs::remove_file(cache.path().join(format!(".{}.lock", directory_name()))).unwrap();
        unpack(cache.path()).unwrap();
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_model_is_small_and_complete() {
        assert!(total_bytes() <= 12_000_000, "{}", total_bytes());
        for name in ["config.json", "tiktoken.model", "tokenizer_config.json"] {
            assert!(FILES.iter().any(|file| file.name == name), "{name}");
        }
    }
}
