//! Writing a configuration back.

use serde_json::{Map, Value, json};

use super::{KimiK3Config, MXFP4_GROUP_COLUMNS};

/// The two forms of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigForm {
    /// As released: the language model's keys in `text_config`.
    Nested,
    /// All keys at the root, with the aliases flat files use.
    Flat,
}

impl KimiK3Config {
    /// The configuration as JSON text, which [`KimiK3Config::parse`] reads back
    /// to an equal value.
    pub fn to_json(&self, form: ConfigForm) -> String {
        let mut text = self.common_keys();
        let mut root = Map::new();
        match form {
            ConfigForm::Flat => {
                text.append(&mut self.linear_keys("kda_num_heads", "kda_head_dim"));
                text.insert("situ_beta".into(), json!(real(self.situ_beta)));
                text.insert(
                    "situ_linear_beta".into(),
                    json!(real(self.situ_linear_beta)),
                );
                root = text;
            }
            ConfigForm::Nested => {
                let linear = self.linear_keys("num_heads", "head_dim");
                text.insert("linear_attn_config".into(), Value::Object(linear));
                text.insert("activation_situ_beta".into(), json!(real(self.situ_beta)));
                text.insert(
                    "activation_situ_linear_beta".into(),
                    json!(real(self.situ_linear_beta)),
                );
                text.insert("hidden_act".into(), json!("situ"));
                text.insert("mla_use_nope".into(), json!(true));
                text.insert("moe_router_activation_func".into(), json!("sigmoid"));
                text.insert("quantization_config".into(), quantization());
                root.insert("text_config".into(), Value::Object(text));
            }
        }
        if !self.architectures.is_empty() {
            root.insert("architectures".into(), json!(self.architectures));
        }
        if let Some(model_type) = &self.model_type {
            root.insert("model_type".into(), json!(model_type));
        }
        match self.eos_token_ids.as_slice() {
            [] => {}
            [id] => drop(root.insert("eos_token_id".into(), json!(id))),
            ids => drop(root.insert("eos_token_id".into(), json!(ids))),
        }
        // A map of numbers, strings and lists always serialises.
        serde_json::to_string_pretty(&root).unwrap_or_default() + "\n"
    }

    fn common_keys(&self) -> Map<String, Value> {
        let keys = json!({
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "vocab_size": self.vocab_size,
            "rms_norm_eps": real(self.rms_norm_eps),
            "num_attention_heads": self.mla_heads,
            "q_lora_rank": self.q_lora_rank,
            "kv_lora_rank": self.kv_lora_rank,
            "qk_nope_head_dim": self.qk_nope_head_dim,
            "qk_rope_head_dim": self.qk_rope_head_dim,
            "v_head_dim": self.v_head_dim,
            "mla_use_output_gate": self.mla_use_output_gate,
            "num_experts": self.num_experts,
            "num_experts_per_token": self.num_experts_per_token,
            "num_shared_experts": self.num_shared_experts,
            "routed_expert_hidden_size": self.routed_expert_hidden_size,
            "moe_intermediate_size": self.moe_intermediate_size,
            "routed_scaling_factor": real(self.routed_scaling_factor),
            "moe_renormalize": self.moe_renormalize,
            "latent_moe_use_norm": self.latent_moe_use_norm,
            "first_k_dense_replace": self.first_k_dense_replace,
            "intermediate_size": self.intermediate_size,
            "attn_res_block_size": self.attn_res_block_size,
        });
        object(keys)
    }

    fn linear_keys(&self, heads: &str, head_dim: &str) -> Map<String, Value> {
        let one_based: Vec<usize> = self.mla_layers.iter().map(|layer| layer + 1).collect();
        object(json!({
            heads: self.kda_heads,
            head_dim: self.kda_head_dim,
            "short_conv_kernel_size": self.short_conv_kernel_size,
            "gate_lower_bound": real(self.gate_lower_bound),
            "use_full_rank_gate": true,
            "full_attn_layers": one_based,
        }))
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The shortest decimal that rounds to this f32, as a double, so that 1e-5 is
/// written as 1e-5 and not as the double nearest to the f32.
fn real(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

fn quantization() -> Value {
    json!({
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "config_groups": { "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "float",
                "symmetric": true,
                "group_size": MXFP4_GROUP_COLUMNS,
                "strategy": "group",
                "scale_dtype": "uint8",
            },
        } },
    })
}
