//! What every streamed run must satisfy.

use k3_actors::SweepReads;
use k3_actors::experts::CacheCounters;
use k3_models::ModelFamily as _;

use super::{Case, Run, Way};

/// A run in `way` gives the reference's logits, and takes exactly the bytes that
/// its plan predicts.
pub(crate) fn check(case: &Case, way: &Way) -> Vec<SweepReads> {
    let Run {
        logits,
        reads,
        plan,
        cache,
        engine,
    } = case.run(way);
    assert_eq!(logits.len(), case.want.len());
    let differing = logits
        .iter()
        .zip(&case.want)
        .filter(|(a, b)| a.to_bits() != b.to_bits())
        .count();
    assert_eq!(differing, 0, "{way:?}");
    let expert_bytes = case.model(way.block_bytes).footprint().expert_bytes;
    for (index, sweep) in reads.iter().enumerate() {
        let misses = sweep.experts.misses;
        assert_eq!(
            sweep.experts.read_bytes,
            misses * expert_bytes,
            "{way:?}, sweep {index}"
        );
        // The first sweep fills the pins.
        let want = if index == 0 {
            plan.pins.bytes_total
        } else {
            plan.prediction.trunk_bytes_per_sweep
        };
        assert_eq!(sweep.trunk.read_bytes, want, "{way:?}, sweep {index}");
    }
    check_cache(way, &reads, &cache, expert_bytes);
    // Withdrawn reads at the end may have landed in part: at most that much
    // more has been read than was wanted.
    let sum = |of: fn(&SweepReads) -> u64| reads.iter().map(of).sum::<u64>();
    let wanted = sum(|sweep| sweep.trunk.read_bytes)
        + sum(|sweep| sweep.experts.read_bytes)
        + sum(|sweep| sweep.row_bytes)
        + cache.lookahead_wasted_bytes;
    assert!(engine.payload_bytes() >= wanted, "{way:?}");
    reads
}

/// What the books say is what compute was handed.
fn check_cache(way: &Way, reads: &[SweepReads], cache: &CacheCounters, expert_bytes: u64) {
    let sum = |of: fn(&SweepReads) -> u64| reads.iter().map(of).sum::<u64>();
    assert_eq!(cache.hits, sum(|sweep| sweep.experts.hits), "{way:?}");
    assert_eq!(cache.misses, sum(|sweep| sweep.experts.misses), "{way:?}");
    assert!(cache.lookahead_used <= cache.misses, "{way:?}");
    assert_eq!(cache.lookahead_wasted_bytes % expert_bytes, 0, "{way:?}");
    if way.lookahead == 0 {
        let nothing = (cache.lookahead_used, cache.lookahead_wasted_bytes);
        assert_eq!(nothing, (0, 0), "{way:?}");
    }
}
