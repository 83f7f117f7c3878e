//! Looking a layer ahead: to the byte, and without an effect on anything else.

mod common;

use common::disk::{DiskCounts, DiskView};
use common::{BASE, Case, Run, Way};
use k3_config::CachePolicy;
use k3_models::ModelFamily;
use k3_runtime::{Cancel, ComputePool, Session, SessionSettings};
use k3_testkit::TinySpec;

/// Runs `way` on a disk that counts.
fn run(case: &Case, way: &Way, stalls_guesses: bool) -> (Run, DiskCounts) {
    let (model, plan) = case.prepare(way);
    let view = DiskView::default();
    let wrap = view.wrap(&case.checkpoint, stalls_guesses);
    let supervisor = case.start_on(&model, &plan, way, Some(&*wrap));
    let run = case.run_on(supervisor, &model, plan, way);
    let differing = run
        .logits
        .iter()
        .zip(&case.want)
        .filter(|(a, b)| a.to_bits() != b.to_bits())
        .count();
    assert_eq!(
        (run.logits.len(), differing),
        (case.want.len(), 0),
        "{way:?}"
    );
    (run, view.counts())
}

fn expert_bytes(case: &Case) -> u64 {
    case.model(BASE.block_bytes).footprint().expert_bytes
}

/// A model whose layers add nothing by attention, so that a layer's end tells
/// all about the next router's input.
fn predictable() -> Case {
    let spec = TinySpec::wide_union(3).with(|spec| spec.shape.block = spec.shape.layers);
    Case::of(spec.generate_with(|tensors| {
        for tensor in tensors {
            if tensor.name.ends_with("self_attn.o_proj.weight") {
                tensor.bytes.fill(0);
            }
        }
    }))
}

fn way(lookahead: u64, slots: u64) -> Way {
    Way {
        lookahead,
        slots: Some(slots),
        chunk: 1,
        ..BASE
    }
}

#[test]
fn what_the_disk_read_is_misses_and_waste_to_the_byte() {
    let mut wasted = 0;
    for spec in [TinySpec::odd(2), TinySpec::wide_union(3)] {
        let case = Case::new(&spec);
        let expert = expert_bytes(&case);
        for &policy in CachePolicy::ALL {
            for slots in [4, 9, 16] {
                let way = Way {
                    policy,
                    ..way(3, slots)
                };
                let (run, disk) = run(&case, &way, false);
                let cache = run.cache;
                let used = cache.lookahead_used * expert;
                assert_eq!(
                    disk.demanded_bytes + disk.guessed_bytes,
                    cache.misses * expert + cache.lookahead_wasted_bytes,
                    "{way:?}"
                );
                assert_eq!(disk.guessed_bytes, used + cache.lookahead_wasted_bytes);
                let layers = case.tiny.config.moe_layer_count() as u64;
                let most = run.reads.len() as u64 * layers * 3 * expert;
                assert!(disk.guessed_bytes <= most, "three guesses a layer");
                assert!(cache.lookahead_used > 0, "{way:?}");
                wasted += cache.lookahead_wasted_bytes;
            }
        }
    }
    assert!(wasted > 0, "no guess was wrong: the test shows nothing");
}

/// From the second sweep on every router guesses, and where a guess cannot be
/// wrong none is wasted: two of each layer's four picks are read early.
#[test]
fn a_guess_that_cannot_be_wrong_wastes_nothing() {
    let case = predictable();
    let config = &case.tiny.config;
    let way = way(2, 4);
    let (run, disk) = run(&case, &way, false);
    let (sweeps, layers) = (run.reads.len() as u64, config.moe_layer_count() as u64);
    assert!(
        config.first_k_dense_replace > 0,
        "every router has a layer before it"
    );
    assert_eq!(run.plan.lookahead.slot_count, 2);
    assert_eq!(
        run.cache.misses,
        sweeps * layers * 4,
        "four slots cache nothing"
    );
    assert_eq!(run.cache.lookahead_wasted_bytes, 0);
    assert_eq!(run.cache.lookahead_used, (sweeps - 1) * layers * 2);
    assert_eq!(
        disk.guessed_bytes,
        run.cache.lookahead_used * expert_bytes(&case)
    );
    // The whole of a layer's demand was on its way.
    let (all, disk) = self::run(&case, &self::way(4, 8), false);
    assert_eq!(all.cache.lookahead_wasted_bytes, 0);
    assert_eq!(disk.hurried, 0, "this disk is never late");
}

/// Guesses that the disk never gets to: demanded ones move up and are handed
/// over on arrival, wrong ones neither stop a demand nor cost a byte.
#[test]
fn a_guess_that_is_late_is_hurried_and_one_in_vain_is_in_nobodys_way() {
    let mut hurried = 0;
    for case in [Case::new(&TinySpec::odd(2)), predictable()] {
        let expert = expert_bytes(&case);
        for slots in [4, 5, 9] {
            for lookahead in [1, 3] {
                let way = way(lookahead, slots);
                let (run, disk) = run(&case, &way, true);
                let cache = run.cache;
                assert_eq!(disk.hurried, cache.lookahead_used, "{way:?}");
                assert_eq!(cache.lookahead_wasted_bytes, 0, "nothing was read in vain");
                assert_eq!(disk.guessed_bytes, 0);
                assert_eq!(
                    disk.demanded_bytes + disk.hurried * expert,
                    cache.misses * expert,
                    "{way:?}"
                );
                hurried += disk.hurried;
            }
        }
    }
    assert!(hurried > 0);
}

/// The first sweep fills the pins, and sweeps of many positions want too much
/// at once: neither guesses.
#[test]
fn first_sweeps_and_large_ones_do_not_guess() {
    let case = Case::new(&TinySpec::wide_union(3));
    for (chunk, guesses) in [(1, true), (4, true), (6, false), (16, false)] {
        let way = Way {
            chunk,
            ..way(4, 40)
        };
        let (run, disk) = run(&case, &way, false);
        assert_eq!(disk.guessed_bytes > 0, guesses, "chunks of {chunk}");
        assert_eq!(run.cache.lookahead_used > 0, guesses, "chunks of {chunk}");
    }
    let (model, plan) = case.prepare(&way(4, 40));
    let view = DiskView::default();
    let wrap = view.wrap(&case.checkpoint, false);
    let mut supervisor = case.start_on(&model, &plan, &way(4, 40), Some(&*wrap));
    let pool = ComputePool::new(1).unwrap();
    let settings = SessionSettings {
        context_positions: 16,
        chunk_positions: 1,
        all_logits: true,
    };
    let cancel = Cancel::default();
    let mut session = Session::new(&model, supervisor.source(), &pool, settings, cancel);
    session.append_for_logits(&case.ids[..1]).unwrap();
    assert_eq!(view.counts().guessed_bytes, 0, "no router has passed yet");
    session.append_for_logits(&case.ids[1..2]).unwrap();
    assert!(view.counts().guessed_bytes > 0);
    drop(session);
    assert!(supervisor.shutdown().failures.is_empty());
}

/// The residual at a layer's end is near the next router's input even in a
/// model of random weights: most guesses are demanded.
#[test]
fn the_guessed_input_is_near_the_next_routers() {
    let spec = TinySpec::wide_union(4)
        .experts(60, 8)
        .layers(12, &[4, 8, 12]);
    let case = Case::new(&spec);
    let (run, disk) = run(&case, &way(2, 20), false);
    let used = run.cache.lookahead_used * expert_bytes(&case);
    assert!(
        10 * used > 9 * disk.guessed_bytes && used > 0,
        "{used} of {} bytes guessed were demanded",
        disk.guessed_bytes
    );
}
