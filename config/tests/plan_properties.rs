//! What holds for every plan, over random models, budgets and wishes.

mod support;

use k3_config::{
    ArenaLayout, BlockFootprint, BlockKind, BudgetPlan, Bytes, LineKind, ModelFootprint, Pins,
    PlanRefusal, SMALL_BUDGET, SpillRequest, SplitKind, default_chunk_positions, plan,
    plan_by_budget,
};
use proptest::prelude::*;
use support::{budget, kimi_request, linear_workspace};

/// A model and everything a user may wish for.
#[derive(Debug, Clone)]
struct Case {
    footprint: ModelFootprint,
    context_positions: u64,
    chunk_positions: u64,
    sequences: u64,
    in_flight_bytes: u64,
    layout: ArenaLayout,
    pins: Pins,
    trunk: Option<u64>,
    cache: Option<u64>,
    slots: Option<u64>,
    spill: Option<SpillRequest>,
    lookahead: Vec<usize>,
}

fn footprints() -> impl Strategy<Value = ModelFootprint> {
    let blocks = prop::collection::vec(1u64..60_000, 0..400);
    let experts = (
        prop_oneof![Just(0u32), 1u32..6],
        1u32..12,
        1u32..12,
        1u64..600_000,
    );
    let sizes = (0u64..100_000, 0u64..5_000, 0u64..2_000, 0u64..50);
    (blocks, experts, sizes).prop_map(|(blocks, experts, sizes)| {
        let (moe_layer_count, experts_per_layer, picks, expert_bytes) = experts;
        let (vector_bytes, state_bytes_fixed, activation, state_bytes_per_position) = sizes;
        let last = blocks.len().saturating_sub(1);
        let kind = |index| {
            if index == last {
                BlockKind::Head
            } else {
                BlockKind::Layer(0)
            }
        };
        ModelFootprint {
            blocks: blocks
                .into_iter()
                .enumerate()
                .map(|(index, bytes)| BlockFootprint {
                    kind: kind(index),
                    bytes,
                })
                .collect(),
            lookahead_blocks: Vec::new(),
            vector_bytes,
            embedding_row_bytes: 512,
            expert_bytes: if moe_layer_count == 0 {
                0
            } else {
                expert_bytes
            },
            moe_layer_count,
            experts_per_layer,
            experts_per_token: picks.min(experts_per_layer),
            state_bytes_fixed,
            state_bytes_per_position,
            state_page_positions: 8,
            state_page_parts: 1 + vector_bytes % 3,
            activation_bytes_per_position: activation,
            logit_row_bytes: 1_000,
        }
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let limits = (1u64..200, 1u64..40, 1u64..4, 0u64..200_000);
    let layout = prop_oneof![
        Just(ArenaLayout::EXACT),
        Just(ArenaLayout::PAGES_4K),
        Just(ArenaLayout {
            alignment_bytes: 512,
            granule_bytes: 65_536
        }),
    ];
    let wishes = (
        prop::option::weighted(0.2, 0u64..10_000_000),
        prop::option::weighted(0.2, 0u64..2_000_000),
        prop::option::weighted(0.2, 4u64..80),
        prop::collection::btree_set(
            any::<prop::sample::Index>().prop_map(|i| i.index(400)),
            0..4,
        ),
    );
    (footprints(), limits, layout, any::<bool>(), wishes).prop_map(
        |(footprint, limits, layout, is_spread, (trunk, cache, slots, lookahead))| {
            let blocks = footprint.blocks.len();
            Case {
                lookahead: lookahead
                    .into_iter()
                    .filter(|index| *index < blocks)
                    .collect(),
                footprint,
                context_positions: limits.0,
                chunk_positions: limits.1,
                sequences: limits.2,
                in_flight_bytes: limits.3,
                layout,
                pins: if is_spread {
                    Pins::Spread
                } else {
                    Pins::Prefix
                },
                trunk,
                cache: if slots.is_some() { None } else { cache },
                slots,
                spill: None,
            }
        },
    )
}

impl Case {
    fn plan(&self, total: u64) -> Result<BudgetPlan, PlanRefusal> {
        let workspace = linear_workspace(&self.footprint);
        let budget = budget(total).with_split(self.trunk.map(Bytes), self.cache.map(Bytes));
        let mut request = kimi_request(&self.footprint, &budget, &workspace);
        request.context_positions = self.context_positions;
        request.chunk_positions = self.chunk_positions;
        request.sequences = self.sequences;
        request.in_flight_bytes = self.in_flight_bytes;
        request.layout = self.layout;
        request.pins = self.pins;
        request.slots = self.slots;
        request.spill = self.spill;
        request.lookahead_blocks = &self.lookahead;
        request.lookahead_count = self.lookahead.len() as u64;
        request.baseline_bytes = 10_000;
        request.vocabulary_bytes = 1_000;
        request.index_bytes = 1_000;
        plan(&request)
    }

    /// A plan with the chunk that suits `total`.
    fn plan_by_budget(&self, total: u64) -> Result<BudgetPlan, PlanRefusal> {
        plan_by_budget(Bytes(total), |chunk_positions| {
            let case = Self {
                chunk_positions,
                ..self.clone()
            };
            case.plan(total)
        })
    }

    fn smallest(&self) -> u64 {
        match self.plan(0) {
            Err(PlanRefusal::TooSmall(shortfall)) => shortfall.smallest_budget.unwrap().0,
            other => panic!("no model runs in 0 bytes: {other:?}"),
        }
    }

    /// Room of all blocks and experts, and what rounding can add.
    fn model_bytes(&self) -> u64 {
        let windows: u64 = self
            .footprint
            .blocks
            .iter()
            .map(|block| self.layout.window_bytes(block.bytes))
            .sum();
        let experts = u64::from(self.footprint.moe_layer_count)
            * u64::from(self.footprint.experts_per_layer)
            * self.layout.window_bytes(self.footprint.expert_bytes);
        windows + experts + 4 * self.layout.granule_bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_smallest_budget_is_exact(case in cases()) {
        let smallest = case.smallest();
        let least = case.plan(smallest);
        prop_assert!(least.is_ok(), "{:?}", least);
        prop_assert_eq!(least.unwrap().smallest_budget, Bytes(smallest));
        let refused = case.plan(smallest - 1);
        let is_short_of_one = matches!(
            &refused,
            Err(PlanRefusal::TooSmall(short))
                if short.shortfall == Some(Bytes(1))
                    && short.lines.iter().map(|line| line.bytes.0).sum::<u64>() == smallest
        );
        prop_assert!(is_short_of_one, "{:?}", refused);
    }

    /// An accepted plan names the least budget too, whatever it had itself, also where
    /// less memory leaves more pages to a file.
    #[test]
    fn every_accepted_budget_names_the_smallest(
        case in cases(),
        more in 0u64..40_000_000,
        file_bytes in proptest::option::of(0u64..4_000_000),
    ) {
        for spill in [None, Some(SpillRequest { bytes_max: file_bytes, memory_pages: None })] {
            let case = Case { spill, ..case.clone() };
            let (Ok(all), Ok(some)) = (case.plan(u64::MAX / 4), case.plan(more)) else {
                continue;
            };
            prop_assert_eq!(some.smallest_budget, all.smallest_budget);
            let smallest = all.smallest_budget.0;
            let least = case.plan(smallest);
            prop_assert!(least.is_ok(), "{:?}", least);
            prop_assert!(least.unwrap().smallest_budget.0 == smallest);
            prop_assert!(case.plan(smallest - 1).is_err());
        }
    }

    #[test]
    fn a_budget_that_a_refusal_names_is_accepted_with_its_own_chunk(
        case in cases(),
        place in -40_000_000i64..4_000_000,
        activation in 0u64..1_000_000,
        part in 0u64..1000,
    ) {
        // Around the budget from which the chunk is the larger one.
        let mut case = Case { context_positions: 200, ..case };
        case.footprint.activation_bytes_per_position = activation;
        let small = Case { chunk_positions: default_chunk_positions(Bytes(0)), ..case.clone() };
        let wanted = SMALL_BUDGET.0.saturating_add_signed(place);
        case.footprint.vector_bytes += wanted.saturating_sub(small.smallest());
        let total = case.smallest() * part / 1000;
        let Err(PlanRefusal::TooSmall(shortfall)) = case.plan_by_budget(total) else {
            return Ok(());
        };
        let smallest = shortfall.smallest_budget.unwrap();
        prop_assert_eq!(smallest.0 - total, shortfall.shortfall.unwrap().0);
        let sum: u64 = shortfall.lines.iter().map(|line| line.bytes.0).sum();
        prop_assert_eq!(sum, smallest.0);
        let said = shortfall.to_string();
        let told = |text: String| said.contains(&text);
        let accepted = |total: u64| case.plan_by_budget(total).is_ok();
        prop_assert!(accepted(smallest.0) && !accepted(smallest.0 - 1), "{}", said);
        let least = case.plan_by_budget(smallest.0).unwrap().smallest_budget;
        if total < SMALL_BUDGET.0 {
            prop_assert_eq!(least, smallest);
        } else {
            // A refusal names the smallest above what was given; with the smaller
            // chunk of smaller budgets less may be enough.
            prop_assert!(least <= smallest && accepted(least.0), "{}", said);
        }
        match shortfall.refused_between {
            // Nor is there one that is refused further up.
            None => {
                prop_assert!(told(format!("raise --memory to {} or more", smallest.0)), "{}", said);
                prop_assert!(accepted(SMALL_BUDGET.0.max(smallest.0)), "{}", said);
                prop_assert!(accepted((SMALL_BUDGET.0 - 1).max(smallest.0)), "{}", said);
            }
            Some(gap) => {
                let to = gap.to.unwrap().0;
                prop_assert!(accepted(gap.from.0 - 1) && !accepted(gap.from.0), "{}", said);
                prop_assert!(!accepted(to - 1) && accepted(to), "{}", said);
                let last = gap.from.0 - 1;
                let text = format!("to {} to {last}, or to {to} or more", smallest.0);
                prop_assert!(told(text), "{}", said);
                let above = case.plan_by_budget(to).unwrap();
                prop_assert_eq!(above.smallest_budget, smallest);
            }
        }
    }

    #[test]
    fn a_plan_adds_up(case in cases(), beyond in 0u64..30_000_000) {
        let total = case.smallest() + beyond;
        let plan = case.plan(total).unwrap();
        let kinds: Vec<LineKind> = plan.lines.iter().map(|line| line.kind).collect();
        prop_assert_eq!(kinds, LineKind::ALL);
        let sum: u64 = plan.lines.iter().map(|line| line.bytes.0).sum();
        prop_assert_eq!(sum, plan.planned.0);
        prop_assert_eq!(sum + plan.left_over.0, total);
        // Every arena holds what it is for.
        let bytes = |kind| plan.line(kind).bytes.0;
        let window = |index: usize| case.layout.window_bytes(case.footprint.blocks[index].bytes);
        let pinned: u64 = plan.pinned.pinned().map(window).sum();
        let pin_lines = bytes(LineKind::PinnedTrunk) + bytes(LineKind::Lookahead);
        prop_assert!(pinned <= pin_lines && pin_lines < pinned + 2 * case.layout.granule_bytes);
        prop_assert!(plan.ring.place_count * plan.ring.place_bytes <= bytes(LineKind::Ring));
        let slots = plan.slots;
        prop_assert!(slots.transit_count * slots.slot_bytes <= bytes(LineKind::TransitSlots));
        prop_assert!(slots.cache_count * slots.slot_bytes <= bytes(LineKind::CacheSlots));
        // Whoever runs by the plan can run at all.
        let streamed: Vec<usize> = (0..plan.pinned.block_count())
            .filter(|index| !plan.pinned.is_pinned(*index))
            .collect();
        prop_assert_eq!(plan.ring.place_count == 0, streamed.is_empty());
        prop_assert!(streamed.iter().all(|index| window(*index) <= plan.ring.place_bytes));
        if !streamed.is_empty() {
            let distinct = plan.pinned.block_count() - case.lookahead.len();
            prop_assert!(plan.ring.place_count >= 3.min(distinct as u64));
        }
        prop_assert_eq!(slots.transit_count == 0, slots.cache_count == slots.expert_count);
        prop_assert!(slots.transit_count == 0 || slots.transit_count >= 4.min(slots.expert_count));
        prop_assert!(case.lookahead.iter().all(|index| plan.pinned.is_pinned(*index)));
        // Guesses never take what demands need to go on.
        let passing = if slots.transit_count == 0 { slots.cache_count } else { slots.transit_count };
        prop_assert!(2 * plan.lookahead.slot_count <= passing);
        let picks = u64::from(case.footprint.experts_per_token);
        let wanted = (case.lookahead.len() as u64).min(picks);
        prop_assert_eq!(plan.lookahead.experts_per_position, wanted);
        prop_assert!(plan.lookahead.slot_count > 0 || wanted == 0 || slots.expert_count < 2);
        let read = plan.prediction.trunk_bytes_per_sweep;
        prop_assert_eq!(read, streamed.iter().map(|i| case.footprint.blocks[*i].bytes).sum::<u64>());
    }

    #[test]
    fn more_memory_never_pins_less(case in cases(), steps in prop::collection::vec(0u64..200_000, 1..60)) {
        let mut total = case.smallest();
        let mut before = case.plan(total).unwrap();
        for step in steps {
            total += step;
            let after = case.plan(total).unwrap();
            prop_assert!(after.pins.bytes >= before.pins.bytes, "{} then {}", before.pins.bytes, after.pins.bytes);
            prop_assert!(after.slots.cache_count >= before.slots.cache_count);
            let places = |plan: &BudgetPlan| plan.slots.transit_count + plan.slots.cache_count;
            prop_assert!(places(&after) >= places(&before));
            prop_assert!(after.ring.place_count >= before.ring.place_count || after.ring.place_count == 0);
            before = after;
        }
    }

    #[test]
    fn ways_out_of_forced_splits_are_exact(case in cases(), part in 0u64..1000) {
        let without = Case { trunk: None, cache: None, slots: None, ..case.clone() };
        let (least, all) = (without.smallest(), case.smallest());
        let total = least + all.saturating_sub(least) * part / 1000;
        let Err(PlanRefusal::TooSmall(shortfall)) = case.plan(total) else {
            return Ok(());
        };
        let asked = [case.trunk, case.cache, case.slots].into_iter().flatten();
        prop_assert_eq!(shortfall.splits.iter().map(|split| split.asked).collect::<Vec<_>>(),
            asked.collect::<Vec<_>>());
        for split in &shortfall.splits {
            let with = |amount: Option<u64>| {
                let mut case = case.clone();
                match split.kind {
                    SplitKind::Trunk => case.trunk = amount,
                    SplitKind::Cache => case.cache = amount,
                    SplitKind::Slots => case.slots = amount,
                }
                case.plan(total).is_ok()
            };
            prop_assert_eq!(split.fits_without, with(None), "{:?}", split);
            if let Some(fits) = split.fits {
                prop_assert!(fits < split.asked && with(Some(fits)), "{:?}", split);
            }
            if let (SplitKind::Slots, Some(fits)) = (split.kind, split.fits) {
                prop_assert!(!with(Some(fits + 1)), "{:?}", split);
            }
        }
        if let Some(fits) = shortfall.fits_without_splits {
            prop_assert!(shortfall.splits.len() == 2);
            prop_assert_eq!(fits, without.plan(total).is_ok());
        }
    }

    #[test]
    fn no_plan_exceeds_the_model(case in cases(), total in 1_000_000_000u64..=u64::MAX) {
        let plan = case.plan(total).unwrap();
        let model: u64 = [LineKind::Ring, LineKind::TransitSlots, LineKind::PinnedTrunk, LineKind::CacheSlots, LineKind::Lookahead]
            .iter()
            .map(|kind| plan.line(*kind).bytes.0)
            .sum();
        // With a smaller trunk than the model's the ring comes on top.
        let ring = if case.trunk.is_some() { plan.line(LineKind::Ring).bytes.0 } else { 0 };
        prop_assert!(model <= case.model_bytes() + ring, "{} of {}", model, case.model_bytes());
        if case.trunk.is_none() {
            prop_assert_eq!(plan.prediction.trunk_bytes_per_sweep, 0);
        }
        if case.slots.is_none() && case.cache.is_none() {
            prop_assert_eq!(plan.slots.cache_count, plan.slots.expert_count);
        }
    }

    #[test]
    fn wishes_are_met_exactly(case in cases(), beyond in 0u64..30_000_000) {
        let plan = case.plan(case.smallest() + beyond).unwrap();
        let slots = plan.slots;
        if let Some(wanted) = case.slots {
            prop_assert_eq!(slots.transit_count + slots.cache_count, wanted.min(slots.expert_count));
        }
        if let Some(bytes) = case.cache {
            let wanted = (bytes / slots.slot_bytes.max(1)).min(slots.expert_count);
            prop_assert!(slots.cache_count == wanted || slots.cache_count == slots.expert_count);
        }
        if let Some(bytes) = case.trunk {
            let line = plan.line(LineKind::PinnedTrunk).bytes.0;
            prop_assert!(line <= bytes || line - bytes < case.layout.granule_bytes, "{} of {}", line, bytes);
            let others = case.plan(case.smallest()).unwrap();
            prop_assert_eq!(plan.pins, others.pins, "the budget does not change the wish");
        }
    }
}

#[test]
fn contradictions_are_refused() {
    let footprint = support::kimi_k3();
    let workspace = linear_workspace(&footprint);
    let plain = budget(8_000_000_000);
    let mut request = kimi_request(&footprint, &plain, &workspace);
    request.slots = Some(3);
    let error = plan(&request).unwrap_err();
    assert_eq!(error, PlanRefusal::TooFewSlots { given: 3, least: 4 });
    request.slots = Some(4);
    let four = plan(&request).unwrap();
    assert_eq!((four.slots.transit_count, four.slots.cache_count), (4, 0));
    request.slots = Some(100);
    let hundred = plan(&request).unwrap();
    assert_eq!(
        (hundred.slots.transit_count, hundred.slots.cache_count),
        (16, 84)
    );
    let split = plain.clone().with_split(None, Some(Bytes(1)));
    request.budget = &split;
    assert_eq!(plan(&request).unwrap_err(), PlanRefusal::SlotsAndCache);
}

#[test]
fn sizes_that_cannot_be_right_are_refused_without_overflow() {
    let mut footprint = support::kimi_k3();
    footprint.state_bytes_per_position = u64::MAX;
    footprint.state_bytes_fixed = u64::MAX;
    let workspace = linear_workspace(&footprint);
    let all = budget(u64::MAX);
    let mut request = kimi_request(&footprint, &all, &workspace);
    request.context_positions = u64::MAX;
    request.chunk_positions = u64::MAX;
    request.sequences = u64::MAX;
    let Err(PlanRefusal::TooSmall(shortfall)) = plan(&request) else {
        panic!("it cannot fit");
    };
    assert_eq!(
        (shortfall.smallest_budget, shortfall.shortfall),
        (None, None)
    );
    assert!(
        shortfall.to_string().contains("no --memory is enough"),
        "{shortfall}"
    );
    let mut footprint = support::kimi_k3();
    footprint.blocks[7].bytes = u64::MAX / 4;
    let request = kimi_request(&footprint, &all, &workspace);
    assert!(matches!(
        plan(&request),
        Err(PlanRefusal::TrunkTooLarge { .. })
    ));
}

/// Little memory first shrinks the ring, then the transit slots.
#[test]
fn the_order_of_shrinking() {
    let footprint = support::kimi_k3();
    let workspace = linear_workspace(&footprint);
    let plan_with = |total| {
        let budget = budget(total);
        plan(&kimi_request(&footprint, &budget, &workspace)).unwrap()
    };
    let roomy = plan_with(1_610_612_736);
    let smallest = roomy.smallest_budget.0;
    let least = plan_with(smallest);
    assert_eq!((least.slots.transit_count, least.ring.place_count), (4, 6));
    // Twelve more slots, in steps of their size, and the ring untouched.
    let slots = plan_with(smallest + 6 * least.slots.slot_bytes + (4 << 20));
    assert_eq!((slots.slots.transit_count, slots.ring.place_count), (10, 6));
    assert_eq!(slots.pins.block_count, 0);
    let ring =
        plan_with(smallest + 12 * least.slots.slot_bytes + 20 * least.ring.place_bytes + (4 << 20));
    assert_eq!(ring.slots.transit_count, 16);
    assert!(
        (26..=27).contains(&ring.ring.place_count),
        "{}",
        ring.ring.place_count
    );
    assert_eq!(ring.pins.block_count, 0);
    let why = &least.line(LineKind::Ring).why;
    assert!(why.contains("6 blocks, not 64"), "{why}");
}

/// A sweep has no more positions than its sequences, nor logits than it has
/// positions.
#[test]
fn sweeps_are_no_larger_than_their_sequences() {
    let footprint = support::kimi_k3();
    let workspace = linear_workspace(&footprint);
    let budget = budget(8_000_000_000);
    let mut request = kimi_request(&footprint, &budget, &workspace);
    (request.context_positions, request.sequences) = (10, 3);
    (request.chunk_positions, request.logit_rows) = (30, 30);
    let exact = plan(&request).unwrap();
    (request.chunk_positions, request.logit_rows) = (64, 50);
    assert_eq!(plan(&request).unwrap(), exact);
    assert_eq!(exact.chunk_positions, 30);
    request.chunk_positions = 29;
    assert_ne!(plan(&request).unwrap(), exact);
}

/// Where granules are large, one arena for all experts is cheaper than one
/// for some and another for those in transit.
#[test]
fn the_cheapest_slots_decide_the_smallest_budget() {
    let mut footprint = support::kimi_k3();
    footprint.blocks.truncate(64);
    (footprint.moe_layer_count, footprint.experts_per_layer) = (1, 20);
    footprint.expert_bytes = 100;
    let workspace = linear_workspace(&footprint);
    let smallest = |cache_slots: u64| {
        let budget = budget(1).with_split(None, Some(Bytes(cache_slots * 100)));
        let mut request = kimi_request(&footprint, &budget, &workspace);
        request.layout = ArenaLayout {
            alignment_bytes: 1,
            granule_bytes: 2_000,
        };
        match plan(&request) {
            Err(PlanRefusal::TooSmall(shortfall)) => shortfall.smallest_budget,
            other => panic!("one byte is too little: {other:?}"),
        }
    };
    assert_eq!(smallest(10), smallest(20));
    assert!(smallest(0) <= smallest(20));
}
