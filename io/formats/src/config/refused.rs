//! Variants that other models use and this arithmetic does not implement.
//!
//! An absent key is fine: flat files leave out what only one value is known for.

use super::MXFP4_GROUP_COLUMNS;
use super::json::Json;
use super::lookup::{Found, Lookup};
use super::problem::ConfigProblem;

/// Keys with exactly one implemented value.
fn implemented_values() -> [(&'static str, Json); 8] {
    [
        ("hidden_act", Json::Text("situ".to_owned())),
        ("mla_use_nope", Json::Bool(true)),
        ("use_full_rank_gate", Json::Bool(true)),
        (
            "moe_router_activation_func",
            Json::Text("sigmoid".to_owned()),
        ),
        ("num_expert_group", Json::Integer(1)),
        ("topk_group", Json::Integer(1)),
        ("moe_layer_freq", Json::Integer(1)),
        ("tie_word_embeddings", Json::Bool(false)),
    ]
}

/// Reports every variant that is not implemented, wherever it stands.
pub(super) fn check(lookup: &mut Lookup<'_>) {
    check_successor(lookup);
    for (key, supported) in implemented_values() {
        for found in lookup.find_all(key) {
            refuse_other(lookup, found, &supported);
        }
    }
    let supported = Json::Integer(MXFP4_GROUP_COLUMNS as i128);
    let mut group_sizes = lookup.find_all("group_size");
    for (prefix, scope) in &lookup.scopes {
        if let Some(quantization) = scope.get("quantization_config") {
            let path = format!("{prefix}quantization_config");
            collect_key(quantization, "group_size", &path, &mut group_sizes);
        }
    }
    for found in group_sizes {
        refuse_other(lookup, found, &supported);
    }
}

/// K3.1 by its own key or by its name.
fn check_successor(lookup: &mut Lookup<'_>) {
    let mut keys: Vec<String> = lookup
        .find_all("dsa_config")
        .into_iter()
        .map(|found| found.key)
        .collect();
    for found in lookup.find_all("architectures") {
        let Json::Array(names) = found.value else {
            continue;
        };
        for name in names {
            if let Json::Text(name) = name
                && name.starts_with("KimiK31")
            {
                keys.push(format!("{} ({name})", found.key));
            }
        }
    }
    for found in lookup.find_all("model_type") {
        if let Json::Text(name) = found.value
            && (name.starts_with("kimi_k31") || name.starts_with("kimi_k3_1"))
        {
            keys.push(format!("{} ({name})", found.key));
        }
    }
    if !keys.is_empty() {
        lookup.problems.push(ConfigProblem::SparseIndexer {
            key: keys.join(" and "),
        });
    }
}

fn refuse_other(lookup: &mut Lookup<'_>, found: Found<'_>, supported: &Json) {
    if found.value != supported {
        lookup.problems.push(ConfigProblem::Unsupported {
            key: found.key,
            found: found.value.to_string(),
            supported: supported.to_string(),
        });
    }
}

/// Every value of `key` below `json`, at any depth.
fn collect_key<'a>(json: &'a Json, key: &str, path: &str, into: &mut Vec<Found<'a>>) {
    match json {
        Json::Object(members) => {
            for (name, value) in members {
                let path = format!("{path}.{name}");
                if name == key && *value != Json::Null {
                    into.push(Found { key: path, value });
                } else {
                    collect_key(value, key, &path, into);
                }
            }
        }
        Json::Array(items) => {
            for item in items {
                collect_key(item, key, path, into);
            }
        }
        _ => {}
    }
}
