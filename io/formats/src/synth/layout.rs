//! Which tensors a checkpoint in the released layout has, and where.
//!
//! Layer `L` lies in shard `L + 1`, then comes the shard of embedding and head,
//! then, with a vision tower, the projector's and the tower's. An expert's six
//! tensors are neighbours, the experts are out of order, and the data begin
//! wherever the header ends, which is never a page's beginning.
//!
//! All tensors follow from published sizes. One thing is inferred: the released
//! index states 1,560,860,324,864 bytes in total, which these tensors have
//! exactly when the convolution taps and `o_norm` are F32. With BF16 there, the
//! total would be 20,366,592 bytes less.

use std::io::{self, Write};

use crate::config::KimiK3Config;
use crate::dtype::Dtype;
use crate::experts::ExpertPart;
use crate::safetensors::writer::{HeaderBuilder, HeaderPadding, write_index};

/// Alignment that direct reads wish for and released shards do not give.
const PAGE_BYTES: usize = 4096;

/// What a tensor is for: its values' distribution follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorRole {
    /// A BF16 matrix `[out][in]`.
    Matrix,
    /// The embedding table `[vocabulary][hidden]`.
    Embedding,
    /// The output head `[vocabulary][hidden]`.
    Head,
    /// A router `[experts][hidden]`.
    Router,
    /// An expert's E2M1 values, two a byte.
    ExpertPacked,
    /// An expert's E8M0 scales.
    ExpertScale,
    /// A norm's weight.
    Norm,
    /// The projection `[1][hidden]` that scores a residual source.
    ResidualProjection,
    /// Taps of a short convolution, `[channels][1][taps]`.
    ConvTaps,
    /// Logarithm of a head's decay rate; stored for more heads than there are,
    /// the rest is zero.
    DecayRate {
        /// Heads in use.
        head_count: usize,
    },
    /// Bias of a channel's decay.
    DecayBias,
    /// Bias of an expert's selection.
    RouterBias,
}

impl TensorRole {
    /// Whether a checkpoint with holes has this tensor's values nevertheless:
    /// true for the vectors a model keeps in memory, all small.
    pub const fn is_vector(self) -> bool {
        match self {
            Self::Matrix
            | Self::Embedding
            | Self::Head
            | Self::Router
            | Self::ExpertPacked
            | Self::ExpertScale => false,
            Self::Norm
            | Self::ResidualProjection
            | Self::ConvTaps
            | Self::DecayRate { .. }
            | Self::DecayBias
            | Self::RouterBias => true,
        }
    }
}

/// A tensor of the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorLayout {
    /// Full name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
    /// What it is for.
    pub role: TensorRole,
}

impl TensorLayout {
    /// Bytes of the data.
    pub fn size_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size_bytes()
    }

    /// Elements of one row: all dimensions but the first, or the only one.
    pub fn row_len(&self) -> u64 {
        match self.shape.as_slice() {
            [] => 1,
            [len] => *len,
            [_, rest @ ..] => rest.iter().product(),
        }
    }
}

/// One shard of the checkpoint.
#[derive(Debug, Clone)]
pub struct ShardLayout {
    /// File name.
    pub name: String,
    /// Its tensors in the order they are stored.
    pub tensors: Vec<TensorLayout>,
}

impl ShardLayout {
    /// The length field and header. The data begin at a multiple of 8, as the
    /// reference writer has it, and at no multiple of 4096.
    pub fn header(&self) -> Vec<u8> {
        let mut builder = HeaderBuilder::new();
        builder.metadata("format", "pt");
        for tensor in &self.tensors {
            builder.tensor(tensor.name.as_str(), tensor.dtype, &tensor.shape);
        }
        let header = builder.build(HeaderPadding::AlignDataTo(8));
        if !header.len().is_multiple_of(PAGE_BYTES) {
            return header;
        }
        let plain = builder.build(HeaderPadding::Spaces(0)).len();
        builder.build(HeaderPadding::Spaces(header.len() - plain + 8))
    }

    /// Bytes of all tensors.
    pub fn data_bytes(&self) -> u64 {
        self.tensors.iter().map(TensorLayout::size_bytes).sum()
    }
}

/// What a checkpoint holds besides the language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vision {
    /// The projector and the vision tower, in two shards of their own.
    Included,
    /// Nothing.
    Left,
}

/// The shards of a model with this configuration, in order, made one at a time:
/// the tensors of all 96 released shards take 100 MB.
pub fn shards(config: &KimiK3Config, vision: Vision) -> impl Iterator<Item = ShardLayout> {
    let layer_count = config.num_hidden_layers;
    let shard_count = layer_count
        + match vision {
            Vision::Included => 3,
            Vision::Left => 1,
        };
    (0..shard_count).map(move |number| ShardLayout {
        name: format!("model-{:05}-of-{shard_count:06}.safetensors", number + 1),
        tensors: match number.checked_sub(layer_count) {
            None => layer_tensors(config, number),
            Some(0) => outer_tensors(config),
            Some(1) => projector_tensors(config),
            Some(_) => vision_tensors(),
        },
    })
}

/// Writes the index file of [`shards`].
///
/// # Errors
///
/// Those of `out`.
pub fn write_shard_index<W: Write>(
    config: &KimiK3Config,
    vision: Vision,
    out: W,
) -> io::Result<()> {
    let shards: Vec<ShardLayout> = shards(config, vision).collect();
    let total_bytes = shards.iter().map(ShardLayout::data_bytes).sum();
    let entries = shards.iter().flat_map(|shard| {
        let tensors = shard.tensors.iter();
        tensors.map(|tensor| (tensor.name.as_str(), shard.name.as_str()))
    });
    write_index(out, total_bytes, entries)
}

/// Collects tensors under a prefix.
struct List {
    prefix: String,
    tensors: Vec<TensorLayout>,
}

impl List {
    fn new(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            tensors: Vec::new(),
        }
    }

    fn add(&mut self, name: &str, dtype: Dtype, shape: &[usize], role: TensorRole) {
        self.tensors.push(TensorLayout {
            name: format!("{}{name}", self.prefix),
            dtype,
            shape: shape.iter().map(|&dimension| dimension as u64).collect(),
            role,
        });
    }

    /// A BF16 `.weight` of any role.
    fn weight(&mut self, name: &str, shape: &[usize], role: TensorRole) {
        self.add(&format!("{name}.weight"), Dtype::Bf16, shape, role);
    }

    fn matrix(&mut self, name: &str, shape: &[usize]) {
        self.weight(name, shape, TensorRole::Matrix);
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.weight(name, &[width], TensorRole::Norm);
    }

    fn residual_projection(&mut self, name: &str, width: usize) {
        self.weight(name, &[1, width], TensorRole::ResidualProjection);
    }
}

fn layer_tensors(config: &KimiK3Config, layer: usize) -> Vec<TensorLayout> {
    let hidden = config.hidden_size;
    let mut list = List::new(format!("language_model.model.layers.{layer}."));
    list.norm("input_layernorm", hidden);
    list.norm("post_attention_layernorm", hidden);
    list.norm("self_attention_res_norm", hidden);
    list.norm("mlp_res_norm", hidden);
    list.residual_projection("self_attention_res_proj", hidden);
    list.residual_projection("mlp_res_proj", hidden);
    if config.is_mla(layer) {
        mla_tensors(config, &mut list);
    } else {
        kda_tensors(config, &mut list);
    }
    if config.is_dense(layer) {
        list.matrix("mlp.gate_proj", &[config.intermediate_size, hidden]);
        list.matrix("mlp.up_proj", &[config.intermediate_size, hidden]);
        list.matrix("mlp.down_proj", &[hidden, config.intermediate_size]);
    } else {
        moe_tensors(config, layer, &mut list);
    }
    list.tensors
}

fn kda_tensors(config: &KimiK3Config, list: &mut List) {
    let hidden = config.hidden_size;
    let channels = config.kda_channels();
    let head = config.kda_head_dim;
    let head_count = config.kda_heads;
    for name in ["q", "k", "v", "g"] {
        list.matrix(&format!("self_attn.{name}_proj"), &[channels, hidden]);
    }
    list.matrix("self_attn.o_proj", &[hidden, channels]);
    list.matrix("self_attn.b_proj", &[head_count, hidden]);
    list.matrix("self_attn.f_a_proj", &[head, hidden]);
    list.matrix("self_attn.f_b_proj", &[channels, head]);
    for name in ["q", "k", "v"] {
        let name = format!("self_attn.{name}_conv1d.weight");
        let shape = [channels, 1, config.short_conv_kernel_size];
        list.add(&name, Dtype::F32, &shape, TensorRole::ConvTaps);
    }
    let rate = TensorRole::DecayRate { head_count };
    let padded = head_count.next_power_of_two();
    list.add("self_attn.A_log", Dtype::F32, &[padded], rate);
    let bias = TensorRole::DecayBias;
    list.add("self_attn.dt_bias", Dtype::F32, &[channels], bias);
    let norm = TensorRole::Norm;
    list.add("self_attn.o_norm.weight", Dtype::F32, &[head], norm);
}

fn mla_tensors(config: &KimiK3Config, list: &mut List) {
    let hidden = config.hidden_size;
    let output = config.mla_output_width();
    list.matrix("self_attn.q_a_proj", &[config.q_lora_rank, hidden]);
    list.norm("self_attn.q_a_layernorm", config.q_lora_rank);
    let query = config.mla_query_width();
    list.matrix("self_attn.q_b_proj", &[query, config.q_lora_rank]);
    let kv_a = config.kv_cache_width();
    list.matrix("self_attn.kv_a_proj_with_mqa", &[kv_a, hidden]);
    list.norm("self_attn.kv_a_layernorm", config.kv_lora_rank);
    let kv_b = config.kv_b_width();
    list.matrix("self_attn.kv_b_proj", &[kv_b, config.kv_lora_rank]);
    if config.mla_use_output_gate {
        list.matrix("self_attn.g_proj", &[output, hidden]);
    }
    list.matrix("self_attn.o_proj", &[hidden, output]);
}

fn moe_tensors(config: &KimiK3Config, layer: usize, list: &mut List) {
    let hidden = config.hidden_size;
    let latent = config.routed_expert_hidden_size;
    let shared = config.shared_intermediate_size();
    let experts = config.num_experts;
    list.prefix.push_str("block_sparse_moe.");
    list.weight("gate", &[experts, hidden], TensorRole::Router);
    let bias = "gate.e_score_correction_bias";
    list.add(bias, Dtype::F32, &[experts], TensorRole::RouterBias);
    list.matrix("routed_expert_down_proj", &[latent, hidden]);
    if config.latent_moe_use_norm {
        list.norm("routed_expert_norm", latent);
    }
    list.matrix("routed_expert_up_proj", &[hidden, latent]);
    list.matrix("shared_experts.gate_proj", &[shared, hidden]);
    list.matrix("shared_experts.up_proj", &[shared, hidden]);
    list.matrix("shared_experts.down_proj", &[hidden, shared]);
    for expert in scrambled(experts, layer) {
        for part in ExpertPart::ALL {
            let name = format!("experts.{expert}.{}", part.suffix());
            let role = if part.is_scale() {
                TensorRole::ExpertScale
            } else {
                TensorRole::ExpertPacked
            };
            list.add(&name, Dtype::U8, &expert_shape(config, part), role);
        }
    }
}

fn expert_shape(config: &KimiK3Config, part: ExpertPart) -> [usize; 2] {
    let (rows, columns) = match part {
        ExpertPart::W2Packed | ExpertPart::W2Scale => (
            config.routed_expert_hidden_size,
            config.moe_intermediate_size,
        ),
        _ => (
            config.moe_intermediate_size,
            config.routed_expert_hidden_size,
        ),
    };
    [rows, columns / if part.is_scale() { 32 } else { 2 }]
}

/// All ids below `count` in an order that is not ascending and differs between
/// layers.
fn scrambled(count: usize, layer: usize) -> impl Iterator<Item = usize> {
    let mut step = (2 * layer + 389) % count.max(1) + 1;
    while gcd(step, count) != 1 {
        step += 1;
    }
    (0..count).map(move |position| (position * step + 7 * layer + 1) % count)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn outer_tensors(config: &KimiK3Config) -> Vec<TensorLayout> {
    let hidden = config.hidden_size;
    let table = [config.vocab_size, hidden];
    let mut list = List::new("language_model.");
    list.weight("model.embed_tokens", &table, TensorRole::Embedding);
    list.norm("model.norm", hidden);
    list.norm("model.output_attn_res_norm", hidden);
    list.residual_projection("model.output_attn_res_proj", hidden);
    list.weight("lm_head", &table, TensorRole::Head);
    list.tensors
}

/// Width of the vision tower, and of four merged patches.
const VISION_WIDTH: usize = 1024;
const MERGED_WIDTH: usize = 4 * VISION_WIDTH;

fn projector_tensors(config: &KimiK3Config) -> Vec<TensorLayout> {
    let mut list = List::new("mm_projector.");
    list.matrix("proj.0", &[MERGED_WIDTH, MERGED_WIDTH]);
    list.matrix("proj.2", &[config.hidden_size, MERGED_WIDTH]);
    list.norm("post_norm", config.hidden_size);
    list.tensors
}

fn vision_tensors() -> Vec<TensorLayout> {
    let (attention, inner) = (1536, 4096);
    let mut list = List::new("vision_tower.");
    list.matrix("patch_embed.proj", &[VISION_WIDTH, 3, 14, 14]);
    list.matrix("patch_embed.pos_emb", &[64, 64, VISION_WIDTH]);
    for block in 0..27 {
        let block = format!("encoder.blocks.{block}");
        list.norm(&format!("{block}.norm0"), VISION_WIDTH);
        list.norm(&format!("{block}.norm1"), VISION_WIDTH);
        list.matrix(&format!("{block}.wqkv"), &[3 * attention, VISION_WIDTH]);
        list.matrix(&format!("{block}.wo"), &[VISION_WIDTH, attention]);
        list.matrix(&format!("{block}.mlp.fc0"), &[inner, VISION_WIDTH]);
        list.matrix(&format!("{block}.mlp.fc1"), &[VISION_WIDTH, inner]);
    }
    list.norm("encoder.final_layernorm", VISION_WIDTH);
    list.tensors
}
