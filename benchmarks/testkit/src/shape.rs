//! The numbers that fix the shape of every tensor.

use k3_formats::KimiK3Config;

/// Sizes and constants of one Kimi K3 model, under short names. All counts are
/// elements, never bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShape {
    /// Decoder layers.
    pub layers: usize,
    /// One-based indices of the MLA layers; all others are KDA.
    pub mla_layers: Vec<usize>,
    /// Rows of the embedding and of `lm_head`.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Epsilon of every norm.
    pub rms_norm_eps: f32,
    /// KDA heads.
    pub kda_heads: usize,
    /// Width of a KDA head, D.
    pub kda_head_dim: usize,
    /// Taps of the short convolutions.
    pub conv_taps: usize,
    /// Lower bound of the log decay, negative.
    pub gate_lower_bound: f32,
    /// MLA heads.
    pub mla_heads: usize,
    /// Width of the query latent.
    pub q_lora: usize,
    /// Width of the key-value latent.
    pub kv_lora: usize,
    /// Width of a head's nope part.
    pub nope: usize,
    /// Width of the shared tail, never rotated.
    pub rope: usize,
    /// Width of a head's value.
    pub v_dim: usize,
    /// Whether MLA layers have the output gate `g_proj`.
    pub output_gate: bool,
    /// Layers between residual snapshots.
    pub block: usize,
    /// Routed experts of a layer.
    pub experts: usize,
    /// Experts picked per position.
    pub top_k: usize,
    /// Shared experts, run as one MLP of their joint width.
    pub shared: usize,
    /// Width of the routed experts' input and output; a multiple of 32.
    pub latent: usize,
    /// Inner width of a routed or shared expert; a multiple of 32.
    pub moe_width: usize,
    /// Leading layers with a dense MLP.
    pub dense_layers: usize,
    /// Inner width of the dense MLP.
    pub dense_width: usize,
    /// Whether the picked weights are divided by their sum.
    pub renormalize: bool,
    /// Whether `routed_expert_norm` applies to the summed experts.
    pub latent_norm: bool,
    /// Factor on every picked weight.
    pub scaling_factor: f32,
    /// Cap of SiTU's gate.
    pub situ_beta: f32,
    /// Cap of SiTU's linear part.
    pub situ_linear_beta: f32,
}

impl ModelShape {
    /// The shape a config describes.
    #[must_use]
    pub fn of_config(config: &KimiK3Config) -> Self {
        Self {
            layers: config.num_hidden_layers,
            mla_layers: config.mla_layers.iter().map(|layer| layer + 1).collect(),
            vocab: config.vocab_size,
            hidden: config.hidden_size,
            rms_norm_eps: config.rms_norm_eps,
            kda_heads: config.kda_heads,
            kda_head_dim: config.kda_head_dim,
            conv_taps: config.short_conv_kernel_size,
            gate_lower_bound: config.gate_lower_bound,
            mla_heads: config.mla_heads,
            q_lora: config.q_lora_rank,
            kv_lora: config.kv_lora_rank,
            nope: config.qk_nope_head_dim,
            rope: config.qk_rope_head_dim,
            v_dim: config.v_head_dim,
            output_gate: config.mla_use_output_gate,
            block: config.attn_res_block_size,
            experts: config.num_experts,
            top_k: config.num_experts_per_token,
            shared: config.num_shared_experts,
            latent: config.routed_expert_hidden_size,
            moe_width: config.moe_intermediate_size,
            dense_layers: config.first_k_dense_replace,
            dense_width: config.intermediate_size,
            renormalize: config.moe_renormalize,
            latent_norm: config.latent_moe_use_norm,
            scaling_factor: config.routed_scaling_factor,
            situ_beta: config.situ_beta,
            situ_linear_beta: config.situ_linear_beta,
        }
    }

    /// Whether the layer of this zero-based index is MLA.
    #[must_use]
    pub fn is_mla(&self, layer: usize) -> bool {
        self.mla_layers.contains(&(layer + 1))
    }

    /// Whether the layer of this zero-based index has a dense MLP.
    #[must_use]
    pub fn is_dense(&self, layer: usize) -> bool {
        layer < self.dense_layers
    }

    /// Channels of a KDA layer: heads times head width.
    #[must_use]
    pub fn kda_channels(&self) -> usize {
        self.kda_heads * self.kda_head_dim
    }

    /// Width of the joint shared expert.
    #[must_use]
    pub fn shared_width(&self) -> usize {
        self.shared * self.moe_width
    }
}
