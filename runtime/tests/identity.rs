//! The same bytes however a model is run, equal to a second implementation.

mod common;

use common::{Way, all_logits, assert_same_bits, load, open, prompt, write};
use k3_kernels::Isa;
use k3_models::kimi_k3::AttentionForm;
use k3_models::{Advance, LogitRows, ModelFamily, Segment, SequenceState, Sweep, WorkspaceSize};
use k3_runtime::{Cancel, ComputePool, Session, SessionSettings, forward};
use k3_testkit::{TinySpec, reference};

const FORMS: [(AttentionForm, reference::AttentionForm); 2] = [
    (AttentionForm::Latent, reference::AttentionForm::Latent),
    (AttentionForm::Expanded, reference::AttentionForm::Expanded),
];

fn specs() -> [(&'static str, TinySpec); 5] {
    [
        ("small", TinySpec::small(1)),
        ("odd", TinySpec::odd(2)),
        ("wide union", TinySpec::wide_union(3)),
        ("order probe", TinySpec::order_probe(4)),
        ("converted", TinySpec::odd(5).converted()),
    ]
}

/// Every way a run may differ, one change at a time and some together.
fn ways() -> Vec<Way> {
    let base = Way::default();
    let mut ways = vec![base];
    ways.extend(
        Isa::ALL
            .into_iter()
            .filter(|isa| isa.is_available())
            .map(|isa| Way { isa, ..base }),
    );
    ways.extend([2, 3, 5].map(|threads| Way { threads, ..base }));
    ways.extend([1, 2, 3, 7].map(|chunk| Way { chunk, ..base }));
    // One row at a time (one head of kv_b), then odd cuts.
    ways.extend([1, 300, 5000].map(|block_bytes| Way {
        block_bytes,
        ..base
    }));
    ways.push(Way {
        isa: Isa::Scalar,
        threads: 3,
        chunk: 4,
        block_bytes: 700,
    });
    ways
}

#[test]
fn logits_equal_the_reference_in_every_way() {
    for (name, spec) in specs() {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let oracle = written.tiny.reference();
        let ids = prompt(19, written.tiny.config.vocab_size, 9);
        for (form, oracle_form) in FORMS {
            let want = oracle.forward(&ids, oracle_form, None);
            for way in ways() {
                let got = all_logits(&checkpoint, &ids, form, way).unwrap();
                assert_same_bits(&got, want.logits(), &(name, form, way));
            }
        }
    }
}

#[test]
fn random_models_equal_the_reference() {
    for seed in 100..112 {
        let spec = if seed % 2 == 0 {
            TinySpec::odd(seed)
        } else {
            TinySpec::small(seed)
        };
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let ids = prompt(7, written.tiny.config.vocab_size, seed);
        for (form, oracle_form) in FORMS {
            let want = written.tiny.reference().forward(&ids, oracle_form, None);
            let way = Way {
                chunk: 3,
                threads: 2,
                block_bytes: 1000,
                ..Way::default()
            };
            let got = all_logits(&checkpoint, &ids, form, way).unwrap();
            assert_same_bits(&got, want.logits(), &(seed, form));
        }
    }
}

#[test]
fn picks_equal_the_reference() {
    let written = write(&TinySpec::wide_union(6));
    let checkpoint = open(written.dir.path()).unwrap();
    let ids = prompt(9, written.tiny.config.vocab_size, 1);
    let forward = written
        .tiny
        .reference()
        .forward(&ids, reference::AttentionForm::Latent, None);
    let way = Way::default();
    let (model, mut source) = load(&checkpoint, AttentionForm::Latent, way);
    let pool = ComputePool::new(1).unwrap();
    let settings = SessionSettings {
        context_positions: ids.len(),
        chunk_positions: 64,
        all_logits: false,
    };
    let mut session = Session::new(&model, &mut source, &pool, settings, Cancel::default());
    session.record_trace();
    session.append_for_logits(&ids).unwrap();
    let mut want: Vec<_> = forward
        .picks
        .iter()
        .map(|pick| (pick.layer, pick.position, pick.expert))
        .collect();
    // The reference goes position by position, the engine layer by layer; the
    // sort is stable, so pick order survives.
    want.sort_by_key(|(layer, position, _)| (*layer, *position));
    let got: Vec<_> = session.trace().unwrap().to_vec();
    assert_eq!(got.len(), want.len());
    for ((layer, expert), (want_layer, _, want_expert)) in got.into_iter().zip(want) {
        assert_eq!(
            (usize::from(layer), usize::from(expert)),
            (want_layer, want_expert)
        );
    }
}

/// Several sequences in one sweep, at different positions, wanting different
/// logits: each is what it is alone.
#[test]
fn sequences_that_share_a_sweep_do_not_touch_one_another() {
    for (name, spec) in specs() {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        for (form, oracle_form) in FORMS {
            let way = Way {
                block_bytes: 2000,
                ..Way::default()
            };
            let (model, mut source) = load(&checkpoint, form, way);
            let pool = ComputePool::new(2).unwrap().splitting_everything();
            let prompts: Vec<_> = [6usize, 1, 9]
                .map(|len| prompt(len, vocab, len as u64))
                .into();
            let mut states: Vec<_> = prompts.iter().map(|_| model.new_state(16)).collect();
            let mut workspace = model.new_workspace(WorkspaceSize {
                held_positions: 0,
                positions: 16,
                logit_rows: 16,
                context_positions: 16,
                workers: 2,
            });
            // First sweep: 2, 1 and 5 positions. Second: the rest of 1 and 3.
            let rounds: [&[(usize, std::ops::Range<usize>)]; 2] =
                [&[(0, 0..2), (1, 0..1), (2, 0..5)], &[(2, 5..9), (0, 2..6)]];
            let mut got = vec![Vec::new(); prompts.len()];
            for round in rounds {
                let segments = round.iter().map(|(sequence, range)| Segment {
                    tokens: prompts[*sequence][range.clone()].to_vec(),
                    logits: LogitRows::All,
                    advance: Advance::All,
                });
                let sweep = Sweep::new(segments.collect());
                let mut free: Vec<_> = states.iter_mut().map(Some).collect();
                let taken = round
                    .iter()
                    .map(|(index, _)| free[*index].take().unwrap())
                    .collect();
                let (finished, _) = forward(
                    &model,
                    &mut source,
                    &sweep,
                    taken,
                    &mut workspace,
                    &pool,
                    &mut (),
                    &Cancel::default(),
                )
                .unwrap();
                let mut rows = finished.logits.chunks_exact(vocab);
                for (sequence, range) in round {
                    for _ in range.clone() {
                        got[*sequence].extend_from_slice(rows.next().unwrap());
                    }
                }
            }
            for (index, ids) in prompts.iter().enumerate() {
                let want = written.tiny.reference().forward(ids, oracle_form, None);
                assert_same_bits(&got[index], want.logits(), &(name, form, index));
                assert_eq!(states[index].position(), ids.len());
            }
        }
    }
}

/// The latent and the expanded form are the same algebra.
#[test]
fn the_two_forms_agree_closely() {
    for (name, spec) in specs() {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let ids = prompt(40, written.tiny.config.vocab_size, 3);
        let [latent, expanded] =
            FORMS.map(|(form, _)| all_logits(&checkpoint, &ids, form, Way::default()).unwrap());
        let largest = expanded
            .iter()
            .fold(0.0f32, |max, value| max.max(value.abs()));
        let distance = latent
            .iter()
            .zip(&expanded)
            .fold(0.0f32, |max, (a, b)| max.max((a - b).abs()));
        assert_ne!(latent, expanded, "{name}: the forms round differently");
        // Random models of a few dozen channels amplify rounding more than
        // trained ones: the fixtures are held to 2e-6, these to 1e-5. The
        // order probe cancels large terms on purpose.
        let bound = if name == "order probe" { 1e-3 } else { 1e-5 };
        assert!(
            distance / largest <= bound,
            "{name}: {}",
            distance / largest
        );
    }
}

#[test]
fn a_reset_state_starts_over() {
    let written = write(&TinySpec::small(8));
    let checkpoint = open(written.dir.path()).unwrap();
    let ids = prompt(5, written.tiny.config.vocab_size, 2);
    for (form, _) in FORMS {
        let (model, mut source) = load(&checkpoint, form, Way::default());
        let pool = ComputePool::new(1).unwrap();
        let settings = SessionSettings {
            context_positions: 8,
            chunk_positions: 2,
            all_logits: false,
        };
        let mut session = Session::new(&model, &mut source, &pool, settings, Cancel::default());
        let first = session.append_for_logits(&ids).unwrap();
        session.reset();
        let second = session.append_for_logits(&ids).unwrap();
        assert_same_bits(&second, &first, &form);
    }
}
