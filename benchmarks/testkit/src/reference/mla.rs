//! Gated multi-head latent attention without rotation, one position, in both
//! forms.

use super::AttentionForm;
use super::flow::Flow;
use super::kda::root_of_width;
use super::mistake::Mistake;
use super::ops::{product, round_f32, sigmoid, softmax, sum_in_lanes, sum_serial};
use super::weights::Mla;

/// What an MLA layer remembers, one entry a position.
#[derive(Default)]
pub(super) struct MlaState {
    /// The normalised latent.
    latents: Vec<Vec<f32>>,
    /// The tail all heads share.
    tails: Vec<Vec<f32>>,
    /// `kv_b` of the latent, per head [nope | v]; only the expanded form fills it.
    expanded: Vec<Vec<f32>>,
}

/// The layer's output for the normalised input `x`.
pub(super) fn mla_layer(
    flow: Flow<'_>,
    mla: &Mla,
    memory: &mut MlaState,
    position: usize,
    x: &[f32],
) -> Vec<f32> {
    let shape = flow.shape;
    let query_latent = flow.rmsnorm(&flow.matmul(&mla.q_a_proj, x), &mla.q_a_norm);
    let queries = flow.matmul(&mla.q_b_proj, &query_latent);
    let compressed = flow.matmul(&mla.kv_a_proj, x);
    let (latent, tail) = compressed.split_at(shape.kv_lora);
    let latent = flow.rmsnorm(latent, &mla.kv_a_norm);
    if flow.form == AttentionForm::Expanded {
        memory.expanded.push(flow.matmul(&mla.kv_b_proj, &latent));
    }
    memory.latents.push(latent);
    memory.tails.push(turned(flow, tail, position));

    let mut out = Vec::with_capacity(shape.mla_heads * shape.v_dim);
    for (head, query) in queries.chunks(shape.nope + shape.rope).enumerate() {
        let (nope, tail) = query.split_at(shape.nope);
        let tail = turned(flow, tail, position);
        out.extend(match flow.form {
            AttentionForm::Latent => latent_head(flow, mla, memory, head, nope, &tail),
            AttentionForm::Expanded => expanded_head(flow, memory, head, nope, &tail),
        });
    }
    if let Some(g_proj) = &mla.g_proj {
        for (value, gate) in out.iter_mut().zip(flow.matmul(g_proj, x)) {
            *value *= sigmoid(gate);
        }
    }
    flow.matmul(&mla.o_proj, &out)
}

fn scale(flow: Flow<'_>) -> f32 {
    let shape = flow.shape;
    let width = if flow.makes(Mistake::ScaleOfNopeWidth) {
        shape.nope
    } else {
        shape.nope + shape.rope
    };
    1.0 / root_of_width(width)
}

/// Adds the tail's products to a score, serially.
fn with_tail(flow: Flow<'_>, mut acc: f64, query: &[f32], key: &[f32]) -> f32 {
    if !flow.makes(Mistake::RopeTailDropped) {
        for (q, k) in query.iter().zip(key) {
            acc += product(*q, *k);
        }
    }
    round_f32(acc) * scale(flow)
}

fn expanded_head(
    flow: Flow<'_>,
    memory: &MlaState,
    head: usize,
    nope: &[f32],
    tail: &[f32],
) -> Vec<f32> {
    let (n, v_dim) = (flow.shape.nope, flow.shape.v_dim);
    let width = n + v_dim;
    let rows = || {
        memory
            .expanded
            .iter()
            .map(|row| &row[head * width..][..width])
    };
    let mut weights: Vec<f32> = rows()
        .zip(&memory.tails)
        .map(|(row, key_tail)| {
            let acc = sum_serial(n, |i| product(nope[i], row[i]));
            with_tail(flow, acc, tail, key_tail)
        })
        .collect();
    softmax(&mut weights);
    let mut out = vec![0.0_f32; v_dim];
    for (weight, row) in weights.iter().zip(rows()) {
        for (out, value) in out.iter_mut().zip(&row[n..]) {
            *out += weight * value;
        }
    }
    out
}

fn latent_head(
    flow: Flow<'_>,
    mla: &Mla,
    memory: &MlaState,
    head: usize,
    nope: &[f32],
    tail: &[f32],
) -> Vec<f32> {
    let (n, v_dim, latent_width) = (flow.shape.nope, flow.shape.v_dim, flow.shape.kv_lora);
    let first_row = head * (n + v_dim);
    let absorbed: Vec<f32> = (0..latent_width)
        .map(|j| {
            round_f32(sum_in_lanes(n, |i| {
                product(nope[i], mla.kv_b_proj.row(first_row + i)[j])
            }))
        })
        .collect();
    let mut weights: Vec<f32> = memory
        .latents
        .iter()
        .zip(&memory.tails)
        .map(|(latent, key_tail)| {
            let acc = sum_in_lanes(latent_width, |j| product(absorbed[j], latent[j]));
            with_tail(flow, acc, tail, key_tail)
        })
        .collect();
    softmax(&mut weights);
    let mixed: Vec<f32> = (0..latent_width)
        .map(|j| {
            round_f32(sum_serial(weights.len(), |s| {
                product(weights[s], memory.latents[s][j])
            }))
        })
        .collect();
    (0..v_dim)
        .map(|row| {
            let row = mla.kv_b_proj.row(first_row + n + row);
            round_f32(sum_in_lanes(latent_width, |j| product(row[j], mixed[j])))
        })
        .collect()
}

/// The tail as it is; rotated by its position only where that mistake is made.
fn turned(flow: Flow<'_>, tail: &[f32], position: usize) -> Vec<f32> {
    let mut tail = tail.to_vec();
    if flow.makes(Mistake::RopeRotated) {
        let mut frequency = 1.0_f64;
        for pair in tail.chunks_exact_mut(2) {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let (a, b) = (f64::from(pair[0]), f64::from(pair[1]));
            pair[0] = round_f32(a * cos - b * sin);
            pair[1] = round_f32(a * sin + b * cos);
            frequency *= 0.1;
        }
    }
    tail
}
