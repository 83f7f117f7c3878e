//! The slot table, case by case.

use crate::driver::{CALM, Driver, sweeps};
use k3_actors::experts::{CacheShape, SlotId, SlotState, SlotTable, eviction_policy};
use k3_config::CachePolicy;
use k3_models::{ExpertKey, LayerIndex};

fn shape(slot_count: usize, transit_count: usize) -> CacheShape {
    CacheShape {
        slot_count,
        transit_count,
        top_k: 2,
        moe_layers: [1, 2, 3].map(LayerIndex).to_vec(),
        experts_per_layer: 8,
        expert_bytes: 100,
        lookahead_count_max: 2,
    }
}

fn table(slot_count: usize, transit_count: usize, policy: CachePolicy) -> SlotTable {
    let shape = shape(slot_count, transit_count);
    let policy = eviction_policy(policy, &shape);
    SlotTable::new(shape, policy)
}

fn key(layer: u16, expert: u16) -> ExpertKey {
    ExpertKey {
        layer: LayerIndex(layer),
        expert,
    }
}

/// Reads and multiplies everything at once.
fn serve(table: &mut SlotTable, layer: u16, picks: &[u16]) -> (usize, usize) {
    let plan = table.demand(LayerIndex(layer), picks);
    for &(_, slot) in plan.hits.iter().chain(&plan.ahead) {
        if table.state(slot) == SlotState::InFlight {
            table.arrived(slot);
        }
        table.lease(slot);
        table.release(slot);
    }
    for &key in &plan.misses {
        let slot = table.reserve(key).unwrap();
        table.arrived(slot);
        assert_eq!(table.lease(slot), key);
        table.release(slot);
    }
    table.check_invariants();
    (plan.hits.len(), plan.ahead.len())
}

#[test]
fn four_slots_serve_a_union_of_900() {
    for (transit_count, policy) in [
        (4, CachePolicy::DeepLayers),
        (1, CachePolicy::Lru),
        (2, CachePolicy::DecayedFrequency),
    ] {
        let shape = CacheShape {
            slot_count: 4,
            transit_count,
            top_k: 30,
            moe_layers: vec![LayerIndex(3), LayerIndex(4)],
            experts_per_layer: 900,
            expert_bytes: 1,
            lookahead_count_max: 0,
        };
        let experts: Vec<u16> = (0..900).rev().collect();
        let sweep = vec![experts.clone(), experts];
        let mut driver = Driver::new(&shape, policy, CALM, 5);
        driver.run(&[sweep.clone(), sweep]);
        driver.finish();
        let counters = driver.table.counters();
        assert_eq!(counters.hits + counters.misses, 3600);
        assert_eq!(driver.resident().len(), 4 - transit_count);
    }
}

#[test]
fn what_is_leased_or_in_flight_keeps_its_slot() {
    let mut table = table(2, 1, CachePolicy::Lru);
    table.begin_sweep();
    let plan = table.demand(LayerIndex(1), &[0, 1, 2, 3]);
    assert_eq!(plan.misses, [0, 1, 2, 3].map(|expert| key(1, expert)));
    let first = table.reserve(key(1, 0)).unwrap();
    let second = table.reserve(key(1, 3)).unwrap();
    assert_eq!((first, second), (SlotId(0), SlotId(1)));
    assert_eq!(table.reserve(key(1, 1)), None, "both are being read");
    table.arrived(first);
    assert_eq!(table.reserve(key(1, 1)), None, "it has not been used");
    table.lease(first);
    table.lease(first);
    table.release(first);
    assert_eq!(table.reserve(key(1, 1)), None, "one lease of it lives");
    table.release(first);
    assert_eq!(table.reserve(key(1, 1)), Some(first));
    table.arrived(second);
    table.lease(second);
    table.release(second);
    assert_eq!(table.reserve(key(1, 2)), None, "the last pick is cached");
    assert_eq!(table.resident(key(1, 3)), Some(second));
    table.check_invariants();
}

#[test]
fn an_expert_that_passed_through_is_no_hit_while_a_lease_holds_it() {
    let mut table = table(3, 3, CachePolicy::Lru);
    table.begin_sweep();
    let plan = table.demand(LayerIndex(1), &[4, 5]);
    let slots = [0, 1].map(|index| table.reserve(plan.misses[index]).unwrap());
    for slot in slots {
        table.arrived(slot);
        assert_eq!(table.lease(slot).layer, LayerIndex(1));
    }
    table.release(slots[1]);
    table.begin_sweep();
    let plan = table.demand(LayerIndex(1), &[4, 5]);
    assert_eq!(plan.misses, [key(1, 4), key(1, 5)]);
    table.check_invariants();
    let again = table.reserve(key(1, 4)).unwrap();
    assert_ne!(again, slots[0], "somebody still reads the old one");
    table.release(slots[0]);
    assert_eq!(table.state(slots[0]), SlotState::Empty);
    assert_eq!(table.state(again), SlotState::InFlight);
    table.check_invariants();
}

#[test]
fn the_policy_keeps_what_it_wants_in_the_slot_it_was_read_into() {
    let mut table = table(5, 1, CachePolicy::DeepLayers);
    table.begin_sweep();
    assert_eq!(serve(&mut table, 2, &[0, 1]), (0, 0));
    assert_eq!(serve(&mut table, 3, &[0, 1]), (0, 0));
    let slot = table.resident(key(3, 1)).unwrap();
    table.begin_sweep();
    // The two deepest layers have two slots each: one stays, one is replaced.
    assert_eq!(serve(&mut table, 2, &[1, 7]), (1, 0));
    assert_eq!(serve(&mut table, 3, &[6, 1]), (1, 0));
    assert_eq!(table.resident(key(3, 1)), Some(slot));
    assert_eq!(table.resident(key(3, 0)), None);
    let counters = table.counters();
    assert_eq!((counters.hits, counters.misses), (2, 6));
    assert_eq!((counters.evictions, counters.bypassed), (2, 0));
}

#[test]
fn lookahead_is_no_hit_and_its_waste_is_counted() {
    let mut table = table(6, 6, CachePolicy::Lru);
    table.begin_sweep();
    assert_eq!(serve(&mut table, 1, &[0, 1]), (0, 0));
    let used = table.speculate(key(2, 3)).unwrap();
    let vain = table.speculate(key(2, 4)).unwrap();
    assert_eq!(table.speculate(key(2, 5)), None, "two at most");
    assert_eq!(table.speculate(key(2, 3)), None, "on its way already");
    table.arrived(used);
    table.check_invariants();
    assert_eq!(serve(&mut table, 2, &[3, 6]), (0, 1));
    assert_eq!(
        table.counters().lookahead_wasted_bytes,
        0,
        "still in flight"
    );
    table.arrived(vain);
    assert_eq!(table.state(vain), SlotState::Empty);
    table.check_invariants();
    let counters = table.counters();
    assert_eq!((counters.hits, counters.misses), (0, 4));
    assert_eq!(counters.lookahead_used, 1);
    assert_eq!(counters.lookahead_wasted_bytes, 100);
    table.begin_sweep();
    let unused = table.speculate(key(2, 7)).unwrap();
    table.arrived(unused);
    table.begin_sweep();
    assert_eq!(table.counters().lookahead_wasted_bytes, 200);
}

#[test]
fn lookahead_takes_only_slots_to_spare_and_gives_them_back() {
    let mut table = table(3, 3, CachePolicy::Lru);
    table.begin_sweep();
    let plan = table.demand(LayerIndex(1), &[0, 1]);
    let first = table.speculate(key(3, 5)).unwrap();
    assert_eq!(
        table.speculate(key(3, 6)),
        None,
        "the demand needs the rest"
    );
    for &key in &plan.misses {
        let slot = table.reserve(key).unwrap();
        table.arrived(slot);
        table.lease(slot);
        table.release(slot);
    }
    let second = table.speculate(key(3, 6)).unwrap();
    let plan = table.demand(LayerIndex(2), &[0, 1]);
    let slot = table.reserve(plan.misses[0]).unwrap();
    assert!(slot != first && slot != second);
    assert_eq!(table.reserve(plan.misses[1]), None, "nothing has arrived");
    table.arrived(second);
    assert_eq!(
        table.reserve(plan.misses[1]),
        Some(second),
        "a guess gives way"
    );
    assert_eq!(table.counters().lookahead_wasted_bytes, 100);
    table.check_invariants();
}

#[test]
fn a_failed_read_is_tried_again_or_forgotten() {
    let mut table = table(6, 2, CachePolicy::Lru);
    table.begin_sweep();
    table.demand(LayerIndex(1), &[0, 1]);
    let slot = table.reserve(key(1, 0)).unwrap();
    table.failed(slot);
    assert!(!table.is_served());
    let slot = table.reserve(key(1, 0)).unwrap();
    table.arrived(slot);
    table.lease(slot);
    table.release(slot);
    let never = table.reserve(key(1, 1)).unwrap();
    table.begin_sweep();
    table.check_invariants();
    assert_eq!(table.resident(key(1, 0)), Some(slot), "it was read");
    let plan = table.demand(LayerIndex(1), &[0, 1]);
    assert_eq!(plan.hits, [(key(1, 0), slot)]);
    assert_eq!(plan.misses, [key(1, 1)], "the old read belongs to nobody");
    table.failed(never);
    assert_eq!(table.state(never), SlotState::Empty);
    table.check_invariants();
}

#[test]
fn with_a_slot_for_every_expert_nothing_leaves() {
    for &policy in CachePolicy::ALL {
        let shape = shape(24, 0);
        let mut driver = Driver::new(&shape, policy, CALM, 3);
        driver.run(&sweeps(&shape, 30, 4, 8));
        driver.finish();
        let counters = driver.table.counters();
        assert_eq!((counters.evictions, counters.bypassed), (0, 0), "{policy}");
        assert_eq!(counters.misses, 24, "each expert is read once");
    }
}

#[test]
#[should_panic(expected = "need a transit slot")]
fn experts_without_a_slot_need_a_way_through() {
    table(23, 0, CachePolicy::Lru);
}

#[test]
#[should_panic(expected = "before the last is served")]
fn a_demand_waits_for_the_last() {
    let mut table = table(4, 2, CachePolicy::Lru);
    table.begin_sweep();
    table.demand(LayerIndex(1), &[0, 1]);
    table.demand(LayerIndex(2), &[0, 1]);
}

#[test]
#[should_panic(expected = "is not leased")]
fn nothing_is_released_twice() {
    let mut table = table(4, 2, CachePolicy::Lru);
    table.begin_sweep();
    serve(&mut table, 1, &[0, 1]);
    let slot = table.resident(key(1, 0)).unwrap();
    table.release(slot);
}
