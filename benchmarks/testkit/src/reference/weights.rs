//! The weights by role, widened to f32, and the mistakes that edit them.

use super::mistake::{Mistake, Norm};
/// A row-major matrix of widened BF16 or F32 weights.
#[derive(Clone)]
pub(super) struct Matrix {
    pub(super) cols: usize,
    pub(super) data: Vec<f32>,
}

impl Matrix {
    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.cols..][..self.cols]
    }

    pub(super) fn rows(&self) -> usize {
        self.data.len() / self.cols
    }
}

/// An MXFP4 matrix: two columns a byte, one scale for 32 columns.
#[derive(Clone)]
pub(super) struct Packed {
    pub(super) cols: usize,
    pub(super) nibbles: Vec<u8>,
    pub(super) scales: Vec<u8>,
}

#[derive(Clone)]
pub(super) struct GatedMlp {
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
}

#[derive(Clone)]
pub(super) struct Kda {
    pub(super) q_proj: Matrix,
    pub(super) k_proj: Matrix,
    pub(super) v_proj: Matrix,
    pub(super) g_proj: Matrix,
    pub(super) o_proj: Matrix,
    pub(super) b_proj: Matrix,
    pub(super) f_a_proj: Matrix,
    pub(super) f_b_proj: Matrix,
    pub(super) q_taps: Vec<f32>,
    pub(super) k_taps: Vec<f32>,
    pub(super) v_taps: Vec<f32>,
    pub(super) a_log: Vec<f32>,
    pub(super) dt_bias: Vec<f32>,
    pub(super) o_norm: Vec<f32>,
}

#[derive(Clone)]
pub(super) struct Mla {
    pub(super) q_a_proj: Matrix,
    pub(super) q_a_norm: Vec<f32>,
    pub(super) q_b_proj: Matrix,
    pub(super) kv_a_proj: Matrix,
    pub(super) kv_a_norm: Vec<f32>,
    pub(super) kv_b_proj: Matrix,
    pub(super) g_proj: Option<Matrix>,
    pub(super) o_proj: Matrix,
}

#[derive(Clone)]
pub(super) struct Expert {
    pub(super) w1: Packed,
    pub(super) w2: Packed,
    pub(super) w3: Packed,
}

#[derive(Clone)]
pub(super) struct Moe {
    pub(super) router: Matrix,
    pub(super) bias: Vec<f32>,
    pub(super) down: Matrix,
    pub(super) norm: Option<Vec<f32>>,
    pub(super) up: Matrix,
    pub(super) shared: GatedMlp,
    pub(super) experts: Vec<Expert>,
}

#[derive(Clone)]
pub(super) enum Attention {
    Kda(Box<Kda>),
    Mla(Box<Mla>),
}

#[derive(Clone)]
pub(super) enum Mlp {
    Dense(GatedMlp),
    Moe(Box<Moe>),
}

#[derive(Clone)]
pub(super) struct Layer {
    pub(super) input_norm: Vec<f32>,
    pub(super) post_norm: Vec<f32>,
    pub(super) attention_res_norm: Vec<f32>,
    pub(super) attention_res_proj: Vec<f32>,
    pub(super) mlp_res_norm: Vec<f32>,
    pub(super) mlp_res_proj: Vec<f32>,
    pub(super) attention: Attention,
    pub(super) mlp: Mlp,
}

#[derive(Clone)]
pub(super) struct Weights {
    pub(super) embedding: Matrix,
    pub(super) layers: Vec<Layer>,
    pub(super) output_res_norm: Vec<f32>,
    pub(super) output_res_proj: Vec<f32>,
    pub(super) final_norm: Vec<f32>,
    pub(super) lm_head: Matrix,
}

impl Weights {
    /// The weights as an implementation that makes this mistake would see them.
    /// Mistakes of the flow, not of the binding, leave them as they are.
    pub(super) fn mistaken(&self, mistake: Mistake) -> Self {
        let mut weights = self.clone();
        match mistake {
            Mistake::NormDropped(norm) => {
                weights.each_norm(norm, |weight| weight.fill(1.0));
            }
            Mistake::NormsSwapped(one, other) => weights.swap_norms(one, other),
            Mistake::NibbleOrder => weights.each_packed(|packed| {
                for byte in &mut packed.nibbles {
                    *byte = byte.rotate_left(4);
                }
            }),
            _ => {}
        }
        weights
    }

    fn each_packed(&mut self, mut edit: impl FnMut(&mut Packed)) {
        for layer in &mut self.layers {
            if let Mlp::Moe(moe) = &mut layer.mlp {
                for expert in &mut moe.experts {
                    edit(&mut expert.w1);
                    edit(&mut expert.w2);
                    edit(&mut expert.w3);
                }
            }
        }
    }

    fn each_norm(&mut self, norm: Norm, mut edit: impl FnMut(&mut Vec<f32>)) {
        match norm {
            Norm::OutputResidual => return edit(&mut self.output_res_norm),
            Norm::Final => return edit(&mut self.final_norm),
            _ => {}
        }
        for layer in &mut self.layers {
            match (norm, &mut layer.attention, &mut layer.mlp) {
                (Norm::Input, ..) => edit(&mut layer.input_norm),
                (Norm::PostAttention, ..) => edit(&mut layer.post_norm),
                (Norm::SelfAttentionResidual, ..) => edit(&mut layer.attention_res_norm),
                (Norm::MlpResidual, ..) => edit(&mut layer.mlp_res_norm),
                (Norm::QueryLatent, Attention::Mla(mla), _) => edit(&mut mla.q_a_norm),
                (Norm::KeyValueLatent, Attention::Mla(mla), _) => edit(&mut mla.kv_a_norm),
                (Norm::KdaOutput, Attention::Kda(kda), _) => edit(&mut kda.o_norm),
                (Norm::RoutedExperts, _, Mlp::Moe(moe)) => {
                    if let Some(norm) = &mut moe.norm {
                        edit(norm);
                    }
                }
                _ => {}
            }
        }
    }

    fn swap_norms(&mut self, one: Norm, other: Norm) {
        let collect = |weights: &mut Self, norm| {
            let mut all = Vec::new();
            weights.each_norm(norm, |weight| all.push(weight.clone()));
            all
        };
        let (ones, others) = (collect(self, one), collect(self, other));
        assert_eq!(
            ones.len(),
            others.len(),
            "{one:?} and {other:?} differ in number"
        );
        for (norm, source) in [(one, others), (other, ones)] {
            let mut source = source.into_iter();
            self.each_norm(norm, |weight| {
                let swapped = source.next().expect("as many as counted");
                assert_eq!(swapped.len(), weight.len(), "norms of two widths");
                *weight = swapped;
            });
        }
    }
}
