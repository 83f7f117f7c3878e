//! Where a probe reads.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use crate::direct::{DirectFile, FileId, FileTable};
use crate::engine::{EngineError, Segment};
use crate::units::file;

/// Where to read: units of one size in files that are really on the disk,
/// visited in an order that jumps and repeats none before all were read.
#[derive(Debug)]
pub(super) struct Places {
    /// File, and its number of whole units.
    files: Vec<(FileId, u64)>,
    unit_bytes: u64,
    unit_count: u64,
    stride: u64,
    next: u64,
    pub(super) direct: bool,
}

impl Places {
    pub(super) fn new(
        table: &FileTable,
        device: usize,
        unit_bytes: usize,
    ) -> Result<Self, EngineError> {
        let unit_bytes = file(unit_bytes);
        let mut files = Vec::new();
        let mut direct = true;
        let (mut file_count, mut sparse_count) = (0_u64, 0_u64);
        for (id, opened) in (0..).map(FileId).zip(table.files()) {
            if table.device_index(id) != device {
                continue;
            }
            file_count += 1;
            if is_sparse(opened) {
                sparse_count += 1;
                continue;
            }
            let units = opened.len_bytes() / unit_bytes;
            if units > 0 {
                files.push((id, units));
                direct &= opened.is_direct();
            }
        }
        let unit_count: u64 = files.iter().map(|(_, units)| units).sum();
        if unit_count == 0 {
            return Err(EngineError::Unavailable {
                engine: "the disk probe",
                reason: nothing_to_read(file_count, sparse_count, unit_bytes),
            });
        }
        // About 0.618 of all units, made coprime with their number.
        let mut stride = (unit_count / 1000 * 618 + unit_count % 1000 * 618 / 1000).max(1);
        while gcd(stride, unit_count) != 1 {
            stride += 1;
        }
        Ok(Self {
            files,
            unit_bytes,
            unit_count,
            stride,
            next: 0,
            direct,
        })
    }

    /// The next unit, of which `bytes` are to be read.
    pub(super) fn next(&mut self, bytes: usize) -> Segment {
        let mut unit = self.next;
        self.next = (self.next + self.stride) % self.unit_count;
        for &(id, units) in &self.files {
            if unit < units {
                return Segment {
                    file: id,
                    offset: unit * self.unit_bytes,
                    bytes: file(bytes),
                };
            }
            unit -= units;
        }
        unreachable!("the unit is below the number of all units")
    }
}

fn nothing_to_read(file_count: u64, sparse_count: u64, unit_bytes: u64) -> String {
    let holes = match sparse_count {
        0 => String::new(),
        count => format!(" ({count} with holes, which read at the speed of memory)"),
    };
    format!(
        "of {file_count} file(s) there none holds {unit_bytes} bytes or more without \
         holes{holes}; measure with real shards"
    )
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Share of a file that must be on the disk, in tenths.
const DATA_TENTHS_MIN: u64 = 9;
/// Runs of data looked at before a file counts as whole: it is not the one
/// that a few holes make.
const RUNS_MAX: usize = 4096;

/// Whether a file has notably fewer bytes on disk than it is long: holes, and
/// space that was reserved and never written, read as zeros without the disk.
fn is_sparse(opened: &DirectFile) -> bool {
    let handle = opened.handle(true);
    let enough = opened.len_bytes() / 10 * DATA_TENTHS_MIN;
    let few_blocks = handle
        .metadata()
        .is_ok_and(|metadata| metadata.blocks() * 512 < enough);
    few_blocks || data_bytes(handle).is_some_and(|bytes| bytes < enough)
}

/// Bytes of data as the file system tells; `None` if it does not.
fn data_bytes(handle: &File) -> Option<u64> {
    let (mut at, mut bytes) = (0, 0);
    for _ in 0..RUNS_MAX {
        let start = match lseek(handle, at, Whence::SeekData) {
            Ok(start) => start,
            // No data behind this place.
            Err(Errno::ENXIO) => return Some(bytes),
            Err(_) => return None,
        };
        let end = lseek(handle, start, Whence::SeekHole).ok()?;
        bytes += u64::try_from(end - start).ok()?;
        at = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::DirectPolicy;

    #[test]
    fn files_of_holes_are_told_from_files_of_data() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str, data: usize, length: u64| {
            let path = directory.path().join(name);
            std::fs::write(&path, vec![1_u8; data]).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(length).unwrap();
            file.sync_all().unwrap();
            DirectFile::open(&path, DirectPolicy::Probe).unwrap()
        };
        assert!(!is_sparse(&open("whole", 1 << 20, 1 << 20)));
        assert!(!is_sparse(&open("nearly", 1 << 20, (1 << 20) + 8192)));
        assert!(is_sparse(&open("half", 1 << 20, 2 << 20)));
        assert!(is_sparse(&open("hollow", 0, 1 << 20)));
        assert!(!is_sparse(&open("empty", 0, 0)));
    }

    #[test]
    fn places_visit_every_unit_once() {
        let directory = tempfile::tempdir().unwrap();
        let paths = [13, 1, 0, 7].map(|units| {
            let path = directory.path().join(format!("{units}"));
            std::fs::write(&path, vec![1_u8; units * 8192 + 100]).unwrap();
            path
        });
        let table = FileTable::open(&paths, DirectPolicy::Probe).unwrap();
        let mut places = Places::new(&table, 0, 8192).unwrap();
        let mut seen: Vec<(u32, u64)> = (0..21)
            .map(|_| {
                let segment = places.next(4096);
                assert_eq!(segment.bytes, 4096);
                (segment.file.0, segment.offset)
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 21);
    }
}
