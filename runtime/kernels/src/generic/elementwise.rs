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
    assert_same_len(gate, up, out);
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        let a = (beta * math::tanh(gate / beta)) * math::sigmoid(gate);
        *out = a * (linear_beta * math::tanh(up / linear_beta));
    }
}

/// Two inputs and an output of one length.
///
/// # Panics
/// If the lengths disagree.
pub(crate) fn assert_same_len(a: &[f32], b: &[f32], out: &[f32]) {
    assert_eq!(a.len(), out.len(), "first input and output disagree");
    assert_eq!(b.len(), out.len(), "second input and output disagree");
}

/// `values *= sigmoid(gate)`.
pub(crate) fn gate_sigmoid(values: &mut [f32], gate: &[f32]) {
    assert_eq!(values.len(), gate.len(), "one gate per value");
    for (value, &gate) in values.iter_mut().zip(gate) {
        *value *= math::sigmoid(gate);
    }
}

/// Sizes of one step of the short convolution, derived from the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortconvShape {
    /// Independent channels, the length of `current` and `out`.
    pub(crate) channels: usize,
    /// Taps per channel (k), at least one unless there are no channels.
    pub(crate) taps: usize,
}

impl ShortconvShape {
    /// Derives the shape of `taps: [channels][k]`, `history: [k - 1][channels]`, `current` and
    /// `out: [channels]`.
    ///
    /// # Panics
    /// If the lengths disagree.
    pub(crate) fn new(taps: &[f32], history: &[f32], current: &[f32], out: &[f32]) -> Self {
        let channels = out.len();
        assert_eq!(current.len(), channels, "one current value per channel");
        let taps_per_channel = taps.len() / channels.max(1);
        assert_eq!(
            taps.len(),
            taps_per_channel * channels,
            "taps is not [channels][k]"
        );
        assert_eq!(
            history.len() + channels,
            taps.len(),
            "history is not [k - 1][channels]"
        );
        Self {
            channels,
            taps: taps_per_channel,
        }
    }

    /// The output of one channel.
    #[inline]
    pub(crate) fn channel(
        self,
        taps: &[f32],
        history: &[f32],
        current: &[f32],
        channel: usize,
    ) -> f32 {
        let taps = &taps[channel * self.taps..][..self.taps];
        let (newest, older) = taps.split_last().expect("a tap for the current value");
        let mut acc = newest * current[channel];
        for (j, tap) in older.iter().enumerate() {
            acc += tap * history[j * self.channels + channel];
        }
        acc * math::sigmoid(acc)
    }

    /// Drops the oldest row of `history` and appends `current`.
    pub(crate) fn advance(self, history: &mut [f32], current: &[f32]) {
        if self.taps > 1 {
            history.copy_within(self.channels.., 0);
            let newest = history.len() - self.channels;
            history[newest..].copy_from_slice(current);
        }
    }
}

/// See [`crate::KernelSet::shortconv`].
pub(crate) fn shortconv(taps: &[f32], history: &mut [f32], current: &[f32], out: &mut [f32]) {
    let shape = ShortconvShape::new(taps, history, current, out);
    for (channel, out) in out.iter_mut().enumerate() {
        *out = shape.channel(taps, history, current, channel);
    }
    shape.advance(history, current);
}

/// `alpha = exp(lower_bound * sigmoid(a * (z + dt_bias)))`.
pub(crate) fn kda_decay(z: &[f32], dt_bias: &[f32], a: f32, lower_bound: f32, alpha: &mut [f32]) {
    assert_same_len(z, dt_bias, alpha);
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
