//! The KDA step: its order, its roundings and its rule for zeros.

#![allow(clippy::needless_range_loop, reason = "the indices of the definition")]

use crate::orders::{Random, round};
use crate::{assert_order, bits, sets};
use k3_kernels::{KdaStep, KernelSet};

const D: usize = 32;

/// One step's inputs.
#[derive(Clone)]
struct Step {
    state: Vec<f32>,
    alpha: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    beta: f32,
}

impl Step {
    fn random(seed: u64) -> Self {
        let random = &mut Random(seed);
        let mut vector = |low, high, len| (0..len).map(|_| random.value(low, high)).collect();
        let alpha: Vec<f32> = vector(-2, 0, D);
        Self {
            state: vector(-4, 2, D * D),
            alpha: alpha.iter().map(|a| a.abs()).collect(),
            q: vector(-4, 0, D),
            k: vector(-4, 0, D),
            v: vector(-2, 2, D),
            beta: 0.731_058_6,
        }
    }

    /// The state after the step, then the output.
    fn run(&self, set: &KernelSet) -> Vec<f32> {
        let mut state = self.state.clone();
        let mut out = vec![f32::NAN; D];
        (set.kda_step)(KdaStep {
            state: &mut state,
            alpha: &self.alpha,
            q: &self.q,
            k: &self.k,
            v: &self.v,
            beta: self.beta,
            delta: &mut [f32::NAN; D],
            out: &mut out,
        });
        state.extend(out);
        state
    }

    /// As [`Step::run`], column by column in plain Rust, with a mistake.
    fn plain(&self, mistake: Mistake) -> Vec<f32> {
        let mut state = self.state.clone();
        let mut out = vec![0.0; D];
        let add = |sum: f32, a: f32, b: f32| {
            if mistake == Mistake::Fused {
                round(f64::from(sum) + f64::from(a) * f64::from(b))
            } else {
                sum + a * b
            }
        };
        let keys: Vec<usize> = if mistake == Mistake::KeysDescending {
            (0..D).rev().collect()
        } else {
            (0..D).collect()
        };
        let skips_key = |i: usize| match mistake {
            Mistake::NeverSkip => false,
            Mistake::SkipByProduct => self.k[i] * self.beta == 0.0,
            _ => self.k[i] == 0.0,
        };
        for j in 0..D {
            let mut u = 0.0;
            for &i in &keys {
                let at = i * D + j;
                let before = state[at];
                state[at] *= self.alpha[i];
                let seen = if mistake == Mistake::PredictBeforeDecay {
                    before
                } else {
                    state[at]
                };
                if !skips_key(i) {
                    u = add(u, self.k[i], seen);
                }
            }
            let delta = self.v[j] - u;
            for &i in &keys {
                let at = i * D + j;
                let before = state[at];
                if !skips_key(i) {
                    state[at] = if mistake == Mistake::BetaOntoDelta {
                        add(state[at], self.k[i], self.beta * delta)
                    } else {
                        add(state[at], self.k[i] * self.beta, delta)
                    };
                }
                let seen = if mistake == Mistake::ReadBeforeUpdate {
                    before
                } else {
                    state[at]
                };
                let skips = self.q[i] == 0.0 && mistake != Mistake::NeverSkip;
                if !skips {
                    out[j] = add(out[j], self.q[i], seen);
                }
            }
        }
        state.extend(out);
        state
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    Fused,
    KeysDescending,
    PredictBeforeDecay,
    ReadBeforeUpdate,
    BetaOntoDelta,
    NeverSkip,
    SkipByProduct,
}

#[test]
fn steps_add_keys_in_order_and_round_products_apart() {
    let step = Step::random(30);
    let mistakes = [
        Mistake::Fused,
        Mistake::KeysDescending,
        Mistake::PredictBeforeDecay,
        Mistake::ReadBeforeUpdate,
        Mistake::BetaOntoDelta,
    ];
    let wrong: Vec<(String, Vec<f32>)> = mistakes
        .iter()
        .map(|&m| (format!("{m:?}"), step.plain(m)))
        .collect();
    let wrong: Vec<(&str, Vec<f32>)> = wrong
        .iter()
        .map(|(name, values)| (name.as_str(), values.clone()))
        .collect();
    assert_order(
        |set| step.run(set),
        &step.plain(Mistake::None),
        &wrong,
        D / 4,
    );
}

/// Zero keys, of either sign, leave an infinite or NaN row out of everything
/// but the decay; zero queries leave it out of the output alone.
#[test]
fn zeros_skip_rows_that_are_not_finite() {
    let mut step = Step::random(31);
    step.k[3] = 0.0;
    step.k[7] = -0.0;
    step.q[3] = -0.0;
    step.q[7] = 0.0;
    step.state[3 * D..4 * D].fill(f32::INFINITY);
    step.state[7 * D..8 * D].fill(f32::NAN);
    let right = step.plain(Mistake::None);
    assert!(right[D * D..].iter().all(|value| value.is_finite()));
    assert_same_class(&step, &right);
    let unskipped = step.plain(Mistake::NeverSkip);
    assert!(unskipped[D * D..].iter().all(|value| value.is_nan()));

    // A zero query alone must not stop the update of its row.
    let mut step = Step::random(32);
    step.q[5] = 0.0;
    let right = step.plain(Mistake::None);
    assert_same_class(&step, &right);
    let decayed = step.state[5 * D] * step.alpha[5];
    assert_ne!(
        right[5 * D].to_bits(),
        decayed.to_bits(),
        "row 5 is updated"
    );
}

/// A key that only its product with beta turns to zero counts: its products with
/// a large state reach the prediction, and the update adds a zero, which turns
/// -0.0 into +0.0.
#[test]
fn keys_whose_product_underflows_are_not_skipped() {
    let mut step = Step::random(33);
    // Small enough for the update to reach the last bits of the state.
    let tiny = 2.0_f32.powi(-30);
    step.beta = tiny;
    step.state.iter_mut().for_each(|value| *value *= tiny);
    for i in [4, 9] {
        step.k[i] = 2.0_f32.powi(-125);
        step.q[i] = 0.0;
        step.alpha[i] = 1.0;
        assert_eq!(step.k[i] * step.beta, 0.0);
    }
    step.state[4 * D..5 * D].fill(f32::MAX);
    step.state[9 * D..10 * D].fill(-0.0);
    // Every prediction is below its value: the update's zero is positive.
    step.v.fill(1000.0);
    let right = step.plain(Mistake::None);
    assert!(
        right[9 * D..10 * D]
            .iter()
            .all(|value| value.to_bits() == 0)
    );
    let wrong = step.plain(Mistake::SkipByProduct);
    assert!(
        wrong[9 * D..10 * D]
            .iter()
            .all(|value| value.to_bits() == 1 << 31)
    );
    assert_order(
        |set| step.run(set),
        &right,
        &[("skip where k * beta is zero", wrong)],
        2 * D,
    );
}

/// Bitwise, any NaN equal to any NaN.
fn assert_same_class(step: &Step, right: &[f32]) {
    let canonical = |values: &[f32]| -> Vec<u32> {
        bits(values)
            .into_iter()
            .map(|bits| {
                if f32::from_bits(bits).is_nan() {
                    !0
                } else {
                    bits
                }
            })
            .collect()
    };
    for set in sets() {
        assert_eq!(canonical(&step.run(set)), canonical(right), "{}", set.isa);
    }
}
