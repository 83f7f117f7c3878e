//! Softmax, gates and the short convolution: the order of f32 steps around
//! `exp` and `tanh`, whose own bits have their own tests.

use crate::assert_order;
use crate::orders::{self, Random, round};
use k3_kernels::math::{exp, sigmoid, tanh};

fn values(seed: u64, low: i16, high: i16, len: usize) -> Vec<f32> {
    let random = &mut Random(seed);
    (0..len).map(|_| random.value(low, high)).collect()
}

#[test]
fn softmax_divides_in_f64_by_a_serial_f64_sum() {
    let scores = values(40, -4, 3, 200);
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let e: Vec<f32> = scores.iter().map(|s| exp(s - max)).collect();
    let wide: Vec<f64> = e.iter().map(|&e| f64::from(e)).collect();
    let z = orders::serial(&wide);
    let each = |f: &dyn Fn(f32) -> f32| -> Vec<f32> { e.iter().map(|&e| f(e)).collect() };
    assert_order(
        |set| {
            let mut out = scores.clone();
            (set.softmax)(&mut out);
            out
        },
        &each(&|e| round(f64::from(e) / z)),
        &[
            ("division in f32", each(&|e| e / round(z))),
            ("times the f32 inverse", each(&|e| e * round(1.0 / z))),
            (
                "f32 sum",
                each(&|e| round(f64::from(e) / orders::in_f32(&wide))),
            ),
        ],
        10,
    );
}

#[test]
fn situ_gates_by_the_sigmoid_of_the_uncapped_gate() {
    let (gate, up) = (values(41, -3, 5, 200), values(42, -3, 7, 200));
    let (b1, b2) = (4.0_f32, 25.0_f32);
    let each = |f: &dyn Fn(f32, f32) -> f32| -> Vec<f32> {
        gate.iter().zip(&up).map(|(&g, &u)| f(g, u)).collect()
    };
    assert_order(
        |set| {
            let mut out = vec![0.0; gate.len()];
            (set.situ_glu)(&gate, &up, b1, b2, &mut out);
            out
        },
        &each(&|g, u| ((b1 * tanh(g / b1)) * sigmoid(g)) * (b2 * tanh(u / b2))),
        &[
            (
                "sigmoid of the capped gate",
                each(&|g, u| {
                    let capped = b1 * tanh(g / b1);
                    (capped * sigmoid(capped)) * (b2 * tanh(u / b2))
                }),
            ),
            (
                "right to left",
                each(&|g, u| (b1 * tanh(g / b1)) * (sigmoid(g) * (b2 * tanh(u / b2)))),
            ),
            (
                "the same beta",
                each(&|g, u| ((b1 * tanh(g / b1)) * sigmoid(g)) * (b1 * tanh(u / b1))),
            ),
            ("no cap", each(&|g, u| (g * sigmoid(g)) * u)),
        ],
        10,
    );
}

#[test]
fn shortconv_starts_with_the_current_input_then_oldest_to_newest() {
    let (channels, k) = (64, 4);
    let taps = values(43, -3, 1, channels * k);
    let history = values(44, -2, 2, channels * (k - 1));
    let current = values(45, -2, 2, channels);
    let convolve = |order: &[usize], tap: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
        (0..channels)
            .map(|c| {
                let input = |j: usize| {
                    if j == k - 1 {
                        current[c]
                    } else {
                        history[j * channels + c]
                    }
                };
                let first = tap(c, order[0]) * input(order[0]);
                let acc = order[1..]
                    .iter()
                    .fold(first, |acc, &j| acc + tap(c, j) * input(j));
                acc * sigmoid(acc)
            })
            .collect()
    };
    let tap = |c: usize, j: usize| taps[c * k + j];
    assert_order(
        |set| {
            let mut out = vec![0.0; channels];
            (set.shortconv)(&taps, &mut history.clone(), &current, &mut out);
            out
        },
        &convolve(&[3, 0, 1, 2], &tap),
        &[
            ("current last", convolve(&[0, 1, 2, 3], &tap)),
            ("newest to oldest", convolve(&[3, 2, 1, 0], &tap)),
            (
                "taps reversed",
                convolve(&[3, 0, 1, 2], &|c, j| taps[c * k + k - 1 - j]),
            ),
            (
                "taps [k][channels]",
                convolve(&[3, 0, 1, 2], &|c, j| taps[j * channels + c]),
            ),
        ],
        5,
    );
}

#[test]
fn decay_takes_the_bias_into_the_factor_of_the_head() {
    let (z, bias) = (values(46, -2, 2, 128), values(47, -2, 2, 128));
    let (a, lower_bound) = (1.37_f32, -5.0_f32);
    let each = |f: &dyn Fn(f32, f32) -> f32| -> Vec<f32> {
        z.iter().zip(&bias).map(|(&z, &b)| f(z, b)).collect()
    };
    assert_order(
        |set| {
            let mut out = vec![0.0; z.len()];
            (set.kda_decay)(&z, &bias, a, lower_bound, &mut out);
            out
        },
        &each(&|z, b| exp(lower_bound * sigmoid(a * (z + b)))),
        &[
            (
                "a * z + b",
                each(&|z, b| exp(lower_bound * sigmoid(a * z + b))),
            ),
            ("no bound", each(&|z, b| exp(-sigmoid(a * (z + b))))),
        ],
        100,
    );
}

#[test]
fn scaled_sums_round_the_product_first() {
    let (acc, x) = (values(48, -2, 2, 200), values(49, -2, 2, 200));
    let weight = 0.371_9_f32;
    let each = |f: &dyn Fn(f32, f32) -> f32| -> Vec<f32> {
        acc.iter().zip(&x).map(|(&acc, &x)| f(acc, x)).collect()
    };
    assert_order(
        |set| {
            let mut out = acc.clone();
            (set.add_scaled)(&mut out, weight, &x);
            out
        },
        &each(&|acc, x| acc + weight * x),
        &[(
            "fused",
            each(&|acc, x| round(f64::from(acc) + f64::from(weight) * f64::from(x))),
        )],
        10,
    );
}
