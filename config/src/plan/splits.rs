//! Sizes that are reserved because they were asked for, where they are too much.

use serde::Serialize;

use crate::bytes::Bytes;

use super::request::PlanRequest;
use super::{Model, is_accepted, largest_fitting};

/// A part of the budget that can be asked for by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitKind {
    /// Bytes of pinned trunk.
    Trunk,
    /// Bytes of expert cache.
    Cache,
    /// Expert slots in all.
    Slots,
}

impl SplitKind {
    /// The setting, in the spelling of the settings file.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Trunk => "trunk_gb",
            Self::Cache => "cache_gb",
            Self::Slots => "slots",
        }
    }

    /// The setting as a flag.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Self::Trunk => "--trunk-gb",
            Self::Cache => "--cache-gb",
            Self::Slots => "--slots",
        }
    }

    /// `amount` as the setting takes it.
    #[must_use]
    pub fn amount(self, amount: u64) -> String {
        match self {
            Self::Trunk | Self::Cache => gigabytes(amount),
            Self::Slots => amount.to_string(),
        }
    }
}

/// A size that was asked for, in a plan that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ForcedSplit {
    /// Which.
    pub kind: SplitKind,
    /// What was asked for: bytes, or slots.
    pub asked: u64,
    /// The most that fits with everything else unchanged; `None` if nothing
    /// does.
    pub fits: Option<u64>,
    /// Whether it fits without it, everything else unchanged.
    pub fits_without: bool,
}

impl ForcedSplit {
    /// Whether less of it, or none, is enough.
    #[must_use]
    pub fn helps(&self) -> bool {
        self.fits.is_some() || self.fits_without
    }

    /// What to do about the setting that is called `name`, if that is enough.
    #[must_use]
    pub fn way_out(&self, name: &str) -> Option<String> {
        let lower = |fits| {
            let (from, to) = (self.kind.amount(self.asked), self.kind.amount(fits));
            format!("lower {name} from {from} to {to}")
        };
        match (self.fits, self.fits_without) {
            (Some(fits), true) => Some(format!("{}, or leave it out", lower(fits))),
            (Some(fits), false) => Some(lower(fits)),
            (None, true) => Some(format!("leave out {name}")),
            (None, false) => None,
        }
    }
}

/// Every size that `request` asks for, and how much less of it is accepted.
pub(super) fn forced(request: &PlanRequest<'_>) -> Vec<ForcedSplit> {
    let budget = request.budget;
    let trunk = budget
        .trunk
        .map(|bytes| split(request, SplitKind::Trunk, bytes.0));
    let cache = budget
        .cache
        .map(|bytes| split(request, SplitKind::Cache, bytes.0));
    let slots = request
        .slots
        .map(|slots| split(request, SplitKind::Slots, slots));
    [trunk, cache, slots].into_iter().flatten().collect()
}

/// Whether `request` is accepted without all of the several sizes it asks for;
/// `None` if it asks for one or none.
pub(super) fn fits_without_both(request: &PlanRequest<'_>) -> Option<bool> {
    let budget = request.budget;
    let for_experts = budget.cache.is_some() || request.slots.is_some();
    if budget.trunk.is_none() || !for_experts {
        return None;
    }
    let budget = budget.clone().with_split(None, None);
    Some(is_accepted(&PlanRequest {
        budget: &budget,
        slots: None,
        ..*request
    }))
}

fn split(request: &PlanRequest<'_>, kind: SplitKind, asked: u64) -> ForcedSplit {
    let accepted = |amount: Option<u64>| {
        let mut budget = request.budget.clone();
        let mut slots = request.slots;
        match kind {
            SplitKind::Trunk => budget.trunk = amount.map(Bytes),
            SplitKind::Cache => budget.cache = amount.map(Bytes),
            SplitKind::Slots => slots = amount,
        }
        is_accepted(&PlanRequest {
            budget: &budget,
            slots,
            ..*request
        })
    };
    let (low, unit) = bounds(request, kind);
    // In whole units: part of a slot holds no expert.
    let fits = |units: u64| accepted(Some(units.saturating_mul(unit)));
    let units = asked / unit;
    let largest = (low <= units).then(|| largest_fitting(low, units, fits));
    ForcedSplit {
        kind,
        asked,
        fits: largest.flatten().map(|units| units * unit),
        fits_without: accepted(None),
    }
}

/// The least units that may be asked for, and what one is.
fn bounds(request: &PlanRequest<'_>, kind: SplitKind) -> (u64, u64) {
    match (kind, Model::new(request)) {
        (SplitKind::Cache, Ok(model)) => (0, model.experts.slot_bytes.max(1)),
        (SplitKind::Slots, Ok(model)) => (model.experts.least_total(), 1),
        _ => (0, 1),
    }
}

/// `bytes` in 10^9 bytes, exactly, as `--trunk-gb` takes it.
fn gigabytes(bytes: u64) -> String {
    let (whole, rest) = (bytes / 1_000_000_000, bytes % 1_000_000_000);
    let text = format!("{whole}.{rest:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Gigabytes;

    #[test]
    fn gigabytes_are_exact_and_read_back() {
        for (bytes, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (2_500_000_000, "2.5"),
            (100_000_000_000, "100"),
        ] {
            assert_eq!(gigabytes(bytes), text);
            assert_eq!(text.parse(), Ok(Gigabytes(Bytes(bytes))));
        }
        let most = gigabytes(u64::MAX);
        assert_eq!(most.parse(), Ok(Gigabytes(Bytes(u64::MAX))));
    }

    #[test]
    fn ways_out_name_the_setting_as_it_was_given() {
        let split = |fits, fits_without| ForcedSplit {
            kind: SplitKind::Trunk,
            asked: 40_000_000_000,
            fits,
            fits_without,
        };
        let way = |split: ForcedSplit| split.way_out("K3_TRUNK_GB");
        let lower = "lower K3_TRUNK_GB from 40 to 1.5";
        let fits = Some(1_500_000_000);
        assert_eq!(way(split(fits, false)).as_deref(), Some(lower));
        let both = format!("{lower}, or leave it out");
        assert_eq!(way(split(fits, true)), Some(both));
        let without = "leave out K3_TRUNK_GB";
        assert_eq!(way(split(None, true)).as_deref(), Some(without));
        assert_eq!(way(split(None, false)), None);
    }
}
