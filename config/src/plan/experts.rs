//! The experts' share: transit slots and cache slots.

use super::arena::ArenaLayout;
use super::largest_fitting;
use super::refusal::PlanRefusal;
use super::request::PlanRequest;

/// Fewest transit slots: one being multiplied, one ready, two in flight.
pub(super) const TRANSIT_LEAST: u64 = 4;

/// How slots are asked for.
enum Wish {
    /// What fits.
    Grow,
    /// `--slots`: this many in all.
    Total(u64),
    /// `--cache-gb`: this many cache slots.
    Cache(u64),
}

/// What the experts can be given, whatever the budget is.
pub(super) struct Experts {
    /// Room of one slot.
    pub(super) slot_bytes: u64,
    /// Experts of the model.
    pub(super) expert_count: u64,
    /// Transit slots when memory allows: the picks of one layer.
    pub(super) transit_default: u64,
    transit_least: u64,
    wish: Wish,
    layout: ArenaLayout,
}

/// Slots of each kind. There is no transit slot exactly when every expert has
/// a cache slot of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) transit: u64,
    pub(super) cache: u64,
}

impl Experts {
    pub(super) fn new(request: &PlanRequest<'_>) -> Result<Self, PlanRefusal> {
        let footprint = request.footprint;
        let expert_count =
            u64::from(footprint.moe_layer_count) * u64::from(footprint.experts_per_layer);
        let slot_bytes = request.layout.window_bytes(footprint.expert_bytes);
        let transit_least = TRANSIT_LEAST.min(expert_count);
        let picks = u64::from(footprint.experts_per_token);
        let transit_default = picks.max(transit_least).min(expert_count);
        let wish = match (request.slots, request.budget.cache) {
            (Some(_), Some(_)) => return Err(PlanRefusal::SlotsAndCache),
            (Some(slots), None) if slots < transit_least => {
                return Err(PlanRefusal::TooFewSlots {
                    given: slots,
                    least: transit_least,
                });
            }
            (Some(slots), None) => Wish::Total(slots),
            (None, Some(bytes)) => Wish::Cache(bytes.0 / slot_bytes.max(1)),
            (None, None) => Wish::Grow,
        };
        assert!(transit_least <= transit_default);
        assert!(transit_default <= expert_count);
        Ok(Self {
            slot_bytes,
            expert_count,
            transit_default,
            transit_least,
            wish,
            layout: request.layout,
        })
    }

    /// The fewest slots that can be asked for.
    pub(super) fn least_total(&self) -> u64 {
        self.transit_least
    }

    /// The cheapest slots that honour the request.
    pub(super) fn least(&self) -> Slots {
        let few = self.with_transit(self.transit_least);
        let many = self.with_transit(self.transit_default);
        // One arena for all experts wastes less on granules than two.
        if self.bytes(many) < self.bytes(few) {
            many
        } else {
            few
        }
    }

    /// The slots that honour the request and hold up nobody.
    pub(super) fn usual(&self) -> Slots {
        self.with_transit(self.transit_default)
    }

    /// Whether more memory would give more transit slots.
    pub(super) fn is_short_of_transit(&self, slots: Slots) -> bool {
        slots != self.usual()
    }

    /// The most transit slots, up to the default, that fit `room`, with the
    /// cache slots that were asked for beside them.
    pub(super) fn transit_within(&self, room: u128) -> Slots {
        assert!(self.bytes(self.least()) <= room, "the least slots fit");
        let fits = |transit| self.bytes(self.with_transit(transit)) <= room;
        let transit = largest_fitting(self.transit_least, self.transit_default, fits);
        let slots = self.with_transit(transit.expect("the least slots fit"));
        assert!(self.bytes(slots) <= room);
        slots
    }

    /// `slots` with all the cache slots that fit `room` more bytes, unless a
    /// number was asked for.
    pub(super) fn grown(&self, slots: Slots, room: u128) -> Slots {
        if !matches!(self.wish, Wish::Grow) || slots.transit == 0 {
            return slots;
        }
        assert_eq!(slots.cache, 0, "cache slots come last");
        let available = room + self.bytes(slots);
        let all = Slots {
            transit: 0,
            cache: self.expert_count,
        };
        if self.bytes(all) <= available {
            return all;
        }
        let with_cache = |cache| Slots { cache, ..slots };
        let fits = |cache| self.bytes(with_cache(cache)) <= available;
        let cache = largest_fitting(0, self.expert_count - slots.transit, fits);
        let cache = cache.expect("no cache slot always fits");
        assert!(
            slots.transit + cache < self.expert_count,
            "all of them did not fit"
        );
        with_cache(cache)
    }

    /// Bytes of both arenas.
    pub(super) fn bytes(&self, slots: Slots) -> u128 {
        self.transit_bytes(slots) + self.cache_bytes(slots)
    }

    pub(super) fn transit_bytes(&self, slots: Slots) -> u128 {
        self.arena_bytes(slots.transit)
    }

    pub(super) fn cache_bytes(&self, slots: Slots) -> u128 {
        self.arena_bytes(slots.cache)
    }

    fn arena_bytes(&self, slots: u64) -> u128 {
        assert!(slots <= self.expert_count, "no slot without an expert");
        let bytes = u128::from(slots) * u128::from(self.slot_bytes);
        let reserved = self.layout.reserve(bytes);
        assert!(reserved >= bytes);
        reserved
    }

    /// `transit` slots and the cache slots asked for. As soon as the sum
    /// reaches the number of experts, each gets a slot of its own.
    fn with_transit(&self, transit: u64) -> Slots {
        assert!((self.transit_least..=self.transit_default).contains(&transit));
        let (total, transit) = match self.wish {
            Wish::Grow => (transit, transit),
            Wish::Total(total) => (total, total.min(self.transit_default)),
            Wish::Cache(cache) => (cache.saturating_add(transit), transit),
        };
        let slots = if total >= self.expert_count {
            Slots {
                transit: 0,
                cache: self.expert_count,
            }
        } else {
            Slots {
                transit,
                cache: total - transit,
            }
        };
        assert!(slots.transit + slots.cache <= self.expert_count);
        slots
    }
}
