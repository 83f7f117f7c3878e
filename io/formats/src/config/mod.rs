//! The model's configuration, `config.json`.
//!
//! Two forms are read: the released one, where the language model's keys stand
//! in `text_config`, and a flat one without it. Nothing is guessed: a missing
//! key that the arithmetic needs is an error, a known key with a value that the
//! arithmetic does not implement is an error, and all such errors are reported
//! together.

mod json;
mod lookup;
mod parse;
mod problem;
mod refused;
mod write;

pub use parse::MAX_CONFIG_BYTES;
pub use problem::ConfigProblem;
pub(crate) use problem::problem_list;
pub use write::ConfigForm;

/// Columns that share one scale in an MXFP4 tensor.
pub const MXFP4_GROUP_COLUMNS: usize = 32;

/// Largest values accepted for the sizes of a configuration. They lie far above
/// any model that exists and keep every product of sizes inside 64 bits.
pub mod limits {
    /// Widths: hidden, intermediate, latent ranks.
    pub const WIDTH_MAX: usize = 1 << 20;
    /// Vocabulary entries.
    pub const VOCABULARY_MAX: usize = 1 << 24;
    /// Layers.
    pub const LAYERS_MAX: usize = 1 << 12;
    /// Attention heads of either kind.
    pub const HEADS_MAX: usize = 1 << 14;
    /// Width of one head.
    pub const HEAD_WIDTH_MAX: usize = 1 << 12;
    /// Routed experts of a layer.
    pub const EXPERTS_MAX: usize = 1 << 16;
    /// Shared experts of a layer.
    pub const SHARED_EXPERTS_MAX: usize = 1 << 10;
    /// Taps of the short convolution.
    pub const CONV_TAPS_MAX: usize = 1 << 6;
    /// Bytes of all weights together.
    pub const WEIGHT_BYTES_MAX: u64 = 1 << 56;
}

/// The configuration of a Kimi K3 model, complete and checked.
///
/// Field names are those of the file where they are clear and say more where
/// the file is terse. Widths count elements.
#[derive(Debug, Clone, PartialEq)]
pub struct KimiK3Config {
    /// `architectures` of the file, for display; empty in flat files.
    pub architectures: Vec<String>,
    /// `model_type` of the file, for display.
    pub model_type: Option<String>,
    /// `hidden_size`: width of the residual stream.
    pub hidden_size: usize,
    /// `num_hidden_layers`: decoder layers.
    pub num_hidden_layers: usize,
    /// `vocab_size`: rows of the embedding and of the head.
    pub vocab_size: usize,
    /// `rms_norm_eps`: the file's decimal, read as a double and rounded to f32.
    pub rms_norm_eps: f32,
    /// `num_heads` of `linear_attn_config`: KDA heads.
    pub kda_heads: usize,
    /// `head_dim` of `linear_attn_config`: width of one KDA head.
    pub kda_head_dim: usize,
    /// `short_conv_kernel_size`: taps of the causal convolution.
    pub short_conv_kernel_size: usize,
    /// `gate_lower_bound`: factor of the decay gate, not above zero.
    pub gate_lower_bound: f32,
    /// `num_attention_heads`: MLA heads.
    pub mla_heads: usize,
    /// `q_lora_rank`: width of the query latent.
    pub q_lora_rank: usize,
    /// `kv_lora_rank`: width of the key-value latent.
    pub kv_lora_rank: usize,
    /// `qk_nope_head_dim`: key width of a head that comes from the latent.
    pub qk_nope_head_dim: usize,
    /// `qk_rope_head_dim`: key width shared by all heads; never rotated.
    pub qk_rope_head_dim: usize,
    /// `v_head_dim`: value width of a head.
    pub v_head_dim: usize,
    /// `mla_use_output_gate`: whether `g_proj` gates the heads' outputs.
    pub mla_use_output_gate: bool,
    /// `full_attn_layers` as zero-based indices, ascending.
    pub mla_layers: Vec<usize>,
    /// `num_experts`: routed experts of a layer.
    pub num_experts: usize,
    /// `num_experts_per_token`: experts picked for a position.
    pub num_experts_per_token: usize,
    /// `num_shared_experts`: shared experts, stored as one wider MLP.
    pub num_shared_experts: usize,
    /// `routed_expert_hidden_size`: width of the latent the experts work on.
    pub routed_expert_hidden_size: usize,
    /// `moe_intermediate_size`: inner width of one expert.
    pub moe_intermediate_size: usize,
    /// `routed_scaling_factor`: last factor of the routing weights.
    pub routed_scaling_factor: f32,
    /// `moe_renormalize`: whether the picked scores are divided by their sum.
    pub moe_renormalize: bool,
    /// `latent_moe_use_norm`: whether the experts' sum is normalised.
    pub latent_moe_use_norm: bool,
    /// `first_k_dense_replace`: leading layers with a dense MLP.
    pub first_k_dense_replace: usize,
    /// `intermediate_size`: inner width of the dense MLP.
    pub intermediate_size: usize,
    /// `attn_res_block_size`: layers between two residual snapshots.
    pub attn_res_block_size: usize,
    /// `activation_situ_beta`: cap of the gate.
    pub situ_beta: f32,
    /// `activation_situ_linear_beta`: cap of the linear part.
    pub situ_linear_beta: f32,
    /// `eos_token_id`, one or several; empty when the file names none.
    pub eos_token_ids: Vec<u32>,
}

impl KimiK3Config {
    /// Whether a zero-based layer has MLA attention; the others have KDA.
    pub fn is_mla(&self, layer: usize) -> bool {
        self.mla_layers.binary_search(&layer).is_ok()
    }

    /// Whether a zero-based layer has a dense MLP; the others have experts.
    pub fn is_dense(&self, layer: usize) -> bool {
        layer < self.first_k_dense_replace
    }

    /// Number of layers with routed experts.
    pub fn moe_layer_count(&self) -> usize {
        self.num_hidden_layers - self.first_k_dense_replace
    }

    /// Number of KDA layers.
    pub fn kda_layer_count(&self) -> usize {
        self.num_hidden_layers - self.mla_layers.len()
    }

    /// Channels of a KDA layer: heads times head width.
    pub fn kda_channels(&self) -> usize {
        self.kda_heads * self.kda_head_dim
    }

    /// Width of an MLA query or key: its latent part and the shared part.
    pub fn qk_head_dim(&self) -> usize {
        self.qk_nope_head_dim + self.qk_rope_head_dim
    }

    /// Rows of `q_b_proj`.
    pub fn mla_query_width(&self) -> usize {
        self.mla_heads * self.qk_head_dim()
    }

    /// Rows of `kv_a_proj_with_mqa`, and values cached per position.
    pub fn kv_cache_width(&self) -> usize {
        self.kv_lora_rank + self.qk_rope_head_dim
    }

    /// Rows of `kv_b_proj`.
    pub fn kv_b_width(&self) -> usize {
        self.mla_heads * (self.qk_nope_head_dim + self.v_head_dim)
    }

    /// Columns of an MLA layer's `o_proj`.
    pub fn mla_output_width(&self) -> usize {
        self.mla_heads * self.v_head_dim
    }

    /// Inner width of the shared experts' MLP.
    pub fn shared_intermediate_size(&self) -> usize {
        self.num_shared_experts * self.moe_intermediate_size
    }

    /// Residual snapshots taken on the way through all layers.
    pub fn snapshot_count(&self) -> usize {
        self.num_hidden_layers.div_ceil(self.attn_res_block_size)
    }

    /// Bytes of one routed expert's six tensors (packed nibbles and scales).
    pub fn expert_bytes(&self) -> u64 {
        let weights = (self.routed_expert_hidden_size as u64) * (self.moe_intermediate_size as u64);
        3 * (weights / 2 + weights / MXFP4_GROUP_COLUMNS as u64)
    }
}

#[cfg(test)]
mod tests;
