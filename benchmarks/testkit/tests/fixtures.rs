//! The reference against the committed fixtures, whose expected logits come
//! from an independent implementation (`scripts/reference`).

mod common;

use std::fs;

use common::{differing, fixture_dirs, ids, read_f32s};
use k3_testkit::{AttentionForm, Reference, gates};
use serde_json::Value;

const FORMS: [(&str, AttentionForm); 2] = [
    ("expanded", AttentionForm::Expanded),
    ("latent", AttentionForm::Latent),
];

/// Prompts up to this length are continued greedily; with K3_SLOW=1 all are.
const CONTINUED_LEN: usize = 1;

#[test]
fn equals_the_committed_logits() {
    let slow = gates::slow();
    let dirs = fixture_dirs();
    assert!(
        dirs.len() >= 3,
        "tiny, odd and flat are committed: {dirs:?}"
    );
    for dir in dirs {
        let reference = Reference::open(&dir).unwrap();
        let expected = fs::read(dir.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        for (prompt, case) in expected["prompts"].as_object().unwrap() {
            let ids = ids(&case["ids"]);
            for (form_name, form) in FORMS {
                let case = &case[form_name];
                let what = format!("{} {prompt} {form_name}", dir.display());
                let file = |key: &str| case[key].as_str().map(|name| read_f32s(&dir.join(name)));
                let got = reference.forward(&ids, form, None);
                let last = file("logits").unwrap();
                assert_eq!(differing(got.last(), &last), 0, "{what}");
                if let Some(every) = file("all_positions_logits") {
                    assert_eq!(differing(got.logits(), &every), 0, "{what}: all positions");
                }
                if slow || ids.len() <= CONTINUED_LEN {
                    let want = common::ids(&case["generated_ids"]);
                    let got = reference.generate(&ids, want.len(), form);
                    assert_eq!(got, want, "{what}: tokens");
                }
            }
        }
    }
}
