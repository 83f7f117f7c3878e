//! Names of entries: what they are of can be told without opening them.

use k3_formats::snapshot::SnapshotBinding;

const ENDING: &str = ".k3prefix";
const TAG_DIGITS: usize = 16;
const POSITION_DIGITS: usize = 8;
const KEY_DIGITS: usize = 32;
const BINDING_DOMAIN: &[u8] = b"k3 prefix binding 1\0";
const KEY_DOMAIN: &[u8] = b"k3 prefix key 1\0";

/// What the name of an entry says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct EntryName {
    /// Of the binding, in hexadecimal.
    pub(super) tag: String,
    /// Token ids that the state has consumed.
    pub(super) position: usize,
    /// Of binding and ids, in hexadecimal.
    pub(super) key: String,
}

impl EntryName {
    /// The file's name.
    pub(super) fn file_name(&self) -> String {
        let Self { tag, position, key } = self;
        format!("{tag}-{position:0POSITION_DIGITS$}-{key}{ENDING}")
    }

    /// What `file_name` says; `None` when it is no entry's.
    pub(super) fn parse(file_name: &str) -> Option<Self> {
        let mut parts = file_name.strip_suffix(ENDING)?.split('-');
        let (tag, position, key) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, digits: usize| {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            text.len() == digits && text.bytes().all(is_digit)
        };
        let is_number =
            position.len() == POSITION_DIGITS && position.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = is_hex(tag, TAG_DIGITS) && is_hex(key, KEY_DIGITS) && is_number;
        if !is_name || parts.next().is_some() {
            return None;
        }
        Some(Self {
            tag: tag.to_owned(),
            position: position.parse().ok()?,
            key: key.to_owned(),
        })
    }
}

/// The part of a name that tells bindings apart.
pub(super) fn binding_tag(binding: &SnapshotBinding) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(BINDING_DOMAIN);
    hasher.update(&binding.to_bytes());
    hex(&hasher, TAG_DIGITS)
}

/// Keys of the prefixes of some ids, in one pass over them.
pub(super) struct PrefixKeys<'a> {
    hasher: blake3::Hasher,
    tokens: &'a [u32],
    position: usize,
}

impl<'a> PrefixKeys<'a> {
    pub(super) fn new(binding: &SnapshotBinding, tokens: &'a [u32]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(KEY_DOMAIN);
        hasher.update(&binding.to_bytes());
        Self {
            hasher,
            tokens,
            position: 0,
        }
    }

    /// Key of the first `position` ids; positions ascend from call to call.
    pub(super) fn key(&mut self, position: usize) -> String {
        for ids in self.tokens[self.position..position].chunks(1024) {
            let mut encoded = [0; 4 * 1024];
            for (bytes, id) in encoded.chunks_exact_mut(4).zip(ids) {
                bytes.copy_from_slice(&id.to_le_bytes());
            }
            self.hasher.update(&encoded[..4 * ids.len()]);
        }
        self.position = position;
        hex(&self.hasher, KEY_DIGITS)
    }
}

fn hex(hasher: &blake3::Hasher, digits: usize) -> String {
    hasher.finalize().to_hex()[..digits].to_owned()
}
