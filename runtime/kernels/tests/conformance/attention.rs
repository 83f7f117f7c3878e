//! The KDA step, latent attention in both forms, attention over snapshots.

use crate::buffers::Floats;
use crate::compare::{against_scalar, assert_same, unwritten};
use crate::slow;
use crate::values::{self, Class, Random};
use k3_kernels::{KdaStep, MAX_SOURCES};

/// Calls `check` for every seed; six in a row have all classes.
fn for_seeds(shape: usize, mut check: impl FnMut(&mut Random, Class)) {
    let seeds = if slow() { 48 } else { 6 };
    for seed in 0..seeds {
        let class = Class::ALL[seed % Class::ALL.len()];
        check(&mut Random::new((shape * 1000 + seed) as u64), class);
    }
}

/// Zeroes of both signs at random places, where kernels skip work.
fn with_zeros(random: &mut Random, mut values: Vec<f32>) -> Vec<f32> {
    for value in &mut values {
        match random.below(6) {
            0 => *value = 0.0,
            1 => *value = -0.0,
            _ => {}
        }
    }
    values
}

#[test]
fn kda_steps_equal_the_definition() {
    for width in (0..=70).chain([96, 127, 128, 129]) {
        for_seeds(width, |random, class| {
            let state = values::f32s(random, class, width * width);
            let mut vector = || Floats::new(&values::f32s(random, class, width), width);
            let (alpha, v) = (vector(), vector());
            let (q, k) = (vector().get().to_vec(), vector().get().to_vec());
            let (q, k) = (with_zeros(random, q), with_zeros(random, k));
            let beta = values::f32s(random, class, 1)[0];
            // State and output in one buffer, so that both are compared.
            let mut both = state;
            both.extend(unwritten(width));
            let what = format!("kda_step {width} {class:?}");
            against_scalar(&what, &both, width, |set, both| {
                let (state, out) = both.split_at_mut(width * width);
                (set.kda_step)(KdaStep {
                    state,
                    alpha: alpha.get(),
                    q: &q,
                    k: &k,
                    v: v.get(),
                    beta,
                    delta: &mut vec![f32::NAN; width],
                    out,
                });
            });
        });
    }
}

/// Factors of the scores: that of the released head width, one, and others.
const SCALES: [f32; 4] = [0.072_168_78, 1.0, 0.25, -3.5];
const ROPES: [usize; 6] = [0, 1, 7, 8, 9, 64];
const POSITIONS: [usize; 7] = [0, 1, 3, 7, 8, 9, 19];

#[test]
fn latent_scores_equal_the_definition() {
    for latent in (0..=40).chain([63, 64, 65, 512, 1040]) {
        for (r, rope) in ROPES.into_iter().enumerate() {
            for (p, positions) in POSITIONS.into_iter().enumerate() {
                for_seeds(latent + r * 7 + p * 5, |random, class| {
                    let mut qa = values::f32s(random, class, latent);
                    values::oppose(class, &mut qa, latent);
                    let q_rope = values::f32s(random, class, rope);
                    let mut cache = values::f32s(random, class, positions * (latent + rope));
                    values::repeat_f32(class, &mut cache, latent + rope);
                    let qa = Floats::new(&qa, latent);
                    let q_rope = Floats::new(&q_rope, rope);
                    let cache = Floats::new(&cache, p);
                    let scale = random.pick(&SCALES);
                    let what = format!("mla_scores_latent {latent}+{rope} x{positions} {class:?}");
                    against_scalar(&what, &unwritten(positions), p, |set, scores| {
                        (set.mla_scores_latent)(qa.get(), q_rope.get(), cache.get(), scale, scores);
                    });
                });
            }
        }
    }
}

#[test]
fn latent_mixtures_equal_the_definition() {
    for latent in (0..=70).chain([127, 128, 129, 512]) {
        for (p, positions) in POSITIONS.into_iter().enumerate() {
            for_seeds(latent + p * 5, |random, class| {
                let stride = latent + ROPES[p % ROPES.len()];
                let weights = Floats::new(&values::f32s(random, class, positions), p);
                let cache = Floats::new(&values::f32s(random, class, positions * stride), latent);
                let what = format!("mla_mix_latent {latent} of {stride} x{positions} {class:?}");
                against_scalar(&what, &unwritten(latent), p, |set, out| {
                    let mut sums = vec![0.0; latent];
                    (set.mla_mix_latent)(weights.get(), cache.get(), stride, &mut sums, out);
                });
            });
        }
    }
}

#[test]
fn expanded_scores_equal_the_definition() {
    for nope in (0..=20).chain([31, 32, 33, 128]) {
        for (r, rope) in ROPES.into_iter().enumerate() {
            for (p, positions) in POSITIONS.into_iter().enumerate() {
                for_seeds(nope + r * 7 + p * 5, |random, class| {
                    let mut floats =
                        |len: usize| Floats::new(&values::f32s(random, class, len), nope);
                    let (q_nope, q_rope) = (floats(nope), floats(rope));
                    let (keys, ropes) = (floats(positions * nope), floats(positions * rope));
                    let scale = random.pick(&SCALES);
                    let what = format!("mla_scores_expanded {nope}+{rope} x{positions} {class:?}");
                    against_scalar(&what, &unwritten(positions), p, |set, scores| {
                        (set.mla_scores_expanded)(
                            q_nope.get(),
                            q_rope.get(),
                            keys.get(),
                            ropes.get(),
                            scale,
                            scores,
                        );
                    });
                });
            }
        }
    }
}

#[test]
fn expanded_mixtures_equal_the_definition() {
    for width in (0..=70).chain([127, 128, 129, 200]) {
        for (p, positions) in POSITIONS.into_iter().enumerate() {
            for_seeds(width + p * 5, |random, class| {
                let weights = Floats::new(&values::f32s(random, class, positions), p);
                let rows = Floats::new(&values::f32s(random, class, positions * width), width);
                let what = format!("mla_mix_expanded {width} x{positions} {class:?}");
                against_scalar(&what, &unwritten(width), p, |set, out| {
                    (set.mla_mix_expanded)(weights.get(), rows.get(), out);
                });
            });
        }
    }
}

/// Lengths of the parts of a past: whole pages, odd places, nothing at all.
const PARTS: [&[usize]; 8] = [
    &[64, 64, 3],
    &[63, 1, 64, 2],
    &[65, 7],
    &[1, 1, 1],
    &[8, 9, 7, 1],
    &[5, 0, 3],
    &[0, 13],
    &[19],
];

/// Calls `each` with where every part of `parts` starts and ends.
fn in_parts(parts: &[usize], mut each: impl FnMut(std::ops::Range<usize>)) {
    let mut start = 0;
    for part in parts {
        each(start..start + part);
        start += part;
    }
}

#[test]
fn a_past_in_parts_is_one_past_for_latent_attention() {
    for (index, latent) in [1, 7, 8, 31, 32, 33, 64, 65, 512].into_iter().enumerate() {
        for (p, parts) in PARTS.into_iter().enumerate() {
            for_seeds(latent + p * 5, |random, class| {
                let (positions, rope) = (parts.iter().sum(), ROPES[index % ROPES.len()]);
                let stride = latent + rope;
                let qa = values::f32s(random, class, latent);
                let q_rope = values::f32s(random, class, rope);
                let cache = values::f32s(random, class, positions * stride);
                let weights = values::f32s(random, class, positions);
                let what = format!("latent attention {latent}+{rope} in {parts:?} {class:?}");
                // Scores, then sums: both against one call over everything.
                let whole = against_scalar(&what, &unwritten(positions + latent), p, |set, out| {
                    let (scores, out) = out.split_at_mut(positions);
                    (set.mla_scores_latent)(&qa, &q_rope, &cache, 0.25, scores);
                    let mut sums = vec![0.0; latent];
                    (set.mla_mix_latent)(&weights, &cache, stride, &mut sums, out);
                });
                let split = against_scalar(&what, &unwritten(positions + latent), p, |set, out| {
                    let (scores, out) = out.split_at_mut(positions);
                    let mut sums = vec![0.0; latent];
                    in_parts(parts, |part| {
                        let rows = &cache[part.start * stride..part.end * stride];
                        let scores = &mut scores[part.clone()];
                        (set.mla_scores_latent)(&qa, &q_rope, rows, 0.25, scores);
                        (set.mla_mix_latent)(&weights[part], rows, stride, &mut sums, out);
                    });
                });
                assert_same(&whole, &split, &what);
            });
        }
    }
}

#[test]
fn a_past_in_parts_is_one_past_for_expanded_attention() {
    for (index, width) in [1, 7, 8, 9, 63, 64, 65, 128, 200].into_iter().enumerate() {
        for (p, parts) in PARTS.into_iter().enumerate() {
            for_seeds(width + p * 5, |random, class| {
                let (positions, rope) = (parts.iter().sum(), ROPES[index % ROPES.len()]);
                let q_nope = values::f32s(random, class, width);
                let q_rope = values::f32s(random, class, rope);
                let rows = values::f32s(random, class, positions * width);
                let ropes = values::f32s(random, class, positions * rope);
                let weights = values::f32s(random, class, positions);
                let what = format!("expanded attention {width}+{rope} in {parts:?} {class:?}");
                let initial = [unwritten(positions), vec![0.0; width]].concat();
                let whole = against_scalar(&what, &initial, p, |set, out| {
                    let (scores, out) = out.split_at_mut(positions);
                    (set.mla_scores_expanded)(&q_nope, &q_rope, &rows, &ropes, 0.25, scores);
                    (set.mla_mix_expanded)(&weights, &rows, out);
                });
                let split = against_scalar(&what, &initial, p, |set, out| {
                    let (scores, out) = out.split_at_mut(positions);
                    in_parts(parts, |part| {
                        let past = &rows[part.start * width..part.end * width];
                        let tails = &ropes[part.start * rope..part.end * rope];
                        let scores = &mut scores[part.clone()];
                        (set.mla_scores_expanded)(&q_nope, &q_rope, past, tails, 0.25, scores);
                        (set.mla_mix_expanded)(&weights[part], past, out);
                    });
                });
                assert_same(&whole, &split, &what);
            });
        }
    }
}

#[test]
fn attention_over_snapshots_equals_the_definition() {
    for count in (1..=18).chain([MAX_SOURCES - 1, MAX_SOURCES]) {
        for len in (0..=34).chain([63, 64, 65]) {
            for_seeds(count * 3 + len, |random, class| {
                let sources: Vec<Floats> = (0..count)
                    .map(|s| Floats::new(&values::f32s(random, class, len), s))
                    .collect();
                let sources: Vec<&[f32]> = sources.iter().map(Floats::get).collect();
                let fold = Floats::new(&values::f32s(random, class, len), count);
                let eps = random.pick(&values::EPSILONS);
                let what = format!("attn_res {count} sources of {len} {class:?} eps {eps}");
                against_scalar(&what, &unwritten(len), count, |set, out| {
                    (set.attn_res)(&sources, fold.get(), eps, out);
                });
            });
        }
    }
}
