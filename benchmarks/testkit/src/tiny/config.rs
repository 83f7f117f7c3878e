//! config.json of a spec.

use k3_formats::ConfigForm;
use serde_json::{Map, Value, json};

use super::spec::TinySpec;

/// The JSON number that reads back as exactly this f32, at its shortest.
fn number(value: f32) -> Value {
    let shortest: f64 = format!("{value:e}").parse().expect("a float's own text");
    json!(shortest)
}

/// The configuration in the spec's form.
pub(super) fn config_json(spec: &TinySpec) -> Value {
    let mut config = match spec.layout.config {
        ConfigForm::Nested => nested(spec),
        ConfigForm::Flat => flat(spec),
    };
    match spec.eos_token_ids.as_slice() {
        [] => {}
        [id] => config["eos_token_id"] = json!(id),
        ids => config["eos_token_id"] = json!(ids),
    }
    config
}

/// The keys both forms spell alike.
fn common(spec: &TinySpec) -> Map<String, Value> {
    let shape = &spec.shape;
    let value = json!({
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "rms_norm_eps": number(shape.rms_norm_eps),
        "num_attention_heads": shape.mla_heads,
        "q_lora_rank": shape.q_lora,
        "kv_lora_rank": shape.kv_lora,
        "qk_nope_head_dim": shape.nope,
        "qk_rope_head_dim": shape.rope,
        "v_head_dim": shape.v_dim,
        "mla_use_output_gate": shape.output_gate,
        "num_experts": shape.experts,
        "num_experts_per_token": shape.top_k,
        "num_shared_experts": shape.shared,
        "routed_expert_hidden_size": shape.latent,
        "moe_intermediate_size": shape.moe_width,
        "routed_scaling_factor": number(shape.scaling_factor),
        "moe_renormalize": shape.renormalize,
        "latent_moe_use_norm": shape.latent_norm,
        "first_k_dense_replace": shape.dense_layers,
        "intermediate_size": shape.dense_width,
        "attn_res_block_size": shape.block,
    });
    match value {
        Value::Object(map) => map,
        _ => unreachable!("an object literal"),
    }
}

fn flat(spec: &TinySpec) -> Value {
    let shape = &spec.shape;
    let mut config = common(spec);
    config.insert("kda_num_heads".into(), json!(shape.kda_heads));
    config.insert("kda_head_dim".into(), json!(shape.kda_head_dim));
    config.insert("short_conv_kernel_size".into(), json!(shape.conv_taps));
    config.insert("gate_lower_bound".into(), number(shape.gate_lower_bound));
    config.insert("full_attn_layers".into(), json!(shape.mla_layers));
    config.insert("situ_beta".into(), number(shape.situ_beta));
    config.insert("situ_linear_beta".into(), number(shape.situ_linear_beta));
    Value::Object(config)
}

fn nested(spec: &TinySpec) -> Value {
    let shape = &spec.shape;
    let mut text = common(spec);
    let kda_layers: Vec<usize> = (1..=shape.layers)
        .filter(|layer| !shape.mla_layers.contains(layer))
        .collect();
    text.insert(
        "linear_attn_config".into(),
        json!({
            "num_heads": shape.kda_heads,
            "head_dim": shape.kda_head_dim,
            "short_conv_kernel_size": shape.conv_taps,
            "gate_lower_bound": number(shape.gate_lower_bound),
            "use_full_rank_gate": true,
            "full_attn_layers": shape.mla_layers,
            "kda_layers": kda_layers,
        }),
    );
    for (key, value) in [
        ("model_type", json!("kimi_linear")),
        ("architectures", json!(["KimiLinearForCausalLM"])),
        ("num_key_value_heads", json!(shape.mla_heads)),
        ("hidden_act", json!("situ")),
        ("activation_situ_beta", number(shape.situ_beta)),
        (
            "activation_situ_linear_beta",
            number(shape.situ_linear_beta),
        ),
        ("mla_use_nope", json!(true)),
        ("moe_router_activation_func", json!("sigmoid")),
        ("use_grouped_topk", json!(true)),
        ("num_expert_group", json!(1)),
        ("topk_group", json!(1)),
        ("topk_method", json!("noaux_tc")),
        ("moe_layer_freq", json!(1)),
        ("tie_word_embeddings", json!(false)),
        // Decoys: both are read only where a flat root stands for everything.
        ("head_dim", json!(shape.kda_head_dim + 1)),
        ("num_nextn_predict_layers", json!(0)),
    ] {
        text.insert(key.into(), value);
    }
    json!({
        "architectures": ["KimiK3ForConditionalGeneration"],
        "model_type": "kimi_k3",
        "dtype": "bfloat16",
        "tie_word_embeddings": false,
        "text_config": text,
    })
}
