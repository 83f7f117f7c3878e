//! The reference against logits of a foreign engine (expanded form) and of an
//! independent numpy reference (latent form). Needs a folder that is not part
//! of this repository.

mod common;

use common::{differing, ids, read_f32s};
use k3_testkit::{AttentionForm, Reference, gates};
use serde_json::Value;

/// Prompts up to this length are continued greedily; with K3_SLOW=1 all are.
/// Every token recomputes the whole prompt, so long ones take a minute.
const CONTINUED_LEN: usize = 5;

#[test]
fn equals_the_expected_logits() {
    let Some(data) = gates::reference_data() else {
        return;
    };
    let root = data.join("k3tiny");
    let expected = std::fs::read(root.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let slow = gates::slow();
    let mut cases = 0;
    for (name, checkpoint) in expected["checkpoints"].as_object().unwrap() {
        let dir = root.join(checkpoint["dir"].as_str().unwrap());
        let reference = Reference::open(&dir).unwrap();
        for (prompt, case) in checkpoint["prompts"].as_object().unwrap() {
            let ids = ids(&case["ids"]);
            for (form, stem) in [
                (AttentionForm::Expanded, "logits"),
                (AttentionForm::Latent, "logits_latent"),
            ] {
                let want = read_f32s(&dir.join(format!("{stem}_{prompt}.bin")));
                let got = reference.forward(&ids, form, None);
                assert_eq!(differing(got.last(), &want), 0, "{name} {prompt} {form:?}");
                cases += 1;
            }
            if slow || ids.len() <= CONTINUED_LEN {
                let want = common::ids(&case["generated_ids"]);
                let got = reference.generate(&ids, want.len(), AttentionForm::Expanded);
                assert_eq!(got, want, "{name} {prompt}");
            }
        }
    }
    assert_eq!(cases, 24, "two checkpoints, six prompts, two forms");
}
