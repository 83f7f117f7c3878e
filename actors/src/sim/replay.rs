//! The replay itself.

use k3_formats::trace::ExpertTrace;
use k3_models::ExpertKey;

use super::accesses::Accesses;
use super::belady::Belady;
use super::error::ReplayError;
use super::names::{AccessModel, ReplayPolicy};
use super::report::{PhaseTallies, ReplayReport, ReplayRow, ReplayStep, Tally};
use super::steps::Steps;
use crate::experts::{
    CacheShape, DemandPlan, EvictionPolicy, PolicyOutcome, SlotTable, eviction_policy,
};

/// What to replay and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplaySettings {
    /// Who decides what stays.
    pub policy: ReplayPolicy,
    /// Slots in all; a row of the report for each.
    pub slot_counts: Vec<usize>,
    /// Slots of each that only let experts pass through. With 0 every slot is
    /// the policy's, and what passes through has a place beside them.
    pub transit_count: usize,
    /// Picks per position and layer.
    pub top_k: usize,
    /// Replay the last sweep only, as a prompt followed by single positions. For
    /// traces whose every sweep recomputed the whole sequence.
    pub last_pass: bool,
    /// Positions of the prompt; those of the trace's first sweep unless given.
    pub prompt_positions: Option<usize>,
    /// How the trace is turned into demands.
    pub model: AccessModel,
    /// Size of one expert.
    pub expert_bytes: u64,
}

/// Replays `trace`.
///
/// # Errors
///
/// [`ReplayError`] when the trace is empty, does not have `top_k` picks per
/// position in the same layers of every sweep, or the settings do not fit it.
pub fn replay(trace: &ExpertTrace, settings: &ReplaySettings) -> Result<ReplayReport, ReplayError> {
    let zero = |what| Err(ReplayError::Zero { what });
    if settings.top_k == 0 {
        return zero("the number of picks per position");
    }
    if settings.prompt_positions == Some(0) {
        return zero("the length of the prompt");
    }
    let steps = Steps::new(trace, settings)?;
    let accesses = Accesses::new(&steps, settings.model);
    let rows = settings
        .slot_counts
        .iter()
        .map(|&slot_count| row(&steps, &accesses, settings, slot_count))
        .collect::<Result<Vec<_>, _>>()?;
    let positions = |is_part: &dyn Fn(bool) -> bool| {
        let part = steps.steps.iter().filter(|step| is_part(step.is_prompt));
        part.map(|step| step.position_count).sum()
    };
    assert_eq!(rows.len(), settings.slot_counts.len());
    Ok(ReplayReport {
        policy: settings.policy,
        model: settings.model,
        top_k: settings.top_k,
        layer_count: steps.layers.len(),
        last_pass: settings.last_pass,
        position_count: positions(&|_| true),
        prompt_position_count: positions(&|is_prompt| is_prompt),
        transit_count: settings.transit_count,
        expert_bytes: settings.expert_bytes,
        rows,
    })
}

fn row(
    steps: &Steps,
    accesses: &Accesses,
    settings: &ReplaySettings,
    slot_count: usize,
) -> Result<ReplayRow, ReplayError> {
    let Some(cache_slot_count) = slot_count.checked_sub(settings.transit_count) else {
        return Err(ReplayError::TooFewSlots {
            slots: slot_count,
            transit: settings.transit_count,
        });
    };
    let transit_count = settings.transit_count.max(1);
    let shape = CacheShape {
        slot_count: cache_slot_count + transit_count,
        transit_count,
        top_k: settings.top_k,
        moe_layers: steps.layers.clone(),
        experts_per_layer: steps.experts_per_layer(),
        expert_bytes: settings.expert_bytes,
        lookahead_count_max: 0,
    };
    let belady = || -> Box<dyn EvictionPolicy> {
        let demands = accesses.iter().map(|(_, keys)| keys);
        Box::new(Belady::new(cache_slot_count, demands))
    };
    let policy = match settings.policy {
        ReplayPolicy::Cache(policy) => eviction_policy(policy, &shape),
        ReplayPolicy::Belady => belady(),
    };
    let steps_of = |policy| run(steps, accesses, settings.model, &shape, policy);
    let replayed = steps_of(policy);
    let bound = steps_of(belady());
    let bytes = settings.expert_bytes;
    let row = ReplayRow {
        slot_count,
        cache_slot_count,
        slot_bytes: slot_count as u64 * bytes,
        tallies: PhaseTallies::new(&replayed, bytes),
        steps: replayed,
        belady: PhaseTallies::new(&bound, bytes),
    };
    assert_eq!(row.tallies.all.requests, row.belady.all.requests);
    assert!(
        row.tallies.all.hits <= row.belady.all.hits,
        "the bound holds"
    );
    Ok(row)
}

/// Each step under `policy`.
fn run(
    steps: &Steps,
    accesses: &Accesses,
    model: AccessModel,
    shape: &CacheShape,
    policy: Box<dyn EvictionPolicy>,
) -> Vec<ReplayStep> {
    let mut counts = vec![(0, 0); steps.steps.len()];
    match model {
        AccessModel::Pick => run_picks(accesses, policy, &mut counts),
        AccessModel::Batch => run_batches(accesses, shape, policy, &mut counts),
    }
    let step = |(step, (requests, hits)): (&super::steps::Step, (u64, u64))| ReplayStep {
        position_count: step.position_count,
        is_prompt: step.is_prompt,
        tally: Tally::new(requests, hits, shape.expert_bytes),
    };
    assert!(counts.iter().all(|&(requests, _)| requests > 0));
    steps.steps.iter().zip(counts).map(step).collect()
}

/// Counts requests and hits per step, one pick at a time.
fn run_picks(accesses: &Accesses, mut policy: Box<dyn EvictionPolicy>, counts: &mut [(u64, u64)]) {
    let mut outcome = PolicyOutcome::default();
    for (access, keys) in accesses.iter() {
        let [key] = *keys else {
            panic!("a pick is one expert");
        };
        if access.starts_sweep {
            policy.begin_sweep();
        }
        let (requests, hits) = &mut counts[access.step];
        *requests += 1;
        *hits += u64::from(policy.contains(key));
        policy.demand(keys, &mut outcome);
        assert!(policy.len() <= policy.capacity());
    }
}

/// Counts requests and hits per step, a layer's demand at a time.
fn run_batches(
    accesses: &Accesses,
    shape: &CacheShape,
    policy: Box<dyn EvictionPolicy>,
    counts: &mut [(u64, u64)],
) {
    let mut table = SlotTable::new(shape.clone(), policy);
    let mut picks = Vec::new();
    for (access, keys) in accesses.iter() {
        if access.starts_sweep {
            table.begin_sweep();
        }
        picks.clear();
        picks.extend(keys.iter().map(|key| key.expert));
        let before = *table.counters();
        let plan = table.demand(keys[0].layer, &picks);
        serve(&mut table, &plan);
        let (requests, hits) = &mut counts[access.step];
        *hits += table.counters().hits - before.hits;
        *requests += (plan.hits.len() + plan.misses.len()) as u64;
        assert!(table.is_served());
    }
}

/// Serves a demand one expert after the other, with reads that take no time.
fn serve(table: &mut SlotTable, plan: &DemandPlan) {
    assert!(plan.ahead.is_empty(), "no lookahead in a replay");
    for &(_, slot) in &plan.hits {
        table.lease(slot);
        table.release(slot);
    }
    for &key in &plan.misses {
        let slot = table.reserve(key).expect("nothing else is in use");
        table.arrived(slot);
        let leased: ExpertKey = table.lease(slot);
        assert_eq!(leased, key);
        table.release(slot);
    }
}
