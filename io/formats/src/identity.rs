//! What makes two checkpoints the same one.

use std::fmt;

/// Identity of a checkpoint: BLAKE3 over the configuration's bytes and each
/// shard's name, size and header.
///
/// Files derived from a checkpoint carry it and are refused beside any other.
/// Weights are not hashed: that would read the whole checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity([u8; 32]);

impl Identity {
    /// The bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// An identity that was stored.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// The digest in hexadecimal.
impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// One shard's share in an identity.
pub(crate) struct ShardDigest<'a> {
    pub(crate) name: &'a str,
    pub(crate) file_bytes: u64,
    pub(crate) header: &'a [u8; 32],
}

/// First bytes of what is hashed, so that no other use of BLAKE3 can give the
/// same digest.
const DOMAIN: &[u8] = b"k3 checkpoint identity 1\0";

/// Shards count in the order of their names, whatever order they were opened
/// in. Every variable length is written before its bytes.
pub(crate) fn checkpoint_identity(config: &[u8], mut shards: Vec<ShardDigest<'_>>) -> Identity {
    shards.sort_unstable_by(|a, b| (a.name, a.header).cmp(&(b.name, b.header)));
    let mut hasher = blake3::Hasher::new();
    hasher.update(DOMAIN);
    hasher.update(&(config.len() as u64).to_le_bytes());
    hasher.update(config);
    hasher.update(&(shards.len() as u64).to_le_bytes());
    for shard in shards {
        hasher.update(&(shard.name.len() as u64).to_le_bytes());
        hasher.update(shard.name.as_bytes());
        hasher.update(&shard.file_bytes.to_le_bytes());
        hasher.update(shard.header);
    }
    Identity(*hasher.finalize().as_bytes())
}

/// Digest of one shard's header JSON.
pub(crate) fn header_digest(json: &[u8]) -> [u8; 32] {
    *blake3::hash(json).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(config: &[u8], shards: &[(&str, u64, [u8; 32])]) -> Identity {
        let shards = shards
            .iter()
            .map(|(name, file_bytes, header)| ShardDigest {
                name,
                file_bytes: *file_bytes,
                header,
            })
            .collect();
        checkpoint_identity(config, shards)
    }

    #[test]
    fn every_part_counts_and_the_order_does_not() {
        let a = ("a", 1, [1; 32]);
        let b = ("b", 2, [2; 32]);
        let base = identity(b"{}", &[a, b]);
        assert_eq!(base, identity(b"{}", &[b, a]));
        let others = [
            identity(b"{} ", &[a, b]),
            identity(b"{}", &[a]),
            identity(b"{}", &[("aa", 1, [1; 32]), b]),
            identity(b"{}", &[("a", 3, [1; 32]), b]),
            identity(b"{}", &[("a", 1, [3; 32]), b]),
            identity(b"{}", &[("a", 2, [1; 32]), ("b", 1, [2; 32])]),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(base, *other, "variant {index}");
        }
        assert_eq!(base.to_string().len(), 64);
        assert_eq!(Identity::from_bytes(*base.as_bytes()), base);
    }
}
