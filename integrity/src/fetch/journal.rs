//! Which bytes of an unfinished file are on the disk.
//!
//! Lines of text: the file's length and content id first, then `etag TAG` once
//! it is known and `done BEGIN END` for each range, written after the range has
//! reached the disk. A line without its end was cut off by whatever ended the
//! program, and does not count.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use k3_io::replace_file;

use crate::hub::HubFile;

/// Longest journal that is read: a million ranges.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// What a journal tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Done {
    /// What the server called the version.
    pub(super) etag: Option<String>,
    /// Ranges that are on the disk: ascending, apart from each other.
    pub(super) ranges: Vec<(u64, u64)>,
}

impl Done {
    /// Bytes on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(begin, end)| end - begin).sum()
    }

    /// One more range.
    pub(super) fn add(&mut self, begin: u64, end: u64) {
        self.ranges.push((begin, end));
        self.ranges = merged(std::mem::take(&mut self.ranges));
    }

    /// What is missing of `file_bytes` bytes, in parts of at most `part_bytes`.
    pub(super) fn missing(&self, file_bytes: u64, part_bytes: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let mut at = 0;
        for (begin, end) in self
            .ranges
            .iter()
            .copied()
            .chain([(file_bytes, file_bytes)])
        {
            while at < begin {
                let next = begin.min(at + part_bytes);
                parts.push((at, next));
                at = next;
            }
            at = end;
        }
        parts
    }
}

/// A journal that is written.
#[derive(Debug)]
pub(super) struct Journal(File);

fn first_line(file: &HubFile) -> String {
    format!("k3-fetch 1 {} {}\n", file.bytes, file.id.hex())
}

/// What the journal at `path` tells of `file`; `None` when there is none, `Err`
/// with the reason when it is of other content.
pub(super) fn read(path: &Path, file: &HubFile) -> Result<Option<Done>, &'static str> {
    let text = match fs::metadata(path) {
        Err(_) => return Ok(None),
        Ok(found) if found.len() > JOURNAL_BYTES_MAX => return Err("its journal is damaged"),
        Ok(_) => fs::read_to_string(path).map_err(|_| "its journal cannot be read")?,
    };
    let Some(rest) = text.strip_prefix(&first_line(file)) else {
        return Err("another version of it was being fetched");
    };
    let mut done = Done::default();
    for line in rest.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else {
            break;
        };
        if let Some(etag) = line.strip_prefix("etag ") {
            done.etag = Some(etag.to_owned());
        } else {
            let range = parse_range(line).filter(|(_, end)| *end <= file.bytes);
            done.ranges.push(range.ok_or("its journal is damaged")?);
        }
    }
    done.ranges = merged(done.ranges);
    Ok(Some(done))
}

fn parse_range(line: &str) -> Option<(u64, u64)> {
    let (begin, end) = line.strip_prefix("done ")?.split_once(' ')?;
    let (begin, end) = (begin.parse().ok()?, end.parse().ok()?);
    (begin < end).then_some((begin, end))
}

fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (begin, end) in ranges {
        match merged.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((begin, end)),
        }
    }
    merged
}

impl Journal {
    /// Goes on with the journal at `path`, or begins it with `done`.
    ///
    /// # Errors
    ///
    /// A directory that cannot be written.
    pub(super) fn open(path: &Path, file: &HubFile, done: &Done) -> io::Result<Self> {
        // Written anew: a cut-off line must not run into the next.
        let mut text = first_line(file);
        if let Some(etag) = &done.etag {
            text.push_str(&format!("etag {etag}\n"));
        }
        for (begin, end) in &done.ranges {
            text.push_str(&format!("done {begin} {end}\n"));
        }
        replace_file(path, text.as_bytes())?;
        Ok(Self(OpenOptions::new().append(true).open(path)?))
    }

    /// The version's name.
    ///
    /// # Errors
    ///
    /// A failed write.
    pub(super) fn etag(&mut self, etag: &str) -> io::Result<()> {
        self.0.write_all(format!("etag {etag}\n").as_bytes())
    }

    /// A range that has reached the disk.
    ///
    /// # Errors
    ///
    /// A failed write.
    pub(super) fn done(&mut self, begin: u64, end: u64) -> io::Result<()> {
        self.0.write_all(format!("done {begin} {end}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::ContentId;

    fn file(bytes: u64) -> HubFile {
        HubFile {
            path: "a".to_owned(),
            bytes,
            id: ContentId::Sha256([7; 32]),
        }
    }

    #[test]
    fn ranges_survive_and_cut_off_lines_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.journal");
        assert_eq!(read(&path, &file(100)), Ok(None));
        let mut journal = Journal::open(&path, &file(100), &Done::default()).unwrap();
        journal.done(20, 30).unwrap();
        journal.etag("\"x\"").unwrap();
        journal.done(0, 10).unwrap();
        journal.done(10, 15).unwrap();
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("done 40 5");
        fs::write(&path, &text).unwrap();
        let done = read(&path, &file(100)).unwrap().unwrap();
        assert_eq!(done.ranges, [(0, 15), (20, 30)]);
        assert_eq!((done.bytes(), done.etag.as_deref()), (25, Some("\"x\"")));
        assert_eq!(done.missing(100, 50), [(15, 20), (30, 80), (80, 100)]);
        // Opened again, the broken line is gone.
        Journal::open(&path, &file(100), &done)
            .unwrap()
            .done(40, 50)
            .unwrap();
        let again = read(&path, &file(100)).unwrap().unwrap();
        assert_eq!(again.ranges, [(0, 15), (20, 30), (40, 50)]);
        assert_eq!(Done::default().missing(0, 50), []);
    }

    #[test]
    fn other_content_and_damage_start_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.journal");
        Journal::open(&path, &file(100), &Done::default()).unwrap();
        read(&path, &file(101)).unwrap_err();
        for line in [
            "done 5 5\n",
            "done 7 3\n",
            "done 0 101\n",
            "done x 3\n",
            "what\n",
        ] {
            let text = first_line(&file(100)) + line;
            fs::write(&path, text).unwrap();
            assert_eq!(
                read(&path, &file(100)),
                Err("its journal is damaged"),
                "{line}"
            );
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        read(&path, &file(100)).unwrap_err();
    }
}
