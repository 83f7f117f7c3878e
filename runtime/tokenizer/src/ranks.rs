//! The vocabulary: every token's bytes in one arena, found by rank or by bytes.

use crate::TokenizerError;
use rustc_hash::FxHasher;
use std::hash::Hasher as _;

/// Stands for "no token"; no vocabulary is that large.
pub(crate) const NO_RANK: u32 = u32::MAX;

/// Most tokens a table takes. The largest released vocabularies have a quarter million.
const RANK_LIMIT: u32 = 1 << 24;

/// Most bytes all tokens together take.
const ARENA_LIMIT: usize = 1 << 30;

/// One place of the hash table. The tag (the hash bits the index does not use) settles
/// nearly every mismatch without touching the arena.
#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    rank: u32,
}

/// The ordinary tokens of a vocabulary, by rank.
///
/// Memory: the tokens' bytes, 4 bytes a rank for their ends and 12 to 24 bytes a rank
/// for the hash table; 4 MB for the 163,584 ranks of the Kimi vocabulary.
pub struct RankTable {
    /// Tokens back to back, in rank order.
    arena: Vec<u8>,
    /// `ends[rank]`: where the token ends in the arena.
    ends: Vec<u32>,
    /// Open addressing with linear probing; the length is a power of two.
    slots: Vec<Slot>,
    /// Rank of each single byte.
    byte_ranks: [u32; 256],
    token_bytes_max: usize,
}

impl RankTable {
    /// Builds the table from `(bytes, rank)` in rank order: 0, 1, 2, …
    ///
    /// # Errors
    /// A rank out of order, an empty or repeated token, a byte without a token of its
    /// own, or a table beyond 2^24 tokens or 1 GiB.
    pub fn new<'a>(
        tokens: impl IntoIterator<Item = (&'a [u8], u32)>,
    ) -> Result<Self, TokenizerError> {
        let mut arena = Vec::new();
        let mut ends: Vec<u32> = Vec::new();
        for (expected, (bytes, rank)) in (0..).zip(tokens) {
            if expected >= RANK_LIMIT {
                return Err(too_large("tokens", RANK_LIMIT.into()));
            }
            if rank != expected {
                return Err(TokenizerError::RankOrder {
                    expected,
                    found: rank,
                });
            }
            if bytes.is_empty() {
                return Err(TokenizerError::EmptyToken { rank });
            }
            arena.extend_from_slice(bytes);
            match u32::try_from(arena.len()) {
                Ok(end) if arena.len() <= ARENA_LIMIT => ends.push(end),
                _ => return Err(too_large("bytes of tokens", ARENA_LIMIT as u64)),
            }
        }
        arena.shrink_to_fit();
        ends.shrink_to_fit();
        let slot_count = (ends.len() + ends.len() / 2 + 1).next_power_of_two();
        let mut table = RankTable {
            arena,
            ends,
            slots: vec![
                Slot {
                    tag: 0,
                    rank: NO_RANK
                };
                slot_count
            ],
            byte_ranks: [NO_RANK; 256],
            token_bytes_max: 0,
        };
        table.index()?;
        Ok(table)
    }

    /// Fills the hash table and the bytes' ranks from the arena.
    fn index(&mut self) -> Result<(), TokenizerError> {
        for rank in 0..self.rank_count() {
            let bytes = self.bytes(rank).expect("ranks below the count have bytes");
            let length = bytes.len();
            let (slot, tag) = self.home(bytes);
            let free = match self.probe(slot, tag, bytes) {
                Ok(first) => {
                    return Err(TokenizerError::DuplicateToken {
                        first,
                        second: rank,
                        bytes: length,
                    });
                }
                Err(free) => free,
            };
            if let &[byte] = bytes {
                self.byte_ranks[usize::from(byte)] = rank;
            }
            self.slots[free] = Slot { tag, rank };
            self.token_bytes_max = self.token_bytes_max.max(length);
        }
        match (0..=255u8).find(|&byte| self.byte_ranks[usize::from(byte)] == NO_RANK) {
            Some(byte) => Err(TokenizerError::MissingByte { byte }),
            None => Ok(()),
        }
    }

    /// Number of ranks; ranks are `0..rank_count()`.
    pub fn rank_count(&self) -> u32 {
        u32::try_from(self.ends.len()).expect("new refuses more")
    }

    /// Length of the longest token in bytes.
    pub fn token_bytes_max(&self) -> usize {
        self.token_bytes_max
    }

    /// Heap memory of the table in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.arena.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + self.slots.capacity() * size_of::<Slot>()
    }

    /// The bytes of a rank; `None` at and above [`RankTable::rank_count`].
    pub fn bytes(&self, rank: u32) -> Option<&[u8]> {
        let index = rank as usize;
        let end = *self.ends.get(index)? as usize;
        let start = index
            .checked_sub(1)
            .map_or(0, |previous| self.ends[previous] as usize);
        Some(&self.arena[start..end])
    }

    /// The rank of exactly these bytes, if they are a token.
    pub fn rank(&self, bytes: &[u8]) -> Option<u32> {
        let rank = self.rank_or_none(bytes);
        (rank != NO_RANK).then_some(rank)
    }

    /// As [`RankTable::rank`], with [`NO_RANK`] for "no token", which compares above
    /// every rank. Longer bytes than the longest token cost nothing.
    #[inline]
    pub(crate) fn rank_or_none(&self, bytes: &[u8]) -> u32 {
        if bytes.len() > self.token_bytes_max {
            return NO_RANK;
        }
        let (slot, tag) = self.home(bytes);
        self.probe(slot, tag, bytes).unwrap_or(NO_RANK)
    }

    /// The rank of a single byte.
    #[inline]
    pub(crate) fn byte_rank(&self, byte: u8) -> u32 {
        self.byte_ranks[usize::from(byte)]
    }

    /// The first slot to look at, and the tag.
    fn home(&self, bytes: &[u8]) -> (usize, u32) {
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        let hash = hasher.finish();
        (
            low_half(hash) as usize & (self.slots.len() - 1),
            low_half(hash >> 32),
        )
    }

    /// The rank of `bytes`, or the free slot where it belongs. Ends because the table
    /// always has free slots.
    fn probe(&self, home: usize, tag: u32, bytes: &[u8]) -> Result<u32, usize> {
        let mut index = home;
        loop {
            let slot = self.slots[index];
            if slot.rank == NO_RANK {
                return Err(index);
            }
            if slot.tag == tag && self.bytes(slot.rank) == Some(bytes) {
                return Ok(slot.rank);
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }
}

impl std::fmt::Debug for RankTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RankTable")
            .field("rank_count", &self.rank_count())
            .field("token_bytes_max", &self.token_bytes_max)
            .finish_non_exhaustive()
    }
}

fn too_large(what: &'static str, limit: u64) -> TokenizerError {
    TokenizerError::VocabularyTooLarge { what, limit }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
fn low_half(value: u64) -> u32 {
    value as u32
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The 256 bytes as ranks 0..256 in byte order, then `more`.
    pub(crate) fn table(more: &[&[u8]]) -> Result<RankTable, TokenizerError> {
        let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
        let tokens = bytes
            .iter()
            .map(<[u8; 1]>::as_slice)
            .chain(more.iter().copied());
        RankTable::new(tokens.zip(0..))
    }

    #[test]
    fn finds_every_token_both_ways_and_nothing_else() {
        let more: Vec<Vec<u8>> = (0..3000u32)
            .map(|n| n.to_be_bytes()[1..].to_vec())
            .collect();
        let slices: Vec<&[u8]> = more.iter().map(Vec::as_slice).collect();
        let table = table(&slices).unwrap();
        assert_eq!(table.rank_count(), 3256);
        for rank in 0..3256 {
            assert_eq!(table.rank(table.bytes(rank).unwrap()), Some(rank));
        }
        assert_eq!(table.bytes(3256), None);
        assert_eq!(table.rank(b""), None);
        assert_eq!(table.rank(b"\x00\x00"), None);
        assert_eq!(table.rank(&3000u32.to_be_bytes()[1..]), None);
        assert_eq!(table.rank(&[0; 4]), None, "longer than any token");
    }

    #[test]
    fn refuses_malformed_vocabularies() {
        let error = |more: &[&[u8]]| table(more).unwrap_err();
        assert!(matches!(
            error(&[b"ab", b""]),
            TokenizerError::EmptyToken { rank: 257 }
        ));
        assert!(matches!(
            error(&[b"ab", b"cd", b"ab"]),
            TokenizerError::DuplicateToken {
                first: 256,
                second: 258,
                bytes: 2
            }
        ));
        let gap = RankTable::new([(b"a".as_slice(), 0), (b"b", 2)]).unwrap_err();
        assert!(matches!(
            gap,
            TokenizerError::RankOrder {
                expected: 1,
                found: 2
            }
        ));
        let bytes: Vec<[u8; 1]> = (0..=255).filter(|&b| b != 0xc0).map(|b| [b]).collect();
        let missing = RankTable::new(bytes.iter().map(<[u8; 1]>::as_slice).zip(0..));
        assert!(matches!(
            missing,
            Err(TokenizerError::MissingByte { byte: 0xc0 })
        ));
        assert!(matches!(
            RankTable::new([]),
            Err(TokenizerError::MissingByte { byte: 0 })
        ));
    }
}
