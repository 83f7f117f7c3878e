//! Each policy against the plainest way to write it down.

use std::collections::{BTreeMap, BTreeSet};

use k3_actors::experts::{
    CacheShape, DecayedFrequency, DeepLayers, EvictionPolicy, Lru, PolicyOutcome, eviction_policy,
};
use k3_actors::sim::Belady;
use k3_config::CachePolicy;
use k3_models::{ExpertKey, LayerIndex};
use proptest::prelude::*;

fn key(layer: u16, expert: u16) -> ExpertKey {
    ExpertKey {
        layer: LayerIndex(layer),
        expert,
    }
}

fn shape(cache_slot_count: usize, layers: u16, experts_per_layer: usize) -> CacheShape {
    CacheShape {
        slot_count: cache_slot_count + 1,
        transit_count: 1,
        top_k: 2,
        moe_layers: (0..layers).map(LayerIndex).collect(),
        experts_per_layer,
        expert_bytes: 1,
        lookahead_count_max: 0,
    }
}

/// Demands of one layer each, with repetitions.
fn demands(
    layers: u16,
    experts: u16,
    picks: usize,
    count: usize,
) -> impl Strategy<Value = Vec<Vec<ExpertKey>>> {
    let ids = proptest::collection::vec(0..experts, 1..=picks);
    let demand = (0..layers, ids).prop_map(|(layer, ids)| {
        let keys = ids.into_iter().map(|expert| key(layer, expert));
        keys.collect()
    });
    proptest::collection::vec(demand, 1..=count)
}

/// The last `capacity` distinct experts of `history`.
fn most_recent(history: &[ExpertKey], capacity: usize) -> BTreeSet<ExpertKey> {
    let mut held = BTreeSet::new();
    for &key in history.iter().rev() {
        if held.len() < capacity {
            held.insert(key);
        }
    }
    held
}

fn held(policy: &dyn EvictionPolicy, layers: u16, experts: u16) -> BTreeSet<ExpertKey> {
    let all = (0..layers).flat_map(|layer| (0..experts).map(move |expert| key(layer, expert)));
    all.filter(|&key| policy.contains(key)).collect()
}

/// Distinct experts of `demands` that `policy` holds when they are demanded.
fn hit_count(mut policy: Box<dyn EvictionPolicy>, demands: &[Vec<ExpertKey>]) -> usize {
    let mut outcome = PolicyOutcome::default();
    let mut hits = 0;
    for picks in demands {
        let union: BTreeSet<_> = picks.iter().collect();
        hits += union.iter().filter(|key| policy.contains(***key)).count();
        policy.demand(picks, &mut outcome);
    }
    hits
}

/// Most hits that any choice of contents gives, by trying all of them. Keys are
/// experts below 5 of layer 0.
fn best_hit_count(demands: &[Vec<ExpertKey>], capacity: u32) -> u32 {
    let mut best = BTreeMap::from([(0u32, 0u32)]);
    for picks in demands {
        let union = picks.iter().fold(0u32, |set, key| set | 1 << key.expert);
        let mut next = BTreeMap::new();
        for (&contents, &hits) in &best {
            let hits = hits + (contents & union).count_ones();
            let possible =
                |set: &u32| set & !(contents | union) == 0 && set.count_ones() <= capacity;
            for set in (0..32).filter(possible) {
                let entry = next.entry(set).or_insert(hits);
                *entry = hits.max(*entry);
            }
        }
        best = next;
    }
    best.into_values().max().unwrap()
}

proptest! {
    #[test]
    fn lru_holds_the_last_experts_picked(
        capacity in 0usize..9,
        demands in demands(3, 6, 7, 20),
    ) {
        let mut policy = Lru::new(capacity);
        let mut outcome = PolicyOutcome::default();
        let mut history = Vec::new();
        for picks in &demands {
            policy.demand(picks, &mut outcome);
            history.extend_from_slice(picks);
            prop_assert_eq!(held(&policy, 3, 6), most_recent(&history, capacity));
        }
    }

    #[test]
    fn deep_layers_hold_the_last_experts_of_each_deep_layer(
        capacity in 0usize..20,
        demands in demands(4, 6, 7, 30),
    ) {
        let mut policy = DeepLayers::new(&shape(capacity, 4, 6));
        let mut outcome = PolicyOutcome::default();
        let mut history = Vec::new();
        for picks in &demands {
            policy.demand(picks, &mut outcome);
            history.extend_from_slice(picks);
            let mut want = BTreeSet::new();
            for (layer, slots) in policy.capacities() {
                let of_layer: Vec<_> = history.iter().filter(|key| key.layer == layer).copied().collect();
                want.extend(most_recent(&of_layer, slots));
            }
            prop_assert_eq!(held(&policy, 4, 6), want);
        }
    }

    #[test]
    fn changes_are_what_is_reported(
        name in proptest::sample::select(CachePolicy::ALL),
        capacity in 0usize..12,
        demands in demands(3, 6, 7, 20),
    ) {
        let mut policy = eviction_policy(name, &shape(capacity, 3, 6));
        let mut outcome = PolicyOutcome::default();
        let mut before = BTreeSet::new();
        for picks in &demands {
            policy.begin_sweep();
            policy.demand(picks, &mut outcome);
            let after = held(policy.as_ref(), 3, 6);
            let set = |keys: &[ExpertKey]| keys.iter().copied().collect::<BTreeSet<_>>();
            let (admitted, evicted) = (set(&outcome.admitted), set(&outcome.evicted));
            prop_assert_eq!(&admitted, &after.difference(&before).copied().collect());
            prop_assert_eq!(&evicted, &before.difference(&after).copied().collect());
            let missed: BTreeSet<_> = set(picks).difference(&before).copied().collect();
            let bypassed: BTreeSet<_> = missed.difference(&admitted).copied().collect();
            prop_assert_eq!(set(&outcome.bypassed), bypassed);
            let changes = outcome.admitted.len() + outcome.bypassed.len();
            prop_assert_eq!(changes, missed.len());
            prop_assert_eq!(policy.len(), after.len());
            prop_assert!(after.len() <= policy.capacity());
            before = after;
        }
        for key in before {
            policy.forget(key);
            policy.forget(key);
            prop_assert!(!policy.contains(key));
        }
        prop_assert!(policy.is_empty());
    }

    #[test]
    fn belady_is_the_best_of_all(capacity in 0u32..5, demands in demands(1, 5, 3, 9)) {
        let slots = capacity as usize;
        let future = demands.iter().map(Vec::as_slice);
        let belady = hit_count(Box::new(Belady::new(slots, future)), &demands);
        prop_assert_eq!(belady, best_hit_count(&demands, capacity) as usize);
        for &name in CachePolicy::ALL {
            let policy = eviction_policy(name, &shape(slots, 1, 5));
            prop_assert!(hit_count(policy, &demands) <= belady, "{}", name);
        }
    }
}

#[test]
fn a_frequent_expert_outlives_a_scan_and_fades() {
    let mut policy = DecayedFrequency::new(&shape(1, 1, 8));
    let mut outcome = PolicyOutcome::default();
    policy.begin_sweep();
    policy.demand(&[key(0, 0), key(0, 0), key(0, 0)], &mut outcome);
    let mut lasted = 0;
    for expert in 1..8 {
        policy.begin_sweep();
        policy.demand(&[key(0, expert)], &mut outcome);
        if !policy.contains(key(0, 0)) {
            break;
        }
        lasted += 1;
    }
    // 3 x 0.7^3 = 1.03 is above one fresh pick, 3 x 0.7^4 = 0.72 below.
    assert_eq!(lasted, 3);
}

/// Counts are brought back into range once in some 640 sweeps: nothing may be
/// remembered as more or less than before.
#[test]
fn the_past_fades_alike_at_all_times() {
    for sweeps_before in 600..700 {
        let mut policy = DecayedFrequency::new(&shape(1, 1, 8));
        let mut outcome = PolicyOutcome::default();
        let mut demand = |experts: &[u16]| {
            policy.begin_sweep();
            let picks: Vec<_> = experts.iter().map(|&expert| key(0, expert)).collect();
            policy.demand(&picks, &mut outcome);
            policy.contains(key(0, 0))
        };
        for _ in 0..sweeps_before {
            demand(&[]);
        }
        assert!(demand(&[0, 0, 0, 0, 1]));
        demand(&[]);
        // 4 x 0.7^2 = 1.96 against 1 + 0.7^2 = 1.49.
        assert!(demand(&[1]), "{sweeps_before}: 1 counts too much");
        // 4 x 0.7^3 = 1.37 against 1 + 0.7 + 0.7^3 = 2.04.
        assert!(!demand(&[1]), "{sweeps_before}: 0 counts too much");
    }
}

#[test]
fn of_equal_counts_the_one_used_first_stays() {
    let mut policy = DecayedFrequency::new(&shape(2, 1, 8));
    let mut outcome = PolicyOutcome::default();
    policy.begin_sweep();
    policy.demand(&[key(0, 4), key(0, 2), key(0, 1)], &mut outcome);
    assert_eq!(outcome.admitted, [key(0, 4), key(0, 2)]);
    assert_eq!(outcome.bypassed, [key(0, 1)]);
    policy.demand(&[key(0, 1)], &mut outcome);
    assert_eq!(outcome.evicted, [key(0, 2)], "two picks against one");
}

#[test]
fn counts_never_run_out_of_range() {
    let mut policy = DecayedFrequency::new(&shape(2, 1, 8));
    let mut outcome = PolicyOutcome::default();
    for sweep in 0..5_000u16 {
        policy.begin_sweep();
        let passing = key(0, 2 + sweep % 6);
        policy.demand(&[key(0, 0), key(0, 1), passing], &mut outcome);
        assert_eq!(outcome.bypassed, [passing], "sweep {sweep}");
    }
    assert!(policy.contains(key(0, 0)) && policy.contains(key(0, 1)));
}
