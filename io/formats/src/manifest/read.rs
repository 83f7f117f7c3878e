//! Reading a manifest, strictly: anything but what the writer makes is refused.

use std::path::Path;

use super::write::root_of;
use super::{
    FILE_BYTES, FileKind, HEADER_BYTES, MAGIC, MANIFEST_BYTES_MAX, Manifest, ManifestFault,
    ManifestFile, ManifestRange, RANGE_BYTES, ROOT_OFFSET, RangeContent, SHARD_HEADER_BYTES_MIN,
    VERSION, hex,
};
use crate::error::FormatError;
use crate::experts::EXPERT_PARTS;
use crate::identity::Identity;
use crate::read_at::{ReadAt, read_all};

impl Manifest {
    /// Reads and checks a manifest.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooLarge`], a failed read, and [`FormatError::Manifest`]
    /// with the place of the first fault.
    pub fn read(file: &dyn ReadAt) -> Result<Self, FormatError> {
        let bytes = read_all(file, MANIFEST_BYTES_MAX)?;
        Reader::new(file.label(), &bytes)?.manifest()
    }
}

/// The parts of a file whose length and root are right.
struct Reader<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    file_count: usize,
    range_count: usize,
    names: &'a [u8],
}

/// Little-endian number at `at`.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn hash_at(bytes: &[u8], at: usize) -> [u8; 32] {
    bytes[at..at + 32].try_into().expect("32 bytes")
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path, bytes: &'a [u8]) -> Result<Self, FormatError> {
        let fault = |offset, fault| fault_at(path, offset, fault);
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Err(fault(0, ManifestFault::Magic));
        }
        let found = u32_at(bytes, 8);
        if found != VERSION {
            let expected = VERSION;
            return Err(fault(8, ManifestFault::Version { expected, found }));
        }
        let (files, ranges) = (u64::from(u32_at(bytes, 12)), u64_at(bytes, 16));
        let names = u64_at(bytes, 24);
        // Nothing is allocated before the counts are those of the file.
        let expected = u128::from(files) * FILE_BYTES as u128
            + u128::from(ranges) * RANGE_BYTES as u128
            + u128::from(names)
            + HEADER_BYTES as u128;
        if expected != bytes.len() as u128 {
            let length = ManifestFault::Length {
                expected: u64::try_from(expected).unwrap_or(u64::MAX),
                found: bytes.len() as u64,
            };
            return Err(fault(12, length));
        }
        if bytes[40..64].iter().any(|byte| *byte != 0) {
            return Err(fault(40, ManifestFault::Reserved));
        }
        let (stated, found) = (hash_at(bytes, ROOT_OFFSET), root_of(bytes));
        if stated != found {
            let root = ManifestFault::Root {
                expected: hex(&stated),
                found: hex(&found),
            };
            return Err(fault(ROOT_OFFSET, root));
        }
        // Each is at most the length of the file, which is in memory.
        let size = |value| usize::try_from(value).expect("smaller than the file");
        Ok(Self {
            path,
            bytes,
            file_count: size(files),
            range_count: size(ranges),
            names: &bytes[bytes.len() - size(names)..],
        })
    }

    fn manifest(&self) -> Result<Manifest, FormatError> {
        let mut files: Vec<ManifestFile> = Vec::with_capacity(self.file_count);
        let mut ranges = Vec::with_capacity(self.range_count);
        let mut total_bytes = 0_u64;
        // Names of files come first, those of tensors behind them.
        let mut file_names = 0;
        let mut tensor_names = self.file_names_bytes();
        for number in 0..self.file_count {
            let file = self.file(number, ranges.len(), files.last(), &mut file_names)?;
            self.ranges_of(number, &file, &mut ranges, &mut tensor_names)?;
            total_bytes = total_bytes.saturating_add(file.bytes);
            files.push(file);
        }
        let sum = |at, what, stated, found| {
            let fault = ManifestFault::Sum {
                what,
                stated,
                found,
            };
            Err(fault_at(self.path, at, fault))
        };
        if ranges.len() != self.range_count {
            return sum(
                16,
                "ranges of all files",
                self.range_count as u64,
                ranges.len() as u64,
            );
        }
        let stated = u64_at(self.bytes, 32);
        if stated != total_bytes {
            return sum(32, "bytes of all files", stated, total_bytes);
        }
        if self.names.len() != tensor_names {
            let stated = self.names.len() as u64;
            return sum(24, "bytes of all names", stated, tensor_names as u64);
        }
        Ok(Manifest {
            identity: Identity::from_bytes(hash_at(self.bytes, 64)),
            root: hash_at(self.bytes, ROOT_OFFSET),
            files,
            ranges,
        })
    }

    fn file(
        &self,
        number: usize,
        first_range: usize,
        before: Option<&ManifestFile>,
        names: &mut usize,
    ) -> Result<ManifestFile, FormatError> {
        let at = HEADER_BYTES + number * FILE_BYTES;
        let entry = &self.bytes[at..at + FILE_BYTES];
        let name = self.name(at + 12, u32_at(entry, 12), u16_at(entry, 16), names)?;
        if !is_plain_name(&name) {
            return Err(fault_at(self.path, at + 12, ManifestFault::FileName(name)));
        }
        let kind = match entry[18] {
            0 => FileKind::Shard,
            1 => FileKind::Other,
            found => return Err(fault_at(self.path, at + 18, ManifestFault::Kind { found })),
        };
        if entry[19..].iter().any(|byte| *byte != 0) {
            return Err(fault_at(self.path, at + 19, ManifestFault::Reserved));
        }
        if let Some(before) = before
            && (before.kind, &before.name) >= (kind, &name)
        {
            let order = ManifestFault::FileOrder {
                name,
                before: before.name.clone(),
            };
            return Err(fault_at(self.path, at, order));
        }
        let range_count = u32_at(entry, 8) as usize;
        let left = self.range_count - first_range;
        if range_count > left {
            let sum = ManifestFault::Sum {
                what: "ranges of a file and those before it",
                stated: self.range_count as u64,
                found: (first_range + range_count) as u64,
            };
            return Err(fault_at(self.path, at + 8, sum));
        }
        Ok(ManifestFile {
            name,
            bytes: u64_at(entry, 0),
            kind,
            first_range,
            range_count,
        })
    }

    fn ranges_of(
        &self,
        number: usize,
        file: &ManifestFile,
        ranges: &mut Vec<ManifestRange>,
        names: &mut usize,
    ) -> Result<(), FormatError> {
        let mut offset = 0_u64;
        for within in 0..file.range_count {
            let at = self.range_at(file.first_range + within);
            let entry = &self.bytes[at..at + RANGE_BYTES];
            let bytes = u64_at(entry, 0);
            let content = self.content(at, entry, names)?;
            let stands = match file.kind {
                FileKind::Shard => (content == RangeContent::Header) == (within == 0),
                FileKind::Other => content == RangeContent::File && within == 0,
            };
            if !stands || (file.kind == FileKind::Shard && content == RangeContent::File) {
                let found = entry[8];
                return Err(fault_at(self.path, at + 8, ManifestFault::Kind { found }));
            }
            let expected = if content == RangeContent::Header {
                SHARD_HEADER_BYTES_MIN
            } else {
                1
            };
            if bytes < expected {
                let fault = ManifestFault::RangeBytes {
                    expected,
                    found: bytes,
                };
                return Err(fault_at(self.path, at, fault));
            }
            ranges.push(ManifestRange {
                file: number,
                offset,
                bytes,
                content,
                hash: hash_at(entry, 16),
            });
            offset = offset.saturating_add(bytes);
        }
        let is_headless = file.kind == FileKind::Shard && file.range_count == 0;
        if offset != file.bytes || is_headless {
            let sum = ManifestFault::Sum {
                what: "bytes of a file's ranges",
                stated: file.bytes,
                found: offset,
            };
            let at = HEADER_BYTES + number * FILE_BYTES;
            return Err(fault_at(self.path, at, sum));
        }
        Ok(())
    }

    fn range_at(&self, range: usize) -> usize {
        HEADER_BYTES + self.file_count * FILE_BYTES + range * RANGE_BYTES
    }

    fn content(
        &self,
        at: usize,
        entry: &[u8],
        names: &mut usize,
    ) -> Result<RangeContent, FormatError> {
        let (kind, a, b, c) = (entry[8], entry[9], u16_at(entry, 10), u32_at(entry, 12));
        let reserved = || fault_at(self.path, at + 9, ManifestFault::Reserved);
        match kind {
            0 | 3 if (a, b, c) != (0, 0, 0) => Err(reserved()),
            0 => Ok(RangeContent::Header),
            3 => Ok(RangeContent::File),
            1 if a != 0 => Err(reserved()),
            1 => Ok(RangeContent::Tensor(self.name(at + 10, c, b, names)?)),
            2 => {
                let (first_part, part_count) = (a >> 4, a & 15);
                let end = usize::from(first_part) + usize::from(part_count);
                if part_count == 0 || end > EXPERT_PARTS {
                    let parts = ManifestFault::ExpertParts {
                        first_part,
                        part_count,
                    };
                    return Err(fault_at(self.path, at + 9, parts));
                }
                Ok(RangeContent::Expert {
                    layer: b,
                    expert: u16::try_from(c).map_err(|_| reserved())?,
                    first_part,
                    part_count,
                })
            }
            found => Err(fault_at(self.path, at + 8, ManifestFault::Kind { found })),
        }
    }

    /// Bytes of the names of all files; no more than there are entries for.
    fn file_names_bytes(&self) -> usize {
        let lengths = (0..self.file_count).map(|number| {
            let at = HEADER_BYTES + number * FILE_BYTES;
            usize::from(u16_at(self.bytes, at + 16))
        });
        lengths.sum()
    }

    /// A name that begins at `expected`, which is moved behind it: names share
    /// no bytes, so all together are no longer than the file.
    fn name(
        &self,
        at: usize,
        offset: u32,
        bytes: u16,
        expected: &mut usize,
    ) -> Result<String, FormatError> {
        let (start, end) = (*expected, *expected + usize::from(bytes));
        let text = self
            .names
            .get(start..end)
            .filter(|_| offset as usize == start)
            .and_then(|name| std::str::from_utf8(name).ok());
        let Some(text) = text else {
            let fault = ManifestFault::Name {
                expected: start as u64,
                offset: offset.into(),
                bytes: bytes.into(),
                names_bytes: self.names.len() as u64,
            };
            return Err(fault_at(self.path, at, fault));
        };
        *expected = end;
        Ok(text.to_owned())
    }
}

/// Whether `name` is the name of a file in a directory and nothing else.
fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

fn fault_at(path: &Path, offset: usize, fault: ManifestFault) -> FormatError {
    FormatError::Manifest {
        path: path.to_path_buf(),
        offset: offset as u64,
        fault,
    }
}
