//! Writing a manifest.

use super::{
    FILE_BYTES, FileKind, HEADER_BYTES, MAGIC, Manifest, RANGE_BYTES, ROOT_DOMAIN, ROOT_OFFSET,
    RangeContent, VERSION,
};

impl Manifest {
    /// The file: the same bytes for the same checkpoint.
    ///
    /// # Panics
    ///
    /// With more than 2^32 files or 4 GiB of names: no index has either.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut names = Names::default();
        let mut tables =
            Vec::with_capacity(self.files.len() * FILE_BYTES + self.ranges.len() * RANGE_BYTES);
        for file in &self.files {
            let (offset, bytes) = names.push(&file.name);
            tables.extend_from_slice(&file.bytes.to_le_bytes());
            tables.extend_from_slice(&count(file.range_count).to_le_bytes());
            tables.extend_from_slice(&offset.to_le_bytes());
            tables.extend_from_slice(&bytes.to_le_bytes());
            tables.push(match file.kind {
                FileKind::Shard => 0,
                FileKind::Other => 1,
            });
            tables.extend_from_slice(&[0; 5]);
        }
        for range in &self.ranges {
            tables.extend_from_slice(&range.bytes.to_le_bytes());
            let (kind, a, b, c) = match &range.content {
                RangeContent::Header => (0, 0, 0, 0),
                RangeContent::Tensor(name) => {
                    let (offset, bytes) = names.push(name);
                    (1, 0, bytes, offset)
                }
                RangeContent::Expert {
                    layer,
                    expert,
                    first_part,
                    part_count,
                } => (2, first_part << 4 | part_count, *layer, u32::from(*expert)),
                RangeContent::File => (3, 0, 0, 0),
            };
            tables.extend_from_slice(&[kind, a]);
            tables.extend_from_slice(&b.to_le_bytes());
            tables.extend_from_slice(&c.to_le_bytes());
            tables.extend_from_slice(&range.hash);
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES + tables.len() + names.0.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&count(self.files.len()).to_le_bytes());
        bytes.extend_from_slice(&(self.ranges.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(names.0.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&self.total_bytes().to_le_bytes());
        bytes.resize(64, 0);
        bytes.extend_from_slice(self.identity.as_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(&tables);
        bytes.extend_from_slice(&names.0);
        let root = root_of(&bytes);
        bytes[ROOT_OFFSET..HEADER_BYTES].copy_from_slice(&root);
        bytes
    }
}

/// The root hash of a manifest file, whatever stands in the place of it.
///
/// # Panics
///
/// When the bytes are shorter than a header.
pub(super) fn root_of(bytes: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(ROOT_DOMAIN);
    hasher.update(&bytes[..ROOT_OFFSET]);
    hasher.update(&bytes[HEADER_BYTES..]);
    *hasher.finalize().as_bytes()
}

fn count(value: usize) -> u32 {
    u32::try_from(value).expect("at most 2^32 ranges")
}

/// Names, one after the other.
#[derive(Default)]
struct Names(Vec<u8>);

impl Names {
    /// Offset and length of `name`.
    fn push(&mut self, name: &str) -> (u32, u16) {
        let offset = u32::try_from(self.0.len()).expect("at most 4 GiB of names");
        // Longer names would have to be cut, and are no tensor of any model.
        let bytes = u16::try_from(name.len()).expect("names have at most 65535 bytes");
        self.0.extend_from_slice(name.as_bytes());
        (offset, bytes)
    }
}
