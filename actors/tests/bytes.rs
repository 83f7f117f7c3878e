//! What a disk is asked for, range by range, and what is reported of it.

mod common;

use common::disk::DiskView;
use common::{BASE, Case, Way};
use k3_config::{BlockKind, Pins};
use k3_models::ModelFamily as _;
use k3_testkit::TinySpec;

/// Runs `way` and compares every byte the disk was asked for with the plan and
/// with the report.
fn check(case: &Case, way: &Way) {
    let (model, plan) = case.prepare(way);
    let view = DiskView::default();
    let wrap = view.wrap(&case.checkpoint, false);
    let supervisor = case.start_on(&model, &plan, way, Some(&*wrap));
    let run = case.run_on(supervisor, &model, plan, way);
    let sweeps = run.reads.len() as u64;
    let mut others = view.others();
    let (mut trunk_bytes, mut ahead_bytes, mut is_ahead) = (0, 0, true);
    for (index, block) in model.program().blocks.iter().enumerate() {
        let range = (u32::from(block.shard), block.offset, block.bytes);
        let count = others.remove(&range).unwrap_or_default();
        trunk_bytes += count * block.bytes;
        if run.plan.pinned.is_pinned(index) {
            assert_eq!(count, 1, "pinned block {index}, {way:?}");
            continue;
        }
        // The next sweep is read ahead from its start, up to the head: whether
        // that is wanted is not known yet.
        let ahead = count - sweeps;
        assert!(ahead <= u64::from(is_ahead), "block {index}, {way:?}");
        is_ahead = ahead == 1;
        ahead_bytes += ahead * block.bytes;
        assert!(block.kind != BlockKind::Head || ahead == 0, "{way:?}");
    }
    let ring = &run.plan.ring;
    assert!(ahead_bytes <= ring.place_count * ring.place_bytes);
    let reported: u64 = run.reads.iter().map(|sweep| sweep.trunk.read_bytes).sum();
    assert_eq!(trunk_bytes - ahead_bytes, reported, "{way:?}");
    // Besides blocks and experts, embedding rows: vectors came with the model.
    let rows: u64 = others.iter().map(|((_, _, bytes), n)| bytes * n).sum();
    let reported: u64 = run.reads.iter().map(|sweep| sweep.row_bytes).sum();
    assert_eq!(rows, reported, "{way:?}");
    let row_bytes = model.program().embedding_row_bytes();
    assert_eq!(rows, 2 * case.ids.len() as u64 * row_bytes, "{way:?}");
    let counts = view.counts();
    assert_eq!(counts.guessed_bytes, 0);
    let expert_bytes = model.footprint().expert_bytes;
    let misses: u64 = run.reads.iter().map(|sweep| sweep.experts.misses).sum();
    assert_eq!(counts.demanded_bytes, misses * expert_bytes, "{way:?}");
}

#[test]
fn a_pinned_block_is_read_once_any_other_once_a_sweep() {
    for spec in [TinySpec::small(4), TinySpec::odd(2)] {
        let case = Case::new(&spec);
        for budget_twelfths in [0, 3, 6, 9, 12] {
            for pins in [Pins::Spread, Pins::Prefix] {
                for chunk in [1, 4] {
                    let way = Way {
                        budget_twelfths,
                        pins,
                        chunk,
                        ..BASE
                    };
                    check(&case, &way);
                }
            }
        }
    }
}
