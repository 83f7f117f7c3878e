//! The expected logits of checkpoints made elsewhere. Runs when
//! `K3_REFERENCE_DATA` names the folder that holds them.

use crate::common::{Case, ids_of, isas, json};

/// Prompts of both checkpoints in one form; nothing without the data.
fn cases(form: &'static str, prefix: &str) -> Option<Vec<Case>> {
    let root = k3_testkit::gates::reference_data()?.join("k3tiny");
    let expected = json(&std::fs::read(root.join("expected.json")).unwrap());
    let mut cases = Vec::new();
    for (checkpoint, entry) in expected["checkpoints"].as_object().unwrap() {
        let model = root.join(entry["dir"].as_str().unwrap());
        for (name, prompt) in entry["prompts"].as_object().unwrap() {
            let logits = model.join(format!("{prefix}_{name}.bin"));
            cases.push(Case {
                model: model.clone(),
                name: format!("{checkpoint} {name}"),
                form,
                ids: ids_of(&prompt["ids"]),
                generated_ids: ids_of(&prompt["generated_ids"]),
                logits: std::fs::read(&logits).unwrap(),
                all_logits: None,
            });
        }
    }
    assert_eq!(cases.len(), 12, "two checkpoints of six prompts");
    Some(cases)
}

fn variations() -> Vec<Vec<&'static str>> {
    let mut variations = vec![
        vec!["--threads", "1"],
        vec!["--threads", "2"],
        vec!["--chunk", "1"],
        vec!["--chunk", "3"],
        vec!["--chunk", "64"],
        vec!["--recompute"],
        vec!["--lookahead", "2", "--slots", "6"],
    ];
    variations.extend(isas().into_iter().map(|isa| vec!["--isa", isa]));
    variations
}

fn check(form: &'static str, prefix: &str) {
    for case in cases(form, prefix).into_iter().flatten() {
        for variation in variations() {
            case.check(&variation);
        }
    }
}

#[test]
fn expanded_logits_and_ids() {
    check("expanded", "logits");
}

#[test]
fn latent_logits_and_ids() {
    check("latent", "logits_latent");
}
