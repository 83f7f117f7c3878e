//! What a run refuses, and what it says then.

mod common;

use common::{Way, all_logits, load, open, prompt, write, write_with};
use k3_models::kimi_k3::AttentionForm;
use k3_models::{Inline, LogitRows};
use k3_models::{ModelError, ModelFamily, SequenceState, Sweep, WorkspaceSize};
use k3_runtime::{Cancel, ComputePool, RunError, Session, SessionSettings, SweepObserver, forward};
use k3_testkit::TinySpec;

fn message(result: Result<impl Sized, RunError>) -> String {
    match result {
        Ok(_) => panic!("must be refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn ids_outside_the_vocabulary_are_named() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = u32::try_from(written.tiny.config.vocab_size).unwrap();
    for bad in [vocab, u32::MAX, 1 << 31] {
        let got = all_logits(
            &checkpoint,
            &[1, bad],
            AttentionForm::Latent,
            Way::default(),
        );
        let text = message(got);
        assert!(
            text.contains(&bad.to_string()) && text.contains("position 1"),
            "{text}"
        );
    }
}

#[test]
fn a_full_context_is_refused_and_touches_nothing() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let (model, mut source) = load(&checkpoint, AttentionForm::Latent, Way::default());
    let pool = ComputePool::new(1).unwrap();
    let settings = SessionSettings {
        context_positions: 4,
        chunk_positions: 64,
        all_logits: false,
    };
    let mut session = Session::new(&model, &mut source, &pool, settings, Cancel::default());
    session.append_for_logits(&[1, 2, 3]).unwrap();
    let text = message(session.append_for_logits(&[4, 5]));
    assert!(
        text.contains("5 positions") && text.contains("--context"),
        "{text}"
    );
    session.append_for_logits(&[4]).unwrap();
}

/// Stops the run after a number of steps.
struct StopAfter<'a>(&'a Cancel, usize);

impl SweepObserver for StopAfter<'_> {
    fn progress(&mut self, done: usize, _total: usize) {
        if done == self.1 {
            self.0.request();
        }
    }
}

#[test]
fn a_cancelled_sweep_poisons_its_state_until_reset() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let (model, mut source) = load(&checkpoint, AttentionForm::Latent, Way::default());
    let mut state = model.new_state(8);
    let mut workspace = model.new_workspace(WorkspaceSize {
        held_positions: 0,
        positions: 2,
        logit_rows: 1,
        context_positions: 8,
        workers: 1,
    });
    let sweep = Sweep::single(vec![1, 2], LogitRows::Last);
    let mut run = |state: &mut _, cancel: &Cancel, stop: usize| {
        forward(
            &model,
            &mut source,
            &sweep,
            vec![state],
            &mut workspace,
            &Inline,
            &mut StopAfter(cancel, stop),
            cancel,
        )
        .map(|(finished, _)| finished.logits.to_vec())
    };
    let want = run(&mut state, &Cancel::default(), usize::MAX).unwrap();
    // Stop everywhere in the sweep: also with experts demanded and not taken.
    for stop in [0, 3, 20, 40, 80] {
        state.reset();
        let got = run(&mut state, &Cancel::default(), stop);
        assert!(matches!(got, Err(RunError::Cancelled)), "{stop}");
        assert!(state.is_poisoned());
        let refused = run(&mut state, &Cancel::default(), usize::MAX);
        assert!(matches!(
            refused,
            Err(RunError::Model(ModelError::Poisoned { sequence: 0 }))
        ));
        state.reset();
        assert_eq!(
            run(&mut state, &Cancel::default(), usize::MAX).unwrap(),
            want
        );
    }
}

/// A non-finite weight is never a token.
#[test]
fn non_finite_weights_end_in_an_error_that_names_layer_and_position() {
    let spec = TinySpec::small(1);
    let ids = prompt(3, 32, 1);
    let break_tensor = |tail: &'static str, word: [u8; 2]| {
        write_with(&spec, move |tensors| {
            for tensor in tensors
                .iter_mut()
                .filter(|tensor| tensor.name.ends_with(tail))
            {
                // The upper half of the first element.
                let size = tensor.bytes.len() / usize::try_from(tensor.element_count()).unwrap();
                tensor.bytes[size - 2..size].copy_from_slice(&word);
            }
        })
    };
    let nan = [0xC0, 0x7F];
    let cases = [
        ("layers.1.self_attn.o_proj.weight", "layer 1, position 0"),
        (
            "layers.2.block_sparse_moe.gate.weight",
            "layer 2, position 0",
        ),
        ("lm_head.weight", "position 0, token id 0"),
    ];
    for (tail, want) in cases {
        let written = break_tensor(tail, nan);
        let checkpoint = open(written.dir.path()).unwrap();
        for form in [AttentionForm::Latent, AttentionForm::Expanded] {
            let text = message(all_logits(&checkpoint, &ids, form, Way::default()));
            assert!(
                text.contains(want) && text.contains("non-finite"),
                "{tail}: {text}"
            );
        }
    }
}

#[test]
fn nan_scales_are_skipped_and_counted() {
    let spec = TinySpec::small(1).with(|spec| spec.nan_scale_one_in = Some(50));
    let written = write(&spec);
    let checkpoint = open(written.dir.path()).unwrap();
    let (model, mut source) = load(&checkpoint, AttentionForm::Latent, Way::default());
    let pool = ComputePool::new(1).unwrap();
    let settings = SessionSettings {
        context_positions: 8,
        chunk_positions: 8,
        all_logits: false,
    };
    let mut session = Session::new(&model, &mut source, &pool, settings, Cancel::default());
    session.append_for_logits(&[1, 2, 3]).unwrap();
    assert!(session.counts().totals.nan_scale_groups > 0);
}

#[test]
fn a_checkpoint_that_does_not_belong_is_refused_by_name() {
    let spec = TinySpec::small(1);
    let missing = write_with(&spec, |tensors| {
        tensors.retain(|tensor| !tensor.name.ends_with("layers.1.self_attn.q_proj.weight"));
    });
    let text = message(open(missing.dir.path()).and_then(|checkpoint| checkpoint.bind(None)));
    assert!(text.contains("layers.1.self_attn.q_proj.weight"), "{text}");

    let renamed = write_with(&spec, |tensors| {
        for tensor in tensors.iter_mut() {
            tensor.name = tensor.name.replace("language_model.model.", "transformer.");
        }
    });
    let text = message(open(renamed.dir.path()).and_then(|checkpoint| checkpoint.bind(None)));
    assert!(
        text.contains("language_model.model.embed_tokens.weight"),
        "{text}"
    );

    let foreign = write_with(&spec, |tensors| {
        if let Some(mut extra) = tensors.first().cloned() {
            extra.name = "language_model.model.layers.0.self_attn.indexer.weight".to_owned();
            tensors.push(extra);
        }
    });
    let text = message(open(foreign.dir.path()).and_then(|checkpoint| checkpoint.bind(None)));
    assert!(text.contains("indexer"), "{text}");

    let reshaped = write_with(&spec, |tensors| {
        for tensor in tensors
            .iter_mut()
            .filter(|t| t.name.ends_with("layers.0.self_attn.k_proj.weight"))
        {
            tensor.shape.reverse();
        }
    });
    let text = message(open(reshaped.dir.path()).and_then(|checkpoint| checkpoint.bind(None)));
    assert!(
        text.contains("k_proj") && text.contains("implies"),
        "{text}"
    );
}

#[test]
fn padding_beyond_the_heads_must_be_zero() {
    let spec = TinySpec::small(1);
    let written = write_with(&spec, |tensors| {
        for tensor in tensors
            .iter_mut()
            .filter(|t| t.name.ends_with("layers.0.self_attn.A_log"))
        {
            let last = tensor.bytes.len() - 1;
            tensor.bytes[last] = 0x3F;
        }
    });
    let checkpoint = open(written.dir.path()).unwrap();
    let layout = checkpoint.bind(None).unwrap();
    let kernels = k3_kernels::KernelSet::detect();
    let got = k3_models::kimi_k3::KimiK3::new(
        layout,
        AttentionForm::Latent,
        kernels,
        1 << 20,
        |tensor, out| checkpoint.read_tensor(tensor, out),
    );
    let text = message(got);
    assert!(
        text.contains("A_log") && text.contains("index 15"),
        "{text}"
    );
}

#[test]
fn layer_limits_are_checked() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let layers = written.tiny.config.num_hidden_layers;
    for limit in [0, layers + 1] {
        let text = message(checkpoint.bind(Some(limit)));
        assert!(text.contains(&format!("--layers {limit}")), "{text}");
    }
    assert_eq!(checkpoint.bind(Some(1)).unwrap().layer_count(), 1);
}
