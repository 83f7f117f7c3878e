//! Small files that appear complete under their name, or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes `bytes` beside `path`, to the disk, and puts them in the place of what
/// is there: whoever opens `path`, also after a power cut, finds the former bytes
/// or these.
///
/// # Errors
///
/// A directory that cannot be written or a disk that is full. What was there
/// stays then, and nothing is left beside it.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = beside(path, "partial");
    let write = || -> io::Result<()> {
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        rename_to_disk(&partial, path)
    };
    write().inspect_err(|_| {
        // The failure that matters is the one before.
        let _ = fs::remove_file(&partial);
    })
}

/// Renames a file whose bytes have reached the disk, and waits until its name
/// has too.
///
/// # Errors
///
/// What the system reports; the file has either name then.
pub fn rename_to_disk(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    match File::open(parent.unwrap_or(Path::new(".")))?.sync_all() {
        // File systems that keep no directory of their own to sync.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

/// A hidden name beside `path`: `.NAME.ENDING`.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn a_file_has_the_former_bytes_or_the_new_ones_and_nothing_lies_beside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("name.json");
        for bytes in [&b"one"[..], b"another", b""] {
            replace_file(&path, bytes).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
            assert_eq!(names(directory.path()), ["name.json"]);
        }
        // What cannot be replaced stays as it is.
        let taken = directory.path().join("taken");
        fs::create_dir_all(taken.join("below")).unwrap();
        replace_file(&taken, b"x").unwrap_err();
        assert!(taken.join("below").is_dir());
        assert!(!beside(&taken, "partial").exists());
        replace_file(Path::new("/no/such/directory/x"), b"x").unwrap_err();
    }

    #[test]
    fn names_beside_are_hidden_and_in_the_same_directory() {
        let found = beside(Path::new("/a/b.json"), "partial");
        assert_eq!(found, Path::new("/a/.b.json.partial"));
        assert_eq!(beside(Path::new("b"), "x"), Path::new(".b.x"));
    }
}
