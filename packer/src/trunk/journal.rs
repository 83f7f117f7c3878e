//! What a packing was asked for and how far it is, on the disk.
//!
//! A signature, then records: length (u32), payload, checksum (XXH3-128, seeded
//! with the record's number). The first payload is text, a line for everything
//! that decides the output; each other one has the entries of further blocks and, of
//! the matrix in which they end, the hash so far. A record that is cut or damaged, and whatever follows it, counts as not written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use k3_formats::trunk::{Codec, MatrixHasher, checksum};

use super::encode::Entry;
use super::error::TrunkError;
use crate::synth::target::sync_directory;

/// Name of the journal, in the first directory.
pub const JOURNAL_NAME: &str = "trunk.k3journal";

/// First bytes: what it is, and the version of its form.
const SIGNATURE: [u8; 12] = *b"K3PACKJ\0\x02\0\0\0";
/// Bytes of an entry: codec, stored bytes, checksum, escapes, hash of the matrix.
const ENTRY_BYTES: usize = 1 + 8 + 16 + 4 + 32;
/// No journal is larger: 4 million blocks and their records.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// The journal of a packing in progress.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    end: u64,
    records: u32,
}

/// What a journal says.
#[derive(Debug)]
pub(super) struct Journalled {
    pub(super) journal: Journal,
    /// What was asked for.
    pub(super) options: String,
    /// Every block that is on the disk, from the first on.
    pub(super) entries: Vec<Entry>,
    /// The hash of the matrix in which they end.
    pub(super) hasher: MatrixHasher,
}

impl Journalled {
    /// Of a journal that was just made.
    pub(super) fn new(journal: Journal) -> Self {
        Self {
            journal,
            options: String::new(),
            entries: Vec::new(),
            hasher: MatrixHasher::default(),
        }
    }
}

impl Journal {
    /// A journal that says what is asked for, on the disk when this returns.
    pub(super) fn create(directory: &Path, options: &str) -> Result<Self, TrunkError> {
        let path = directory.join(JOURNAL_NAME);
        let create = || {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)?;
            file.write_all_at(&SIGNATURE, 0)?;
            Ok(file)
        };
        let file = create().map_err(TrunkError::writing(&path, "create the journal"))?;
        let mut journal = Self {
            path,
            file,
            end: SIGNATURE.len() as u64,
            records: 0,
        };
        journal.append(options.as_bytes())?;
        sync_directory(directory).map_err(TrunkError::writing(directory, "write to the disk"))?;
        Ok(journal)
    }

    /// The journal of `directory`; `None` where there is none, or none whose
    /// first record is whole: nothing was written beside it then.
    pub(super) fn open(directory: &Path) -> Result<Option<Journalled>, TrunkError> {
        let path = directory.join(JOURNAL_NAME);
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(TrunkError::writing(&path, "open the journal")(error)),
        };
        let bytes = read(&file).map_err(TrunkError::writing(&path, "read the journal"))?;
        let mut rest = Records::new(&bytes);
        let Some(options) = rest.next().and_then(|text| std::str::from_utf8(text).ok()) else {
            return Ok(None);
        };
        let mut entries = Vec::new();
        let mut hasher = MatrixHasher::default();
        let mut end = rest.at;
        while let Some((more, so_far)) =
            rest.next().and_then(|record| decode(record, entries.len()))
        {
            entries.extend(more);
            hasher = so_far;
            end = rest.at;
        }
        // Records are numbered on from the last that counts.
        let records = rest.number_at(end);
        file.set_len(end as u64)
            .map_err(TrunkError::writing(&path, "cut the journal"))?;
        Ok(Some(Journalled {
            options: options.to_owned(),
            entries,
            hasher,
            journal: Self {
                path,
                file,
                end: end as u64,
                records,
            },
        }))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Says that the blocks after the first `first`, which have `entries`, are on
    /// the disk, and that the matrix in which they end has come to `hasher`. So is
    /// this when it returns.
    pub(super) fn add(
        &mut self,
        first: u32,
        entries: &[Entry],
        hasher: &MatrixHasher,
    ) -> Result<(), TrunkError> {
        let mut payload = Vec::with_capacity(8 + entries.len() * ENTRY_BYTES);
        payload.extend_from_slice(&first.to_le_bytes());
        let count = u32::try_from(entries.len()).expect("block counts are capped");
        payload.extend_from_slice(&count.to_le_bytes());
        for entry in entries {
            payload.push(entry.codec.number());
            payload.extend_from_slice(&entry.stored_bytes.to_le_bytes());
            payload.extend_from_slice(&entry.checksum.to_le_bytes());
            payload.extend_from_slice(&entry.escapes.to_le_bytes());
            payload.extend_from_slice(&entry.matrix_hash);
        }
        payload.extend_from_slice(&hasher.to_bytes());
        self.append(&payload)
    }

    fn append(&mut self, payload: &[u8]) -> Result<(), TrunkError> {
        let length = u32::try_from(payload.len()).expect("records are short");
        let sum = checksum(self.records, payload);
        let record = [&length.to_le_bytes(), payload, &sum.to_le_bytes()].concat();
        self.file
            .write_all_at(&record, self.end)
            .and_then(|()| self.file.sync_data())
            .map_err(TrunkError::writing(&self.path, "write the journal"))?;
        self.end += record.len() as u64;
        self.records += 1;
        Ok(())
    }

    /// Removes it: the packing is complete.
    pub(super) fn remove(self) -> Result<(), TrunkError> {
        fs::remove_file(&self.path)
            .map_err(TrunkError::writing(&self.path, "remove the journal"))?;
        let directory = self.path.parent().unwrap_or(Path::new("."));
        sync_directory(directory).map_err(TrunkError::writing(directory, "write to the disk"))
    }
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > JOURNAL_BYTES_MAX {
        return Err(io::Error::other("far too long for a journal"));
    }
    let mut bytes = vec![0; usize::try_from(length).expect("below the limit")];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The payloads of the records that are whole.
struct Records<'a> {
    bytes: &'a [u8],
    /// Where the next begins.
    at: usize,
    /// Where each began.
    starts: Vec<usize>,
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let payload = rest.get(..length)?;
        let sum = rest.get(length..)?.first_chunk::<16>()?;
        let number = u32::try_from(self.starts.len()).ok()?;
        if checksum(number, payload) != u128::from_le_bytes(*sum) {
            return None;
        }
        self.starts.push(self.at);
        self.at += 4 + length + 16;
        Some(payload)
    }
}

impl<'a> Records<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let is_journal = bytes.starts_with(&SIGNATURE);
        Self {
            bytes: if is_journal { bytes } else { &[] },
            at: SIGNATURE.len(),
            starts: Vec::new(),
        }
    }

    /// Records that begin before `end`.
    fn number_at(&self, end: usize) -> u32 {
        let count = self.starts.iter().filter(|start| **start < end).count();
        u32::try_from(count).expect("records are numbered by u32")
    }
}

/// The entries of a record that goes on from `known` blocks, and the hash that it
/// ends with.
fn decode(record: &[u8], known: usize) -> Option<(Vec<Entry>, MatrixHasher)> {
    let (first, rest) = record.split_first_chunk::<4>()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*first) as usize != known {
        return None;
    }
    let length = (u32::from_le_bytes(*count) as usize).checked_mul(ENTRY_BYTES)?;
    let (entries, hasher) = rest.split_at_checked(length)?;
    let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
    let entries = entries.iter().map(decode_entry).collect::<Option<_>>()?;
    Some((entries, MatrixHasher::from_bytes(hasher)?))
}

fn decode_entry(entry: &[u8; ENTRY_BYTES]) -> Option<Entry> {
    let (codec, rest) = entry.split_first()?;
    let (stored, rest) = rest.split_first_chunk::<8>()?;
    let (sum, rest) = rest.split_first_chunk::<16>()?;
    let (escapes, rest) = rest.split_first_chunk::<4>()?;
    Some(Entry {
        codec: Codec::from_number(*codec)?,
        stored_bytes: u64::from_le_bytes(*stored),
        checksum: u128::from_le_bytes(*sum),
        escapes: u32::from_le_bytes(*escapes),
        matrix_hash: rest.try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use k3_formats::trunk::MatrixPart;

    use super::*;

    fn entry(number: u32) -> Entry {
        Entry {
            codec: Codec::ALL[number as usize % 2],
            stored_bytes: 1000 + u64::from(number),
            checksum: u128::MAX / 3 + u128::from(number),
            escapes: number * 7,
            matrix_hash: [number.to_le_bytes()[0]; 32],
        }
    }

    fn entries(range: std::ops::Range<u32>) -> Vec<Entry> {
        range.map(entry).collect()
    }

    /// A hash that went on to the end of block `blocks`.
    fn hasher(blocks: u32) -> MatrixHasher {
        let mut hasher = MatrixHasher::default();
        for block in 0..blocks {
            let start = u64::from(block) * 700;
            let part = MatrixPart::new(start, 70_000, &[5; 700]);
            assert_eq!(hasher.add(start, 70_000, 700, &part), None);
        }
        hasher
    }

    /// A journal of three records of entries.
    fn written(directory: &Path) -> Vec<u8> {
        let mut journal = Journal::create(directory, "codec auto\n").unwrap();
        for (first, last) in [(0, 2), (2, 3), (3, 7)] {
            let so_far = hasher(last);
            journal.add(first, &entries(first..last), &so_far).unwrap();
        }
        fs::read(journal.path()).unwrap()
    }

    #[test]
    fn whatever_is_cut_off_the_rest_counts() {
        let dir = tempfile::tempdir().unwrap();
        let whole = written(dir.path());
        let path = dir.path().join(JOURNAL_NAME);
        let mut counts = Vec::new();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let Some(found) = Journal::open(dir.path()).unwrap() else {
                counts.push(None);
                continue;
            };
            assert_eq!(found.options, "codec auto\n");
            let known = u32::try_from(found.entries.len()).unwrap();
            assert_eq!(found.entries, entries(0..known));
            assert_eq!(found.hasher, hasher(known));
            counts.push(Some(known));
            // What follows is written in the place of what was cut.
            let mut journal = found.journal;
            journal.add(known, &entries(known..9), &hasher(9)).unwrap();
            let again = Journal::open(dir.path()).unwrap().unwrap();
            assert_eq!(again.entries, entries(0..9), "{length}");
        }
        counts.dedup();
        assert_eq!(counts, [None, Some(0), Some(2), Some(3), Some(7)]);
    }

    #[test]
    fn a_damaged_record_and_all_behind_it_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let whole = written(dir.path());
        let path = dir.path().join(JOURNAL_NAME);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            let known = match Journal::open(dir.path()).unwrap() {
                None => 0,
                Some(found) => {
                    let known = u32::try_from(found.entries.len()).unwrap();
                    assert_eq!(found.entries, entries(0..known));
                    known
                }
            };
            assert!(known < 7, "{at}");
        }
    }

    #[test]
    fn a_directory_without_one_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Journal::open(dir.path()).unwrap().is_none());
        let journal = Journal::create(dir.path(), "x").unwrap();
        journal.remove().unwrap();
        assert!(Journal::open(dir.path()).unwrap().is_none());
    }
}
