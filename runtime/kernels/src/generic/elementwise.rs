//! Elementwise kernels that need `exp` or `tanh`.

use super::lanes::round_f32;
use crate::math;

/// In place, correctly rounded.
pub(crate) fn exp(x: &mut [f32]) {
    for x in x {
        *x = math::exp(*x);
    }
}

/// In place, correctly rounded.
pub(crate) fn tanh(x: &mut [f32]) {
    for x in x {
        *x = math::tanh(*x);
    }
}

/// In place, `1 / (1 + exp(-x))`.
pub(crate) fn sigmoid(x: &mut [f32]) {
    for x in x {
        *x = math::sigmoid(*x);
    }
}

/// `(beta * tanh(gate / beta)) * sigmoid(gate) * (linear_beta * tanh(up / linear_beta))`.
pub(crate) fn situ_glu(gate: &[f32], up: &[f32], beta: f32, linear_beta: f32, out: &mut [f32]) {
    assert_eq!(gate.len(), up.len(), "one up value per gate");
    assert_eq!(gate.len(), out.len(), "one output per gate");
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        let a = (beta * math::tanh(gate / beta)) * math::sigmoid(gate);
        *out = a * (linear_beta * math::tanh(up / linear_beta));
    }
}

/// `values *= sigmoid(gate)`.
pub(crate) fn gate_sigmoid(values: &mut [f32], gate: &[f32]) {
    assert_eq!(values.len(), gate.len(), "one gate per value");
    for (value, &gate) in values.iter_mut().zip(gate) {
        *value *= math::sigmoid(gate);
    }
}

/// See [`crate::KernelSet::shortconv`].
pub(crate) fn shortconv(taps: &[f32], history: &mut [f32], current: &[f32], out: &mut [f32]) {
    let channels = out.len();
    assert_eq!(current.len(), channels, "one current value per channel");
    if channels == 0 {
        return;
    }
    assert_eq!(taps.len() % channels, 0, "taps is not [channels][k]");
    let k = taps.len() / channels;
    assert_eq!(
        history.len() + channels,
        k * channels,
        "history is not [k - 1][channels]"
    );
    for (channel, out) in out.iter_mut().enumerate() {
        let taps = &taps[channel * k..][..k];
        let mut acc = taps[k - 1] * current[channel];
        for (j, &tap) in taps[..k - 1].iter().enumerate() {
            acc += tap * history[j * channels + channel];
        }
        *out = acc * math::sigmoid(acc);
    }
    if k > 1 {
        history.copy_within(channels.., 0);
        let newest = history.len() - channels;
        history[newest..].copy_from_slice(current);
    }
}

/// `alpha = exp(lower_bound * sigmoid(a * (z + dt_bias)))`.
pub(crate) fn kda_decay(z: &[f32], dt_bias: &[f32], a: f32, lower_bound: f32, alpha: &mut [f32]) {
    assert_eq!(z.len(), alpha.len(), "one z per channel");
    assert_eq!(dt_bias.len(), alpha.len(), "one bias per channel");
    for ((alpha, &z), &bias) in alpha.iter_mut().zip(z).zip(dt_bias) {
        *alpha = math::exp(lower_bound * math::sigmoid(a * (z + bias)));
    }
}

/// In place, `f32(f64(e) / z)`.
pub(crate) fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut z = 0.0_f64;
    for score in scores.iter_mut() {
        *score = math::exp(*score - max);
        z += f64::from(*score);
    }
    for score in scores {
        *score = round_f32(f64::from(*score) / z);
    }
}
