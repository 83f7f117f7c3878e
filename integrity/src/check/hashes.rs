//! Hashes of ranges of a basis.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k3_io::{
    DirectFile, DirectPolicy, EngineError, FileId, FileTable, HashSettings, HashSink, Segment,
    hash_ranges,
};

use super::places::Place;
use crate::basis::Basis;
use crate::error::IntegrityError;
use crate::watch::Watch;

/// What came of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Stopped before.
    NotRead,
    /// Its hash.
    Hash([u8; 32]),
    /// What the system says.
    Unreadable(String),
}

/// What came of all of them.
#[derive(Debug)]
pub(crate) struct Hashed {
    /// One for each range asked for, in order.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) is_complete: bool,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) notes: Vec<String>,
}

/// Hashes the ranges `numbers` of `basis`, whose files are at `places`.
///
/// # Errors
///
/// No memory to read into, or no way to read.
pub(crate) fn hashes(
    basis: &Basis,
    places: &[Place],
    numbers: &[usize],
    threads: Option<usize>,
    watch: &dyn Watch,
) -> Result<Hashed, IntegrityError> {
    let mut table = FileTable::new();
    let mut opened: HashMap<usize, Result<FileId, String>> = HashMap::new();
    let mut outcomes = vec![Outcome::NotRead; numbers.len()];
    let (mut segments, mut slots) = (Vec::new(), Vec::new());
    for (slot, &number) in numbers.iter().enumerate() {
        let range = &basis.ranges[number];
        let file = opened
            .entry(range.file)
            .or_insert_with(|| open(&mut table, &places[range.file]));
        match file {
            Ok(file) => {
                slots.push(slot);
                segments.push(Segment {
                    file: *file,
                    offset: range.offset,
                    bytes: range.bytes,
                });
            }
            Err(reason) => outcomes[slot] = Outcome::Unreadable(reason.clone()),
        }
    }
    if segments.is_empty() {
        return Ok(Hashed {
            outcomes,
            is_complete: true,
            bytes: 0,
            seconds: 0.0,
            notes: Vec::new(),
        });
    }
    let mut settings = HashSettings::new(basis.kind);
    settings.threads = threads.unwrap_or(settings.threads);
    let sink = Sink {
        watch,
        slots,
        outcomes: Mutex::new(outcomes),
    };
    let summary = hash_ranges(&Arc::new(table), &segments, &settings, &sink)?;
    Ok(Hashed {
        outcomes: sink
            .outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
        is_complete: summary.is_complete,
        bytes: summary.hashed_bytes,
        seconds: summary.seconds,
        notes: summary.fallbacks,
    })
}

fn open(table: &mut FileTable, place: &Place) -> Result<FileId, String> {
    match place {
        Place::File { path, .. } => match DirectFile::open(path, DirectPolicy::Probe) {
            Ok(file) => Ok(table.add(file)),
            Err(error) => Err(error.to_string()),
        },
        Place::Missing => Err("the file is not there".to_owned()),
        Place::Unusable { reason, .. } => Err(reason.clone()),
    }
}

struct Sink<'a> {
    watch: &'a dyn Watch,
    /// Where the n-th segment's outcome goes.
    slots: Vec<usize>,
    outcomes: Mutex<Vec<Outcome>>,
}

impl HashSink for Sink<'_> {
    fn go_on(&self) -> bool {
        self.watch.go_on()
    }

    fn bytes(&self, count: u64) {
        self.watch.bytes(count);
    }

    fn range(&self, range: usize, hash: Result<[u8; 32], EngineError>) {
        let outcome = match hash {
            Ok(hash) => Outcome::Hash(hash),
            Err(error) => Outcome::Unreadable(error.to_string()),
        };
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes[self.slots[range]] = outcome;
    }
}
