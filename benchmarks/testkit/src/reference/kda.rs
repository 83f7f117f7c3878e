//! Kimi Delta Attention, one position.

use k3_kernels::math;

use super::flow::Flow;
use super::mistake::Mistake;
use super::ops::{l2norm, round_f32, sigmoid};
use super::weights::Kda;
use crate::shape::ModelShape;

/// Inputs of [`kda_step`], each of the head's width D.
#[derive(Clone, Copy, Debug)]
pub struct KdaInput<'a> {
    /// Decay of each key channel.
    pub alpha: &'a [f32],
    /// Query, normalised and scaled.
    pub q: &'a [f32],
    /// Key, normalised.
    pub k: &'a [f32],
    /// Value.
    pub v: &'a [f32],
    /// The step's strength.
    pub beta: f32,
}

/// One head, one position of the delta rule: updates `state` (`[D][D]`,
/// key-major) and returns the output (D values).
///
/// Public because two of the mistakes are told apart by constructed inputs
/// here, not by logits.
#[must_use]
pub fn kda_step(state: &mut [f32], input: KdaInput<'_>, mistake: Option<Mistake>) -> Vec<f32> {
    let KdaInput {
        alpha,
        q,
        k,
        v,
        beta,
    } = input;
    let d = k.len();
    assert_eq!(state.len(), d * d, "a state of another width");
    let skips = |i: usize| match mistake {
        Some(Mistake::BetaBeforeZeroTest) => k[i] * beta == 0.0,
        _ => k[i] == 0.0,
    };
    let read = |state: &[f32]| {
        let mut u = vec![0.0_f32; d];
        for i in (0..d).filter(|&i| !skips(i)) {
            for j in 0..d {
                u[j] += k[i] * state[i * d + j];
            }
        }
        u
    };

    let early = (mistake == Some(Mistake::ReadBeforeDecay)).then(|| read(state));
    for i in 0..d {
        for j in 0..d {
            state[i * d + j] *= alpha[i];
        }
    }
    let u = early.unwrap_or_else(|| read(state));
    for i in (0..d).filter(|&i| !skips(i)) {
        let strength = k[i] * beta;
        for j in 0..d {
            state[i * d + j] += strength * (v[j] - u[j]);
        }
    }
    let mut out = vec![0.0_f32; d];
    for i in (0..d).filter(|&i| q[i] != 0.0) {
        for j in 0..d {
            out[j] += q[i] * state[i * d + j];
        }
    }
    out
}

/// A KDA layer's memory.
pub(super) struct KdaState {
    /// `[heads][D][D]`.
    state: Vec<f32>,
    q_history: Vec<Vec<f32>>,
    k_history: Vec<Vec<f32>>,
    v_history: Vec<Vec<f32>>,
}

impl KdaState {
    pub(super) fn new(shape: &ModelShape) -> Self {
        let history = || vec![vec![0.0; shape.kda_channels()]; shape.conv_taps - 1];
        Self {
            state: vec![0.0; shape.kda_channels() * shape.kda_head_dim],
            q_history: history(),
            k_history: history(),
            v_history: history(),
        }
    }
}

/// The causal convolution of one position; `history` holds the inputs before,
/// oldest first.
fn shortconv(taps: &[f32], history: &mut Vec<Vec<f32>>, current: Vec<f32>) -> Vec<f32> {
    let count = history.len() + 1;
    let out = (0..current.len())
        .map(|channel| {
            let taps = &taps[channel * count..][..count];
            let mut acc = taps[count - 1] * current[channel];
            for (tap, past) in taps.iter().zip(history.iter()) {
                acc += tap * past[channel];
            }
            acc * sigmoid(acc)
        })
        .collect();
    history.push(current);
    history.remove(0);
    out
}

/// The layer's output for the normalised input `x`.
pub(super) fn kda_layer(flow: Flow<'_>, kda: &Kda, memory: &mut KdaState, x: &[f32]) -> Vec<f32> {
    let d = flow.shape.kda_head_dim;
    let mut q = shortconv(
        &kda.q_taps,
        &mut memory.q_history,
        flow.matmul(&kda.q_proj, x),
    );
    let mut k = shortconv(
        &kda.k_taps,
        &mut memory.k_history,
        flow.matmul(&kda.k_proj, x),
    );
    let v = shortconv(
        &kda.v_taps,
        &mut memory.v_history,
        flow.matmul(&kda.v_proj, x),
    );
    let z = flow.matmul(&kda.f_b_proj, &flow.matmul(&kda.f_a_proj, x));
    let gate = flow.matmul(&kda.g_proj, x);
    let strength = flow.matmul(&kda.b_proj, x);

    let mut heads_out = Vec::with_capacity(q.len());
    for (head, strength) in strength.iter().enumerate() {
        let channels = head * d..(head + 1) * d;
        let (q, k) = (&mut q[channels.clone()], &mut k[channels.clone()]);
        l2norm(q);
        l2norm(k);
        let scale = 1.0_f32 / root_of_width(d);
        for value in q.iter_mut() {
            *value *= scale;
        }
        let alpha = decay(flow, kda, head, &z);
        let input = KdaInput {
            alpha: &alpha,
            q,
            k,
            v: &v[channels.clone()],
            beta: sigmoid(*strength),
        };
        let state = &mut memory.state[head * d * d..][..d * d];
        let out = kda_step(state, input, flow.mistake);
        let normed = flow.rmsnorm(&out, &kda.o_norm);
        heads_out.extend(
            normed
                .iter()
                .zip(&gate[channels])
                .map(|(o, g)| o * sigmoid(*g)),
        );
    }
    flow.matmul(&kda.o_proj, &heads_out)
}

/// sqrt(f32(width)); the width is small enough to be exact.
pub(super) fn root_of_width(width: usize) -> f32 {
    round_f32(width as f64).sqrt()
}

/// The head's decay, one factor a key channel.
fn decay(flow: Flow<'_>, kda: &Kda, head: usize, z: &[f32]) -> Vec<f32> {
    let d = flow.shape.kda_head_dim;
    (head * d..(head + 1) * d)
        .map(|channel| {
            let a_log = if flow.makes(Mistake::ALogPerChannel) {
                // Past the stored (padded) length there is only padding.
                kda.a_log.get(channel).copied().unwrap_or(0.0)
            } else {
                kda.a_log[head]
            };
            let u = math::exp(a_log) * (z[channel] + kda.dt_bias[channel]);
            math::exp(flow.shape.gate_lower_bound * sigmoid(u))
        })
        .collect()
}
