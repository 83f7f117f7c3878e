//! Merging one piece: as long as some adjacent pair of tokens is a token itself, the
//! pair with the lowest rank becomes one, the leftmost of equals first.
//!
//! Every intermediate part is a token and a pair's merged token is found by the pair's
//! bytes, so the rank of the merged token is both its priority and its id. (A list of
//! merges rebuilt from ranks would not do: two different splits of the same token are
//! the same merge here and different ones there.)

use crate::ranks::{NO_RANK, RankTable};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Longest piece that is merged by scanning: below it rescanning a small array beats
/// the heap's bookkeeping, and its cost is bounded by this many comparisons a byte.
const SCAN_BYTES_MAX: usize = 64;

/// Buffers reused from piece to piece. Their size follows the longest piece: 40 bytes
/// for each of its bytes, before rounding up.
#[derive(Default)]
pub(crate) struct Scratch {
    nodes: Vec<Node>,
    heap: BinaryHeap<Reverse<u64>>,
}

#[cfg(test)]
impl Scratch {
    pub(crate) fn heap_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.heap.capacity() * size_of::<u64>()
    }
}

/// A part of the piece, stored at the index of its first byte. Parts absorbed by their
/// left neighbour keep their place with no pair.
#[derive(Clone, Copy)]
struct Node {
    /// Where the previous part starts; meaningless at 0.
    previous: u32,
    /// Where the next part starts, which is where this one ends.
    next: u32,
    /// The token this part is.
    id: u32,
    /// The token this part and the next would become, or `NO_RANK`.
    pair_rank: u32,
}

/// Appends the ids of one pre-split piece to `ids`.
///
/// A piece that is a token is that token, even where merging would not reach it.
pub(crate) fn encode_piece(
    table: &RankTable,
    piece: &[u8],
    scratch: &mut Scratch,
    ids: &mut Vec<u32>,
) {
    match table.rank_or_none(piece) {
        NO_RANK if piece.len() <= SCAN_BYTES_MAX => merge_by_scan(table, piece, ids),
        NO_RANK => merge_by_heap(table, piece, scratch, ids),
        rank => ids.push(rank),
    }
}

/// At most `SCAN_BYTES_MAX` bytes: O(n²) comparisons, no allocation.
fn merge_by_scan(table: &RankTable, piece: &[u8], ids: &mut Vec<u32>) {
    debug_assert!(piece.len() <= SCAN_BYTES_MAX);
    // Part i is piece[starts[i]..starts[i + 1]]; pair i is parts i and i + 1.
    let mut starts = [0usize; SCAN_BYTES_MAX + 1];
    let mut parts = [0u32; SCAN_BYTES_MAX];
    let mut pairs = [NO_RANK; SCAN_BYTES_MAX];
    let mut count = piece.len();
    for (index, &byte) in piece.iter().enumerate() {
        starts[index + 1] = index + 1;
        parts[index] = table.byte_rank(byte);
        if let Some(pair) = piece.get(index..index + 2) {
            pairs[index] = table.rank_or_none(pair);
        }
    }
    loop {
        let (mut lowest, mut at) = (NO_RANK, 0);
        for (index, &rank) in pairs[..count].iter().enumerate() {
            if rank < lowest {
                (lowest, at) = (rank, index);
            }
        }
        if lowest == NO_RANK {
            break;
        }
        parts[at] = lowest;
        starts.copy_within(at + 2..=count, at + 1);
        parts.copy_within(at + 2..count, at + 1);
        pairs.copy_within(at + 1..count, at);
        count -= 1;
        // Pair `at` now starts with the merged part, pair `at - 1` ends with it.
        for first in at.saturating_sub(1)..=at {
            pairs[first] = if first + 1 < count {
                table.rank_or_none(&piece[starts[first]..starts[first + 2]])
            } else {
                NO_RANK
            };
        }
    }
    ids.extend_from_slice(&parts[..count]);
}

/// Any length: O(n log n). Each merge removes a part and queues at most two pairs, so
/// the heap never sees more than 3n entries. Entries are not removed when a neighbour
/// changes; an entry counts only if its part still has a pair of that rank.
fn merge_by_heap(table: &RankTable, piece: &[u8], scratch: &mut Scratch, ids: &mut Vec<u32>) {
    let end = u32::try_from(piece.len()).expect("spans bound a piece far below 4 GiB");
    let Scratch { nodes, heap } = scratch;
    nodes.clear();
    heap.clear();
    for (at, index) in (0..end).zip(0usize..) {
        let pair = piece.get(index..index + 2);
        let pair_rank = pair.map_or(NO_RANK, |pair| table.rank_or_none(pair));
        let id = table.byte_rank(piece[index]);
        nodes.push(Node {
            previous: at.saturating_sub(1),
            next: at + 1,
            id,
            pair_rank,
        });
    }
    heap.extend(
        (0..end)
            .zip(nodes.iter())
            .filter_map(|(at, node)| entry(node.pair_rank, at)),
    );
    while let Some(Reverse(key)) = heap.pop() {
        let (rank, at) = split_key(key);
        let node = nodes[at as usize];
        if node.pair_rank != rank {
            continue;
        }
        let right = &mut nodes[node.next as usize];
        right.pair_rank = NO_RANK;
        let next = right.next;
        nodes[at as usize] = Node {
            next,
            id: rank,
            ..node
        };
        if next < end {
            nodes[next as usize].previous = at;
        }
        let left = if at > 0 { node.previous } else { at };
        for first in if left < at {
            [Some(left), Some(at)]
        } else {
            [Some(at), None]
        } {
            let Some(first) = first else { continue };
            let second = nodes[first as usize].next;
            let pair_rank = if second < end {
                let pair_end = nodes[second as usize].next;
                table.rank_or_none(&piece[first as usize..pair_end as usize])
            } else {
                NO_RANK
            };
            nodes[first as usize].pair_rank = pair_rank;
            heap.extend(entry(pair_rank, first));
        }
    }
    let mut at = 0;
    while at < end {
        let node = nodes[at as usize];
        ids.push(node.id);
        at = node.next;
    }
}

/// Orders by rank, then by position.
fn entry(rank: u32, at: u32) -> Option<Reverse<u64>> {
    (rank != NO_RANK).then(|| Reverse(u64::from(rank) << 32 | u64::from(at)))
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "takes apart what `entry` put together"
)]
fn split_key(key: u64) -> (u32, u32) {
    ((key >> 32) as u32, key as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::tests::table;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    fn by_scan(table: &RankTable, piece: &[u8]) -> Vec<u32> {
        let mut ids = Vec::new();
        merge_by_scan(table, piece, &mut ids);
        ids
    }

    fn by_heap(table: &RankTable, piece: &[u8]) -> Vec<u32> {
        let mut ids = Vec::new();
        merge_by_heap(table, piece, &mut Scratch::default(), &mut ids);
        ids
    }

    /// The definition, on vectors: no positions, no priorities, no bookkeeping.
    fn by_definition(table: &RankTable, piece: &[u8]) -> Vec<u32> {
        let mut parts: Vec<Vec<u8>> = piece.iter().map(|&byte| vec![byte]).collect();
        loop {
            let ranks = parts.windows(2).map(|pair| table.rank(&pair.concat()));
            let lowest = ranks
                .enumerate()
                .filter_map(|(at, rank)| Some((rank?, at)))
                .min();
            let Some((_, at)) = lowest else { break };
            let right = parts.remove(at + 1);
            parts[at].extend(right);
        }
        parts
            .iter()
            .map(|part| table.rank(part).expect("parts are tokens"))
            .collect()
    }

    #[test]
    fn leftmost_of_equal_pairs_merges_first() {
        let table = table(&[b"aa"]).unwrap();
        for merge in [by_scan, by_heap] {
            assert_eq!(merge(&table, b"aaa"), [256, u32::from(b'a')]);
            assert_eq!(merge(&table, b"aaaaa"), [256, 256, u32::from(b'a')]);
        }
    }

    #[test]
    fn lower_rank_wins_over_longer_and_over_left() {
        let table = table(&[b"bc", b"ab", b"abc"]).unwrap();
        for merge in [by_scan, by_heap] {
            assert_eq!(
                merge(&table, b"abc"),
                [258],
                "a + bc gives abc although bc came first"
            );
            assert_eq!(merge(&table, b"abcb"), [258, u32::from(b'b')]);
            assert_eq!(merge(&table, b"abd"), [257, u32::from(b'd')]);
        }
    }

    #[test]
    fn whole_piece_that_is_a_token_needs_no_merge_path() {
        // "xyz" has no half that is a token, so merging alone never reaches it.
        let table = table(&[b"xyz"]).unwrap();
        let mut ids = Vec::new();
        encode_piece(&table, b"xyz", &mut Scratch::default(), &mut ids);
        encode_piece(&table, b"xyzz", &mut Scratch::default(), &mut ids);
        assert_eq!(ids, [256, 120, 121, 122, 122]);
    }

    #[test]
    fn empty_and_single() {
        let table = table(&[]).unwrap();
        for merge in [by_scan, by_heap] {
            assert!(merge(&table, b"").is_empty());
            assert_eq!(merge(&table, b"\xff"), [255]);
        }
    }

    /// Runs whose pairs all have one rank, at every stage: each merge changes its
    /// neighbours' pairs, and rescanning or shifting the rest would be quadratic.
    #[test]
    fn runs_of_equal_ranks_stay_fast_without_the_long_input_rule() {
        let powers: Vec<Vec<u8>> = (1..=8).map(|power| vec![b'a'; 1 << power]).collect();
        let mut tokens: Vec<&[u8]> = powers.iter().map(Vec::as_slice).collect();
        tokens.extend([b"xy".as_slice(), b"xyxy", b"yx"]);
        let table = table(&tokens).unwrap();
        let count = if cfg!(debug_assertions) {
            1 << 17
        } else {
            1 << 20
        };
        let start = Instant::now();
        assert_eq!(by_heap(&table, &vec![b'a'; count]), vec![263; count / 256]);
        assert_eq!(
            by_heap(&table, &b"xy".repeat(count / 2)),
            vec![265; count / 4]
        );
        assert_eq!(by_heap(&table, &vec![b'b'; count]), vec![98; count]);
        if !cfg!(debug_assertions) {
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "took {:?}",
                start.elapsed()
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn scan_and_heap_equal_the_definition(
            merges in proptest::collection::btree_set("[abc]{2,5}", 0..20),
            order in any::<u64>(),
            piece in "[abcd]{0,64}",
        ) {
            let mut tokens: Vec<&[u8]> = merges.iter().map(String::as_bytes).collect();
            if !tokens.is_empty() {
                let count = tokens.len() as u64;
                tokens.rotate_left(usize::try_from(order % count).unwrap());
                if order & 1 << 40 != 0 {
                    tokens.reverse();
                }
            }
            let table = table(&tokens).unwrap();
            let expected = by_definition(&table, piece.as_bytes());
            prop_assert_eq!(by_scan(&table, piece.as_bytes()), &expected[..]);
            prop_assert_eq!(by_heap(&table, piece.as_bytes()), expected);
        }
    }
}
