//! The field's raw trunk.

use k3_formats::{Dtype, ForeignTrunk, FormatError, MemoryFile};

/// Two layers of a tensor or two, at odd offsets.
const JSON: &str = r#"{"n_layers": 2, "align": 4096, "layers": [
 {"layer": 0, "shard": "model-1.safetensors", "run_start": 999, "nbytes": 8192, "file_off": 0,
  "tensors": {"l.0.a": {"off": 3, "nbytes": 12, "dtype": "BF16", "shape": [2, 3]},
              "l.0.b": {"off": 8188, "nbytes": 4, "dtype": "F32", "shape": [1]}}},
 {"layer": 1, "nbytes": 4096, "file_off": 8192,
  "tensors": {"l.1.a": {"off": 0, "nbytes": 12, "dtype": "BF16", "shape": [2, 3]}}}]}"#;

fn open(json: &str, bin_bytes: usize) -> Result<ForeignTrunk, FormatError> {
    let json = MemoryFile::new("d/trunk.json", json.as_bytes().to_vec());
    let bin = MemoryFile::new("d/trunk.bin", vec![0; bin_bytes]);
    ForeignTrunk::open(&json, &bin)
}

#[test]
fn tensors_are_placed_in_the_file() {
    let trunk = open(JSON, 12_288).unwrap();
    assert_eq!((trunk.layer_count(), trunk.tensor_count()), (2, 3));
    let a = trunk.get("l.0.a").unwrap();
    assert_eq!((a.offset, a.bytes, a.dtype), (3, 12, Dtype::Bf16));
    assert_eq!(a.shape.as_slice(), [2, 3]);
    assert_eq!(a.layer, 0);
    let other = trunk.get("l.1.a").unwrap();
    assert_eq!((other.offset, other.layer), (8192, 1));
    assert_eq!(trunk.get("l.1.b"), None);
    // Where it was copied from, as far as the trunk tells.
    assert_eq!(trunk.shard(0), Some("model-1.safetensors"));
    assert_eq!((a.source_offset, trunk.shard(1)), (Some(999 + 3), None));
    assert_eq!(other.source_offset, None);
    for (shard, expected) in [
        ("\"/data/a/m.safetensors\"", Some("m.safetensors")),
        ("7", None),
        ("-7.5", None),
        ("null", None),
        ("true", None),
        ("[1, {\"a\": [2]}]", None),
        ("{\"a\": 1}", None),
    ] {
        let json = JSON.replacen("\"model-1.safetensors\"", shard, 1);
        assert_eq!(open(&json, 12_288).unwrap().shard(0), expected, "{shard}");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_named() {
    let cases = [
        ("\"align\": 4096", "\"align\": 512", "align"),
        ("\"n_layers\": 2", "\"n_layers\": 3", "n_layers"),
        ("\"layer\": 1", "\"layer\": 0", "layer 0"),
        ("\"layer\": 1", "\"layer\": 2", "layer 2"),
        ("\"file_off\": 8192", "\"file_off\": 8191", "layer 1"),
        ("\"file_off\": 8192", "\"file_off\": 4096", "layer 1"),
        (
            "\"file_off\": 8192",
            "\"file_off\": 18446744073709547520",
            "layer 1",
        ),
        ("\"nbytes\": 4096", "\"nbytes\": 4097", "layer 1"),
        ("\"off\": 8188", "\"off\": 8189", "l.0.b"),
        ("\"off\": 8188", "\"off\": 18446744073709551615", "l.0.b"),
        ("\"nbytes\": 4,", "\"nbytes\": 5,", "l.0.b"),
        (
            "\"run_start\": 999",
            "\"run_start\": 18446744073709551615",
            "l.0.a",
        ),
        ("\"F32\"", "\"I8R\"", "l.0.b"),
        ("[1]", "[1,1,1,1,1]", "l.0.b"),
        ("l.1.a", "l.0.a", "l.0.a"),
    ];
    for (from, to, place) in cases {
        assert!(JSON.contains(from), "{from}");
        let json = JSON.replacen(from, to, 1);
        let error = open(&json, 12_288).unwrap_err();
        let FormatError::Trunk { offset, .. } = &error else {
            panic!("{error}");
        };
        let text = error.to_string();
        assert!(
            text.contains("trunk.json") && text.contains(place),
            "{text}"
        );
        if let Some(at) = json.find(&format!("\"{place}\"")) {
            assert_eq!(*offset, at as u64, "{text}");
        }
    }
    // The last page of the last layer is missing.
    let error = open(JSON, 12_287).unwrap_err().to_string();
    assert!(error.contains("cut short"), "{error}");
}

#[test]
fn json_of_another_form_is_refused_at_its_offset() {
    for (json, at) in [("[]", 0), ("{\"n_layers\": 2x", 14), (&JSON[..50], 49)] {
        let error = open(json, 12_288).unwrap_err();
        assert!(
            matches!(error, FormatError::Json { offset, .. } if offset == at || at == 0),
            "{error}"
        );
    }
    let marked = format!("\u{feff}{JSON}");
    let error = open(&marked, 12_288).unwrap_err().to_string();
    assert!(error.contains("byte order mark"), "{error}");
}
