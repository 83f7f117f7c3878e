//! The same bytes from the smallest budget up, however weights are read, and
//! exactly the bytes the plan predicts.

mod common;

use common::check::check;
use common::{BASE, Case, Way};
use k3_config::{CachePolicy, Pins};
use k3_io::EnginePreference;
use k3_testkit::TinySpec;

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

/// A guess never reaches a bit, nor what is kept: hits and misses of every
/// sweep are those of a run that does not look ahead.
#[test]
fn lookahead_on_and_off() {
    for spec in specs() {
        let case = Case::new(&spec).shortened(6);
        let config = &case.tiny.config;
        let all = (config.moe_layer_count() * config.num_experts) as u64;
        let top_k = config.num_experts_per_token as u64;
        for &policy in CachePolicy::ALL {
            for slots in [4, 6, all / 2, all] {
                let mut without = None;
                for lookahead in [0, 1, top_k] {
                    let way = Way {
                        policy,
                        slots: Some(slots.max(4)),
                        lookahead,
                        chunk: 1,
                        ..BASE
                    };
                    let found: Vec<_> = check(&case, &way)
                        .iter()
                        .map(|sweep| (sweep.experts.hits, sweep.experts.misses))
                        .collect();
                    assert_eq!(without.get_or_insert(found.clone()), &found, "{way:?}");
                }
            }
        }
    }
}

#[test]
fn lookahead_with_either_engine_and_several_threads_and_positions() {
    for spec in specs() {
        let case = Case::new(&spec).shortened(6);
        for engine in [EnginePreference::Pread, EnginePreference::Uring] {
            for (threads, chunk) in [(2, 1), (1, 2), (2, 4), (1, 5)] {
                for budget_twelfths in [0, 6, 12] {
                    check(
                        &case,
                        &Way {
                            engine,
                            threads,
                            chunk,
                            budget_twelfths,
                            lookahead: 2,
                            ..BASE
                        },
                    );
                }
            }
        }
    }
}

/// Late and disordered answers, with slots for almost nothing: guesses land
/// before, while and after they are demanded, or are withdrawn.
#[test]
fn lookahead_with_delays_and_few_slots() {
    let engines = [(EnginePreference::Pread, 4), (EnginePreference::Uring, 7)];
    for (spec, (engine, slots)) in specs().into_iter().zip(engines) {
        let case = Case::new(&spec);
        check(
            &case,
            &Way {
                engine,
                slots: Some(slots),
                lookahead: case.tiny.config.num_experts_per_token as u64,
                delay: true,
                chunk: 3,
                ..BASE
            },
        );
    }
}
