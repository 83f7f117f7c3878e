//! Finds each role's tensor by its released name and checks its shape.

use k3_formats::Dtype;

use super::weights::{
    Attention, Expert, GatedMlp, Kda, Layer, Matrix, Mla, Mlp, Moe, Packed, Weights,
};
use crate::error::TestkitError;
use crate::shape::ModelShape;
use crate::tensor::{Tensor, TensorSet};

impl Weights {
    pub(super) fn bind(shape: &ModelShape, tensors: &TensorSet) -> Result<Self, TestkitError> {
        let (prefix, head) = find_prefix(tensors)?;
        let binder = Binder {
            tensors,
            prefix: prefix.to_owned(),
        };
        let head = Binder {
            tensors,
            prefix: head.to_owned(),
        };
        let layers = (0..shape.layers)
            .map(|index| binder.under(&format!("layers.{index}")).layer(shape, index))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            embedding: binder.matrix("embed_tokens.weight", shape.vocab, shape.hidden)?,
            layers,
            output_res_norm: binder.vector("output_attn_res_norm.weight", shape.hidden)?,
            output_res_proj: binder.row("output_attn_res_proj.weight", shape.hidden)?,
            final_norm: binder.vector("norm.weight", shape.hidden)?,
            lm_head: head.matrix("lm_head.weight", shape.vocab, shape.hidden)?,
        })
    }
}

fn find_prefix(tensors: &TensorSet) -> Result<(&'static str, &'static str), TestkitError> {
    [("language_model.model.", "language_model."), ("model.", "")]
        .into_iter()
        .find(|(prefix, _)| {
            tensors
                .get(&format!("{prefix}embed_tokens.weight"))
                .is_some()
        })
        .ok_or(TestkitError::UnknownPrefix {
            tensor_count: tensors.len(),
        })
}

fn wrong_shape(tensor: &Tensor, expected: Vec<u64>) -> TestkitError {
    TestkitError::WrongShape {
        name: tensor.name.clone(),
        expected,
        found: tensor.shape.clone(),
    }
}

fn wrong_dtype(tensor: &Tensor, expected: &'static str) -> TestkitError {
    TestkitError::WrongDtype {
        name: tensor.name.clone(),
        expected,
        found: tensor.dtype,
    }
}

fn float_values(tensor: &Tensor) -> Result<Vec<f32>, TestkitError> {
    match tensor.dtype {
        Dtype::Bf16 | Dtype::F32 => Ok(tensor.to_f32()),
        _ => Err(wrong_dtype(tensor, "BF16 or F32")),
    }
}

/// Looks tensors up under a prefix and checks their shapes.
struct Binder<'a> {
    tensors: &'a TensorSet,
    prefix: String,
}

impl<'a> Binder<'a> {
    fn under(&self, part: &str) -> Self {
        Self {
            tensors: self.tensors,
            prefix: format!("{}{part}.", self.prefix),
        }
    }

    fn tensor(&self, name: &str) -> Result<&'a Tensor, TestkitError> {
        let name = format!("{}{name}", self.prefix);
        let found = self.tensors.get(&name);
        found.ok_or(TestkitError::MissingTensor { name })
    }

    fn shaped(&self, name: &str, expected: &[usize]) -> Result<&'a Tensor, TestkitError> {
        let tensor = self.tensor(name)?;
        let expected: Vec<u64> = expected.iter().map(|&extent| extent as u64).collect();
        if tensor.shape == expected {
            Ok(tensor)
        } else {
            Err(wrong_shape(tensor, expected))
        }
    }

    fn floats(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, TestkitError> {
        float_values(self.shaped(name, expected)?)
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, TestkitError> {
        self.floats(name, &[len])
    }

    fn row(&self, name: &str, len: usize) -> Result<Vec<f32>, TestkitError> {
        self.floats(name, &[1, len])
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix, TestkitError> {
        let data = self.floats(name, &[rows, cols])?;
        Ok(Matrix { cols, data })
    }

    /// `A_log` may be stored longer than the head count.
    fn a_log(&self, heads: usize) -> Result<Vec<f32>, TestkitError> {
        let tensor = self.tensor("A_log")?;
        if tensor.shape.len() != 1 || tensor.element_count() < heads as u64 {
            return Err(wrong_shape(tensor, vec![heads as u64]));
        }
        float_values(tensor)
    }

    fn bytes(&self, name: &str, expected: &[usize]) -> Result<Vec<u8>, TestkitError> {
        let tensor = self.shaped(name, expected)?;
        if tensor.dtype == Dtype::U8 {
            Ok(tensor.bytes.clone())
        } else {
            Err(wrong_dtype(tensor, "U8"))
        }
    }

    fn packed(&self, name: &str, rows: usize, cols: usize) -> Result<Packed, TestkitError> {
        Ok(Packed {
            cols,
            nibbles: self.bytes(&format!("{name}.weight_packed"), &[rows, cols / 2])?,
            scales: self.bytes(&format!("{name}.weight_scale"), &[rows, cols / 32])?,
        })
    }

    fn gated(&self, hidden: usize, width: usize) -> Result<GatedMlp, TestkitError> {
        Ok(GatedMlp {
            gate: self.matrix("gate_proj.weight", width, hidden)?,
            up: self.matrix("up_proj.weight", width, hidden)?,
            down: self.matrix("down_proj.weight", hidden, width)?,
        })
    }

    fn layer(&self, shape: &ModelShape, index: usize) -> Result<Layer, TestkitError> {
        let hidden = shape.hidden;
        let attention = self.under("self_attn");
        Ok(Layer {
            input_norm: self.vector("input_layernorm.weight", hidden)?,
            post_norm: self.vector("post_attention_layernorm.weight", hidden)?,
            attention_res_norm: self.vector("self_attention_res_norm.weight", hidden)?,
            attention_res_proj: self.row("self_attention_res_proj.weight", hidden)?,
            mlp_res_norm: self.vector("mlp_res_norm.weight", hidden)?,
            mlp_res_proj: self.row("mlp_res_proj.weight", hidden)?,
            attention: if shape.is_mla(index) {
                Attention::Mla(Box::new(attention.mla(shape)?))
            } else {
                Attention::Kda(Box::new(attention.kda(shape)?))
            },
            mlp: if shape.is_dense(index) {
                Mlp::Dense(self.under("mlp").gated(hidden, shape.dense_width)?)
            } else {
                Mlp::Moe(Box::new(self.under("block_sparse_moe").moe(shape)?))
            },
        })
    }

    fn kda(&self, shape: &ModelShape) -> Result<Kda, TestkitError> {
        let (hidden, channels, d) = (shape.hidden, shape.kda_channels(), shape.kda_head_dim);
        let taps = |name: &str| -> Result<Vec<f32>, TestkitError> {
            self.floats(name, &[channels, 1, shape.conv_taps])
        };
        Ok(Kda {
            q_proj: self.matrix("q_proj.weight", channels, hidden)?,
            k_proj: self.matrix("k_proj.weight", channels, hidden)?,
            v_proj: self.matrix("v_proj.weight", channels, hidden)?,
            g_proj: self.matrix("g_proj.weight", channels, hidden)?,
            o_proj: self.matrix("o_proj.weight", hidden, channels)?,
            b_proj: self.matrix("b_proj.weight", shape.kda_heads, hidden)?,
            f_a_proj: self.matrix("f_a_proj.weight", d, hidden)?,
            f_b_proj: self.matrix("f_b_proj.weight", channels, d)?,
            q_taps: taps("q_conv1d.weight")?,
            k_taps: taps("k_conv1d.weight")?,
            v_taps: taps("v_conv1d.weight")?,
            a_log: self.a_log(shape.kda_heads)?,
            dt_bias: self.vector("dt_bias", channels)?,
            o_norm: self.vector("o_norm.weight", d)?,
        })
    }

    fn mla(&self, shape: &ModelShape) -> Result<Mla, TestkitError> {
        let (hidden, heads) = (shape.hidden, shape.mla_heads);
        let (q_lora, kv_lora) = (shape.q_lora, shape.kv_lora);
        let value_width = heads * shape.v_dim;
        let q_width = heads * (shape.nope + shape.rope);
        let kv_width = heads * (shape.nope + shape.v_dim);
        let g_proj = shape
            .output_gate
            .then(|| self.matrix("g_proj.weight", value_width, hidden))
            .transpose()?;
        Ok(Mla {
            q_a_proj: self.matrix("q_a_proj.weight", q_lora, hidden)?,
            q_a_norm: self.vector("q_a_layernorm.weight", q_lora)?,
            q_b_proj: self.matrix("q_b_proj.weight", q_width, q_lora)?,
            kv_a_proj: self.matrix("kv_a_proj_with_mqa.weight", kv_lora + shape.rope, hidden)?,
            kv_a_norm: self.vector("kv_a_layernorm.weight", kv_lora)?,
            kv_b_proj: self.matrix("kv_b_proj.weight", kv_width, kv_lora)?,
            g_proj,
            o_proj: self.matrix("o_proj.weight", hidden, value_width)?,
        })
    }

    fn moe(&self, shape: &ModelShape) -> Result<Moe, TestkitError> {
        let (hidden, latent, width) = (shape.hidden, shape.latent, shape.moe_width);
        let norm = shape
            .latent_norm
            .then(|| self.vector("routed_expert_norm.weight", latent))
            .transpose()?;
        let experts = (0..shape.experts)
            .map(|id| {
                let expert = self.under(&format!("experts.{id}"));
                Ok(Expert {
                    w1: expert.packed("w1", width, latent)?,
                    w2: expert.packed("w2", latent, width)?,
                    w3: expert.packed("w3", width, latent)?,
                })
            })
            .collect::<Result<_, TestkitError>>()?;
        Ok(Moe {
            router: self.matrix("gate.weight", shape.experts, hidden)?,
            bias: self.vector("gate.e_score_correction_bias", shape.experts)?,
            down: self.matrix("routed_expert_down_proj.weight", latent, hidden)?,
            norm,
            up: self.matrix("routed_expert_up_proj.weight", hidden, latent)?,
            shared: self
                .under("shared_experts")
                .gated(hidden, shape.shared_width())?,
            experts,
        })
    }
}
