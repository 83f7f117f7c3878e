//! What is cached follows from the demands alone: not from the order in which
//! reads complete, nor from when leases end, nor from lookahead.

use crate::driver::{CALM, Driver, Outcome, SweepPicks, Weather, sweeps};
use k3_actors::experts::{CacheShape, PolicyOutcome, eviction_policy};
use k3_config::CachePolicy;
use k3_models::{ExpertKey, LayerIndex};
use proptest::prelude::*;

const ROUGH: Weather = Weather {
    failures: true,
    late_leases: true,
    lookahead: true,
    aborts: false,
};

fn shapes() -> impl Strategy<Value = CacheShape> {
    (
        1u16..5,
        3usize..12,
        1usize..4,
        1usize..5,
        0usize..24,
        0usize..4,
    )
        .prop_map(
            |(layers, experts, top_k, transit, cache, lookahead)| CacheShape {
                slot_count: transit + cache,
                transit_count: transit,
                top_k,
                // Layers need not follow each other.
                moe_layers: (0..layers).map(|layer| LayerIndex(1 + 2 * layer)).collect(),
                experts_per_layer: experts,
                expert_bytes: 10,
                lookahead_count_max: lookahead,
            },
        )
}

fn policies() -> impl Strategy<Value = CachePolicy> {
    proptest::sample::select(CachePolicy::ALL)
}

/// The same demands on the bare policy: what is held when a layer's demand
/// arrives is a hit.
fn expected(shape: &CacheShape, policy: CachePolicy, sweeps: &[SweepPicks]) -> Outcome {
    let mut policy = eviction_policy(policy, shape);
    let mut changes = PolicyOutcome::default();
    let mut outcome = Outcome::default();
    for sweep in sweeps {
        policy.begin_sweep();
        for (&layer, picks) in shape.moe_layers.iter().zip(sweep) {
            let keys: Vec<_> = picks
                .iter()
                .map(|&expert| ExpertKey { layer, expert })
                .collect();
            let mut hits: Vec<ExpertKey> = Vec::new();
            let mut misses = std::collections::BTreeSet::new();
            for &key in &keys {
                if !policy.contains(key) {
                    misses.insert(key);
                } else if !hits.contains(&key) {
                    hits.push(key);
                }
            }
            policy.demand(&keys, &mut changes);
            outcome.evictions += changes.evicted.len() as u64;
            outcome.bypassed += changes.bypassed.len() as u64;
            outcome.hits.push(hits);
            outcome.misses.push(misses);
        }
        let experts = u16::try_from(shape.experts_per_layer).unwrap();
        let all = shape.moe_layers.iter();
        let all =
            all.flat_map(|&layer| (0..experts).map(move |expert| ExpertKey { layer, expert }));
        outcome
            .resident
            .push(all.filter(|&key| policy.contains(key)).collect());
    }
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn timing_changes_nothing(
        shape in shapes(),
        policy in policies(),
        seed: u64,
        schedules: [u64; 2],
    ) {
        let sweeps = sweeps(&shape, 6, 5, seed);
        let want = expected(&shape, policy, &sweeps);
        let mut calm = Driver::new(&shape, policy, CALM, schedules[0]);
        prop_assert_eq!(&calm.run(&sweeps), &want);
        let mut rough = Driver::new(&shape, policy, ROUGH, schedules[1]);
        prop_assert_eq!(&rough.run(&sweeps), &want);
        calm.finish();
        rough.finish();
        prop_assert_eq!(calm.resident(), rough.resident());
    }

    #[test]
    fn every_read_is_a_miss_or_wasted(
        shape in shapes(),
        policy in policies(),
        seed: u64,
        schedule: u64,
    ) {
        let sweeps = sweeps(&shape, 5, 4, seed);
        let weather = Weather { aborts: false, ..ROUGH };
        let mut driver = Driver::new(&shape, policy, weather, schedule);
        driver.run(&sweeps);
        driver.finish();
        let counters = *driver.table.counters();
        prop_assert_eq!(counters.lookahead_wasted_bytes % shape.expert_bytes, 0);
        let wasted = counters.lookahead_wasted_bytes / shape.expert_bytes;
        prop_assert_eq!(driver.read_count, counters.misses + wasted);
        prop_assert!(counters.lookahead_used + counters.bypassed <= 2 * counters.misses);
        if shape.lookahead_count_max == 0 {
            prop_assert_eq!((counters.lookahead_used, wasted), (0, 0));
        }
    }

    #[test]
    fn a_sweep_given_up_leaves_a_table_that_serves(
        shape in shapes(),
        policy in policies(),
        seed: u64,
        schedule: u64,
    ) {
        let weather = Weather { aborts: true, ..ROUGH };
        let mut driver = Driver::new(&shape, policy, weather, schedule);
        driver.run(&sweeps(&shape, 12, 4, seed));
        driver.finish();
        prop_assert!(driver.resident().len() <= shape.cache_slot_count());
    }
}
