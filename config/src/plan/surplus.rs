//! What was asked for beyond what the model has a use for.

use crate::bytes::Bytes;
use crate::settings::Settings;

use super::{BudgetPlan, LineKind};

impl BudgetPlan {
    /// A sentence for each size of `settings` that is larger than the model
    /// can use: what was asked for, and what is used instead.
    ///
    /// `picks` are the experts that a layer picks for a position.
    #[must_use]
    pub fn surplus(&self, settings: &Settings, picks: u64) -> Vec<String> {
        [
            self.trunk_surplus(settings),
            self.cache_surplus(settings),
            self.slot_surplus(settings),
            self.lookahead_surplus(settings, picks),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn trunk_surplus(&self, settings: &Settings) -> Option<String> {
        let asked = settings.trunk_gb.as_ref()?;
        let is_whole = self.pins.block_count == self.pins.block_total;
        let lines = [LineKind::PinnedTrunk, LineKind::Lookahead];
        let used: u64 = lines.map(|kind| self.line(kind).bytes.0).iter().sum();
        (is_whole && asked.value.0.0 > used).then(|| {
            let name = asked.origin.spelled("trunk_gb");
            let (asked, used) = (asked.value, Bytes(used));
            format!("{name} asks for {asked}, and the model's whole trunk takes {used}")
        })
    }

    fn cache_surplus(&self, settings: &Settings) -> Option<String> {
        let asked = settings.cache_gb.as_ref()?;
        let name = asked.origin.spelled("cache_gb");
        let (value, count) = (asked.value, self.slots.expert_count);
        // An arena is rounded up to pages, and the unused rest of a slot is
        // no surplus.
        let all = u128::from(self.slots.slot_bytes) * u128::from(count);
        let used = self.line(LineKind::CacheSlots).bytes;
        let is_more = u128::from(value.0.0) > all.max(u128::from(used.0));
        let is_all = self.slots.cache_count == count;
        (is_all && is_more).then(|| match count {
            0 => format!("{name} asks for {value}, and the model has no experts"),
            _ => format!("{name} asks for {value}, and all {count} experts take {used}"),
        })
    }

    fn slot_surplus(&self, settings: &Settings) -> Option<String> {
        let asked = settings.slots.as_ref()?;
        let name = asked.origin.spelled("slots");
        let (value, count) = (asked.value, self.slots.expert_count);
        (u64::from(value.get()) > count).then(|| match count {
            0 => format!("{name} asks for {value} slots, and the model has no experts"),
            _ => format!("{name} asks for {value} slots, and the model has {count} experts"),
        })
    }

    fn lookahead_surplus(&self, settings: &Settings, picks: u64) -> Option<String> {
        let asked = &settings.lookahead;
        let name = asked.origin.spelled("lookahead");
        let (value, used) = (asked.value, self.lookahead.experts_per_position);
        (u64::from(value) > used).then(|| {
            if used == 0 {
                format!("{name} asks for {value} experts, and no layer can look ahead")
            } else {
                debug_assert_eq!(used, picks);
                format!("{name} asks for {value} experts, and a layer picks {picks}")
            }
        })
    }
}
