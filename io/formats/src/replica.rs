//! Headers of a checkpoint in the released layout, without the data.
//!
//! The full-size replica has the 497,220 tensors of the released model in 96
//! shards: layer `L` lies in shard `L + 1`, then come the shard of embedding and
//! head, the projector's and the vision tower's. An expert's six tensors are
//! neighbours, the experts are out of order, and the data begin wherever the
//! header ends.
//!
//! All tensors follow from published sizes. One thing is inferred: the released
//! index states 1,560,860,324,864 bytes in total, which these tensors have
//! exactly when the convolution taps and `o_norm` are F32. With BF16 there, the
//! total would be 20,366,592 bytes less.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::config::KimiK3Config;
use crate::dtype::Dtype;
use crate::error::FormatError;
use crate::experts::ExpertPart;
use crate::read_at::ReadAt;
use crate::safetensors::writer::{HeaderBuilder, HeaderPadding, write_index};

/// Total bytes of all tensors, as the released index states them.
pub const RELEASED_TENSOR_BYTES: u64 = 1_560_860_324_864;
/// Tensors of the released checkpoint.
pub const RELEASED_TENSOR_COUNT: usize = 497_220;
/// Shards of the released checkpoint.
pub const RELEASED_SHARD_COUNT: usize = 96;

/// The released configuration.
pub fn released_config() -> KimiK3Config {
    let every_fourth = (3..92).step_by(4);
    KimiK3Config {
        architectures: vec!["KimiK3ForConditionalGeneration".to_owned()],
        model_type: Some("kimi_k3".to_owned()),
        hidden_size: 7168,
        num_hidden_layers: 93,
        vocab_size: 163_840,
        rms_norm_eps: 1e-5,
        kda_heads: 96,
        kda_head_dim: 128,
        short_conv_kernel_size: 4,
        gate_lower_bound: -5.0,
        mla_heads: 96,
        q_lora_rank: 1536,
        kv_lora_rank: 512,
        qk_nope_head_dim: 128,
        qk_rope_head_dim: 64,
        v_head_dim: 128,
        mla_use_output_gate: true,
        mla_layers: every_fourth.chain([92]).collect(),
        num_experts: 896,
        num_experts_per_token: 16,
        num_shared_experts: 2,
        routed_expert_hidden_size: 3584,
        moe_intermediate_size: 3072,
        routed_scaling_factor: 1.0,
        moe_renormalize: true,
        latent_moe_use_norm: true,
        first_k_dense_replace: 1,
        intermediate_size: 33_792,
        attn_res_block_size: 12,
        situ_beta: 4.0,
        situ_linear_beta: 25.0,
        eos_token_ids: vec![163_586],
    }
}

/// A tensor of the replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaTensor {
    /// Full name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
}

/// One shard of the replica.
#[derive(Debug, Clone)]
pub struct ReplicaShard {
    /// File name.
    pub name: String,
    /// Its tensors in the order they are stored.
    pub tensors: Vec<ReplicaTensor>,
}

impl ReplicaShard {
    /// The length field and header, padded as the reference writer does.
    pub fn header(&self) -> Vec<u8> {
        self.builder().build(HeaderPadding::AlignDataTo(8))
    }

    /// Bytes of all tensors.
    pub fn data_bytes(&self) -> u64 {
        self.builder().data_bytes()
    }

    /// A file with this header and a hole for the data.
    pub fn open(&self) -> VirtualShard {
        let header = self.header();
        VirtualShard {
            label: PathBuf::from(&self.name),
            file_bytes: header.len() as u64 + self.data_bytes(),
            header,
        }
    }

    fn builder(&self) -> HeaderBuilder {
        let mut builder = HeaderBuilder::new();
        builder.metadata("format", "pt");
        for tensor in &self.tensors {
            builder.tensor(tensor.name.as_str(), tensor.dtype, &tensor.shape);
        }
        builder
    }
}

/// A shard whose data are not there: they read as zeros.
#[derive(Debug, Clone)]
pub struct VirtualShard {
    label: PathBuf,
    header: Vec<u8>,
    file_bytes: u64,
}

impl ReadAt for VirtualShard {
    fn label(&self) -> &Path {
        &self.label
    }

    fn len_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        let wanted_bytes = buffer.len() as u64;
        let available = self.file_bytes.saturating_sub(offset);
        if wanted_bytes > available {
            return Err(FormatError::ShortRead {
                path: self.label.clone(),
                offset,
                wanted_bytes,
                got_bytes: available,
            });
        }
        buffer.fill(0);
        let stored = usize::try_from(offset)
            .ok()
            .and_then(|start| self.header.get(start..))
            .unwrap_or_default();
        let count = stored.len().min(buffer.len());
        buffer[..count].copy_from_slice(&stored[..count]);
        Ok(())
    }
}

/// The shards of a model with this configuration, in order. With
/// [`released_config`] it is the full replica, vision tower included.
pub fn shards(config: &KimiK3Config) -> impl Iterator<Item = ReplicaShard> {
    let layer_count = config.num_hidden_layers;
    let shard_count = layer_count + 3;
    (0..shard_count).map(move |number| ReplicaShard {
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
pub fn write_replica_index<W: Write>(config: &KimiK3Config, out: W) -> io::Result<()> {
    let shards: Vec<ReplicaShard> = shards(config).collect();
    let total_bytes = shards.iter().map(ReplicaShard::data_bytes).sum();
    let entries = shards.iter().flat_map(|shard| {
        let tensors = shard.tensors.iter();
        tensors.map(|tensor| (tensor.name.as_str(), shard.name.as_str()))
    });
    write_index(out, total_bytes, entries)
}

/// Collects tensors under a prefix.
struct List {
    prefix: String,
    tensors: Vec<ReplicaTensor>,
}

impl List {
    fn new(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            tensors: Vec::new(),
        }
    }

    fn add(&mut self, name: &str, dtype: Dtype, shape: &[usize]) {
        self.tensors.push(ReplicaTensor {
            name: format!("{}{name}", self.prefix),
            dtype,
            shape: shape.iter().map(|&dimension| dimension as u64).collect(),
        });
    }

    /// A BF16 `.weight`.
    fn weight(&mut self, name: &str, shape: &[usize]) {
        self.add(&format!("{name}.weight"), Dtype::Bf16, shape);
    }
}

fn layer_tensors(config: &KimiK3Config, layer: usize) -> Vec<ReplicaTensor> {
    let hidden = config.hidden_size;
    let mut list = List::new(format!("language_model.model.layers.{layer}."));
    for norm in [
        "input_layernorm",
        "post_attention_layernorm",
        "self_attention_res_norm",
        "mlp_res_norm",
    ] {
        list.weight(norm, &[hidden]);
    }
    for projection in ["self_attention_res_proj", "mlp_res_proj"] {
        list.weight(projection, &[1, hidden]);
    }
    if config.is_mla(layer) {
        mla_tensors(config, &mut list);
    } else {
        kda_tensors(config, &mut list);
    }
    if config.is_dense(layer) {
        list.weight("mlp.gate_proj", &[config.intermediate_size, hidden]);
        list.weight("mlp.up_proj", &[config.intermediate_size, hidden]);
        list.weight("mlp.down_proj", &[hidden, config.intermediate_size]);
    } else {
        moe_tensors(config, layer, &mut list);
    }
    list.tensors
}

fn kda_tensors(config: &KimiK3Config, list: &mut List) {
    let hidden = config.hidden_size;
    let channels = config.kda_channels();
    let head = config.kda_head_dim;
    for name in ["q", "k", "v", "g"] {
        list.weight(&format!("self_attn.{name}_proj"), &[channels, hidden]);
    }
    list.weight("self_attn.o_proj", &[hidden, channels]);
    list.weight("self_attn.b_proj", &[config.kda_heads, hidden]);
    list.weight("self_attn.f_a_proj", &[head, hidden]);
    list.weight("self_attn.f_b_proj", &[channels, head]);
    for name in ["q", "k", "v"] {
        let name = format!("self_attn.{name}_conv1d.weight");
        let taps = config.short_conv_kernel_size;
        list.add(&name, Dtype::F32, &[channels, 1, taps]);
    }
    // Stored for more heads than there are; the rest is zero.
    let padded_heads = config.kda_heads.next_power_of_two();
    list.add("self_attn.A_log", Dtype::F32, &[padded_heads]);
    list.add("self_attn.dt_bias", Dtype::F32, &[channels]);
    list.add("self_attn.o_norm.weight", Dtype::F32, &[head]);
}

fn mla_tensors(config: &KimiK3Config, list: &mut List) {
    let hidden = config.hidden_size;
    let output = config.mla_output_width();
    list.weight("self_attn.q_a_proj", &[config.q_lora_rank, hidden]);
    list.weight("self_attn.q_a_layernorm", &[config.q_lora_rank]);
    let query = config.mla_query_width();
    list.weight("self_attn.q_b_proj", &[query, config.q_lora_rank]);
    let kv_a = config.kv_cache_width();
    list.weight("self_attn.kv_a_proj_with_mqa", &[kv_a, hidden]);
    list.weight("self_attn.kv_a_layernorm", &[config.kv_lora_rank]);
    let kv_b = config.kv_b_width();
    list.weight("self_attn.kv_b_proj", &[kv_b, config.kv_lora_rank]);
    list.weight("self_attn.g_proj", &[output, hidden]);
    list.weight("self_attn.o_proj", &[hidden, output]);
}

fn moe_tensors(config: &KimiK3Config, layer: usize, list: &mut List) {
    let hidden = config.hidden_size;
    let latent = config.routed_expert_hidden_size;
    let shared = config.shared_intermediate_size();
    list.prefix.push_str("block_sparse_moe.");
    list.weight("gate", &[config.num_experts, hidden]);
    let bias = "gate.e_score_correction_bias";
    list.add(bias, Dtype::F32, &[config.num_experts]);
    list.weight("routed_expert_down_proj", &[latent, hidden]);
    list.weight("routed_expert_norm", &[latent]);
    list.weight("routed_expert_up_proj", &[hidden, latent]);
    list.weight("shared_experts.gate_proj", &[shared, hidden]);
    list.weight("shared_experts.up_proj", &[shared, hidden]);
    list.weight("shared_experts.down_proj", &[hidden, shared]);
    for expert in scrambled(config.num_experts, layer) {
        for part in ExpertPart::ALL {
            let name = format!("experts.{expert}.{}", part.suffix());
            list.add(&name, Dtype::U8, &expert_shape(config, part));
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

fn outer_tensors(config: &KimiK3Config) -> Vec<ReplicaTensor> {
    let hidden = config.hidden_size;
    let mut list = List::new("language_model.");
    list.weight("model.embed_tokens", &[config.vocab_size, hidden]);
    list.weight("model.norm", &[hidden]);
    list.weight("model.output_attn_res_norm", &[hidden]);
    list.weight("model.output_attn_res_proj", &[1, hidden]);
    list.weight("lm_head", &[config.vocab_size, hidden]);
    list.tensors
}

/// Width of the vision tower, and of four merged patches.
const VISION_WIDTH: usize = 1024;
const MERGED_WIDTH: usize = 4 * VISION_WIDTH;

fn projector_tensors(config: &KimiK3Config) -> Vec<ReplicaTensor> {
    let mut list = List::new("mm_projector.");
    list.weight("proj.0", &[MERGED_WIDTH, MERGED_WIDTH]);
    list.weight("proj.2", &[config.hidden_size, MERGED_WIDTH]);
    list.weight("post_norm", &[config.hidden_size]);
    list.tensors
}

fn vision_tensors() -> Vec<ReplicaTensor> {
    let (attention, inner) = (1536, 4096);
    let mut list = List::new("vision_tower.");
    list.weight("patch_embed.proj", &[VISION_WIDTH, 3, 14, 14]);
    list.weight("patch_embed.pos_emb", &[64, 64, VISION_WIDTH]);
    for block in 0..27 {
        let block = format!("encoder.blocks.{block}");
        list.weight(&format!("{block}.norm0"), &[VISION_WIDTH]);
        list.weight(&format!("{block}.norm1"), &[VISION_WIDTH]);
        list.weight(&format!("{block}.wqkv"), &[3 * attention, VISION_WIDTH]);
        list.weight(&format!("{block}.wo"), &[VISION_WIDTH, attention]);
        list.weight(&format!("{block}.mlp.fc0"), &[inner, VISION_WIDTH]);
        list.weight(&format!("{block}.mlp.fc1"), &[VISION_WIDTH, inner]);
    }
    list.weight("encoder.final_layernorm", &[VISION_WIDTH]);
    list.tensors
}
