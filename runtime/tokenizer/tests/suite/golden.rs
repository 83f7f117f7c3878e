//! Vectors made by `scripts/tokenizer/golden.py` with the Python encoder that the
//! release uses.

use crate::released::TOKENIZER;
use k3_tokenizer::{Mode, Render};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    texts: Vec<Text>,
    repeated: Vec<Repeated>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    content: Vec<u32>,
    /// Absent where it equals `content`.
    structure: Option<Vec<u32>>,
}

/// Too long to write out: the ids' number and their FNV-1a hash over little-endian bytes.
#[derive(Deserialize)]
struct Repeated {
    unit: String,
    times: usize,
    id_count: usize,
    fnv1a: String,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden.json")).expect("well-formed vectors")
}

#[test]
fn committed_texts_have_their_ids_in_both_modes() {
    let texts = golden().texts;
    assert!(texts.len() >= 60, "{} texts", texts.len());
    assert!(texts.iter().filter(|text| text.structure.is_some()).count() >= 4);
    for Text {
        text,
        content,
        structure,
    } in &texts
    {
        assert_eq!(TOKENIZER.encode(text, Mode::Content), *content, "{text:?}");
        assert_eq!(
            TOKENIZER.decode(content, Render::Plain).unwrap(),
            text.as_bytes()
        );
        let structure = structure.as_ref().unwrap_or(content);
        assert_eq!(
            TOKENIZER.encode(text, Mode::Structure),
            *structure,
            "{text:?}"
        );
        assert_eq!(
            TOKENIZER.decode(structure, Render::Markup).unwrap(),
            text.as_bytes()
        );
    }
}

#[test]
fn committed_long_texts_have_their_ids() {
    let repeated = golden().repeated;
    assert!(repeated.len() >= 5, "{} long texts", repeated.len());
    for Repeated {
        unit,
        times,
        id_count,
        fnv1a,
    } in repeated
    {
        let ids = TOKENIZER.encode(&unit.repeat(times), Mode::Content);
        assert_eq!(ids.len(), id_count, "{unit:?} x {times}");
        assert_eq!(hash(&ids), fnv1a, "{unit:?} x {times}");
    }
}

fn hash(ids: &[u32]) -> String {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}
