//! The same bytes from the smallest budget up, however weights are read, and
//! exactly the bytes the plan predicts.

mod common;

use common::{BASE, Case, Way};
use k3_config::{CachePolicy, Pins};
use k3_io::EnginePreference;
use k3_models::ModelFamily;
use k3_testkit::TinySpec;

fn check(case: &Case, way: &Way) {
    let (logits, reads, plan) = case.run(way);
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
}

fn specs() -> [TinySpec; 2] {
    [TinySpec::odd(2), TinySpec::wide_union(3)]
}

#[test]
fn budgets_from_the_smallest_up() {
    for spec in specs() {
        let case = Case::new(&spec);
        for budget_twelfths in 0..=12 {
            for pins in [Pins::Spread, Pins::Prefix] {
                check(
                    &case,
                    &Way {
                        budget_twelfths,
                        pins,
                        ..BASE
                    },
                );
            }
        }
    }
}

#[test]
fn engines_threads_chunks_and_delays() {
    for spec in specs() {
        let case = Case::new(&spec);
        for engine in [EnginePreference::Pread, EnginePreference::Uring] {
            for delay in [false, true] {
                for (threads, chunk) in [(1, 1), (2, 3), (1, 16)] {
                    let budget_twelfths = 4;
                    check(
                        &case,
                        &Way {
                            engine,
                            delay,
                            threads,
                            chunk,
                            budget_twelfths,
                            ..BASE
                        },
                    );
                }
            }
        }
    }
}

#[test]
fn policies_and_slots_from_four_to_all() {
    for spec in specs() {
        let case = Case::new(&spec);
        let config = &case.tiny.config;
        let all = (config.moe_layer_count() * config.num_experts) as u64;
        for &policy in CachePolicy::ALL {
            for slots in [4, 5, 9, all / 2, all - 1, all] {
                // Delays where every read counts: few slots.
                for delay in [false, true] {
                    if delay && slots > 5 {
                        continue;
                    }
                    let slots = Some(slots.max(4));
                    check(
                        &case,
                        &Way {
                            policy,
                            slots,
                            delay,
                            ..BASE
                        },
                    );
                }
            }
        }
    }
}

#[test]
fn blocks_from_the_longest_row_up() {
    for spec in specs() {
        let case = Case::new(&spec);
        for block_bytes in [1, 700, 10_000, 1 << 20] {
            for budget_twelfths in [0, 5] {
                check(
                    &case,
                    &Way {
                        block_bytes,
                        budget_twelfths,
                        ..BASE
                    },
                );
            }
        }
    }
}
