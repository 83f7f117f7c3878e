//! The dense MLP and the latent mixture of experts, one position.

use super::flow::Flow;
use super::mistake::Mistake;
use super::ops::{
    Activation, add, add_scaled, gated, product, round_f32, sigmoid, sum_in_lanes, sum_serial,
};
use super::weights::{GatedMlp, Moe, Packed};

const E2M1: [f64; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// 2^(scale - 127). Scale byte 255 is NaN in the format: its groups are skipped.
fn power_of_scale(scale: u8) -> f64 {
    f64::from_bits((u64::from(scale) + 1023 - 127) << 52)
}

fn matmul_mxfp4(matrix: &Packed, x: &[f32]) -> Vec<f32> {
    assert_eq!(matrix.cols, x.len(), "a matrix of another width");
    let groups = x.len() / 32;
    let row = |(nibbles, scales): (&[u8], &[u8])| {
        let mut acc = 0.0_f64;
        for group in 0..groups {
            if scales[group] == 255 {
                continue;
            }
            let mut lane = [0.0_f64; 8];
            for i in 0..32 {
                let byte = nibbles[group * 16 + i / 2];
                let nibble = if i % 2 == 0 { byte & 15 } else { byte >> 4 };
                lane[i % 8] += E2M1[usize::from(nibble)] * f64::from(x[group * 32 + i]);
            }
            let s = |j: usize| lane[j] + lane[j + 4];
            let sub = (s(0) + s(1)) + (s(2) + s(3));
            acc += sub * power_of_scale(scales[group]);
        }
        round_f32(acc)
    };
    matrix
        .nibbles
        .chunks(groups * 16)
        .zip(matrix.scales.chunks(groups))
        .map(row)
        .collect()
}

fn mlp(flow: Flow<'_>, weights: &GatedMlp, x: &[f32], activation: Activation) -> Vec<f32> {
    let (gate, up) = (flow.matmul(&weights.gate, x), flow.matmul(&weights.up, x));
    let (beta, linear_beta) = (flow.shape.situ_beta, flow.shape.situ_linear_beta);
    flow.matmul(
        &weights.down,
        &gated(&gate, &up, beta, linear_beta, activation),
    )
}

fn situ(flow: Flow<'_>) -> Activation {
    if flow.makes(Mistake::SigmoidOfCappedGate) {
        Activation::SituOfCappedGate
    } else {
        Activation::Situ
    }
}

/// The dense layers' MLP.
pub(super) fn dense(flow: Flow<'_>, weights: &GatedMlp, x: &[f32]) -> Vec<f32> {
    let activation = if flow.makes(Mistake::SiluInDenseLayer) {
        Activation::Silu
    } else {
        situ(flow)
    };
    mlp(flow, weights, x, activation)
}

/// The routed and shared experts, and the picks (expert, weight) in order.
pub(super) fn moe(flow: Flow<'_>, weights: &Moe, x: &[f32]) -> (Vec<f32>, Vec<(usize, f32)>) {
    let picks = route(flow, weights, x);
    let latent = flow.matmul(&weights.down, x);
    let norm = weights.norm.as_deref();
    let per_expert = flow.makes(Mistake::NormPerExpert);

    let mut sum = vec![0.0_f32; latent.len()];
    for &(expert, weight) in &picks {
        let expert = &weights.experts[expert];
        let gate = matmul_mxfp4(&expert.w1, &latent);
        let up = matmul_mxfp4(&expert.w3, &latent);
        let (beta, linear_beta) = (flow.shape.situ_beta, flow.shape.situ_linear_beta);
        let inner = gated(&gate, &up, beta, linear_beta, situ(flow));
        let mut out = matmul_mxfp4(&expert.w2, &inner);
        if let (Some(norm), true) = (norm, per_expert) {
            out = flow.rmsnorm(&out, norm);
        }
        add_scaled(&mut sum, weight, &out);
    }
    if let (Some(norm), false) = (norm, per_expert) {
        sum = flow.rmsnorm(&sum, norm);
    }

    let mut out = flow.matmul(&weights.up, &sum);
    let shared = if flow.makes(Mistake::SharedExpertsOnLatent) {
        let mut input = latent;
        input.resize(x.len(), 0.0);
        mlp(flow, &weights.shared, &input, situ(flow))
    } else {
        mlp(flow, &weights.shared, x, situ(flow))
    };
    add(&mut out, &shared);
    (out, picks)
}

fn route(flow: Flow<'_>, weights: &Moe, x: &[f32]) -> Vec<(usize, f32)> {
    let scores: Vec<f32> = (0..flow.shape.experts)
        .map(|expert| {
            let row = weights.router.row(expert);
            let term = |i: usize| product(row[i], x[i]);
            let acc = if flow.makes(Mistake::RouterInLanes) {
                sum_in_lanes(x.len(), term)
            } else {
                sum_serial(x.len(), term)
            };
            sigmoid(round_f32(acc))
        })
        .collect();
    let choices: Vec<f32> = scores
        .iter()
        .zip(&weights.bias)
        .map(|(s, b)| s + b)
        .collect();

    let mut picks: Vec<(usize, f32)> = Vec::new();
    for _ in 0..flow.shape.top_k {
        let mut best: Option<usize> = None;
        for expert in 0..choices.len() {
            let taken = picks.iter().any(|&(pick, _)| pick == expert);
            let better = best.is_none_or(|best| choices[expert] > choices[best]);
            if !taken && better {
                best = Some(expert);
            }
        }
        let best = best.expect("top-k is at most the number of experts");
        let weight = if flow.makes(Mistake::BiasInWeights) {
            choices[best]
        } else {
            scores[best]
        };
        picks.push((best, weight));
    }
    if flow.shape.renormalize && flow.shape.top_k > 1 {
        let sum = sum_serial(picks.len(), |pick| f64::from(picks[pick].1));
        let inv = round_f32(1.0 / (sum + 1e-20));
        for (_, weight) in &mut picks {
            *weight *= inv;
        }
    }
    for (_, weight) in &mut picks {
        *weight *= flow.shape.scaling_factor;
    }
    picks
}
