//! Plans for the released Kimi K3.

mod support;

use k3_config::{BudgetPlan, Bytes, DiskForecast, LineKind, PlanRefusal, Preset, plan};
use support::{budget, kimi_k3, kimi_request, linear_workspace};

const TRUNK_BYTES: u64 = 111_107_440_640;
const EXPERT_BYTES_PER_TOKEN: u64 = 16 * 92 * 17_547_264;

fn plan_for(total: u64, context_positions: u64, chunk_positions: u64) -> BudgetPlan {
    let footprint = kimi_k3();
    let workspace = linear_workspace(&footprint);
    let budget = budget(total);
    let mut request = kimi_request(&footprint, &budget, &workspace);
    request.context_positions = context_positions;
    request.chunk_positions = chunk_positions;
    plan(&request).unwrap()
}

#[test]
fn the_footprint_is_that_of_the_release() {
    let footprint = kimi_k3();
    assert_eq!(footprint.trunk_bytes(), TRUNK_BYTES);
    assert_eq!(footprint.head_bytes(), 2_348_810_240);
    assert_eq!(footprint.expert_bytes_per_token(), 25_829_572_608);
    assert_eq!(footprint.state_bytes_fixed, 434_110_464 + 30_523_392);
    assert!(
        (25_000..28_000).contains(&footprint.blocks.len()),
        "{}",
        footprint.blocks.len()
    );
}

#[test]
fn the_floor_fits_with_every_line() {
    let total = Preset::Floor.total().unwrap();
    let plan = plan_for(total.0, 4096, 16);
    let kinds: Vec<LineKind> = plan.lines.iter().map(|line| line.kind).collect();
    assert_eq!(kinds, LineKind::ALL);
    let bytes = |kind| plan.line(kind).bytes.0;
    assert_eq!(bytes(LineKind::States), 464_633_856 + 55_296 * 4096);
    // 16 positions, scores of 8 workers, 16 windows around an embedding row.
    let activations = 16 * 1_500_000 + 8 * 4 * 4096 + 16 * 20_480;
    assert_eq!(bytes(LineKind::Activations), activations);
    assert_eq!(bytes(LineKind::Logits), 4 * 163_840);
    // Nothing had to shrink: 64 blocks and a layer's picks.
    assert_eq!(plan.ring.place_count, 64);
    assert_eq!(plan.slots.transit_count, 16);
    assert_eq!(
        bytes(LineKind::Ring),
        (64 * plan.ring.place_bytes).next_multiple_of(2 << 20)
    );
    assert_eq!(plan.slots.slot_bytes, 17_547_264 + 4096);
    assert_eq!(bytes(LineKind::CacheSlots), 0);
    // What is left pins some blocks, to within two of them.
    assert!(plan.pins.block_count > 0);
    assert!(
        plan.left_over.0 < 2 * plan.ring.place_bytes + (2 << 20),
        "{}",
        plan.left_over
    );
    assert!(plan.planned <= total && plan.planned.0 + plan.left_over.0 == total.0);
    assert!(plan.smallest_budget < total);
}

/// Memory pins trunk byte for byte until all of it is pinned, then experts.
#[test]
fn the_ladder_of_budgets() {
    let mut rows = Vec::new();
    for (gigabytes, trunk_least, trunk_most) in [
        (8, 104.5, 104.7),
        (32, 80.5, 80.7),
        (64, 48.5, 48.7),
        (96, 16.5, 16.7),
        (128, 0.0, 0.0),
    ] {
        let plan = plan_for(gigabytes * 1_000_000_000, 4096, 64);
        let trunk = plan.prediction.trunk_bytes_per_sweep;
        let in_gb = trunk as f64 / 1e9;
        assert!(
            (trunk_least..=trunk_most).contains(&in_gb),
            "{gigabytes}: {in_gb}"
        );
        assert_eq!(plan.pins.bytes + trunk, TRUNK_BYTES);
        assert_eq!(
            plan.prediction.expert_bytes_per_token,
            EXPERT_BYTES_PER_TOKEN
        );
        let forecast = DiskForecast::new(&plan.prediction, 7e9, 0.0);
        let want = (trunk + EXPERT_BYTES_PER_TOKEN + 14_336) as f64 / 7e9;
        assert!((forecast.floor_seconds_per_token - want).abs() < 1e-9);
        rows.push((
            gigabytes,
            plan.slots.cache_count,
            forecast.floor_seconds_per_token,
        ));
    }
    assert!(
        rows.iter().take(4).all(|(_, cache, _)| *cache == 0),
        "{rows:?}"
    );
    // 128 GB: the trunk, no ring, and nearly nine hundred experts.
    let server = plan_for(128_000_000_000, 4096, 64);
    assert_eq!(server.ring.place_count, 0);
    assert_eq!(server.line(LineKind::Ring).bytes, Bytes(0));
    assert!(
        (850..900).contains(&server.slots.cache_count),
        "{}",
        server.slots.cache_count
    );
}

/// Half of all experts in memory halve their bytes, and the head is part of a
/// sweep only if logits are wanted.
#[test]
fn forecasts_follow_their_inputs() {
    let plan = plan_for(8_000_000_000, 4096, 64);
    let prediction = plan.prediction;
    let worst = prediction.bytes_per_token(0.0);
    let half = prediction.bytes_per_token(0.5);
    assert!((worst - half - EXPERT_BYTES_PER_TOKEN as f64 / 2.0).abs() < 1.0);
    // `spread` pins the same share of the head as of everything else, but for
    // a block at either end.
    let blocks = 2.0 * 4_194_304.0 / 2_348_810_240.0;
    let head = prediction.head_bytes_per_sweep as f64 / 2_348_810_240.0;
    let all = prediction.trunk_bytes_per_sweep as f64 / TRUNK_BYTES as f64;
    assert!(
        (head - all).abs() < blocks,
        "{head} of the head, {all} of the trunk"
    );
}

#[test]
fn everything_fits_two_terabytes_and_no_more_is_planned() {
    let plan = plan_for(2_000_000_000_000, 4096, 64);
    assert_eq!(plan.slots.transit_count, 0);
    assert_eq!(plan.slots.cache_count, 82_432);
    assert_eq!(plan.prediction.trunk_bytes_per_sweep, 0);
    assert_eq!(plan.prediction.expert_bytes_per_token, 0);
    assert!(plan.left_over.0 > 400_000_000_000, "{}", plan.left_over);
    assert_eq!(plan_for(u64::MAX, 4096, 64).planned, plan.planned);
}

#[test]
fn a_million_positions_in_eight_gibibytes_are_refused_with_the_figure() {
    let footprint = kimi_k3();
    let workspace = linear_workspace(&footprint);
    let small = budget(8 << 30);
    let mut request = kimi_request(&footprint, &small, &workspace);
    request.context_positions = 1_048_576;
    let Err(PlanRefusal::TooSmall(shortfall)) = plan(&request) else {
        panic!("58 GB of latents do not fit 8 GiB");
    };
    let needed = shortfall.smallest_budget.unwrap();
    assert_eq!(needed.0 - small.total.0, shortfall.shortfall.unwrap().0);
    let context = shortfall.context_that_fits.unwrap();
    assert!((100_000..200_000).contains(&context), "{context}");
    assert_eq!(shortfall.chunk_that_fits, None);
    let text = PlanRefusal::TooSmall(shortfall.clone()).to_string();
    for part in [
        format!("raise --memory to {}", needed.0),
        format!("lower --context from 1048576 to {context}"),
        "; not enough alone: --chunk".to_owned(),
    ] {
        assert!(text.contains(part.as_str()), "`{part}` in {text}");
    }
    // Each remedy is exact.
    request.context_positions = context;
    plan(&request).unwrap();
    request.context_positions = context + 1;
    assert!(plan(&request).is_err());
    request.context_positions = 1_048_576;
    let enough = budget(needed.0);
    request.budget = &enough;
    plan(&request).unwrap();
}

#[test]
fn looking_ahead_costs_the_routers_and_is_refused_without_room() {
    let footprint = kimi_k3();
    let workspace = linear_workspace(&footprint);
    let floor = budget(Preset::Floor.total().unwrap().0);
    let mut request = kimi_request(&footprint, &floor, &workspace);
    request.lookahead_blocks = &footprint.lookahead_blocks;
    request.lookahead_count = 6;
    let Err(PlanRefusal::TooSmall(shortfall)) = plan(&request) else {
        panic!("the routers alone do not fit the floor's slack");
    };
    assert_eq!(shortfall.fits_without_lookahead, Some(true));
    let text = PlanRefusal::TooSmall(shortfall.clone()).to_string();
    assert!(text.contains(", or leave out --lookahead"), "{text}");
    let enough = budget(shortfall.smallest_budget.unwrap().0);
    request.budget = &enough;
    let least = plan(&request).unwrap();
    // 92 routers of 896 x 7168 in bf16, windows around their blocks, whole pages.
    let routers = 92 * 896 * 7168 * 2;
    let most = routers + 92 * 4 * 8192 + (2 << 20);
    let line = least.line(LineKind::Lookahead).bytes.0;
    assert!((routers..most).contains(&line), "{line}");
    let eight = budget(8_000_000_000);
    request.budget = &eight;
    let guessing = plan(&request).unwrap();
    assert_eq!(guessing.lookahead.experts_per_position, 6);
    assert_eq!(guessing.lookahead.slot_count, 8, "half of 16 transit slots");
    request.lookahead_count = 99;
    let lookahead = plan(&request).unwrap().lookahead;
    assert_eq!(lookahead.experts_per_position, 16, "no layer picks more");
    request.lookahead_blocks = &[];
    request.lookahead_count = 0;
    assert_eq!(plan(&request).unwrap().lookahead.slot_count, 0);
}

#[test]
fn the_table_is_for_a_terminal() {
    let plan = plan_for(8_000_000_000, 4096, 64);
    let forecast = DiskForecast::new(&plan.prediction, 2.5e9, 0.092);
    let table = plan.table(Some(&forecast));
    for line in table.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for kind in LineKind::ALL {
        assert!(
            table.lines().any(|line| line.starts_with(kind.name())),
            "{kind}\n{table}"
        );
    }
    assert!(
        table.contains("budget             8.00 GB (7.45 GiB)       --memory"),
        "{table}"
    );
    assert!(
        table.contains("read-ahead ring    270.53 MB (258.00 MiB)   64 blocks of 4.20 MB"),
        "{table}"
    );
    assert!(table.contains("if 9.2 % of experts are found"), "{table}");
    let worst = DiskForecast::worst(&plan.prediction, 2.5e9);
    assert_eq!(worst, DiskForecast::new(&plan.prediction, 2.5e9, 0.0));
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["lines"][10]["kind"], "read-ahead ring");
    assert_eq!(json["lines"].as_array().unwrap().len(), LineKind::ALL.len());
    assert_eq!(json["budget"]["total"], 8_000_000_000u64);
}
