//! `config.json` of a synthetic checkpoint, with the keys of the released one.

use serde_json::{Map, Value, json};

use super::layout::Vision;
use crate::config::{ConfigForm, KimiK3Config};

/// Positions the released model was made for.
const POSITIONS_MAX: u32 = 1_048_576;

/// The configuration as the released file has it: the language model's keys in
/// `text_config`, those of the vision tower beside it when there is one. Reads
/// back to an equal configuration, but for the names of a flat file's model,
/// which it does not have.
pub fn config_json(config: &KimiK3Config, vision: Vision) -> String {
    let text = config.to_json(ConfigForm::Nested);
    let mut root: Map<String, Value> =
        serde_json::from_str(&text).expect("the configuration is written as an object");
    let names = [
        ("architectures", json!(["KimiK3ForConditionalGeneration"])),
        ("model_type", json!("kimi_k3")),
    ];
    for (key, value) in names {
        root.entry(key).or_insert(value);
    }
    root.insert("dtype".into(), json!("bfloat16"));
    root.insert("tie_word_embeddings".into(), json!(false));
    if let Some(Value::Object(inner)) = root.get_mut("text_config") {
        add_text_keys(config, inner);
    }
    if vision == Vision::Included {
        root.insert("vision_config".into(), vision_config(config));
    }
    serde_json::to_string_pretty(&root).expect("a map always serialises") + "\n"
}

/// Keys the arithmetic does not read, or knows only one value of.
fn add_text_keys(config: &KimiK3Config, text: &mut Map<String, Value>) {
    let keys = json!({
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "dtype": "bfloat16",
        "num_key_value_heads": config.mla_heads,
        "moe_layer_freq": 1,
        "use_grouped_topk": true,
        "num_expert_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "max_position_embeddings": POSITIONS_MAX,
        "num_nextn_predict_layers": 0,
        "tie_word_embeddings": false,
    });
    if let Value::Object(keys) = keys {
        text.extend(keys);
    }
    if let Some(linear) = text.get_mut("linear_attn_config") {
        let one_based = (0..config.num_hidden_layers).filter(|layer| !config.is_mla(*layer));
        linear["kda_layers"] = one_based.map(|layer| layer + 1).collect();
    }
    if let Some(quantization) = text.get_mut("quantization_config") {
        quantization["ignore"] = json!([
            "re:.*self_attn.*",
            "re:.*shared_experts.*",
            "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
            "re:.*lm_head.*",
            "re:.*vision_tower.*",
            "re:.*mm_projector.*",
        ]);
    }
}

fn vision_config(config: &KimiK3Config) -> Value {
    json!({
        "patch_size": 14,
        "num_hidden_layers": 27,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 12,
        "qkv_hidden_size": 1536,
        "merge_kernel_size": [2, 2],
        "mm_projector_type": "patchmergerv2",
        "mm_hidden_size": 1024,
        "text_hidden_size": config.hidden_size,
        "projector_ln_eps": 1e-5,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::synth::released_config;

    #[test]
    fn it_reads_back_equal() {
        for vision in [Vision::Included, Vision::Left] {
            let json = config_json(&released_config(), vision);
            let read = KimiK3Config::parse(Path::new("config.json"), json.as_bytes());
            assert_eq!(read.unwrap(), released_config());
            let has_vision = json.contains("\"vision_config\"");
            assert_eq!(has_vision, vision == Vision::Included);
        }
    }

    #[test]
    fn layers_of_either_kind_are_listed_once() {
        let json = config_json(&released_config(), Vision::Left);
        let value: Value = serde_json::from_str(&json).unwrap();
        let linear = &value["text_config"]["linear_attn_config"];
        let list = |key: &str| linear[key].as_array().unwrap().clone();
        let mut layers = [list("kda_layers"), list("full_attn_layers")].concat();
        layers.sort_by_key(Value::as_u64);
        let all: Vec<Value> = (1..=93).map(|layer| json!(layer)).collect();
        assert_eq!(layers, all);
    }
}
