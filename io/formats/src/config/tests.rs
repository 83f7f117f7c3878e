use super::*;
use crate::error::FormatError;
use std::path::Path;

fn tiny() -> KimiK3Config {
    KimiK3Config {
        architectures: vec!["KimiK3ForConditionalGeneration".into()],
        model_type: Some("kimi_k3".into()),
        hidden_size: 128,
        num_hidden_layers: 13,
        vocab_size: 256,
        rms_norm_eps: 1e-5,
        kda_heads: 4,
        kda_head_dim: 16,
        short_conv_kernel_size: 4,
        gate_lower_bound: -5.0,
        mla_heads: 4,
        q_lora_rank: 64,
        kv_lora_rank: 32,
        qk_nope_head_dim: 24,
        qk_rope_head_dim: 8,
        v_head_dim: 16,
        mla_use_output_gate: true,
        mla_layers: vec![3, 7, 11, 12],
        num_experts: 8,
        num_experts_per_token: 2,
        num_shared_experts: 2,
        routed_expert_hidden_size: 64,
        moe_intermediate_size: 64,
        routed_scaling_factor: 1.0,
        moe_renormalize: true,
        latent_moe_use_norm: true,
        first_k_dense_replace: 1,
        intermediate_size: 96,
        attn_res_block_size: 3,
        situ_beta: 4.0,
        situ_linear_beta: 25.0,
        eos_token_ids: vec![],
    }
}

fn parse(text: &str) -> Result<KimiK3Config, FormatError> {
    KimiK3Config::parse(Path::new("config.json"), text.as_bytes())
}

#[test]
fn both_forms_round_trip() {
    for form in [ConfigForm::Nested, ConfigForm::Flat] {
        let text = tiny().to_json(form);
        assert_eq!(parse(&text).unwrap(), tiny(), "{text}");
    }
}
