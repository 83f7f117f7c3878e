//! The released configuration, and others derived from one.

use std::path::Path;

use crate::config::{ConfigForm, KimiK3Config};
use crate::error::FormatError;

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

/// Layers from one full-attention layer to the next in the released model.
const FULL_ATTENTION_PERIOD: usize = 4;

/// What a synthetic model has else than the configuration it is made from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resizing {
    /// Decoder layers. Another number than the configuration's moves full
    /// attention: to every fourth layer and the last, as released.
    pub layer_count: Option<usize>,
    /// Routed experts of a layer. Fewer than are picked for a position lowers
    /// the picks.
    pub expert_count: Option<usize>,
}

impl Resizing {
    /// The resized configuration.
    ///
    /// # Errors
    ///
    /// [`FormatError::Config`] when a reader would refuse the result, as with a
    /// single layer: a model has layers of either attention.
    pub fn apply(&self, base: &KimiK3Config) -> Result<KimiK3Config, FormatError> {
        let mut config = base.clone();
        if let Some(count) = self.layer_count
            && count != base.num_hidden_layers
        {
            config.num_hidden_layers = count;
            config.mla_layers = (0..count)
                .filter(|layer| (layer + 1) % FULL_ATTENTION_PERIOD == 0 || layer + 1 == count)
                .collect();
        }
        if let Some(count) = self.expert_count {
            config.num_experts = count;
            config.num_experts_per_token = config.num_experts_per_token.min(count);
        }
        let json = config.to_json(ConfigForm::Nested);
        KimiK3Config::parse(Path::new("the resized configuration"), json.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resized(layers: usize, experts: usize) -> KimiK3Config {
        let resizing = Resizing {
            layer_count: Some(layers),
            expert_count: Some(experts),
        };
        resizing.apply(&released_config()).unwrap()
    }

    #[test]
    fn full_attention_lies_as_released_at_any_depth() {
        assert_eq!(resized(93, 896), released_config());
        let (every_fourth, last) = (resized(8, 8).mla_layers, resized(6, 8).mla_layers);
        assert_eq!((every_fourth, last), (vec![3, 7], vec![3, 5]));
        assert_eq!(resized(2, 8).mla_layers, [1]);
        // The rule itself gives the released list, not only the shortcut.
        let mut deeper = released_config();
        deeper.num_hidden_layers = 94;
        let resizing = Resizing {
            layer_count: Some(93),
            expert_count: None,
        };
        assert_eq!(resizing.apply(&deeper).unwrap(), released_config());
    }

    #[test]
    fn few_experts_lower_the_picks() {
        assert_eq!(resized(5, 32).num_experts_per_token, 16);
        assert_eq!(resized(5, 7).num_experts_per_token, 7);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (layer_count, expert_count) in [(Some(1), None), (Some(0), None), (None, Some(0))] {
            let resizing = Resizing {
                layer_count,
                expert_count,
            };
            let error = resizing.apply(&released_config()).unwrap_err();
            assert!(matches!(error, FormatError::Config { .. }), "{error}");
        }
    }
}
