//! One position through all layers, in order.

use super::kda::{KdaState, kda_layer};
use super::mistake::Mistake;
use super::mla::{MlaState, mla_layer};
use super::moe::{dense, moe};
use super::ops::{NormOrder, add, attn_res, product, rmsnorm, round_f32, sum_in_lanes, sum_serial};
use super::weights::{Attention, Matrix, Mlp, Weights};
use super::{AttentionForm, Pick};
use crate::shape::ModelShape;

/// What a forward pass is asked to do: fixed while it runs.
#[derive(Clone, Copy)]
pub(super) struct Flow<'a> {
    pub(super) shape: &'a ModelShape,
    pub(super) form: AttentionForm,
    pub(super) mistake: Option<Mistake>,
}

impl Flow<'_> {
    pub(super) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// One output a row, in matmul order.
    pub(super) fn matmul(&self, matrix: &Matrix, x: &[f32]) -> Vec<f32> {
        assert_eq!(matrix.cols, x.len(), "a matrix of another width");
        let row = |row| {
            let weights = matrix.row(row);
            let term = |i: usize| product(weights[i], x[i]);
            round_f32(if self.makes(Mistake::MatmulSerial) {
                sum_serial(x.len(), term)
            } else {
                sum_in_lanes(x.len(), term)
            })
        };
        (0..matrix.rows()).map(row).collect()
    }

    pub(super) fn rmsnorm(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let order = if self.makes(Mistake::NormOrder) {
            NormOrder::WeightLast
        } else {
            NormOrder::WeightFirst
        };
        rmsnorm(x, weight, self.shape.rms_norm_eps, order)
    }
}

/// What a layer remembers of the positions before.
enum LayerState {
    Kda(KdaState),
    Mla(MlaState),
}

/// The walk over a prompt: per-layer memory, and the picks made.
pub(super) struct Walk<'a> {
    flow: Flow<'a>,
    weights: &'a Weights,
    states: Vec<LayerState>,
    /// Empty at the start of every position, unless the mistake keeps it.
    snapshots: Vec<Vec<f32>>,
    picks: Vec<Pick>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(flow: Flow<'a>, weights: &'a Weights) -> Self {
        let states = weights
            .layers
            .iter()
            .map(|layer| match layer.attention {
                Attention::Kda(_) => LayerState::Kda(KdaState::new(flow.shape)),
                Attention::Mla(_) => LayerState::Mla(MlaState::default()),
            })
            .collect();
        Self {
            flow,
            weights,
            states,
            snapshots: Vec::new(),
            picks: Vec::new(),
        }
    }

    pub(super) fn into_picks(self) -> Vec<Pick> {
        self.picks
    }

    /// The logits after this token.
    pub(super) fn step(&mut self, position: usize, id: u32) -> Vec<f32> {
        let row = usize::try_from(id).expect("a token id fits a usize");
        assert!(
            row < self.flow.shape.vocab,
            "token {id} is outside the vocabulary"
        );
        if !self.flow.makes(Mistake::SnapshotsCarried) {
            self.snapshots.clear();
        }
        let mut prefix = self.weights.embedding.row(row).to_vec();
        for layer in 0..self.weights.layers.len() {
            prefix = self.layer(layer, position, prefix);
        }
        let mixed = self.mix(
            &prefix,
            &self.weights.output_res_norm,
            &self.weights.output_res_proj,
        );
        let normed = self.flow.rmsnorm(&mixed, &self.weights.final_norm);
        self.flow.matmul(&self.weights.lm_head, &normed)
    }

    fn layer(&mut self, index: usize, position: usize, mut prefix: Vec<f32>) -> Vec<f32> {
        let layer = &self.weights.layers[index];
        let replaces = self.flow.makes(Mistake::MixReplacesPrefix);

        let input = if self.snapshots.is_empty() {
            prefix.clone()
        } else {
            self.mix(
                &prefix,
                &layer.attention_res_norm,
                &layer.attention_res_proj,
            )
        };
        let mut empty = false;
        if index.is_multiple_of(self.flow.shape.block) {
            self.snapshots.push(prefix.clone());
            empty = true;
        }
        let normed = self.flow.rmsnorm(&input, &layer.input_norm);
        let attended = match (&layer.attention, &mut self.states[index]) {
            (Attention::Kda(kda), LayerState::Kda(state)) => {
                kda_layer(self.flow, kda, state, &normed)
            }
            (Attention::Mla(mla), LayerState::Mla(state)) => {
                mla_layer(self.flow, mla, state, position, &normed)
            }
            _ => unreachable!("states are made from the same list of layers"),
        };
        if empty {
            prefix = attended;
        } else {
            if replaces {
                prefix = input;
            }
            add(&mut prefix, &attended);
        }

        let input = self.mix(&prefix, &layer.mlp_res_norm, &layer.mlp_res_proj);
        let normed = self.flow.rmsnorm(&input, &layer.post_norm);
        let out = match &layer.mlp {
            Mlp::Dense(mlp) => dense(self.flow, mlp, &normed),
            Mlp::Moe(weights) => {
                let (out, picks) = moe(self.flow, weights, &normed);
                let place = |(expert, weight)| Pick {
                    position,
                    layer: index,
                    expert,
                    weight,
                };
                self.picks.extend(picks.into_iter().map(place));
                out
            }
        };
        if replaces {
            prefix = input;
        }
        add(&mut prefix, &out);
        prefix
    }

    fn mix(&self, prefix: &[f32], norm: &[f32], proj: &[f32]) -> Vec<f32> {
        let mut sources: Vec<&[f32]> = self.snapshots.iter().map(Vec::as_slice).collect();
        sources.push(prefix);
        attn_res(&sources, norm, proj, self.flow.shape.rms_norm_eps)
    }
}
