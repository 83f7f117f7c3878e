//! What is written is a checkpoint: complete, reproducible, alive.

use std::collections::HashSet;
use std::num::NonZeroUsize;

use k3_formats::synth::Vision;

use crate::support::{files, make, names, open, run, settings, small_config};

#[test]
fn bytes_depend_on_the_seed_and_not_on_threads() {
    let dir = tempfile::tempdir().unwrap();
    let made = |name: &str, seed, threads| {
        let out = dir.path().join(name);
        let mut settings = settings(&out, small_config(5, 16));
        settings.seed = seed;
        settings.threads = NonZeroUsize::new(threads).unwrap();
        make(&settings).unwrap();
        files(&out)
    };
    let one = made("one", 7, 1);
    assert_eq!(one.len(), 5 + 1 + 2);
    assert!(one == made("two", 7, 2), "two threads write other bytes");
    assert!(one == made("five", 7, 5), "five threads write other bytes");
    let other = made("other", 8, 2);
    for (name, bytes) in &one {
        let is_shard = name.ends_with(".safetensors");
        assert_eq!(*bytes == other[name], !is_shard, "{name}");
    }
    assert_eq!(names(dir.path()), ["five", "one", "other", "two"]);
}

#[test]
fn a_model_computes_and_its_tokens_go_to_different_experts() {
    let dir = tempfile::tempdir().unwrap();
    for (layers, experts) in [(5, 16), (14, 16)] {
        let out = dir.path().join(format!("{layers}"));
        let config = small_config(layers, experts);
        make(&settings(&out, config.clone())).unwrap();
        let checkpoint = open(&out);
        assert_eq!(*checkpoint.config(), config);
        let ids: Vec<u32> = (0..64).map(|index| index * 37 % 300).collect();
        let outcome = run(&checkpoint, &ids);
        assert!(outcome.logits.iter().all(|logit| logit.is_finite()));
        // Tokens differ in what they make likely.
        let rows = outcome.logits.chunks(config.vocab_size);
        let best: HashSet<_> = rows.map(k3_kernels::argmax).collect();
        assert!(best.len() > 16, "{} of 64 likeliest tokens", best.len());
        let spread = outcome
            .logits
            .iter()
            .fold(0.0_f32, |most, x| most.max(x.abs()));
        assert!((1.0..100.0).contains(&spread), "{spread}");
        for layer in 1..u16::try_from(layers).unwrap() {
            let picks = outcome.picks.iter().filter(|pick| pick.0 == layer);
            let mut loads = vec![0; experts];
            picks.for_each(|pick| loads[usize::from(pick.1)] += 1);
            let used = loads.iter().filter(|load| **load > 0).count();
            assert!(used > experts / 2, "layer {layer}: {used} of {experts}");
            // A fixed set of four would have 64 each.
            let most = *loads.iter().max().unwrap();
            assert!(most < 56, "layer {layer}: {loads:?}");
        }
    }
}

#[test]
fn a_vision_tower_comes_on_request_and_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let mut settings = settings(&out, small_config(2, 4));
    settings.vision = Vision::Included;
    make(&settings).unwrap();
    let checkpoint = open(&out);
    let index = checkpoint.index();
    assert!(
        index
            .get("vision_tower.encoder.blocks.26.wo.weight")
            .is_some()
    );
    assert!(index.get("mm_projector.proj.2.weight").is_some());
    assert!(
        run(&checkpoint, &[1, 2])
            .logits
            .iter()
            .all(|logit| logit.is_finite())
    );
}

#[test]
fn options_of_the_architecture_change_the_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    let mut config = small_config(5, 6);
    config.mla_use_output_gate = false;
    config.latent_moe_use_norm = false;
    make(&settings(&out, config)).unwrap();
    let logits = run(&open(&out), &[1, 2, 3]).logits;
    assert!(logits.iter().all(|logit| logit.is_finite()));
}
