//! `config.json`: both forms, every lookup rule, every refusal.

use std::path::Path;

use serde_json::{Map, Value, json};

use k3_formats::replica::released_config;
use k3_formats::{ConfigForm, ConfigProblem, FormatError, KimiK3Config};

fn parse_text(text: &str) -> Result<KimiK3Config, FormatError> {
    KimiK3Config::parse(Path::new("dir/config.json"), text.as_bytes())
}

fn parse(value: &Value) -> Result<KimiK3Config, FormatError> {
    parse_text(&value.to_string())
}

fn flat() -> Value {
    serde_json::from_str(&released_config().to_json(ConfigForm::Flat)).unwrap()
}

fn nested() -> Value {
    serde_json::from_str(&released_config().to_json(ConfigForm::Nested)).unwrap()
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    value.as_object_mut().unwrap()
}

fn flat_with(key: &str, value: Value) -> Value {
    let mut config = flat();
    object(&mut config).insert(key.to_owned(), value);
    config
}

fn problems(value: &Value) -> Vec<ConfigProblem> {
    let error = parse(value).unwrap_err();
    assert!(error.to_string().contains("dir/config.json"), "{error}");
    match error {
        FormatError::Config { problems, .. } => problems,
        other => panic!("{other}"),
    }
}

/// The single problem of a configuration, as text.
fn only_problem(value: &Value) -> String {
    let problems = problems(value);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].to_string()
}

/// Flat names of every required key.
const REQUIRED: [&str; 26] = [
    "hidden_size",
    "num_hidden_layers",
    "vocab_size",
    "rms_norm_eps",
    "kda_num_heads",
    "kda_head_dim",
    "short_conv_kernel_size",
    "gate_lower_bound",
    "num_attention_heads",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "num_experts",
    "num_experts_per_token",
    "num_shared_experts",
    "routed_expert_hidden_size",
    "moe_intermediate_size",
    "routed_scaling_factor",
    "first_k_dense_replace",
    "intermediate_size",
    "attn_res_block_size",
    "situ_beta",
    "situ_linear_beta",
    "full_attn_layers",
];

#[test]
fn both_forms_give_the_same_configuration() {
    let released = released_config();
    assert_eq!(parse(&flat()).unwrap(), released);
    assert_eq!(parse(&nested()).unwrap(), released);
}

#[test]
fn each_required_key_is_missed_by_name() {
    for key in REQUIRED {
        for absent in [None, Some(Value::Null)] {
            let mut config = flat();
            object(&mut config).remove(key);
            if let Some(value) = absent {
                object(&mut config).insert(key.to_owned(), value);
            }
            let message = only_problem(&config);
            assert!(
                message.contains(key) && message.contains("missing"),
                "{message}"
            );
        }
    }
}

#[test]
fn all_problems_are_listed_at_once() {
    let message = parse_text("{}").unwrap_err().to_string();
    for key in REQUIRED {
        assert!(message.contains(key), "{key}: {message}");
    }
    let mut config = flat();
    object(&mut config).remove("q_lora_rank");
    object(&mut config).insert("vocab_size".into(), json!("163840"));
    object(&mut config).insert("hidden_act".into(), json!("silu"));
    object(&mut config).insert("num_experts".into(), json!(0));
    let kinds = problems(&config);
    assert_eq!(kinds.len(), 4, "{kinds:?}");
    let has = |kind: fn(&ConfigProblem) -> bool| kinds.iter().any(kind);
    assert!(has(|problem| matches!(
        problem,
        ConfigProblem::Missing { .. }
    )));
    assert!(has(|problem| matches!(
        problem,
        ConfigProblem::IllTyped { .. }
    )));
    assert!(has(|problem| matches!(
        problem,
        ConfigProblem::Unsupported { .. }
    )));
    assert!(has(|problem| matches!(
        problem,
        ConfigProblem::OutOfRange { .. }
    )));
}

#[test]
fn layer_counts_that_other_readers_believed() {
    for count in [
        json!(0),
        json!(-1),
        json!(1_000_000_000),
        json!(93.5),
        json!("93"),
        json!(93.0),
    ] {
        let message = only_problem_of_layers(&count);
        assert!(message.contains("num_hidden_layers"), "{count}: {message}");
    }
    // More layers than the released model are a model, not a fault.
    parse(&flat_with("num_hidden_layers", json!(200))).unwrap();
    parse(&flat_with("num_hidden_layers", json!(128))).unwrap();
}

fn only_problem_of_layers(count: &Value) -> String {
    let text = flat_with("num_hidden_layers", count.clone());
    only_problem(&text)
}

#[test]
fn sizes_must_be_whole_positive_numbers() {
    let not_sizes = [
        "rms_norm_eps",
        "gate_lower_bound",
        "routed_scaling_factor",
        "situ_beta",
        "situ_linear_beta",
        "full_attn_layers",
        "first_k_dense_replace",
    ];
    for key in REQUIRED.into_iter().filter(|key| !not_sizes.contains(key)) {
        for value in [
            json!(0),
            json!(-4),
            json!(1.5),
            json!("4"),
            json!(true),
            json!([4]),
            json!(u64::MAX),
            json!(1e30),
        ] {
            let message = only_problem(&flat_with(key, value.clone()));
            assert!(message.contains(key), "{key} {value}: {message}");
        }
    }
    parse(&flat_with("hidden_size", json!(1 << 20))).unwrap();
    only_problem(&flat_with("hidden_size", json!((1 << 20) + 1)));
    parse(&flat_with("first_k_dense_replace", json!(0))).unwrap();
    only_problem(&flat_with("first_k_dense_replace", json!(94)));
    only_problem(&flat_with("first_k_dense_replace", json!(-1)));
}

#[test]
fn a_model_that_no_disk_holds() {
    let mut config = flat();
    for key in ["routed_expert_hidden_size", "moe_intermediate_size"] {
        object(&mut config).insert(key.into(), json!(1 << 20));
    }
    object(&mut config).insert("num_experts".into(), json!(1 << 16));
    let message = only_problem(&config);
    assert!(message.contains("size of all weights"), "{message}");
}

#[test]
fn real_numbers_are_finite_and_have_the_right_sign() {
    for key in [
        "rms_norm_eps",
        "situ_beta",
        "situ_linear_beta",
        "routed_scaling_factor",
    ] {
        for value in [
            json!(0),
            json!(0.0),
            json!(-1.0),
            json!("1"),
            json!(1e300),
            json!(1e-60),
        ] {
            let message = only_problem(&flat_with(key, value.clone()));
            assert!(message.contains(key), "{key} {value}: {message}");
        }
        parse(&flat_with(key, json!(2))).unwrap();
    }
    only_problem(&flat_with("gate_lower_bound", json!(0.5)));
    parse(&flat_with("gate_lower_bound", json!(-5))).unwrap();
    let mut config = flat();
    object(&mut config).remove("rms_norm_eps");
    let overflow = config
        .to_string()
        .replacen('{', "{\"rms_norm_eps\":1e999,", 1);
    let error = parse_text(&overflow).unwrap_err();
    assert!(matches!(error, FormatError::Json { .. }), "{error}");
}

#[test]
fn the_epsilon_is_the_single_nearest_to_the_decimal() {
    for (text, bits) in [
        ("1e-05", 1e-5_f32),
        ("0.00001", 1e-5),
        ("1E-5", 1e-5),
        ("1e-6", 1e-6),
    ] {
        let mut config = flat();
        object(&mut config).remove("rms_norm_eps");
        let text = config
            .to_string()
            .replacen('{', &format!("{{\"rms_norm_eps\":{text},"), 1);
        let read = parse_text(&text).unwrap().rms_norm_eps;
        assert_eq!(read.to_bits(), bits.to_bits());
    }
}

#[test]
fn variants_are_refused_by_name() {
    for (key, other, supported) in [
        ("hidden_act", json!("silu"), "situ"),
        ("mla_use_nope", json!(false), "true"),
        ("use_full_rank_gate", json!(false), "true"),
        ("moe_router_activation_func", json!("softmax"), "sigmoid"),
        ("num_expert_group", json!(8), "1"),
        ("topk_group", json!(4), "1"),
        ("moe_layer_freq", json!(2), "1"),
        ("tie_word_embeddings", json!(true), "false"),
        ("group_size", json!(16), "32"),
        ("hidden_act", json!(7), "situ"),
    ] {
        let at_root = only_problem(&flat_with(key, other.clone()));
        let mut inner = nested();
        object(&mut inner["text_config"]).insert(key.into(), other.clone());
        let inside = only_problem(&inner);
        for message in [&at_root, &inside] {
            for part in [key, &other.to_string(), supported, "not supported"] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
        assert!(inside.contains("text_config."), "{inside}");
    }
    let mut linear = nested();
    object(&mut linear["text_config"]["linear_attn_config"])
        .insert("use_full_rank_gate".into(), json!(false));
    let message = only_problem(&linear);
    assert!(
        message.contains("linear_attn_config.use_full_rank_gate"),
        "{message}"
    );
    let mut quantized = nested();
    quantized["text_config"]["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] =
        json!(128);
    let message = only_problem(&quantized);
    assert!(message.contains("group_size is 128"), "{message}");
}

#[test]
fn absent_null_and_equal_values_of_variants_are_fine() {
    let keys = [
        "hidden_act",
        "mla_use_nope",
        "moe_layer_freq",
        "tie_word_embeddings",
    ];
    for key in keys {
        parse(&flat_with(key, Value::Null)).unwrap();
    }
    parse(&flat_with("hidden_act", json!("situ"))).unwrap();
    parse(&flat_with("dsa_config", Value::Null)).unwrap();
    parse(&flat_with("something_new", json!({"a": [1, 2]}))).unwrap();
}

#[test]
fn the_successor_is_refused_by_name() {
    let mut by_key = nested();
    object(&mut by_key["text_config"]).insert("dsa_config".into(), json!({"top_k": 2048}));
    let by_name = flat_with("architectures", json!(["KimiK31ForConditionalGeneration"]));
    let mut by_name_alone = json!({"architectures": ["KimiK31ForConditionalGeneration"]});
    by_name_alone["text_config"] = json!({});
    for config in [by_key, by_name, by_name_alone] {
        let message = only_problem(&config);
        for part in [
            "Kimi K3.1",
            "sparse indexer",
            "not supported by this version",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn linear_attention_is_looked_up_where_it_stands() {
    // A bare head_dim or num_heads outside linear_attn_config means MLA's or nothing.
    let mut config = flat();
    object(&mut config).remove("kda_head_dim");
    object(&mut config).insert("head_dim".into(), json!(128));
    assert!(only_problem(&config).contains("head_dim or kda_head_dim is missing"));
    let mut config = flat();
    object(&mut config).remove("kda_num_heads");
    object(&mut config).insert("num_heads".into(), json!(96));
    assert!(only_problem(&config).contains("missing"));
    assert_eq!(
        parse(&flat_with("head_dim", json!(7)))
            .unwrap()
            .kda_head_dim,
        128
    );

    // linear_attn_config comes before the aliases, inside text_config or at the root.
    let linear = json!({"head_dim": 64, "num_heads": 32});
    let root = parse(&flat_with("linear_attn_config", linear.clone())).unwrap();
    assert_eq!((root.kda_head_dim, root.kda_heads), (64, 32));
    assert_eq!(
        root.short_conv_kernel_size, 4,
        "what it lacks comes from the root"
    );
    let mut both = nested();
    object(&mut both).insert("linear_attn_config".into(), linear);
    assert_eq!(
        parse(&both).unwrap().kda_head_dim,
        128,
        "the inner one comes first"
    );
    let ill = flat_with("linear_attn_config", json!([1]));
    assert!(only_problem(&ill).contains("linear_attn_config is a list"));
}

#[test]
fn the_inner_value_and_the_primary_name_come_first() {
    let mut config = nested();
    object(&mut config).insert("hidden_size".into(), json!(64));
    assert_eq!(parse(&config).unwrap().hidden_size, 7168);
    object(&mut config["text_config"]).remove("hidden_size");
    assert_eq!(parse(&config).unwrap().hidden_size, 64);
    let named = flat_with("activation_situ_beta", json!(3.0));
    assert_eq!(parse(&named).unwrap().situ_beta, 3.0);
    let ill = flat_with("text_config", json!("inline"));
    assert!(only_problem(&ill).contains("text_config is \"inline\""));
}

#[test]
fn full_attention_layers() {
    let with = |list: Value| flat_with("full_attn_layers", list);
    for (list, part) in [
        (json!([]), "empty"),
        (json!([0]), "1..=93"),
        (json!([94]), "1..=93"),
        (json!([-1]), "-1"),
        (json!([4, 8, 4]), "4 more than once"),
        (json!([0, 8, "x\u{7}", 4.5, 94]), "0, \"x\\u{7}\", 4.5, 94"),
        (json!([9, 8, 4, 8, 4, 8]), "4, 8 more than once"),
        (json!(["4"]), "an integer"),
        (json!([4.0]), "an integer"),
        (json!(4), "a list of layer numbers"),
        (json!((1..=93).collect::<Vec<_>>()), "every layer"),
    ] {
        let message = only_problem(&with(list));
        assert!(
            message.contains("full_attn_layers") && message.contains(part),
            "{message}"
        );
    }
    let read = parse(&with(json!([93, 4]))).unwrap();
    assert_eq!(read.mla_layers, [3, 92]);
    assert!(read.is_mla(3) && !read.is_mla(4) && read.is_mla(92));
}

#[test]
fn experts_and_groups() {
    let message = only_problem(&flat_with("num_experts_per_token", json!(897)));
    assert!(
        message.contains("897") && message.contains("896"),
        "{message}"
    );
    parse(&flat_with("num_experts_per_token", json!(896))).unwrap();
    for key in ["routed_expert_hidden_size", "moe_intermediate_size"] {
        let message = only_problem(&flat_with(key, json!(3000)));
        assert!(message.contains("multiple of 32"), "{message}");
    }
}

#[test]
fn optional_flags_default_to_true_and_are_typed() {
    for key in [
        "mla_use_output_gate",
        "moe_renormalize",
        "latent_moe_use_norm",
    ] {
        let mut config = flat();
        object(&mut config).remove(key);
        assert_eq!(parse(&config).unwrap(), released_config(), "{key}");
        assert_ne!(
            parse(&flat_with(key, json!(false))).unwrap(),
            released_config(),
            "{key}"
        );
        for value in [json!(1), json!("true"), json!([])] {
            assert!(only_problem(&flat_with(key, value)).contains(key));
        }
    }
}

#[test]
fn end_ids_are_one_or_several() {
    let ids = |value| {
        parse(&flat_with("eos_token_id", value))
            .unwrap()
            .eos_token_ids
    };
    assert_eq!(ids(json!(5)), [5]);
    assert_eq!(ids(json!([163_585, 163_586])), [163_585, 163_586]);
    assert!(ids(Value::Null).is_empty());
    for value in [json!("5"), json!(-1), json!([1.5]), json!(1_u64 << 32)] {
        assert!(only_problem(&flat_with("eos_token_id", value)).contains("eos_token_id"));
    }
}

#[test]
fn end_ids_are_tokens_of_the_vocabulary() {
    parse(&flat_with("eos_token_id", json!(163_839))).unwrap();
    for value in [json!(163_840), json!([163_586, 163_840])] {
        let message = only_problem(&flat_with("eos_token_id", value));
        for part in ["eos_token_id", "163840", "vocab_size"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn key_value_heads_that_contradict_the_attention() {
    parse(&flat_with("num_key_value_heads", json!(96))).unwrap();
    for value in [json!(8), json!(97), json!("96"), json!(0)] {
        let message = only_problem(&flat_with("num_key_value_heads", value));
        assert!(message.contains("num_key_value_heads"), "{message}");
    }
    let message = only_problem(&flat_with("num_key_value_heads", json!(8)));
    assert!(message.contains("num_attention_heads, 96"), "{message}");
}

#[test]
fn byte_order_marks_are_named() {
    let text = flat().to_string();
    for (mark, encoding) in [(&b"\xEF\xBB\xBF"[..], "UTF-8"), (b"\xFF\xFE", "UTF-16")] {
        let bytes = [mark, text.as_bytes()].concat();
        let error = KimiK3Config::parse(Path::new("dir/config.json"), &bytes).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("byte order mark") && message.contains(encoding),
            "{message}"
        );
    }
}

#[test]
fn names_from_the_file_cannot_steer_a_terminal() {
    let hostile = format!("\u{1b}[2J{}", "y".repeat(5000));
    let mut config = flat();
    object(&mut config).insert("architectures".into(), json!([hostile]));
    object(&mut config).insert(
        "quantization_config".into(),
        json!({ hostile.clone(): { "group_size": 7 } }),
    );
    let message = parse(&config).unwrap_err().to_string();
    assert!(
        !message.contains('\u{1b}') && message.len() < 800,
        "{message}"
    );
    let twice = format!("{{{}:1,{}:2}}", json!(hostile), json!(hostile));
    let message = parse_text(&twice).unwrap_err().to_string();
    assert!(
        !message.contains('\u{1b}') && message.len() < 800,
        "{message}"
    );
}

#[test]
fn text_that_is_no_configuration() {
    for text in [
        "",
        "[]",
        "3",
        "{",
        "{\"a\":1,}",
        "{\"a\":1}x",
        "\u{feff}{}",
        "{\"a\":NaN}",
    ] {
        let error = parse_text(text).unwrap_err();
        assert!(matches!(error, FormatError::Json { .. }), "{text}: {error}");
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(parse_text(&deep), Err(FormatError::Json { .. })));
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(4 << 20));
    assert!(matches!(
        parse_text(&long),
        Err(FormatError::TooLarge { .. })
    ));
}

#[test]
fn the_same_key_twice() {
    let twice = flat()
        .to_string()
        .replacen('{', "{\"hidden_size\":7168,", 1);
    let error = parse_text(&twice).unwrap_err();
    assert!(
        error.to_string().contains("\"hidden_size\" stands twice"),
        "{error}"
    );
    let mut inner = nested().to_string();
    inner = inner.replacen(
        "\"linear_attn_config\":{",
        "\"linear_attn_config\":{\"num_heads\":1,",
        1,
    );
    let error = parse_text(&inner).unwrap_err();
    assert!(
        error.to_string().contains("\"num_heads\" stands twice"),
        "{error}"
    );
}

#[test]
fn another_models_configuration_says_what_it_is() {
    let text = "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":4096}";
    let message = parse_text(text).unwrap_err().to_string();
    assert!(message.contains("LlamaForCausalLM"), "{message}");
    assert!(!message.contains("- hidden_size is missing"), "{message}");
}
