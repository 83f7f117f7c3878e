//! From the file's bytes to a checked configuration.

use std::path::Path;

use super::json::Json;
use super::limits;
use super::lookup::{Found, Lookup};
use super::problem::ConfigProblem;
use super::{KimiK3Config, MXFP4_GROUP_COLUMNS, refused};
use crate::error::FormatError;
use crate::json_error::{byte_order_mark, json_error};
use crate::shown::listed;

/// Longest configuration file that is read. The released one has 4 KB; lists of
/// quantised modules make some ports' files longer.
pub const MAX_CONFIG_BYTES: u64 = 4 << 20;

impl KimiK3Config {
    /// Reads `config.json`; `label` is the path shown in messages.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooLarge`] beyond [`MAX_CONFIG_BYTES`],
    /// [`FormatError::Json`] when the bytes are not JSON or have a key twice,
    /// and [`FormatError::Config`] with every missing, ill-typed, impossible or
    /// unsupported value at once.
    pub fn parse(label: &Path, bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() as u64 > MAX_CONFIG_BYTES {
            return Err(FormatError::TooLarge {
                path: label.to_path_buf(),
                found_bytes: bytes.len() as u64,
                limit_bytes: MAX_CONFIG_BYTES,
            });
        }
        if let Some(detail) = byte_order_mark(bytes) {
            return Err(FormatError::Json {
                path: label.to_path_buf(),
                offset: 0,
                detail,
            });
        }
        let root: Json =
            serde_json::from_slice(bytes).map_err(|error| json_error(label, bytes, 0, &error))?;
        if !matches!(root, Json::Object(_)) {
            return Err(FormatError::Json {
                path: label.to_path_buf(),
                offset: 0,
                detail: format!("expected an object, found {root}"),
            });
        }
        let mut lookup = Lookup::new(&root);
        refused::check(&mut lookup);
        let config = read_fields(&mut lookup);
        let fault = |problems| FormatError::Config {
            path: label.to_path_buf(),
            architectures: display_architectures(&root),
            problems,
        };
        match config {
            Some(mut config) if lookup.problems.is_empty() => {
                config.architectures = display_architectures(&root);
                Ok(config)
            }
            _ => {
                // A successor model lacks or changes other keys too; its name is
                // the one thing worth saying.
                let successor = |problem: &ConfigProblem| {
                    matches!(problem, ConfigProblem::SparseIndexer { .. })
                };
                if lookup.problems.iter().any(successor) {
                    lookup.problems.retain(successor);
                }
                Err(fault(lookup.problems))
            }
        }
    }
}

fn display_architectures(root: &Json) -> Vec<String> {
    match root.get("architectures") {
        Some(Json::Array(names)) => names
            .iter()
            .filter_map(|name| match name {
                Json::Text(name) => Some(name.clone()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn size(lookup: &mut Lookup<'_>, key: &str, maximum: usize) -> Option<usize> {
    let found = lookup.find(&[key]);
    let found = lookup.require(found, key);
    lookup.integer(found, 1, maximum)
}

fn linear_size(
    lookup: &mut Lookup<'_>,
    key: &str,
    flat_keys: &[&str],
    maximum: usize,
) -> Option<usize> {
    let found = lookup.find_linear(key, flat_keys);
    let found = lookup.require(
        found,
        &format!("linear_attn_config.{key} or {}", flat_keys[0]),
    );
    lookup.integer(found, 1, maximum)
}

fn positive(lookup: &mut Lookup<'_>, keys: &[&str]) -> Option<f32> {
    let found = lookup.find(keys);
    let found = lookup.require(found, &keys.join(" or "));
    lookup.real(found, "above zero and finite as f32", |number| number > 0.0)
}

/// Keys of the linear attention.
struct KdaKeys {
    heads: usize,
    head_dim: usize,
    conv_kernel_size: usize,
    gate_lower_bound: f32,
}

/// Keys of the latent attention.
struct MlaKeys {
    heads: usize,
    q_lora_rank: usize,
    kv_lora_rank: usize,
    qk_nope_head_dim: usize,
    qk_rope_head_dim: usize,
    v_head_dim: usize,
}

/// Keys of the routed and shared experts.
struct MoeKeys {
    num_experts: usize,
    num_experts_per_token: usize,
    num_shared_experts: usize,
    latent: usize,
    inner: usize,
    scaling_factor: f32,
}

// In each group every key is read before the first `?`, so that every problem
// is met.

fn read_kda(lookup: &mut Lookup<'_>) -> Option<KdaKeys> {
    let heads = linear_size(lookup, "num_heads", &["kda_num_heads"], limits::HEADS_MAX);
    let width_max = limits::HEAD_WIDTH_MAX;
    let head_dim = linear_size(lookup, "head_dim", &["kda_head_dim"], width_max);
    let conv_kernel_size = linear_size(
        lookup,
        "short_conv_kernel_size",
        &["short_conv_kernel_size", "kda_short_conv_kernel_size"],
        limits::CONV_TAPS_MAX,
    );
    let gate_lower_bound = gate_lower_bound(lookup);
    Some(KdaKeys {
        heads: heads?,
        head_dim: head_dim?,
        conv_kernel_size: conv_kernel_size?,
        gate_lower_bound: gate_lower_bound?,
    })
}

fn read_mla(lookup: &mut Lookup<'_>) -> Option<MlaKeys> {
    use limits::{HEAD_WIDTH_MAX, WIDTH_MAX};

    let heads = size(lookup, "num_attention_heads", limits::HEADS_MAX);
    check_kv_heads(lookup, heads);
    let q_lora_rank = size(lookup, "q_lora_rank", WIDTH_MAX);
    let kv_lora_rank = size(lookup, "kv_lora_rank", WIDTH_MAX);
    let qk_nope_head_dim = size(lookup, "qk_nope_head_dim", HEAD_WIDTH_MAX);
    let qk_rope_head_dim = size(lookup, "qk_rope_head_dim", HEAD_WIDTH_MAX);
    let v_head_dim = size(lookup, "v_head_dim", HEAD_WIDTH_MAX);
    Some(MlaKeys {
        heads: heads?,
        q_lora_rank: q_lora_rank?,
        kv_lora_rank: kv_lora_rank?,
        qk_nope_head_dim: qk_nope_head_dim?,
        qk_rope_head_dim: qk_rope_head_dim?,
        v_head_dim: v_head_dim?,
    })
}

fn read_moe(lookup: &mut Lookup<'_>) -> Option<MoeKeys> {
    let num_experts = size(lookup, "num_experts", limits::EXPERTS_MAX);
    let num_experts_per_token = size(lookup, "num_experts_per_token", limits::EXPERTS_MAX);
    let num_shared_experts = size(lookup, "num_shared_experts", limits::SHARED_EXPERTS_MAX);
    let latent = mxfp4_width(lookup, "routed_expert_hidden_size");
    let inner = mxfp4_width(lookup, "moe_intermediate_size");
    let scaling_factor = positive(lookup, &["routed_scaling_factor"]);
    if let (Some(picks), Some(experts)) = (num_experts_per_token, num_experts)
        && picks > experts
    {
        let expected = format!("at most num_experts, {experts}");
        lookup.out_of_range("num_experts_per_token", expected, picks);
    }
    Some(MoeKeys {
        num_experts: num_experts?,
        num_experts_per_token: num_experts_per_token?,
        num_shared_experts: num_shared_experts?,
        latent: latent?,
        inner: inner?,
        scaling_factor: scaling_factor?,
    })
}

/// Reads every key; `None` when a value is absent, which is then a problem of
/// `lookup`.
fn read_fields(lookup: &mut Lookup<'_>) -> Option<KimiK3Config> {
    let hidden_size = size(lookup, "hidden_size", limits::WIDTH_MAX);
    let num_hidden_layers = size(lookup, "num_hidden_layers", limits::LAYERS_MAX);
    let vocab_size = size(lookup, "vocab_size", limits::VOCABULARY_MAX);
    let rms_norm_eps = positive(lookup, &["rms_norm_eps"]);
    let kda = read_kda(lookup);
    let mla = read_mla(lookup);
    let moe = read_moe(lookup);
    let first_k_dense_replace = dense_layers(lookup, num_hidden_layers);
    let intermediate_size = size(lookup, "intermediate_size", limits::WIDTH_MAX);
    let attn_res_block_size = size(lookup, "attn_res_block_size", limits::LAYERS_MAX);
    let situ_beta = positive(lookup, &["activation_situ_beta", "situ_beta"]);
    let situ_linear_beta = positive(lookup, &["activation_situ_linear_beta", "situ_linear_beta"]);
    let mla_layers = mla_layers(lookup, num_hidden_layers);
    let mla_use_output_gate = lookup.flag("mla_use_output_gate", true);
    let moe_renormalize = lookup.flag("moe_renormalize", true);
    let latent_moe_use_norm = lookup.flag("latent_moe_use_norm", true);
    let eos_token_ids = eos_token_ids(lookup, vocab_size);
    let (kda, mla, moe) = (kda?, mla?, moe?);
    let config = KimiK3Config {
        architectures: Vec::new(),
        model_type: model_type(lookup),
        hidden_size: hidden_size?,
        num_hidden_layers: num_hidden_layers?,
        vocab_size: vocab_size?,
        rms_norm_eps: rms_norm_eps?,
        kda_heads: kda.heads,
        kda_head_dim: kda.head_dim,
        short_conv_kernel_size: kda.conv_kernel_size,
        gate_lower_bound: kda.gate_lower_bound,
        mla_heads: mla.heads,
        q_lora_rank: mla.q_lora_rank,
        kv_lora_rank: mla.kv_lora_rank,
        qk_nope_head_dim: mla.qk_nope_head_dim,
        qk_rope_head_dim: mla.qk_rope_head_dim,
        v_head_dim: mla.v_head_dim,
        mla_use_output_gate,
        mla_layers: mla_layers?,
        num_experts: moe.num_experts,
        num_experts_per_token: moe.num_experts_per_token,
        num_shared_experts: moe.num_shared_experts,
        routed_expert_hidden_size: moe.latent,
        moe_intermediate_size: moe.inner,
        routed_scaling_factor: moe.scaling_factor,
        moe_renormalize,
        latent_moe_use_norm,
        first_k_dense_replace: first_k_dense_replace?,
        intermediate_size: intermediate_size?,
        attn_res_block_size: attn_res_block_size?,
        situ_beta: situ_beta?,
        situ_linear_beta: situ_linear_beta?,
        eos_token_ids,
    };
    check_total(lookup, &config);
    Some(config)
}

fn model_type(lookup: &Lookup<'_>) -> Option<String> {
    // The outer name is the model's; the inner one is that of its text part.
    let (_, root) = lookup.scopes.last()?;
    match root.get("model_type") {
        Some(Json::Text(name)) => Some(name.clone()),
        _ => None,
    }
}

fn gate_lower_bound(lookup: &mut Lookup<'_>) -> Option<f32> {
    let key = "gate_lower_bound";
    let found = lookup.find_linear(key, &[key, "kda_gate_lower_bound"]);
    let found = lookup.require(
        found,
        "linear_attn_config.gate_lower_bound or gate_lower_bound",
    );
    // A positive bound would make every decay a growth.
    lookup.real(found, "zero or below and finite as f32", |number| {
        number <= 0.0
    })
}

/// Latent attention has no key-value heads of their own number; files name them
/// all the same, and another number means another attention.
fn check_kv_heads(lookup: &mut Lookup<'_>, heads: Option<usize>) {
    let found = lookup.find(&["num_key_value_heads"]);
    let key = found.as_ref().map(|found| found.key.clone());
    let number = lookup.integer(found, 1, limits::HEADS_MAX);
    if let (Some(key), Some(number), Some(heads)) = (key, number, heads)
        && number != heads
    {
        let expected = format!("num_attention_heads, {heads}: no heads share keys and values");
        lookup.out_of_range(key, expected, number);
    }
}

/// A width that is split into MXFP4 groups.
fn mxfp4_width(lookup: &mut Lookup<'_>, key: &str) -> Option<usize> {
    let width = size(lookup, key, limits::WIDTH_MAX)?;
    if width.is_multiple_of(MXFP4_GROUP_COLUMNS) {
        return Some(width);
    }
    let expected = format!("a multiple of {MXFP4_GROUP_COLUMNS}, the columns of an MXFP4 group");
    lookup.out_of_range(key, expected, width);
    None
}

fn dense_layers(lookup: &mut Lookup<'_>, layer_count: Option<usize>) -> Option<usize> {
    let key = "first_k_dense_replace";
    let found = lookup.find(&[key]);
    let found = lookup.require(found, key);
    lookup.integer(found, 0, layer_count.unwrap_or(limits::LAYERS_MAX))
}

/// The one-based list of the file as ascending zero-based indices.
fn mla_layers(lookup: &mut Lookup<'_>, layer_count: Option<usize>) -> Option<Vec<usize>> {
    let name = "full_attn_layers";
    let found = lookup.find_linear(name, &[name, "kda_full_attn_layers"]);
    let missing_name = format!("linear_attn_config.{name} or {name}");
    let Found { key, value } = lookup.require(found, &missing_name)?;
    let Json::Array(items) = value else {
        lookup.ill_typed(key, "a list of layer numbers", value);
        return None;
    };
    if items.is_empty() {
        lookup.out_of_range(key, "a list of at least one layer", "empty");
        return None;
    }
    let maximum = layer_count.unwrap_or(limits::LAYERS_MAX);
    let mut layers = Vec::with_capacity(items.len().min(maximum));
    let mut bad = Vec::new();
    for value in items {
        let number = match *value {
            Json::Integer(number) => usize::try_from(number).ok(),
            _ => None,
        };
        match number.filter(|number| (1..=maximum).contains(number)) {
            Some(number) => layers.push(number - 1),
            None => bad.push(value.to_string()),
        }
    }
    if !bad.is_empty() {
        let expected = format!("a list of layers, each an integer in 1..={maximum}");
        lookup.out_of_range(key, expected, format!("a list with {}", listed(&bad)));
        return None;
    }
    layers.sort_unstable();
    let mut repeated: Vec<String> = layers
        .windows(2)
        .filter(|pair| pair[0] == pair[1])
        .map(|pair| (pair[0] + 1).to_string())
        .collect();
    repeated.dedup();
    if !repeated.is_empty() {
        let found = format!("a list with {} more than once", listed(&repeated));
        lookup.out_of_range(key, "a list of distinct layers", found);
        return None;
    }
    if layer_count == Some(layers.len()) {
        lookup.out_of_range(
            key,
            "fewer than all layers: some must be KDA",
            "every layer",
        );
        return None;
    }
    Some(layers)
}

/// One id, a list of ids, or nothing.
fn eos_token_ids(lookup: &mut Lookup<'_>, vocab_size: Option<usize>) -> Vec<u32> {
    let Some(Found { key, value }) = lookup.find(&["eos_token_id"]) else {
        return Vec::new();
    };
    let items = match value {
        Json::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    };
    let mut ids = Vec::new();
    for value in items {
        let id = match value {
            Json::Integer(number) => u32::try_from(*number).ok(),
            _ => None,
        };
        match id {
            Some(id) if vocab_size.is_some_and(|size| id as usize >= size) => {
                let expected = format!("below vocab_size, {}", vocab_size.unwrap_or_default());
                lookup.out_of_range(key.clone(), expected, id);
            }
            Some(id) => ids.push(id),
            None => lookup.ill_typed(key.clone(), "a token id or a list of them", value),
        }
    }
    ids
}

/// The caps on single sizes leave room for a product that no disk holds; with
/// this check every byte count of the model fits 64 bits.
fn check_total(lookup: &mut Lookup<'_>, config: &KimiK3Config) {
    let bytes = weight_bytes(config);
    if bytes > u128::from(limits::WEIGHT_BYTES_MAX) {
        lookup.out_of_range(
            "the size of all weights by this configuration",
            format!("at most {} bytes", limits::WEIGHT_BYTES_MAX),
            format!("{bytes} bytes"),
        );
    }
}

/// Upper estimate of all weights in bytes, as if each weight took four.
fn weight_bytes(config: &KimiK3Config) -> u128 {
    let wide = |size: usize| size as u128;
    let hidden = wide(config.hidden_size);
    let kda_channels = wide(config.kda_channels());
    let kda = hidden * kda_channels * 5
        + wide(config.kda_head_dim) * (hidden + kda_channels)
        + kda_channels * wide(3 * config.short_conv_kernel_size);
    let mla = hidden * wide(config.q_lora_rank + config.kv_cache_width())
        + wide(config.mla_query_width()) * wide(config.q_lora_rank)
        + wide(config.kv_b_width()) * wide(config.kv_lora_rank)
        + 2 * hidden * wide(config.mla_output_width());
    let dense = 3 * hidden * wide(config.intermediate_size);
    let moe = hidden * wide(config.num_experts)
        + 2 * hidden * wide(config.routed_expert_hidden_size)
        + 3 * hidden * wide(config.shared_intermediate_size())
        + wide(config.num_experts)
            * 3
            * wide(config.routed_expert_hidden_size)
            * wide(config.moe_intermediate_size);
    let layer = kda + mla + dense + moe + 8 * hidden;
    4 * (wide(config.num_hidden_layers) * layer + 2 * hidden * wide(config.vocab_size))
}
