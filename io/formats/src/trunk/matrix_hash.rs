//! BLAKE3 of a matrix whose blocks are read in any order, by any thread.
//!
//! A manifest has a hash of every tensor, and a packed trunk has the same hash of
//! every matrix that it was packed from: they can be compared without reading a
//! weight. Blocks end where rows do, which is no border of BLAKE3's tree. So each
//! block gives the hashes of the largest subtrees within it and the bytes of the
//! chunks that it shares with its neighbours ([`MatrixPart`]), and who has the
//! blocks in order puts them together ([`MatrixHasher`]).

use blake3::hazmat::{
    HasherExt as _, Mode, max_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{CHUNK_LEN, Hasher};

/// What a block adds to the hash of its matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixPart(Part);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// The block is all there is.
    Whole([u8; 32]),
    /// It is a piece.
    Piece {
        /// Bytes before its first whole chunk.
        head: Vec<u8>,
        /// Length and chaining value of subtrees, one behind the other.
        subtrees: Vec<(u64, [u8; 32])>,
        /// Bytes after its last whole chunk.
        tail: Vec<u8>,
    },
}

impl MatrixPart {
    /// Of the block that has `bytes` and begins at byte `start` of a matrix of
    /// `total` bytes.
    ///
    /// # Panics
    ///
    /// If it ends beyond the matrix.
    #[must_use]
    pub fn new(start: u64, total: u64, bytes: &[u8]) -> Self {
        let length = bytes.len() as u64;
        assert!(start + length <= total, "a block lies within its matrix");
        if length == total {
            return Self(Part::Whole(*blake3::hash(bytes).as_bytes()));
        }
        let chunk = CHUNK_LEN as u64;
        let to_chunk = start.next_multiple_of(chunk) - start;
        let split = usize::try_from(to_chunk.min(length)).expect("shorter than the block");
        let (head, mut rest) = bytes.split_at(split);
        let mut at = start + split as u64;
        let mut subtrees = Vec::new();
        while rest.len() >= CHUNK_LEN {
            let longest = max_subtree_len(at).unwrap_or(u64::MAX);
            let longest = longest.min(rest.len() as u64);
            // A power of two that is no more.
            let taken = 1_u64 << longest.ilog2();
            let (subtree, behind) =
                rest.split_at(usize::try_from(taken).expect("shorter than the block"));
            let mut hasher = Hasher::new();
            hasher.set_input_offset(at).update(subtree);
            subtrees.push((taken, hasher.finalize_non_root()));
            at += taken;
            rest = behind;
        }
        Self(Part::Piece {
            head: head.to_vec(),
            subtrees,
            tail: rest.to_vec(),
        })
    }
}

/// A subtree that is no part of a larger one yet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subtree {
    start: u64,
    bytes: u64,
    value: [u8; 32],
}

/// The hash of a matrix up to some block. It can be kept in a file and taken up
/// again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatrixHasher {
    /// Bytes of the matrix.
    total: u64,
    /// Bytes so far; 0 between two matrices.
    at: u64,
    stack: Vec<Subtree>,
    /// Bytes behind the last whole chunk.
    tail: Vec<u8>,
}

impl MatrixHasher {
    /// Whether a block that begins at `start` of a matrix of `total` bytes is the
    /// one that comes next.
    #[must_use]
    pub fn expects(&self, start: u64, total: u64) -> bool {
        self.at == start && (start == 0 || total == self.total)
    }

    /// Adds the block of `bytes` that begins at `start` of a matrix of `total`
    /// bytes; gives the hash after the last one.
    ///
    /// # Panics
    ///
    /// If it is not the block [expected](Self::expects).
    pub fn add(
        &mut self,
        start: u64,
        total: u64,
        bytes: u64,
        part: &MatrixPart,
    ) -> Option<[u8; 32]> {
        assert!(self.expects(start, total), "blocks of a matrix in order");
        let (head, subtrees, tail) = match &part.0 {
            Part::Whole(hash) => return Some(*hash),
            Part::Piece {
                head,
                subtrees,
                tail,
            } => (head, subtrees, tail),
        };
        self.total = total;
        self.tail.extend_from_slice(head);
        // A matrix of one chunk has no subtrees: it is hashed at the end.
        if self.tail.len() == CHUNK_LEN && total > CHUNK_LEN as u64 {
            self.push_tail();
        }
        for (bytes, value) in subtrees {
            self.push(*bytes, *value);
        }
        self.tail.extend_from_slice(tail);
        self.at += bytes;
        (self.at == total).then(|| std::mem::take(self).finish())
    }

    fn push_tail(&mut self) {
        let start = self.stack.last().map_or(0, |last| last.start + last.bytes);
        let tail = std::mem::take(&mut self.tail);
        let mut hasher = Hasher::new();
        hasher.set_input_offset(start).update(&tail);
        self.push(tail.len() as u64, hasher.finalize_non_root());
    }

    fn push(&mut self, bytes: u64, value: [u8; 32]) {
        let start = self.stack.last().map_or(0, |last| last.start + last.bytes);
        let mut new = Subtree {
            start,
            bytes,
            value,
        };
        // The last chunk may be shorter than one; it is merged at the end.
        while let Some(left) = self.stack.pop_if(|left| {
            let both = 2 * left.bytes;
            left.bytes == new.bytes && left.start % both == 0 && both < self.total
        }) {
            new = Subtree {
                start: left.start,
                bytes: 2 * left.bytes,
                value: merge_subtrees_non_root(&left.value, &new.value, Mode::Hash),
            };
        }
        self.stack.push(new);
    }

    /// All is there: merges what is left from the end on.
    fn finish(mut self) -> [u8; 32] {
        if self.stack.is_empty() {
            return *blake3::hash(&self.tail).as_bytes();
        }
        if !self.tail.is_empty() {
            self.push_tail();
        }
        let mut right = self.stack.pop().expect("it is not empty").value;
        while let Some(left) = self.stack.pop() {
            if self.stack.is_empty() {
                let root = merge_subtrees_root(&left.value, &right, Mode::Hash);
                return *root.as_bytes();
            }
            right = merge_subtrees_non_root(&left.value, &right, Mode::Hash);
        }
        unreachable!("the whole is never merged before the end")
    }

    /// The state, to be kept.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = |length: usize| u16::try_from(length).expect("few").to_le_bytes();
        let mut out = Vec::new();
        out.extend(self.total.to_le_bytes());
        out.extend(self.at.to_le_bytes());
        out.extend(count(self.stack.len()));
        for subtree in &self.stack {
            out.extend(subtree.start.to_le_bytes());
            out.extend(subtree.bytes.to_le_bytes());
            out.extend(subtree.value);
        }
        out.extend(count(self.tail.len()));
        out.extend(&self.tail);
        out
    }

    /// A state that was kept; `None` where `bytes` are none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut take = |length: usize| {
            let (taken, behind) = rest.split_at_checked(length)?;
            rest = behind;
            Some(taken)
        };
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        let count = |bytes: &[u8]| Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)));
        let total = number(take(8)?)?;
        let at = number(take(8)?)?;
        let mut stack = Vec::new();
        for _ in 0..count(take(2)?)? {
            stack.push(Subtree {
                start: number(take(8)?)?,
                bytes: number(take(8)?)?,
                value: take(32)?.try_into().ok()?,
            });
        }
        let length = count(take(2)?)?;
        let tail = take(length)?.to_vec();
        rest.is_empty().then_some(Self {
            total,
            at,
            stack,
            tail,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length)
            .map(|at| u8::try_from(at * 31 % 251).unwrap())
            .collect()
    }

    /// The hash by parts of the lengths that `next` gives, through a kept state
    /// after each.
    fn by_parts(all: &[u8], mut next: impl FnMut() -> usize) -> [u8; 32] {
        let total = all.len() as u64;
        let mut hasher = MatrixHasher::default();
        let mut start = 0;
        loop {
            let end = (start + next().max(1)).min(all.len());
            let part = MatrixPart::new(start as u64, total, &all[start..end]);
            let length = (end - start) as u64;
            assert!(hasher.expects(start as u64, total));
            if let Some(hash) = hasher.add(start as u64, total, length, &part) {
                assert_eq!((end, &hasher), (all.len(), &MatrixHasher::default()));
                return hash;
            }
            hasher = MatrixHasher::from_bytes(&hasher.to_bytes()).unwrap();
            start = end;
        }
    }

    #[test]
    fn parts_of_any_length_give_the_hash_of_the_whole() {
        let mut state = 7_u32;
        for total in [
            1, 2, 63, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 3072, 4096, 5000, 8192, 16_383,
            16_384, 16_385, 65_536, 100_000, 262_144, 300_001,
        ] {
            let all = bytes(total);
            let expected = *blake3::hash(&all).as_bytes();
            for size in [1, 7, 512, 1000, 1024, 1536, 4096, 14_336, 65_536, total] {
                // Byte by byte only where that is quick.
                if size * 20_000 >= total {
                    assert_eq!(by_parts(&all, || size), expected, "{total} by {size}");
                }
            }
            for _ in 0..20 {
                let random = || {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    1 + (state >> 8) as usize % (total / 3 + 2)
                };
                assert_eq!(by_parts(&all, random), expected, "{total}");
            }
        }
    }

    #[test]
    fn what_is_no_kept_state_is_told() {
        let all = bytes(5000);
        let mut hasher = MatrixHasher::default();
        let part = MatrixPart::new(0, 5000, &all[..3500]);
        assert_eq!(hasher.add(0, 5000, 3500, &part), None);
        let kept = hasher.to_bytes();
        for length in 0..kept.len() {
            assert_eq!(MatrixHasher::from_bytes(&kept[..length]), None, "{length}");
        }
        assert_eq!(MatrixHasher::from_bytes(&[&kept[..], &[0]].concat()), None);
        assert!(hasher.expects(3500, 5000));
        assert!(!hasher.expects(3500, 5001) && !hasher.expects(0, 5000));
    }
}
