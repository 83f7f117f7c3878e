//! The trunk's share: the read-ahead ring and the pinned blocks.

use crate::choices::Pins;

use super::arena::ArenaLayout;
use super::largest_fitting;
use super::pins::{Candidates, PinMap};
use super::refusal::PlanRefusal;
use super::request::PlanRequest;

/// Places of the ring when memory allows: enough that the disk works on while
/// a layer's experts are multiplied.
pub(super) const RING_PLACES_MAX: u64 = 64;
/// Of a small trunk the ring takes no more than one part in this many, so
/// that the rest can be pinned.
const RING_TRUNK_PARTS: u64 = 16;
/// Blocks the arithmetic may hold at once: the one in use and the next.
const RING_LEASED: u64 = 2;
/// Blocks in flight beyond this many are not worth memory, however small.
const RING_IN_FLIGHT_MAX: u64 = 8;
/// No trunk is larger; beyond it the arithmetic would leave its bounds.
const TRUNK_BYTES_MAX: u128 = 1 << 62;

/// What the trunk can be given, whatever the budget is.
pub(super) struct Trunk {
    /// Blocks that may be pinned or streamed.
    candidates: Candidates,
    /// Blocks that stay in memory in any case.
    pub(super) lookahead: PinMap,
    /// Arena bytes of those.
    pub(super) lookahead_bytes: u128,
    /// Arena bytes of all other blocks.
    all_bytes: u128,
    /// Room of one place of the ring: it takes any block that is not pinned.
    pub(super) place_bytes: u64,
    pub(super) ring_least: u64,
    pub(super) ring_default: u64,
    /// `--trunk-gb`: these blocks, neither more nor fewer.
    exact: Option<PinMap>,
    pins: Pins,
    layout: ArenaLayout,
}

/// What the trunk is given.
pub(super) struct TrunkShare {
    pub(super) ring_places: u64,
    pub(super) ring_bytes: u128,
    /// Pinned blocks, those for looking ahead not among them.
    pub(super) pinned: PinMap,
    /// Arena bytes of the pinned blocks.
    pub(super) pinned_bytes: u128,
    /// Whether more memory would not change the share.
    pub(super) is_complete: bool,
}

impl Trunk {
    pub(super) fn new(request: &PlanRequest<'_>) -> Result<Self, PlanRefusal> {
        let layout = request.layout;
        let blocks = &request.footprint.blocks;
        let raw: u128 = blocks.iter().map(|block| u128::from(block.bytes)).sum();
        if raw >= TRUNK_BYTES_MAX / 2 {
            return Err(PlanRefusal::TrunkTooLarge { bytes: raw });
        }
        let mut lookahead = PinMap::empty(blocks.len());
        request
            .lookahead_blocks
            .iter()
            .for_each(|&index| lookahead.pin(index));
        let sizes = || blocks.iter().map(|block| block.bytes);
        let window = |bytes| layout.window_bytes(bytes);
        let candidates = Candidates::new(sizes(), window, &lookahead);
        let total = candidates.cost_total();
        let everything = Candidates::new(sizes(), window, &PinMap::empty(blocks.len()));
        if everything.cost_total() >= TRUNK_BYTES_MAX {
            return Err(PlanRefusal::TrunkTooLarge {
                bytes: everything.cost_total(),
            });
        }
        let count = candidates.count();
        let place_bytes = candidates.cost_largest();
        let in_flight = request
            .in_flight_bytes
            .div_ceil(place_bytes.max(1))
            .clamp(1, RING_IN_FLIGHT_MAX);
        let ring_least = (RING_LEASED + in_flight).min(count);
        let ring_default =
            (count / RING_TRUNK_PARTS).clamp(ring_least, RING_PLACES_MAX.max(ring_least));
        assert!(ring_least <= ring_default && ring_default <= count);
        assert!(count == 0 || place_bytes > 0 || total == 0);
        let exact = request.budget.trunk.map(|bytes| {
            let room = u128::from(bytes.0);
            let room = if room >= total {
                total
            } else {
                layout.whole_granules(room)
            };
            candidates.fitting(room, request.pins)
        });
        Ok(Self {
            lookahead_bytes: layout.reserve(everything.cost_of(&lookahead)),
            all_bytes: layout.reserve(total),
            place_bytes,
            ring_least,
            ring_default,
            exact,
            pins: request.pins,
            layout,
            candidates,
            lookahead,
        })
    }

    /// The smallest share with which the trunk can be streamed.
    pub(super) fn least_bytes(&self) -> u128 {
        let least = match &self.exact {
            Some(pinned) if self.is_all(pinned) => self.all_bytes,
            Some(pinned) => self.ring_bytes(self.ring_least) + self.arena_bytes(pinned),
            // Keeping a small trunk whole can be cheaper than streaming it.
            None => self.ring_bytes(self.ring_least).min(self.all_bytes),
        };
        assert!(least <= self.all_bytes + self.ring_bytes(self.ring_least));
        least
    }

    /// The same with as many places of the ring as help.
    pub(super) fn usual_bytes(&self) -> u128 {
        let more = self.ring_bytes(self.ring_default) - self.ring_bytes(self.ring_least);
        self.least_bytes() + more
    }

    /// The share of exactly [`Self::least_bytes`].
    pub(super) fn least(&self) -> TrunkShare {
        let share = match &self.exact {
            Some(pinned) if !self.is_all(pinned) => {
                self.share(self.ring_least, pinned.clone(), false)
            }
            None if self.ring_bytes(self.ring_least) < self.all_bytes => self.share(
                self.ring_least,
                PinMap::empty(self.lookahead.block_count()),
                false,
            ),
            _ => self.whole(),
        };
        assert_eq!(share.ring_bytes + share.pinned_bytes, self.least_bytes());
        share
    }

    /// The share out of `room`, which is at least [`Self::least_bytes`].
    ///
    /// Everything is pinned as soon as that fits, and then no ring is needed:
    /// the first sweep reads each block into its own place. Otherwise the ring
    /// grows to its default first, and what is left pins blocks.
    pub(super) fn share_of(&self, room: u128) -> TrunkShare {
        assert!(room >= self.least_bytes(), "the least share fits");
        let share = match &self.exact {
            Some(pinned) if self.is_all(pinned) => self.whole(),
            Some(pinned) => {
                let ring = self.grown_ring(room - self.arena_bytes(pinned));
                self.share(ring, pinned.clone(), ring == self.ring_default)
            }
            None if room >= self.all_bytes => self.whole(),
            None => {
                let ring = self.grown_ring(room);
                let left = room - self.ring_bytes(ring);
                // Blocks are pinned only beside a full ring, or a larger ring
                // could come at the price of pinned blocks.
                let pin_room = if ring == self.ring_default {
                    self.layout.whole_granules(left)
                } else {
                    0
                };
                let pinned = self.candidates.fitting(pin_room, self.pins);
                self.share(ring, pinned, false)
            }
        };
        assert!(
            share.ring_bytes + share.pinned_bytes <= room,
            "the share fits"
        );
        share
    }

    /// All pinned blocks of `share`, those for looking ahead among them.
    pub(super) fn all_pinned(&self, share: &TrunkShare) -> PinMap {
        let mut map = share.pinned.clone();
        self.lookahead.pinned().for_each(|index| map.pin(index));
        assert_eq!(
            map.pinned_count(),
            share.pinned.pinned_count() + self.lookahead.pinned_count()
        );
        map
    }

    fn grown_ring(&self, room: u128) -> u64 {
        let fits = |places| self.ring_bytes(places) <= room;
        let ring = largest_fitting(self.ring_least, self.ring_default, fits);
        ring.expect("the least ring fits")
    }

    fn whole(&self) -> TrunkShare {
        let pinned = self.candidates.all();
        assert!(self.is_all(&pinned), "unlimited room pins everything");
        self.share(0, pinned, true)
    }

    fn share(&self, ring_places: u64, pinned: PinMap, is_complete: bool) -> TrunkShare {
        assert!(ring_places == 0 || ring_places >= self.ring_least);
        assert!(
            ring_places > 0 || self.is_all(&pinned),
            "unpinned blocks need a ring"
        );
        TrunkShare {
            ring_places,
            ring_bytes: self.ring_bytes(ring_places),
            pinned_bytes: self.arena_bytes(&pinned),
            pinned,
            is_complete,
        }
    }

    fn ring_bytes(&self, places: u64) -> u128 {
        assert!(places <= RING_PLACES_MAX.max(self.ring_least));
        self.layout
            .reserve(u128::from(places) * u128::from(self.place_bytes))
    }

    fn arena_bytes(&self, pinned: &PinMap) -> u128 {
        self.layout.reserve(self.candidates.cost_of(pinned))
    }

    fn is_all(&self, pinned: &PinMap) -> bool {
        pinned.pinned_count() as u64 == self.candidates.count()
    }
}
