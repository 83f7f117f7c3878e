//! Where a probe reads.

use std::os::unix::fs::MetadataExt;

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
        for (id, opened) in (0..).map(FileId).zip(table.files()) {
            if table.device_index(id) != device || is_sparse(opened) {
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
                reason: format!(
                    "no file on the device has {unit_bytes} bytes or more without holes; \
                     measure with real shards"
                ),
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

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Whether a file has notably fewer bytes on disk than it is long.
fn is_sparse(opened: &DirectFile) -> bool {
    let metadata = opened.handle(true).metadata();
    metadata.is_ok_and(|metadata| metadata.blocks() * 512 < opened.len_bytes() / 10 * 9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::DirectPolicy;

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
