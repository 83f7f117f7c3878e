//! Which blocks stay in memory.
//!
//! `prefix` takes blocks from the start of the sweep while they fit. `spread`
//! walks the sweep once and pins a block whenever the pinned share of the
//! bytes so far has fallen a whole block behind: at every point of the sweep
//! the pinned bytes lie within one largest block of their even share, so the
//! disk is asked for the same rate throughout. With blocks of one size the
//! gaps between pinned blocks differ by at most one block.

use crate::choices::Pins;
use crate::footprint::BlockFootprint;

/// A set of blocks, by their position in the sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinMap {
    words: Vec<u64>,
    block_count: usize,
    pinned_count: usize,
}

impl PinMap {
    /// No block of `block_count`.
    #[must_use]
    pub fn empty(block_count: usize) -> Self {
        Self {
            words: vec![0; block_count.div_ceil(64)],
            block_count,
            pinned_count: 0,
        }
    }

    /// Blocks there are, pinned or not.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.block_count
    }

    /// Blocks that are pinned.
    #[must_use]
    pub fn pinned_count(&self) -> usize {
        self.pinned_count
    }

    /// Whether block `index` is pinned.
    ///
    /// # Panics
    ///
    /// If there is no such block.
    #[must_use]
    pub fn is_pinned(&self, index: usize) -> bool {
        assert!(
            index < self.block_count,
            "block {index} of {}",
            self.block_count
        );
        self.words[index / 64] >> (index % 64) & 1 == 1
    }

    /// The pinned blocks, in sweep order.
    pub fn pinned(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.block_count).filter(|&index| self.is_pinned(index))
    }

    /// Pins block `index`.
    pub(super) fn pin(&mut self, index: usize) {
        assert!(!self.is_pinned(index), "block {index} is pinned once");
        self.words[index / 64] |= 1 << (index % 64);
        self.pinned_count += 1;
        assert!(
            self.pinned_count <= self.block_count,
            "only blocks are pinned"
        );
    }
}

/// The blocks that stay in memory when `pinned_bytes` are there for them.
///
/// The sizes of the chosen blocks add up to at most `pinned_bytes`, and never
/// to less than with fewer bytes. All blocks are chosen as soon as they fit.
/// `spread` leaves less than two largest blocks unused, `prefix` less than
/// the first block that it does not choose. The output head is a block like
/// any other.
///
/// ```
/// use k3_config::{BlockFootprint, BlockKind, Pins, pinned_blocks};
/// let blocks = [BlockFootprint { kind: BlockKind::Layer(0), bytes: 10 }; 8];
/// let spread = pinned_blocks(&blocks, 45, Pins::Spread);
/// assert_eq!(spread.pinned().collect::<Vec<_>>(), [1, 3, 5, 7]);
/// let prefix = pinned_blocks(&blocks, 45, Pins::Prefix);
/// assert_eq!(prefix.pinned().collect::<Vec<_>>(), [0, 1, 2, 3]);
/// ```
#[must_use]
pub fn pinned_blocks(blocks: &[BlockFootprint], pinned_bytes: u64, pins: Pins) -> PinMap {
    let sizes = blocks.iter().map(|block| block.bytes);
    let candidates = Candidates::new(sizes, |bytes| bytes, &PinMap::empty(blocks.len()));
    let map = candidates.fitting(u128::from(pinned_bytes), pins);
    assert_eq!(map.block_count(), blocks.len());
    let chosen: u128 = map
        .pinned()
        .map(|index| u128::from(blocks[index].bytes))
        .sum();
    assert!(chosen <= u128::from(pinned_bytes));
    map
}

/// A block that may be pinned.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    index: usize,
    /// Payload: what pinning it saves per sweep.
    size: u64,
    /// Room it takes, never less.
    cost: u64,
}

/// The blocks that may be pinned, in sweep order.
#[derive(Debug)]
pub(super) struct Candidates {
    block_count: usize,
    blocks: Vec<Candidate>,
    size_total: u128,
    cost_total: u128,
    size_largest: u128,
}

impl Candidates {
    /// All blocks but those in `excluded`; `cost` is the room for a size.
    pub(super) fn new(
        sizes: impl Iterator<Item = u64>,
        cost: impl Fn(u64) -> u64,
        excluded: &PinMap,
    ) -> Self {
        let candidate = |(index, size)| Candidate {
            index,
            size,
            cost: cost(size),
        };
        let blocks: Vec<Candidate> = sizes
            .enumerate()
            .filter(|(index, _)| !excluded.is_pinned(*index))
            .map(candidate)
            .collect();
        assert!(blocks.iter().all(|block| block.size <= block.cost));
        assert_eq!(
            blocks.len() + excluded.pinned_count(),
            excluded.block_count()
        );
        Self {
            block_count: excluded.block_count(),
            size_total: blocks.iter().map(|block| u128::from(block.size)).sum(),
            cost_total: blocks.iter().map(|block| u128::from(block.cost)).sum(),
            size_largest: blocks
                .iter()
                .map(|block| u128::from(block.size))
                .max()
                .unwrap_or(0),
            blocks,
        }
    }

    /// Candidates there are.
    pub(super) fn count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Room for all of them.
    pub(super) fn cost_total(&self) -> u128 {
        self.cost_total
    }

    /// Room for the one that takes the most.
    pub(super) fn cost_largest(&self) -> u64 {
        self.blocks
            .iter()
            .map(|block| block.cost)
            .max()
            .unwrap_or(0)
    }

    /// Every candidate.
    pub(super) fn all(&self) -> PinMap {
        self.fitting(self.cost_total, Pins::Prefix)
    }

    /// Room for those in `map`, all of which are candidates.
    pub(super) fn cost_of(&self, map: &PinMap) -> u128 {
        assert_eq!(self.block_count, map.block_count());
        let chosen = self
            .blocks
            .iter()
            .filter(|block| map.is_pinned(block.index));
        let cost = chosen.map(|block| u128::from(block.cost)).sum();
        assert!(cost <= self.cost_total);
        cost
    }

    /// Candidates that fit `room`.
    pub(super) fn fitting(&self, room: u128, pins: Pins) -> PinMap {
        let mut map = PinMap::empty(self.block_count);
        if room >= self.cost_total {
            self.blocks.iter().for_each(|block| map.pin(block.index));
        } else {
            match pins {
                Pins::Prefix => self.pin_prefix(room, &mut map),
                Pins::Spread => {
                    self.walk_spread(self.largest_share(room), |block| map.pin(block.index))
                }
            }
        }
        assert!(self.cost_of(&map) <= room, "the chosen blocks fit");
        map
    }

    fn pin_prefix(&self, room: u128, map: &mut PinMap) {
        assert_eq!(map.pinned_count(), 0, "selection starts from nothing");
        let mut left = room;
        for block in &self.blocks {
            // Stopping at the first block that does not fit keeps the sets
            // nested: more memory only ever adds blocks.
            match left.checked_sub(u128::from(block.cost)) {
                Some(rest) => left = rest,
                None => break,
            }
            map.pin(block.index);
        }
        assert!(left <= room, "room is only used up");
    }

    /// The largest share in whole largest blocks whose set fits `room`.
    ///
    /// The set for a share of k largest blocks holds more than k - 1 and at
    /// most k of them. So its payload grows with k, and whoever takes the
    /// largest k that fits never pins less with more room.
    fn largest_share(&self, room: u128) -> u128 {
        assert!(room < self.cost_total && self.size_total > 0);
        let largest = self.size_largest;
        // More than one largest block beyond the room cannot fit, and the
        // share of all candidates was found not to.
        let most = (room / largest + 1).min((self.size_total - 1) / largest);
        let share = (0..=most)
            .rev()
            .map(|count| count * largest)
            .find(|&share| {
                let mut cost: u128 = 0;
                self.walk_spread(share, |block| cost += u128::from(block.cost));
                cost <= room
            });
        share.expect("an empty share fits any room")
    }

    /// Visits the blocks of the even set for `share` bytes of payload.
    fn walk_spread(&self, share: u128, mut visit: impl FnMut(&Candidate)) {
        assert!(
            share < self.size_total && self.size_total < 1 << 63,
            "the products below stay within 127 bits"
        );
        let mut behind: u128 = 0;
        for block in &self.blocks {
            let size = u128::from(block.size);
            behind += size * share;
            if behind >= size * self.size_total && size > 0 {
                behind -= size * self.size_total;
                visit(block);
            }
        }
        assert!(
            behind < self.size_largest * self.size_total,
            "never a whole block behind"
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::footprint::BlockKind;

    fn blocks(sizes: &[u64]) -> Vec<BlockFootprint> {
        let kind = BlockKind::Layer(0);
        sizes
            .iter()
            .map(|&bytes| BlockFootprint { kind, bytes })
            .collect()
    }

    fn bytes(sizes: &[u64], map: &PinMap) -> u64 {
        map.pinned().map(|index| sizes[index]).sum()
    }

    #[test]
    fn prefix_stops_at_the_first_that_does_not_fit() {
        let sizes = [5, 9, 1, 1];
        let map = pinned_blocks(&blocks(&sizes), 7, Pins::Prefix);
        assert_eq!(map.pinned().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn nothing_and_everything() {
        for pins in [Pins::Spread, Pins::Prefix] {
            let sizes = [3, 4, 5];
            assert_eq!(pinned_blocks(&blocks(&sizes), 0, pins).pinned_count(), 0);
            assert_eq!(pinned_blocks(&blocks(&sizes), 12, pins).pinned_count(), 3);
            assert!(pinned_blocks(&blocks(&sizes), 11, pins).pinned_count() < 3);
            assert_eq!(pinned_blocks(&[], 100, pins).block_count(), 0);
        }
    }

    proptest! {
        #[test]
        fn spread_of_equal_blocks_has_even_gaps(count in 1usize..400, pinned in 0usize..400, size in 1u64..1_000_000) {
            let pinned = pinned.min(count);
            let sizes = vec![size; count];
            let map = pinned_blocks(&blocks(&sizes), size * pinned as u64, Pins::Spread);
            prop_assert_eq!(map.pinned_count(), pinned);
            let chosen: Vec<usize> = map.pinned().collect();
            // A sweep follows a sweep: the last gap leads into the next one.
            let again = chosen.first().map(|first| first + count);
            let chosen: Vec<usize> = chosen.into_iter().chain(again).collect();
            let gaps: Vec<usize> = chosen.windows(2).map(|pair| pair[1] - pair[0]).collect();
            if let (Some(most), Some(least)) = (gaps.iter().max(), gaps.iter().min()) {
                prop_assert!(most - least <= 1, "gaps from {} to {}", least, most);
            }
        }

        #[test]
        fn spread_keeps_to_its_share_everywhere(
            sizes in prop::collection::vec(1u64..5_000_000, 1..300),
            room in 0.0f64..1.0,
        ) {
            let total: u64 = sizes.iter().sum();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of a small total")]
            let room = (total as f64 * room) as u64;
            let map = pinned_blocks(&blocks(&sizes), room, Pins::Spread);
            let largest = *sizes.iter().max().unwrap();
            let share = room - room % largest;
            let (mut seen, mut pinned) = (0u64, 0u64);
            for (index, size) in sizes.iter().enumerate() {
                seen += size;
                pinned += if map.is_pinned(index) { *size } else { 0 };
                let even = u128::from(seen) * u128::from(share);
                let have = u128::from(pinned) * u128::from(total);
                // A share of one largest block more may have fitted as well.
                let block = u128::from(largest) * u128::from(total);
                prop_assert!(have <= even + block && even < have + block);
            }
            prop_assert!(room - pinned < 2 * largest);
        }

        #[test]
        fn more_room_never_pins_less(
            sizes in prop::collection::vec(1u64..50, 1..60),
            rooms in prop::collection::vec(0u64..3000, 2..20),
            spread: bool,
        ) {
            let pins = if spread { Pins::Spread } else { Pins::Prefix };
            let mut rooms = rooms;
            rooms.sort_unstable();
            let pinned: Vec<u64> = rooms
                .iter()
                .map(|room| bytes(&sizes, &pinned_blocks(&blocks(&sizes), *room, pins)))
                .collect();
            prop_assert!(pinned.is_sorted(), "{:?} pin {:?}", rooms, pinned);
            for (room, pinned) in rooms.iter().zip(pinned) {
                prop_assert!(pinned <= *room);
            }
        }
    }
}
