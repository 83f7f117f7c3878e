//! The tensors of a spec, in the released names and order.

use k3_formats::Dtype;

use super::spec::{CANCELLING, ExpertOrder, ExpertPlacement, FloatDtype, TinySpec};
use crate::rng::Rng;
use crate::tensor::{Tensor, bf16_bytes, f32_bytes};

/// The tensors outside the layers, or of one layer, in file order.
pub(super) struct Group {
    /// Zero-based layer; `None` for what stands outside the layers.
    pub(super) layer: Option<usize>,
    pub(super) tensors: Vec<Tensor>,
}

/// All tensors, layer by layer, the rest last.
pub(super) fn groups(spec: &TinySpec) -> Vec<Group> {
    let mut groups: Vec<Group> = (0..spec.shape.layers)
        .map(|index| {
            let mut maker = Maker::new(spec, Some(index));
            maker.layer(index);
            Group {
                layer: Some(index),
                tensors: maker.tensors,
            }
        })
        .collect();
    let mut maker = Maker::new(spec, None);
    maker.outside();
    groups.push(Group {
        layer: None,
        tensors: maker.tensors,
    });
    groups
}

/// How a matrix stands to the residual stream; only the order probe cares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// Columns are the stream's channels.
    Reads,
    /// Rows are the stream's channels.
    Writes,
    /// Rows are tokens, columns are channels that enter the stream.
    Embeds,
    /// Neither.
    Inner,
}

/// A weight this large loses the low bits of what is added after it.
const CANCELLING_WEIGHT: f32 = 68_719_476_736.0;

struct Maker<'a> {
    spec: &'a TinySpec,
    prefix: String,
    tensors: Vec<Tensor>,
}

impl<'a> Maker<'a> {
    fn new(spec: &'a TinySpec, layer: Option<usize>) -> Self {
        let model = spec.layout.prefix.model();
        let prefix = match layer {
            Some(index) => format!("{model}layers.{index}."),
            None => model.to_owned(),
        };
        Self {
            spec,
            prefix,
            tensors: Vec::new(),
        }
    }

    /// The stream of values of a tensor: the same under every prefix.
    fn rng(&self, name: &str) -> Rng {
        let names = self.spec.layout.prefix;
        let path = self.prefix.strip_prefix(names.model());
        let path = path.or_else(|| self.prefix.strip_prefix(names.head()));
        let path = path.expect("every name begins with one of the two");
        Rng::named(self.spec.seed, &format!("{path}{name}"))
    }

    fn push(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.push(Tensor {
            name: format!("{}{name}", self.prefix),
            dtype,
            shape: shape.iter().map(|&extent| extent as u64).collect(),
            bytes,
        });
    }

    fn floats(&mut self, name: &str, dtype: FloatDtype, shape: &[usize], values: &[f32]) {
        match dtype {
            FloatDtype::Bf16 => self.push(name, Dtype::Bf16, shape, bf16_bytes(values)),
            FloatDtype::F32 => self.push(name, Dtype::F32, shape, f32_bytes(values)),
        }
    }

    /// Bell-shaped weights that keep the size of a unit input.
    fn matrix(&mut self, name: &str, rows: usize, cols: usize, stream: Stream) {
        self.scaled_matrix(name, rows, cols, stream, FloatDtype::Bf16, 1.0);
    }

    fn scaled_matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        stream: Stream,
        dtype: FloatDtype,
        gain: f64,
    ) {
        let mut rng = self.rng(name);
        let scale = match stream {
            Stream::Embeds => gain,
            _ => gain / (cols as f64).sqrt(),
        };
        let mut values: Vec<f32> = (0..rows * cols)
            .map(|_| narrow(rng.bell() * scale))
            .collect();
        if self.spec.cancelling_channels {
            cancel(&mut values, cols, stream);
        }
        self.floats(name, dtype, &[rows, cols], &values);
    }

    /// Norm weights: distinct, around 1.
    fn norm(&mut self, name: &str, width: usize) {
        let mut rng = self.rng(name);
        let mut values: Vec<f32> = (0..width).map(|_| narrow(rng.between(0.6, 1.4))).collect();
        if self.spec.cancelling_channels && width == self.spec.shape.hidden {
            equalise(&mut values);
        }
        self.floats(name, self.spec.dtypes.norms, &[width], &values);
    }

    /// A residual projection: scores of the size of 1.
    fn residual_proj(&mut self, name: &str) {
        let hidden = self.spec.shape.hidden;
        let mut rng = self.rng(name);
        let scale = 1.5 / (hidden as f64).sqrt();
        let values: Vec<f32> = (0..hidden).map(|_| narrow(rng.bell() * scale)).collect();
        self.floats(name, self.spec.dtypes.norms, &[1, hidden], &values);
    }

    fn uniform_f32(&mut self, name: &str, width: usize, padded: usize, low: f64, high: f64) {
        let mut rng = self.rng(name);
        let mut values: Vec<f32> = (0..width).map(|_| narrow(rng.between(low, high))).collect();
        values.resize(padded, 0.0);
        self.push(name, Dtype::F32, &[padded], f32_bytes(&values));
    }

    fn outside(&mut self) {
        let (vocab, hidden) = (self.spec.shape.vocab, self.spec.shape.hidden);
        self.matrix("embed_tokens.weight", vocab, hidden, Stream::Embeds);
        let model = std::mem::replace(&mut self.prefix, self.spec.layout.prefix.head().to_owned());
        self.scaled_matrix(
            "lm_head.weight",
            vocab,
            hidden,
            Stream::Reads,
            FloatDtype::Bf16,
            2.0,
        );
        self.prefix = model;
        self.norm("norm.weight", hidden);
        self.norm("output_attn_res_norm.weight", hidden);
        self.residual_proj("output_attn_res_proj.weight");
    }

    fn layer(&mut self, index: usize) {
        let shape = &self.spec.shape;
        let hidden = shape.hidden;
        self.norm("input_layernorm.weight", hidden);
        self.norm("post_attention_layernorm.weight", hidden);
        self.norm("self_attention_res_norm.weight", hidden);
        self.residual_proj("self_attention_res_proj.weight");
        self.norm("mlp_res_norm.weight", hidden);
        self.residual_proj("mlp_res_proj.weight");
        if shape.is_mla(index) {
            self.mla();
        } else {
            self.kda();
        }
        if shape.is_dense(index) {
            self.gated("mlp", shape.dense_width);
        } else {
            self.moe(index);
        }
    }

    fn gated(&mut self, under: &str, width: usize) {
        let hidden = self.spec.shape.hidden;
        self.matrix(
            &format!("{under}.gate_proj.weight"),
            width,
            hidden,
            Stream::Reads,
        );
        self.matrix(
            &format!("{under}.up_proj.weight"),
            width,
            hidden,
            Stream::Reads,
        );
        self.matrix(
            &format!("{under}.down_proj.weight"),
            hidden,
            width,
            Stream::Writes,
        );
    }

    fn kda(&mut self) {
        let shape = &self.spec.shape;
        let (hidden, channels) = (shape.hidden, shape.kda_channels());
        let (d, taps, heads) = (shape.kda_head_dim, shape.conv_taps, shape.kda_heads);
        for part in ["q", "k", "v", "g"] {
            let name = format!("self_attn.{part}_proj.weight");
            self.matrix(&name, channels, hidden, Stream::Reads);
        }
        self.matrix("self_attn.b_proj.weight", heads, hidden, Stream::Reads);
        self.matrix("self_attn.f_a_proj.weight", d, hidden, Stream::Reads);
        self.matrix("self_attn.f_b_proj.weight", channels, d, Stream::Inner);
        for part in ["q", "k", "v"] {
            let name = format!("self_attn.{part}_conv1d.weight");
            let mut rng = self.rng(&name);
            let values: Vec<f32> = (0..channels * taps)
                .map(|_| narrow(rng.bell() * 0.6))
                .collect();
            self.floats(&name, self.spec.dtypes.conv, &[channels, 1, taps], &values);
        }
        self.uniform_f32("self_attn.A_log", heads, self.spec.a_log_len, -1.0, 1.0);
        self.uniform_f32("self_attn.dt_bias", channels, channels, -3.0, 1.0);
        self.norm("self_attn.o_norm.weight", d);
        self.matrix("self_attn.o_proj.weight", hidden, channels, Stream::Writes);
    }

    fn mla(&mut self) {
        let shape = &self.spec.shape;
        let (hidden, heads) = (shape.hidden, shape.mla_heads);
        let (q_lora, kv_lora) = (shape.q_lora, shape.kv_lora);
        let (q_width, value_width) = (heads * (shape.nope + shape.rope), heads * shape.v_dim);
        let kv_width = heads * (shape.nope + shape.v_dim);
        let kv_a_width = kv_lora + shape.rope;
        self.matrix("self_attn.q_a_proj.weight", q_lora, hidden, Stream::Reads);
        self.norm("self_attn.q_a_layernorm.weight", q_lora);
        self.matrix("self_attn.q_b_proj.weight", q_width, q_lora, Stream::Inner);
        let name = "self_attn.kv_a_proj_with_mqa.weight";
        self.matrix(name, kv_a_width, hidden, Stream::Reads);
        self.norm("self_attn.kv_a_layernorm.weight", kv_lora);
        self.matrix(
            "self_attn.kv_b_proj.weight",
            kv_width,
            kv_lora,
            Stream::Inner,
        );
        if self.spec.shape.output_gate {
            self.matrix(
                "self_attn.g_proj.weight",
                value_width,
                hidden,
                Stream::Reads,
            );
        }
        self.matrix(
            "self_attn.o_proj.weight",
            hidden,
            value_width,
            Stream::Writes,
        );
    }

    fn moe(&mut self, index: usize) {
        let shape = &self.spec.shape;
        let (hidden, latent, experts) = (shape.hidden, shape.latent, shape.experts);
        let router = self.spec.dtypes.router;
        let name = "block_sparse_moe.gate.weight";
        self.scaled_matrix(name, experts, hidden, Stream::Reads, router, 1.5);
        let name = "block_sparse_moe.gate.e_score_correction_bias";
        self.uniform_f32(name, experts, experts, -0.4, 0.4);
        let name = "block_sparse_moe.routed_expert_down_proj.weight";
        self.matrix(name, latent, hidden, Stream::Reads);
        if self.spec.shape.latent_norm {
            self.norm("block_sparse_moe.routed_expert_norm.weight", latent);
        }
        let name = "block_sparse_moe.routed_expert_up_proj.weight";
        self.matrix(name, hidden, latent, Stream::Writes);
        self.gated(
            "block_sparse_moe.shared_experts",
            self.spec.shape.shared_width(),
        );
        self.experts(index);
    }

    fn experts(&mut self, index: usize) {
        let layout = self.spec.layout;
        let order = match layout.expert_order {
            ExpertOrder::ById => (0..self.spec.shape.experts).collect(),
            ExpertOrder::Shuffled => Rng::named(self.spec.seed, &format!("order of layer {index}"))
                .order(self.spec.shape.experts),
        };
        let first = self.tensors.len();
        for id in order {
            let (latent, width) = (self.spec.shape.latent, self.spec.shape.moe_width);
            for (matrix, rows, cols) in [
                ("w1", width, latent),
                ("w2", latent, width),
                ("w3", width, latent),
            ] {
                let name = format!("block_sparse_moe.experts.{id}.{matrix}");
                self.packed(&name, rows, cols);
            }
        }
        if layout.expert_placement == ExpertPlacement::ByKind {
            // Kinds are names without the id: w1.weight_packed and so on.
            let kind = |tensor: &Tensor| {
                let parts: Vec<&str> = tensor.name.rsplitn(3, '.').collect();
                format!("{}.{}", parts[1], parts[0])
            };
            self.tensors[first..].sort_by_key(kind);
        }
    }

    /// MXFP4 weights that keep the size of a unit input.
    fn packed(&mut self, name: &str, rows: usize, cols: usize) {
        let mut rng = self.rng(name);
        let nibbles: Vec<u8> = (0..rows * cols / 2).map(|_| rng.byte()).collect();
        // Uniform nibbles have a root mean square of 2.9.
        let mut scale_byte = 127_u8;
        let mut scale = 1.0;
        while 2.9 * scale * (cols as f64).sqrt() > 1.0 {
            scale *= 0.5;
            scale_byte -= 1;
        }
        let scales: Vec<u8> = (0..rows * cols / 32)
            .map(|_| {
                let byte = scale_byte + rng.byte() % 3;
                let is_nan = self
                    .spec
                    .nan_scale_one_in
                    .is_some_and(|one_in| rng.below(one_in) == 0);
                if is_nan { 255 } else { byte }
            })
            .collect();
        self.push(
            &format!("{name}.weight_packed"),
            Dtype::U8,
            &[rows, cols / 2],
            nibbles,
        );
        self.push(
            &format!("{name}.weight_scale"),
            Dtype::U8,
            &[rows, cols / 32],
            scales,
        );
    }
}

/// Keeps the probe's channels equal in what enters the stream, and gives two
/// of them opposite large weights in what reads it.
fn cancel(values: &mut [f32], cols: usize, stream: Stream) {
    let [first, same_lane, other_lane] = CANCELLING;
    match stream {
        Stream::Embeds => values.chunks_mut(cols).for_each(equalise),
        Stream::Writes => {
            for row in [same_lane, other_lane] {
                values.copy_within(first * cols..(first + 1) * cols, row * cols);
            }
        }
        Stream::Reads => {
            for (index, row) in values.chunks_mut(cols).enumerate() {
                row[first] = CANCELLING_WEIGHT;
                let partner = if index % 2 == 0 {
                    same_lane
                } else {
                    other_lane
                };
                row[partner] = -CANCELLING_WEIGHT;
            }
        }
        Stream::Inner => {}
    }
}

fn equalise(values: &mut [f32]) {
    let [first, others @ ..] = CANCELLING;
    for channel in others {
        values[channel] = values[first];
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a random weight may be any nearby f32"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}
