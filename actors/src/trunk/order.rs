//! The endless sequence of sweeps, block by block.

/// A block of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) sweep: u64,
    pub(super) block: usize,
}

/// Which block comes after which, as far as is known.
///
/// Sweeps are numbered from 1. Blocks `0..body` belong to every sweep, those
/// up to `total` (the output head) only to sweeps that want logits, which is
/// known once the sweep has begun.
#[derive(Debug)]
pub(super) struct SweepOrder {
    body: usize,
    total: usize,
    /// The sweep that has begun last, and whether it has a head.
    begun: Option<(u64, bool)>,
}

impl SweepOrder {
    pub(super) fn new(body: usize, total: usize) -> Self {
        assert!(body <= total);
        assert!(total > 0, "a sweep has a block");
        Self {
            body,
            total,
            begun: None,
        }
    }

    pub(super) fn begin(&mut self, sweep: u64, with_head: bool) {
        assert!(
            self.begun.is_none_or(|(last, _)| last < sweep),
            "sweeps are numbered upwards"
        );
        self.begun = Some((sweep, with_head));
    }

    /// `place` itself if it exists, else the first block of the next sweep;
    /// `None` while that is not known.
    pub(super) fn resolve(&self, place: Place) -> Option<Place> {
        if place.block < self.body {
            return Some(place);
        }
        let with_head = match self.begun {
            Some((sweep, with_head)) if sweep == place.sweep => with_head,
            // A sweep that was skipped over has no head to wait for.
            Some((sweep, _)) if sweep > place.sweep => false,
            _ if self.body == self.total => false,
            _ => return None,
        };
        if with_head && place.block < self.total {
            return Some(place);
        }
        let next = Place {
            sweep: place.sweep + 1,
            block: 0,
        };
        // A model of a head alone: only a begun sweep has blocks.
        if self.body > 0 { Some(next) } else { None }
    }

    /// Whether `sweep` comes after the one that begins next.
    pub(super) fn is_far_ahead(&self, sweep: u64) -> bool {
        sweep > self.begun.map_or(0, |(last, _)| last) + 1
    }

    /// Whether `sweep` has begun.
    pub(super) fn has_begun(&self, sweep: u64) -> bool {
        self.begun.is_some_and(|(last, _)| sweep <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(order: &SweepOrder, from: Place, steps: usize) -> Vec<(u64, usize)> {
        let mut place = from;
        let mut seen = Vec::new();
        for _ in 0..steps {
            let Some(found) = order.resolve(place) else {
                break;
            };
            seen.push((found.sweep, found.block));
            place = Place {
                block: found.block + 1,
                ..found
            };
        }
        seen
    }

    #[test]
    fn reading_ahead_stops_at_a_head_nobody_asked_for_yet() {
        let mut order = SweepOrder::new(2, 3);
        let start = Place { sweep: 1, block: 0 };
        assert_eq!(walk(&order, start, 9), [(1, 0), (1, 1)]);
        order.begin(1, false);
        assert_eq!(walk(&order, start, 9), [(1, 0), (1, 1), (2, 0), (2, 1)]);
        order.begin(2, true);
        let from = Place { sweep: 2, block: 1 };
        assert_eq!(walk(&order, from, 9), [(2, 1), (2, 2), (3, 0), (3, 1)]);
    }

    #[test]
    fn a_model_without_a_head_is_read_ahead_without_end() {
        let order = SweepOrder::new(2, 2);
        let start = Place { sweep: 1, block: 0 };
        assert_eq!(
            walk(&order, start, 5),
            [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]
        );
    }
}
