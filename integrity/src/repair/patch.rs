//! One range: fetched aside, compared, written, compared again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use k3_formats::manifest::hex;
use k3_io::{Digest, HashKind, beside};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::origin::Origin;
use super::plan::Wanted;
use super::{Fate, RepairSettings};
use crate::check::{Check, Place, directory_of};
use crate::error::IntegrityError;
use crate::http::{Address, Answer, HttpError, RangeAnswer, Retry, range_answer};
use crate::watch::Watch;

/// Bytes read or written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes of one answer that count as progress.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Times a range is fetched when what comes is not what it should be.
const FETCHES_MAX: u32 = 2;

/// Mends ranges one after the other.
pub(super) struct Patcher<'a> {
    check: &'a Check,
    settings: &'a RepairSettings,
    origin: &'a Origin,
    watch: &'a dyn Watch,
    pub(super) fetched_bytes: u64,
}

/// How names of fetched ranges end.
const ASIDE_ENDING: &str = ".repair";

/// Removes what killed repairs left beside `path`: ranges that are good by now
/// are never fetched again.
pub(super) fn remove_leftovers(path: &Path) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    let start = format!(".{}.", name.to_string_lossy());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let found = found.to_string_lossy();
        let middle = found.strip_prefix(&start);
        let middle = middle.and_then(|rest| rest.strip_suffix(ASIDE_ENDING));
        let is_aside = middle.is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        if is_aside && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removed whatever happens.
struct Aside<'w> {
    path: PathBuf,
    watch: &'w dyn Watch,
}

impl<'w> Aside<'w> {
    fn new(path: PathBuf, watch: &'w dyn Watch) -> Self {
        watch.unfinished(&path);
        Self { path, watch }
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        // What refuses to go is overwritten the next time.
        let _ = fs::remove_file(&self.path);
        self.watch.finished(&self.path);
    }
}

impl<'a> Patcher<'a> {
    pub(super) fn new(
        check: &'a Check,
        settings: &'a RepairSettings,
        origin: &'a Origin,
        watch: &'a dyn Watch,
    ) -> Self {
        Self {
            check,
            settings,
            origin,
            watch,
            fetched_bytes: 0,
        }
    }

    /// Mends a range, if it is bad still.
    ///
    /// # Errors
    ///
    /// What no other range would fare better with: an address that refuses, a
    /// disk that is full, [`IntegrityError::Interrupted`].
    pub(super) fn mend(&mut self, wanted: &Wanted) -> Result<Fate, IntegrityError> {
        let basis = self.check.basis();
        let file = &basis.files[wanted.file];
        let path = match &self.check.places()[wanted.file] {
            Place::File { path, .. } => path.clone(),
            Place::Missing => self.settings.model.join(&file.name),
            Place::Unusable { path, reason } => {
                return Ok(Fate::Left(format!("{}: {reason}", path.display())));
            }
        };
        let Some(number) = wanted.number else {
            return self.cut(&path, file.bytes);
        };
        let range = &basis.ranges[number];
        let (begin, end) = (range.offset, range.offset + range.bytes);
        if hash_at(&path, begin, range.bytes, self.watch)? == Some(range.hash) {
            return Ok(Fate::Good);
        }
        if self.settings.dry_run {
            return Ok(Fate::Planned);
        }
        let now = fs::metadata(&path).map_or(0, |found| found.len());
        if begin > now {
            let reason = format!("the file ends at {now}, and what lies between could not be had");
            return Ok(Fate::Left(reason));
        }
        let aside = Aside::new(beside(&path, &format!("{begin}{ASIDE_ENDING}")), self.watch);
        let address = self.origin.file(&file.name);
        let mut left = String::new();
        for _ in 0..FETCHES_MAX {
            let found = match self.fetch(&address, (begin, end), file.bytes, &aside.path) {
                Ok(found) => found,
                Err(IntegrityError::Http(error)) if error.is_of_one_file() => {
                    return Ok(Fate::Left(error.to_string()));
                }
                Err(error) => return Err(error),
            };
            if found == range.hash {
                write(&aside.path, &path, begin)
                    .map_err(IntegrityError::writing(&path, "write"))?;
                let again = hash_at(&path, begin, range.bytes, self.watch)?;
                return Ok(if again == Some(range.hash) {
                    Fate::Mended
                } else {
                    let reason = "written, but other bytes are read back: check the drive";
                    Fate::Left(reason.to_owned())
                });
            }
            left = format!(
                "{address} has other bytes (hash {}, {} in the manifest)",
                hex(&found),
                hex(&range.hash)
            );
        }
        Ok(Fate::Left(left))
    }

    /// Cuts off what should not be there.
    fn cut(&self, path: &Path, bytes: u64) -> Result<Fate, IntegrityError> {
        let fail = |action| IntegrityError::writing(path, action);
        if fs::metadata(path).map_err(fail("read the length"))?.len() <= bytes {
            return Ok(Fate::Good);
        }
        if self.settings.dry_run {
            return Ok(Fate::Planned);
        }
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(fail("open the file"))?;
        file.set_len(bytes)
            .and_then(|()| file.sync_all())
            .map_err(fail("cut the file"))?;
        Ok(Fate::Mended)
    }

    /// Fetches bytes into `aside`; their hash.
    fn fetch(
        &mut self,
        address: &Address,
        (begin, end): (u64, u64),
        file_bytes: u64,
        aside: &Path,
    ) -> Result<[u8; 32], IntegrityError> {
        let fail = |action| IntegrityError::writing(aside, action);
        let out = File::create(aside).map_err(fail("create the file"))?;
        // Whoever clears leftovers sees that this is none. File systems without
        // locks have none cleared.
        let _ = out.try_lock();
        let mut digest = Digest::new(HashKind::Blake3);
        let mut retry = Retry::new(&self.settings.retry);
        let mut at = begin;
        while at < end {
            let from = at;
            let go_on = || self.watch.go_on();
            let answer = self.origin.client.get(address, Some((at, end)), &go_on);
            let result = match answer {
                Ok(answer) => match range_answer(&answer, (at, end), file_bytes) {
                    Err(error) => Err(error),
                    Ok(RangeAnswer::Part) => {
                        self.copy(answer, &out, begin, &mut at, end, &mut digest)?
                    }
                    // All of a file for a range of it is what repair is to avoid.
                    Ok(RangeAnswer::Whole) => {
                        let reason = "the server gives no parts of files: fetch the file anew";
                        return Err(HttpError::Redirect {
                            url: address.to_string(),
                            reason: reason.to_owned(),
                        }
                        .into());
                    }
                },
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                if at - from >= PROGRESS_BYTES {
                    retry.progress();
                }
                retry.failed(error, self.watch)?;
            }
        }
        out.sync_data().map_err(fail("write to the disk"))?;
        Ok(digest.finish())
    }

    /// Takes what an answer brings; the outer error is final, the inner not.
    fn copy(
        &mut self,
        mut answer: Answer,
        out: &File,
        begin: u64,
        at: &mut u64,
        end: u64,
        digest: &mut Digest,
    ) -> Result<Result<(), HttpError>, IntegrityError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let broken = |answer: &Answer, reason: String| HttpError::Connection {
            url: answer.address.to_string(),
            reason,
        };
        while *at < end {
            if !self.watch.go_on() {
                return Err(IntegrityError::Interrupted);
            }
            let left = usize::try_from(end - *at).unwrap_or(usize::MAX);
            let room = &mut buffer[..left.min(BUFFER_BYTES)];
            let count = match answer.body.read(room, &|| self.watch.go_on()) {
                Ok(0) => {
                    let reason = format!("the answer ended {left} bytes early");
                    return Ok(Err(broken(&answer, reason)));
                }
                Ok(count) => count,
                Err(error) => return Ok(Err(HttpError::broken(&answer.address, &error))),
            };
            digest.update(&buffer[..count]);
            out.write_all_at(&buffer[..count], *at - begin)
                .map_err(IntegrityError::writing("the repair's file", "write"))?;
            *at += count as u64;
            self.fetched_bytes += count as u64;
            self.watch.bytes(count as u64);
        }
        Ok(Ok(()))
    }
}

/// Hash of bytes as they are on the disk; `None` when the file ends before.
fn hash_at(
    path: &Path,
    offset: u64,
    bytes: u64,
    watch: &dyn Watch,
) -> Result<Option<[u8; 32]>, IntegrityError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(IntegrityError::writing(path, "open the file")(error)),
    };
    // What was written is to be read from the disk: a hint that may be ignored.
    let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    let mut digest = Digest::new(HashKind::Blake3);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut done = 0;
    while done < bytes {
        if !watch.go_on() {
            return Err(IntegrityError::Interrupted);
        }
        let room = usize::try_from(bytes - done)
            .unwrap_or(usize::MAX)
            .min(BUFFER_BYTES);
        match file.read_at(&mut buffer[..room], offset + done) {
            // Bytes that cannot be read are as bad as others.
            Ok(0) => return Ok(None),
            Ok(count) => {
                digest.update(&buffer[..count]);
                done += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(digest.finish()))
}

/// Writes all of `from` into `to` at `offset`, and waits for the disk.
fn write(from: &Path, to: &Path, offset: u64) -> io::Result<()> {
    let is_new = !to.exists();
    let from = File::open(from)?;
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(to)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = 0;
    loop {
        match from.read_at(&mut buffer, at) {
            Ok(0) => break,
            Ok(count) => {
                file.write_all_at(&buffer[..count], offset + at)?;
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    file.sync_all()?;
    if is_new {
        File::open(directory_of(to))?.sync_all()?;
    }
    Ok(())
}
