//! Plans that are refused: who asked for what, and the ways out.

use k3_config::{
    Bytes, Headroom, MemoryRequest, Origin, PlanRefusal, Settings, Shortfall, SplitKind,
};

use super::CliError;

/// How a command's positions are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Positions {
    /// By --context.
    Context,
    /// By the prompt and --gen.
    Generation,
    /// By the sweep that is measured.
    Sweep,
    /// By the chunks that are measured: two of the largest are the sequence.
    Chunk,
}

/// The settings that a plan depends on, as their user wrote them: flags,
/// variables, or keys and lines of the settings file.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// What decided the budget.
    budget: String,
    /// How to ask for more, up to the number.
    more: String,
    context: String,
    context_total: String,
    chunk: String,
    /// The chunk that was asked for.
    chunk_value: Option<u64>,
    lookahead: String,
    trunk: String,
    cache: String,
    slots: String,
}

impl Asked {
    /// Those of `settings`.
    pub(crate) fn of(settings: &Settings) -> Self {
        let named = |origin: Option<&Origin>, key: &str| {
            origin.map_or_else(
                || Origin::Default.spelled(key),
                |origin| origin.spelled(key),
            )
        };
        let trunk = settings.trunk_gb.as_ref().map(|value| &value.origin);
        let cache = settings.cache_gb.as_ref().map(|value| &value.origin);
        let slots = settings.slots.as_ref().map(|value| &value.origin);
        let chunk = settings.chunk.as_ref().map(|value| &value.origin);
        let total = settings.context_total.as_ref().map(|value| &value.origin);
        let (budget, more) = memory(settings);
        Self {
            budget,
            more,
            context: named(Some(&settings.context.origin), "context"),
            context_total: named(total, "context_total"),
            chunk: named(chunk, "chunk"),
            chunk_value: settings
                .chunk
                .as_ref()
                .map(|chunk| chunk.value.get().into()),
            lookahead: named(Some(&settings.lookahead.origin), "lookahead"),
            trunk: named(trunk, "trunk_gb"),
            cache: named(cache, "cache_gb"),
            slots: named(slots, "slots"),
        }
    }

    /// What decided the budget.
    pub(crate) fn budget(&self) -> &str {
        &self.budget
    }

    fn split(&self, kind: SplitKind) -> &str {
        match kind {
            SplitKind::Trunk => &self.trunk,
            SplitKind::Cache => &self.cache,
            SplitKind::Slots => &self.slots,
        }
    }
}

/// What decided the budget, and how to ask for more.
fn memory(settings: &Settings) -> (String, String) {
    let memory = &settings.memory;
    match (memory.value, &memory.origin) {
        (MemoryRequest::Size(_), origin) => {
            let name = origin.spelled("memory");
            (name.clone(), format!("raise {name} to"))
        }
        (MemoryRequest::Preset(preset), Origin::Default) => {
            (format!("preset {preset}"), "raise --memory to".to_owned())
        }
        (MemoryRequest::Preset(preset), origin) => {
            let name = format!("preset {preset} ({origin})");
            (name, format!("instead of preset {preset} give --memory"))
        }
    }
}

impl CliError {
    /// A refusal of a plan whose positions are set by `positions`, made from
    /// `settings`.
    pub(crate) fn refused_plan(
        refusal: PlanRefusal,
        positions: Positions,
        settings: &Settings,
    ) -> Self {
        let asked = Asked::of(settings);
        match refusal {
            PlanRefusal::TooSmall(shortfall) => Self::TooSmall {
                shortfall,
                positions,
                asked: Box::new(asked),
            },
            PlanRefusal::TooFewSlots { given, least } => Self::TooFewSlots {
                named: asked.slots,
                given,
                least,
            },
            PlanRefusal::SlotsAndCache => Self::SlotsAndCache {
                slots: asked.slots,
                cache: asked.cache,
            },
            other => Self::Plan(other),
        }
    }

    /// What the user can do about a plan that is refused.
    pub(super) fn plan_way_out(&self) -> Option<String> {
        match self {
            Self::TooSmall {
                shortfall,
                positions,
                asked,
            } => Some(remedies(shortfall, *positions, asked)),
            Self::TooFewSlots { named, least, .. } => {
                Some(format!("raise {named} to {least} or more, or leave it out"))
            }
            Self::SlotsAndCache { .. } => Some("give one of them".to_owned()),
            Self::OverPlan { headroom, .. } => Some(over_plan(headroom).to_owned()),
            _ => None,
        }
    }
}

/// The ways out of a plan beyond what there is.
fn over_plan(headroom: &Headroom) -> &'static str {
    match &headroom.group {
        Some(group) if group.in_use > Bytes(0) => {
            "lower --memory, use --memory auto, end what else runs in that control group, or \
             raise its limit"
        }
        Some(_) => "lower --memory, use --memory auto, or raise the control group's limit",
        None => "lower --memory, use --memory auto, or free some memory",
    }
}

/// By how much a budget is too small.
pub(super) fn too_small(shortfall: &Shortfall, asked: &Asked) -> String {
    let (budget, origin) = (shortfall.budget, &asked.budget);
    match (shortfall.smallest_budget, shortfall.shortfall) {
        (Some(smallest), Some(missing)) => format!(
            "the budget of {budget} from {origin} is {missing} short: the smallest plan needs \
             {smallest}"
        ),
        _ => format!(
            "the budget of {budget} from {origin} is too small: the smallest plan exceeds 2^64 bytes"
        ),
    }
}

/// The ways out of a budget that is too small, one a line, and then what would
/// be one if it were enough.
fn remedies(shortfall: &Shortfall, positions: Positions, asked: &Asked) -> String {
    let mut ways = Vec::new();
    let mut vain = Vec::new();
    let mut try_out = |way: Option<String>, name: &str| match way {
        Some(way) => ways.push(way),
        None => vain.push(name.to_owned()),
    };
    let smallest = shortfall.smallest_budget;
    let more = smallest.map(|smallest| format!("{} {}", asked.more, shortfall.enough(smallest)));
    try_out(more, "any memory");
    let (way, name) = fewer_positions(shortfall, positions, asked);
    try_out(way, &name);
    if let Some(now) = shortfall.total_positions {
        let total = &asked.context_total;
        let way = shortfall.total_that_fits;
        try_out(
            way.map(|fits| format!("lower {total} from {now} to {fits}")),
            total,
        );
    }
    // A sweep is the whole sequence, a chunk half of it: one way out less.
    if !matches!(positions, Positions::Sweep | Positions::Chunk) {
        // The plan has no more of them than the context.
        let now = asked.chunk_value.unwrap_or(shortfall.chunk_positions);
        let chunk = &asked.chunk;
        let way = shortfall.chunk_that_fits;
        try_out(
            way.map(|fits| format!("lower {chunk} from {now} to {fits}")),
            chunk,
        );
    }
    if let Some(fits) = shortfall.fits_without_lookahead {
        let lookahead = &asked.lookahead;
        try_out(fits.then(|| format!("leave out {lookahead}")), lookahead);
    }
    for split in &shortfall.splits {
        let name = asked.split(split.kind);
        try_out(split.way_out(name), name);
    }
    if shortfall.fits_without_splits == Some(true) && shortfall.splits_help_together_only() {
        let names = shortfall.splits.iter().map(|split| asked.split(split.kind));
        let names: Vec<&str> = names.collect();
        ways.push(format!("leave out {} together", names.join(" and ")));
    }
    listed(&ways, &vain)
}

fn fewer_positions(
    shortfall: &Shortfall,
    positions: Positions,
    asked: &Asked,
) -> (Option<String>, String) {
    let (now, fits) = (shortfall.context_positions, shortfall.context_that_fits);
    let context = &asked.context;
    let (way, name) = match positions {
        Positions::Context => (
            fits.map(|fits| format!("lower {context} from {now} to {fits}")),
            context.as_str(),
        ),
        Positions::Generation => (
            fits.map(|fits| {
                format!("shorten prompt and --gen from {now} to {fits} positions together")
            }),
            "a shorter prompt or --gen",
        ),
        Positions::Sweep => (
            fits.map(|fits| {
                format!("measure sweeps of {fits} instead of {now} positions (--positions)")
            }),
            "fewer --positions",
        ),
        Positions::Chunk => (
            fits.filter(|&fits| fits >= 2).map(|fits| {
                let (fits, now) = (fits / 2, now / 2);
                format!("measure chunks of {fits} instead of {now} positions (--chunks)")
            }),
            "smaller --chunks",
        ),
    };
    (way, name.to_owned())
}

fn listed(ways: &[String], vain: &[String]) -> String {
    let ways = match ways {
        [] => "several of these at once".to_owned(),
        [only] => only.clone(),
        several => format!("one of\n    {}", several.join("\n    ")),
    };
    match vain {
        [] => ways,
        vain => format!("{ways}\n  not enough alone: {}", vain.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn what_does_not_help_is_no_way_out() {
        let check = |ways: &[&str], vain: &[&str], want: &str| {
            assert_eq!(listed(&texts(ways), &texts(vain)), want);
        };
        check(&["a"], &[], "a");
        check(&["a", "b"], &[], "one of\n    a\n    b");
        check(&["a"], &["b", "c"], "a\n  not enough alone: b, c");
        let several = "several of these at once\n  not enough alone: b, c";
        check(&[], &["b", "c"], several);
    }
}
