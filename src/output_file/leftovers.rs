//! Unfinished files of runs that were killed.
//!
//! Whoever writes an unfinished file holds a lock (`flock`) on it, which the
//! kernel takes back however the process ends. A file is removed when its name
//! is one that this program gives to an unfinished form of the same output, its
//! lock can be had, and no other process has the number in its name. On file
//! systems without locks nothing is removed.
//!
//! Between making a file and locking it, its maker might lose it to somebody who
//! is tidying up: [`keep`] tells, and the maker takes another name.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

const SUFFIX: &[u8] = b".unfinished";

/// The name of an unfinished form of the output called `name`.
pub(super) fn name(name: &OsStr, pid: u32, attempt: u32) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{pid}-{attempt}.unfinished"));
    hidden
}

/// Locks `file`, just made at `path`, until it is closed; `false` if somebody
/// has taken it for a leftover meanwhile.
pub(super) fn keep(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Ok(()) => is_at(file, path),
        Err(TryLockError::WouldBlock) => false,
        // Nobody can lock it, so nobody removes it.
        Err(TryLockError::Error(_)) => true,
    }
}

/// Removes what killed runs left of the output `target`.
///
/// It is a courtesy: whatever stands in its way is left alone.
pub(super) fn remove(target: &Path) {
    let (Some(output), Some(directory)) = (target.file_name(), target.parent()) else {
        return;
    };
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let left = maker(&entry.file_name(), output).is_some_and(|pid| !is_another_process(pid));
        if left {
            remove_unused(&entry.path());
        }
    }
}

/// The process in the name of an unfinished form of `output`.
fn maker(found: &OsStr, output: &OsStr) -> Option<u32> {
    let rest = found.as_bytes().strip_prefix(b".")?;
    let rest = rest.strip_prefix(output.as_bytes())?.strip_prefix(b".")?;
    let numbers = std::str::from_utf8(rest.strip_suffix(SUFFIX)?).ok()?;
    let (pid, attempt) = numbers.split_once('-')?;
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    number(attempt)?;
    number(pid)
}

/// Whether another process has this number. In a container the own one is often
/// that of the run before: for it the lock decides.
fn is_another_process(pid: u32) -> bool {
    pid != std::process::id() && Path::new("/proc").join(pid.to_string()).exists()
}

fn remove_unused(path: &Path) {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path);
    let Ok(file) = opened else { return };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return;
    }
    // Held until the name is gone.
    if file.try_lock().is_ok() && is_at(&file, path) {
        // Nothing can be done about a file that refuses to go.
        let _ = fs::remove_file(path);
    }
}

/// Whether `path` still names `file`.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(named)) => (file.dev(), file.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has this number: it is above the kernel's largest.
    const NOBODY: u32 = 1 << 23;

    fn touch(path: &Path) -> File {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .unwrap()
    }

    #[test]
    fn only_the_own_pattern_is_a_leftover() {
        let of = |found: &str| maker(OsStr::new(found), OsStr::new("run.json"));
        assert_eq!(of(".run.json.123-0.unfinished"), Some(123));
        for other in [
            "run.json",
            ".run.json",
            "run.json.123-0.unfinished",
            ".other.json.123-0.unfinished",
            ".run.json.123.unfinished",
            ".run.json.-0.unfinished",
            ".run.json.+1-0.unfinished",
            ".run.json.123-x.unfinished",
            ".run.json.123-0.unfinished~",
            ".run.json.run.json.123-0.unfinished",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        let own = name(OsStr::new("run.json"), 7, 3);
        assert_eq!(maker(&own, OsStr::new("run.json")), Some(7));
        let odd = OsStr::from_bytes(b"\xff");
        assert_eq!(maker(&name(odd, 7, 3), odd), Some(7));
    }

    #[test]
    fn what_nobody_uses_goes_and_everything_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |file: &str| dir.path().join(file);
        let target = at("out");
        let left = |pid, attempt| at(name(OsStr::new("out"), pid, attempt).to_str().unwrap());
        drop(touch(&left(NOBODY, 0)));
        // The same number as ours, as in a container.
        drop(touch(&left(std::process::id(), 0)));
        let locked = touch(&left(NOBODY, 1));
        assert!(keep(&locked, &left(NOBODY, 1)));
        // A process that is there, whatever it is.
        drop(touch(&left(1, 0)));
        drop(touch(&at(".other.8388608-0.unfinished")));
        std::os::unix::fs::symlink(at(".other.8388608-0.unfinished"), left(NOBODY, 2)).unwrap();
        fs::create_dir(left(NOBODY, 3)).unwrap();
        remove(&target);
        assert!(!left(NOBODY, 0).exists() && !left(std::process::id(), 0).exists());
        for stays in [
            left(NOBODY, 1),
            left(1, 0),
            left(NOBODY, 2),
            left(NOBODY, 3),
        ] {
            assert!(stays.symlink_metadata().is_ok(), "{}", stays.display());
        }
        assert!(at(".other.8388608-0.unfinished").exists());
        drop(locked);
        remove(&target);
        assert!(!left(NOBODY, 1).exists());
    }

    #[test]
    fn a_maker_notices_that_its_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let file = touch(&path);
        fs::remove_file(&path).unwrap();
        assert!(!keep(&file, &path));
        let again = touch(&path);
        assert!(!keep(&file, &path), "another file has the name");
        let tidying = File::open(&path).unwrap();
        tidying.try_lock().unwrap();
        assert!(!keep(&again, &path));
        drop(tidying);
        assert!(keep(&again, &path));
    }
}
