//! The generator: deterministic, as awkward as asked, and layout-blind.

mod common;

use std::collections::HashSet;
use std::fs;

use common::differing;
use k3_testkit::reference::read_tensors;
use k3_testkit::{
    AttentionForm, ConfigForm, ExpertOrder, ExpertPlacement, ModelShape, NamePrefix, Reference,
    TinyCheckpoint, TinySpec, TinyTokenizer, write_files,
};

const PROMPT: [u32; 6] = [3, 17, 3, 60, 99, 41];

fn logits(checkpoint: &TinyCheckpoint) -> Vec<f32> {
    let forward = checkpoint
        .reference()
        .forward(&PROMPT, AttentionForm::Latent, None);
    forward.logits().to_vec()
}

fn presets() -> [TinySpec; 4] {
    [
        TinySpec::small(7),
        TinySpec::odd(7),
        TinySpec::wide_union(7),
        TinySpec::order_probe(7),
    ]
}

#[test]
fn the_same_spec_gives_the_same_bytes_and_another_seed_others() {
    for spec in presets() {
        let first = spec.generate();
        assert_eq!(first.files, spec.generate().files);
        let other = spec.clone().with(|spec| spec.seed = 8).generate();
        let same = first.tensors.iter().filter(|tensor| {
            let other = other.tensors.get(&tensor.name);
            other.is_some_and(|other| other.bytes == tensor.bytes)
        });
        assert_eq!(same.count(), 0, "every tensor depends on the seed");
    }
}

#[test]
fn every_preset_gives_finite_varied_logits() {
    for spec in presets() {
        let logits = logits(&spec.generate());
        assert!(logits.iter().all(|logit| logit.is_finite()));
        let distinct: HashSet<u32> = logits.iter().map(|logit| logit.to_bits()).collect();
        assert!(
            distinct.len() > logits.len() * 9 / 10,
            "{} distinct",
            distinct.len()
        );
        let largest = logits
            .iter()
            .fold(0.0_f32, |most, logit| most.max(logit.abs()));
        assert!((0.5..100.0).contains(&largest), "largest logit {largest}");
    }
}

#[test]
fn a_written_checkpoint_opens_to_the_same_model() {
    for spec in presets() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = spec.write_to(dir.path()).unwrap();
        assert_eq!(ModelShape::of_config(&checkpoint.config), spec.shape);
        let read = read_tensors(dir.path()).unwrap();
        assert_eq!(read.len(), checkpoint.tensors.len());
        for tensor in &checkpoint.tensors {
            assert_eq!(read.get(&tensor.name), Some(tensor));
        }
        let opened = Reference::open(dir.path()).unwrap();
        let forward = opened.forward(&PROMPT, AttentionForm::Latent, None);
        assert_eq!(differing(forward.logits(), &logits(&checkpoint)), 0);
    }
}

#[test]
fn layout_changes_no_logit() {
    let base = TinySpec::small(5);
    let expected = logits(&base.generate());
    let mut variants: Vec<TinySpec> = vec![
        base.clone().shards(3),
        base.clone()
            .shards(3)
            .with(|spec| spec.layout.index = false),
        base.clone().shards(8),
        base.clone()
            .with(|spec| spec.layout.config = ConfigForm::Flat),
        base.clone()
            .with(|spec| spec.layout.prefix = NamePrefix::Bare),
        base.clone()
            .with(|spec| spec.layout.expert_order = ExpertOrder::ById),
        base.clone().with(|spec| spec.layout.odd_offsets = true),
        base.clone().with(|spec| spec.a_log_len = 128),
    ];
    variants.push(
        base.clone()
            .with(|spec| spec.layout.expert_placement = ExpertPlacement::ByKind),
    );
    for spec in variants {
        let checkpoint = spec.generate();
        assert_ne!(checkpoint.files, base.generate().files, "{spec:?}");
        assert_eq!(differing(&logits(&checkpoint), &expected), 0, "{spec:?}");
    }
}

#[test]
fn options_that_change_the_model_change_its_logits() {
    let base = TinySpec::small(5);
    let expected = logits(&base.generate());
    for (what, spec) in [
        ("converted", base.clone().converted()),
        (
            "gate",
            base.clone().with(|spec| spec.shape.output_gate = false),
        ),
        (
            "norm",
            base.clone().with(|spec| spec.shape.latent_norm = false),
        ),
        (
            "sum",
            base.clone().with(|spec| spec.shape.renormalize = false),
        ),
        (
            "factor",
            base.clone().with(|spec| spec.shape.scaling_factor = 2.5),
        ),
        (
            "scales",
            base.clone().with(|spec| spec.nan_scale_one_in = Some(4)),
        ),
        ("layers", base.clone().layers(5, &[2, 5])),
        ("experts", base.clone().experts(5, 1)),
        ("taps", base.clone().with(|spec| spec.shape.conv_taps = 1)),
        ("block", base.clone().with(|spec| spec.shape.block = 1)),
        (
            "dense",
            base.clone().with(|spec| spec.shape.dense_layers = 7),
        ),
    ] {
        let got = logits(&spec.generate());
        assert!(differing(&got, &expected) > got.len() / 2, "{what}");
        assert!(got.iter().all(|logit| logit.is_finite()), "{what}");
    }
}

#[test]
fn bytes_lie_as_awkwardly_as_asked() {
    let checkpoint = TinySpec::odd(2).generate();
    let names: Vec<&str> = checkpoint
        .files
        .iter()
        .map(|file| file.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "config.json",
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "model.safetensors.index.json"
        ]
    );
    for file in &checkpoint.files[1..4] {
        let header_bytes = u64::from_le_bytes(file.bytes[..8].try_into().unwrap());
        assert_eq!(header_bytes % 2, 1, "{}", file.name);
    }
    // Experts: out of id order, and in pieces.
    let stored: Vec<&str> = checkpoint
        .tensors
        .iter()
        .filter_map(|tensor| tensor.name.split_once("layers.3.block_sparse_moe.experts."))
        .map(|(_, tail)| tail)
        .collect();
    let kinds: Vec<&str> = stored
        .iter()
        .map(|tail| tail.split_once('.').unwrap().1)
        .collect();
    let count = checkpoint.spec.shape.experts;
    assert_eq!(kinds.len(), 6 * count);
    assert!(
        kinds
            .chunks(count)
            .all(|run| run.iter().all(|kind| *kind == run[0]))
    );
    let ids: Vec<usize> = stored[..count]
        .iter()
        .map(|tail| tail.split_once('.').unwrap().0.parse().unwrap())
        .collect();
    assert!(!ids.is_sorted(), "{ids:?}");
    // A_log: one value a head, padded with zeros.
    let a_log = checkpoint.f32s(&checkpoint.name("layers.0.self_attn.A_log"));
    assert_eq!(
        a_log.iter().map(|a| *a == 0.0).collect::<Vec<_>>(),
        [false, false, false, true]
    );
}

#[test]
fn nan_scales_are_there_when_asked_for() {
    let count = |spec: &TinySpec| {
        let checkpoint = spec.generate();
        let scales = checkpoint
            .tensors
            .iter()
            .filter(|t| t.name.ends_with("weight_scale"));
        scales
            .flat_map(|t| t.bytes.clone())
            .filter(|&b| b == 255)
            .count()
    };
    let spec = TinySpec::small(3);
    assert_eq!(count(&spec), 0);
    let some = count(&spec.with(|spec| spec.nan_scale_one_in = Some(50)));
    assert!((20..400).contains(&some), "{some} of about 4600");
}

#[test]
fn the_probe_s_channels_stay_equal_through_every_layer() {
    let checkpoint = TinySpec::order_probe(4).generate();
    let embedding = checkpoint.f32s(&checkpoint.name("embed_tokens.weight"));
    for row in embedding.chunks(checkpoint.spec.shape.hidden) {
        assert_eq!([row[16], row[21]], [row[0]; 2]);
    }
    assert!(embedding.chunks(64).any(|row| row[1] != row[0]));
    let down = checkpoint.f32s(&checkpoint.name("layers.0.mlp.down_proj.weight"));
    let rows: Vec<&[f32]> = down.chunks(checkpoint.spec.shape.dense_width).collect();
    assert!(rows[0] == rows[16] && rows[0] == rows[21] && rows[0] != rows[1]);
}

#[test]
fn a_vocabulary_can_lie_beside_the_weights() {
    let tokenizer = TinyTokenizer::small();
    let spec = TinySpec::small(1).with(|spec| {
        spec.eos_token_ids = vec![269];
    });
    assert!(tokenizer.vocab_size() <= spec.shape.vocab);
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = spec.write_to(dir.path()).unwrap();
    assert_eq!(checkpoint.config.eos_token_ids, [269]);
    write_files(dir.path(), &tokenizer.files()).unwrap();
    let ranks = fs::read_to_string(dir.path().join("tiktoken.model")).unwrap();
    let lines: Vec<&str> = ranks.lines().collect();
    assert_eq!(lines.len(), 256 + tokenizer.merges.len());
    assert_eq!(
        (lines[0], lines[97], lines[256]),
        ("AA== 0", "YQ== 97", "dGg= 256")
    );
    let config = fs::read(dir.path().join("tokenizer_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["added_tokens_decoder"]["269"]["content"], "[EOS]");
}

#[test]
fn edits_reach_the_files_the_index_and_the_tensors() {
    let checkpoint = TinySpec::small(1).shards(3).generate_with(|shard| {
        shard.retain(|tensor| !tensor.name.ends_with("layers.2.mlp_res_norm.weight"));
        for tensor in shard
            .iter_mut()
            .filter(|t| t.name.ends_with("layers.1.self_attn.A_log"))
        {
            tensor.bytes[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
        }
    });
    let a_log = checkpoint.f32s(&checkpoint.name("layers.1.self_attn.A_log"));
    assert_eq!(a_log[0], f32::INFINITY);
    let gone = checkpoint.name("layers.2.mlp_res_norm.weight");
    assert!(checkpoint.tensors.get(&gone).is_none());
    let dir = tempfile::tempdir().unwrap();
    write_files(dir.path(), &checkpoint.files).unwrap();
    let index = fs::read_to_string(dir.path().join("model.safetensors.index.json")).unwrap();
    assert!(!index.contains(&gone) && index.contains("layers.2.mlp_res_proj"));
    let error = Reference::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains(&gone), "{error}");
}

/// A position sees nothing after it, and earlier calls leave nothing behind.
#[test]
fn a_prefix_has_the_logits_it_has_inside_a_longer_prompt() {
    let reference = TinySpec::odd(9).generate().reference();
    for form in AttentionForm::ALL {
        let whole = reference.forward(&PROMPT, form, None);
        for position in 0..PROMPT.len() {
            let prefix = reference.forward(&PROMPT[..=position], form, None);
            assert_eq!(differing(prefix.last(), whole.at(position)), 0);
        }
    }
}

/// The two forms are one function up to rounding: at most 2e-6 of the largest
/// logit apart, but not the same bits.
#[test]
fn the_two_forms_agree_up_to_rounding() {
    for spec in presets() {
        if spec.cancelling_channels {
            // Built to magnify rounding.
            continue;
        }
        let reference = spec.generate().reference();
        let [latent, expanded] = AttentionForm::ALL.map(|f| reference.forward(&PROMPT, f, None));
        let pairs = || latent.logits().iter().zip(expanded.logits());
        let largest = pairs().fold(0.0_f32, |most, (_, e)| most.max(e.abs()));
        let apart = pairs().fold(0.0_f32, |most, (l, e)| most.max((l - e).abs()));
        assert!(
            apart > 0.0 && apart <= 2e-6 * largest,
            "{apart} of {largest}"
        );
    }
}

#[test]
fn picks_are_distinct_and_their_weights_sum_to_the_factor() {
    let checkpoint = TinySpec::wide_union(3).generate();
    let shape = &checkpoint.spec.shape;
    let forward = checkpoint
        .reference()
        .forward(&PROMPT, AttentionForm::Latent, None);
    let moe_layers = shape.layers - shape.dense_layers;
    assert_eq!(forward.picks.len(), PROMPT.len() * moe_layers * shape.top_k);
    for picks in forward.picks.chunks(shape.top_k) {
        assert!(
            picks
                .iter()
                .all(|p| (p.layer, p.position) == (picks[0].layer, picks[0].position))
        );
        let distinct: HashSet<usize> = picks.iter().map(|pick| pick.expert).collect();
        assert_eq!(distinct.len(), shape.top_k);
        let sum: f32 = picks.iter().map(|pick| pick.weight).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    }
    let used: HashSet<(usize, usize)> = forward.picks.iter().map(|p| (p.layer, p.expert)).collect();
    assert!(
        used.len() > moe_layers * shape.top_k,
        "positions differ in their picks"
    );
    assert!(used.len() < forward.picks.len(), "and share some");
}

#[test]
fn a_tensor_of_another_form_is_named() {
    let opened = |edit: fn(&mut k3_testkit::Tensor)| {
        let checkpoint = TinySpec::small(1).generate_with(|shard| {
            let router = shard
                .iter_mut()
                .find(|tensor| tensor.name.ends_with("3.block_sparse_moe.gate.weight"));
            edit(router.unwrap());
        });
        let reference = Reference::new(checkpoint.spec.shape.clone(), &checkpoint.tensors);
        reference.err().unwrap().to_string()
    };
    let message = opened(|router| router.shape.reverse());
    assert!(
        message.contains("layers.3.block_sparse_moe.gate.weight has shape [64, 8]"),
        "{message}"
    );
    assert!(message.contains("calls for [8, 64]"), "{message}");
    let message = opened(|router| router.dtype = k3_formats::Dtype::F16);
    assert!(
        message.contains("stored as F16, its role needs BF16 or F32"),
        "{message}"
    );
}

/// FNV-1a over every tensor's name and bytes: the generator's output is the
/// same on every machine, and changes only on purpose.
#[test]
fn the_presets_are_pinned() {
    let digests = presets().map(|spec| {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for tensor in &spec.generate().tensors {
            for byte in tensor.name.bytes().chain(tensor.bytes.iter().copied()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        hash
    });
    assert_eq!(
        digests,
        [
            0x67b1_6357_72a3_3b4b,
            0x6b90_8425_c9c8_b4a2,
            0xf3a2_009b_6961_2dac,
            0xea50_c553_bd8a_1a70
        ],
        "{digests:x?}"
    );
}
