//! Sweeps over guesses, states that are saved and copied, and faults that stay
//! with their sequence: whatever happens beside a sequence, it is what plain
//! steps make of it.

mod common;

use common::{Way, assert_same_bits, load, open, prompt, write, write_with};
use k3_models::kimi_k3::{AttentionForm, KimiK3, KimiK3State};
use k3_models::{
    Advance, Fault, LogitRows, ModelError, ModelFamily, Segment, SequenceState, Sweep,
    WorkspaceSize,
};
use k3_runtime::{Cancel, ComputePool, ResidentSource, RunError, forward};
use k3_testkit::TinySpec;

const FORMS: [AttentionForm; 2] = [AttentionForm::Latent, AttentionForm::Expanded];
const CONTEXT: usize = 24;

/// A model with one workspace for all its sweeps.
struct Bench {
    model: KimiK3,
    source: ResidentSource,
    pool: ComputePool,
    workspace: <KimiK3 as ModelFamily>::Workspace,
}

impl Bench {
    fn new(checkpoint: &k3_runtime::Checkpoint, form: AttentionForm, threads: usize) -> Self {
        let (model, source) = load(checkpoint, form, Way::default());
        let workspace = model.new_workspace(WorkspaceSize {
            positions: CONTEXT,
            held_positions: CONTEXT,
            logit_rows: CONTEXT,
            context_positions: CONTEXT,
            workers: threads,
        });
        let pool = ComputePool::new(threads).unwrap().splitting_everything();
        Self {
            model,
            source,
            pool,
            workspace,
        }
    }

    fn state(&self) -> KimiK3State {
        self.model.new_state(CONTEXT)
    }

    /// All logits of one sweep, and its faults.
    fn sweep(
        &mut self,
        parts: Vec<(&mut KimiK3State, &[u32], Advance)>,
    ) -> Result<(Vec<f32>, Vec<Fault>), RunError> {
        let segments = parts.iter().map(|(_, tokens, advance)| Segment {
            tokens: tokens.to_vec(),
            logits: LogitRows::All,
            advance: *advance,
        });
        let sweep = Sweep::new(segments.collect());
        let (finished, _) = forward(
            &self.model,
            &mut self.source,
            &sweep,
            parts.into_iter().map(|(state, _, _)| state).collect(),
            &mut self.workspace,
            &self.pool,
            &mut (),
            &Cancel::default(),
        )?;
        Ok((finished.logits.to_vec(), finished.faults))
    }

    fn commit(&mut self, segment: usize, state: &mut KimiK3State, accepted: usize) {
        let workspace = &mut self.workspace;
        self.model
            .commit(workspace, segment, state, accepted, &self.pool);
    }

    /// Logits of `ids`, one step at a time, and the state afterwards.
    fn steps(&mut self, ids: &[u32]) -> (Vec<f32>, KimiK3State) {
        let mut state = self.state();
        let mut logits = Vec::new();
        for id in ids {
            let parts = vec![(&mut state, std::slice::from_ref(id), Advance::All)];
            logits.extend(self.sweep(parts).unwrap().0);
        }
        (logits, state)
    }
}

fn saved(state: &KimiK3State) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.save(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, state.saved_bytes(state.position()));
    bytes
}

fn specs() -> [(&'static str, TinySpec); 3] {
    [
        ("small", TinySpec::small(1)),
        ("odd", TinySpec::odd(2)),
        ("wide union", TinySpec::wide_union(3)),
    ]
}

#[test]
fn a_committed_prefix_is_what_plain_steps_make() {
    for (name, spec) in specs() {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        for (form, threads) in FORMS.into_iter().flat_map(|form| [(form, 1), (form, 3)]) {
            let mut bench = Bench::new(&checkpoint, form, threads);
            let start = prompt(3, vocab, 1);
            let guesses = prompt(5, vocab, 2);
            let go_on = prompt(2, vocab, 3);
            for accepted in 0..=guesses.len() {
                let what = (name, form, threads, accepted);
                let ids = [&start, &guesses[..accepted], &go_on].concat();
                let (want, want_state) = bench.steps(&ids);
                let guessed = [&start, &guesses[..]].concat();
                let (want_guessed, _) = bench.steps(&guessed);
                let mut state = bench.state();
                bench
                    .sweep(vec![(&mut state, &start, Advance::All)])
                    .unwrap();
                let part = vec![(&mut state, &guesses[..], Advance::Held)];
                let (got, _) = bench.sweep(part).unwrap();
                assert_same_bits(&got, &want_guessed[start.len() * vocab..], &what);
                assert!(state.is_held() && state.position() == start.len());
                bench.commit(0, &mut state, accepted);
                assert_eq!(state.position(), start.len() + accepted);
                let part = vec![(&mut state, &go_on[..], Advance::All)];
                let (got, _) = bench.sweep(part).unwrap();
                assert_same_bits(&got, &want[want.len() - go_on.len() * vocab..], &what);
                assert_eq!(saved(&state), saved(&want_state), "{what:?}");
            }
        }
    }
}

/// Guesses of several sequences beside a plain one.
#[test]
fn held_and_plain_sequences_share_a_sweep() {
    let written = write(&TinySpec::odd(4));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    for form in FORMS {
        let mut bench = Bench::new(&checkpoint, form, 2);
        let ids: Vec<_> = (0..3).map(|seed| prompt(8, vocab, seed)).collect();
        let accepted = [2, 3, 1];
        let advance = [Advance::Held, Advance::All, Advance::Held];
        let mut states: Vec<_> = ids.iter().map(|_| bench.state()).collect();
        let parts = states.iter_mut().zip(&ids).zip(advance);
        let lengths = [4, 3, 5];
        let parts = parts.zip(lengths);
        let parts = parts.map(|(((state, ids), advance), len)| (state, &ids[..len], advance));
        bench.sweep(parts.collect()).unwrap();
        for (index, state) in states.iter_mut().enumerate() {
            if advance[index] == Advance::Held {
                bench.commit(index, state, accepted[index]);
            }
        }
        for (index, state) in states.iter().enumerate() {
            let (_, want) = bench.steps(&ids[index][..accepted[index]]);
            assert_eq!(saved(state), saved(&want), "{form:?} {index}");
        }
    }
}

#[test]
fn a_state_that_waits_for_its_commit_is_refused_until_reset() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, AttentionForm::Latent, 1);
    let mut state = bench.state();
    bench
        .sweep(vec![(&mut state, &[1, 2], Advance::Held)])
        .unwrap();
    let refused = bench.sweep(vec![(&mut state, &[1], Advance::All)]);
    assert!(matches!(
        refused,
        Err(RunError::Model(ModelError::Held { sequence: 0 }))
    ));
    state.reset();
    assert!(!state.is_held());
    bench.sweep(vec![(&mut state, &[1], Advance::All)]).unwrap();
}

#[test]
fn more_guesses_than_planned_are_refused() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, AttentionForm::Latent, 1);
    bench.workspace = bench.model.new_workspace(WorkspaceSize {
        positions: 4,
        held_positions: 1,
        logit_rows: 4,
        context_positions: CONTEXT,
        workers: 1,
    });
    let mut state = bench.state();
    let refused = bench.sweep(vec![(&mut state, &[1, 2], Advance::Held)]);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("2 held positions"), "{text}");
    bench
        .sweep(vec![(&mut state, &[1, 2], Advance::All)])
        .unwrap();
}

#[test]
fn a_saved_state_goes_on_as_if_nothing_had_happened() {
    for (name, spec) in specs() {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        let ids = prompt(9, vocab, 5);
        for form in FORMS {
            let mut bench = Bench::new(&checkpoint, form, 2);
            let (want, want_state) = bench.steps(&ids);
            for cut in 1..ids.len() {
                let (_, first) = bench.steps(&ids[..cut]);
                let bytes = saved(&first);
                // Another capacity, and something else in it before.
                let mut restored = bench.model.new_state(CONTEXT - 1);
                let mut copied = bench.model.new_state(CONTEXT - 2);
                for state in [&mut restored, &mut copied] {
                    bench
                        .sweep(vec![(state, &ids[2..5], Advance::All)])
                        .unwrap();
                }
                restored.restore(cut, &mut bytes.as_slice()).unwrap();
                copied.copy_from(&first).unwrap();
                for state in [&mut restored, &mut copied] {
                    assert_eq!(state.position(), cut);
                    let part = vec![(&mut *state, &ids[cut..], Advance::All)];
                    let (got, _) = bench.sweep(part).unwrap();
                    assert_same_bits(&got, &want[cut * vocab..], &(name, form, cut));
                    assert_eq!(saved(state), saved(&want_state));
                }
            }
        }
    }
}

#[test]
fn a_state_that_could_not_be_read_back_is_poisoned() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    for form in FORMS {
        let mut bench = Bench::new(&checkpoint, form, 1);
        let (_, state) = bench.steps(&[1, 2, 3]);
        let bytes = saved(&state);
        for len in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            let mut restored = bench.state();
            restored.restore(3, &mut &bytes[..len]).unwrap_err();
            assert!(restored.is_poisoned(), "{len}");
            restored.reset();
            let part = vec![(&mut restored, &[1, 2, 3][..], Advance::All)];
            bench.sweep(part).unwrap();
            assert_eq!(saved(&restored), bytes, "{len}");
        }
    }
}

/// A token whose embedding is not finite: whoever uses it fails, nobody else.
const BROKEN: u32 = 7;

fn with_a_broken_token(spec: &TinySpec) -> common::Written {
    write_with(spec, |tensors| {
        let mut tensors = tensors.iter_mut();
        let Some(embeddings) = tensors.find(|tensor| tensor.name.ends_with("embed_tokens.weight"))
        else {
            return;
        };
        let hidden = usize::try_from(embeddings.shape[1]).unwrap();
        let at = 2 * hidden * BROKEN as usize;
        embeddings.bytes[at..at + 2].copy_from_slice(&[0x80, 0x7F]);
    })
}

fn without_the_broken_token(len: usize, vocab: usize, seed: u64) -> Vec<u32> {
    let ids = prompt(len, vocab - 1, seed).into_iter();
    ids.map(|id| id + u32::from(id >= BROKEN)).collect()
}

#[test]
fn a_fault_stays_with_its_sequence() {
    for (name, spec) in specs() {
        let written = with_a_broken_token(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        for form in FORMS {
            let mut bench = Bench::new(&checkpoint, form, 2);
            let mut ids: Vec<_> = (0..3)
                .map(|seed| without_the_broken_token(5, vocab, seed))
                .collect();
            ids[1][3] = BROKEN;
            let wants: Vec<_> = [0, 2].map(|index| bench.steps(&ids[index])).into();
            let mut states: Vec<_> = ids.iter().map(|_| bench.state()).collect();
            let parts = states.iter_mut().zip(&ids);
            let parts = parts.map(|(state, ids)| (state, &ids[..], Advance::All));
            let (logits, faults) = bench.sweep(parts.collect()).unwrap();
            let [fault] = &faults[..] else {
                panic!("{name}: {faults:?}");
            };
            assert_eq!((fault.segment, fault.offset), (1, 3));
            let text = fault.error.to_string();
            assert!(text.contains("layer 0, position 3"), "{name}: {text}");
            for (index, (want, want_state)) in [0, 2].into_iter().zip(wants) {
                let got = &logits[index * 5 * vocab..(index + 1) * 5 * vocab];
                assert_same_bits(got, &want, &(name, form, index));
                assert_eq!(saved(&states[index]), saved(&want_state));
            }
            assert!(states[1].is_poisoned());
        }
    }
}

#[test]
fn a_fault_among_the_guesses_is_one_only_if_they_are_taken() {
    let written = with_a_broken_token(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    for form in FORMS {
        let mut bench = Bench::new(&checkpoint, form, 2);
        let ids = without_the_broken_token(6, vocab, 1);
        let mut guesses = ids[..4].to_vec();
        guesses[2] = BROKEN;
        let mut state = bench.state();
        let part = vec![(&mut state, &guesses[..], Advance::Held)];
        let (logits, faults) = bench.sweep(part).unwrap();
        assert_eq!(faults.len(), 1);
        assert_eq!((faults[0].segment, faults[0].offset), (0, 2));
        bench.commit(0, &mut state, 2);
        let (want, want_state) = bench.steps(&ids[..2]);
        assert_same_bits(&logits[..2 * vocab], &want, &form);
        assert_eq!(saved(&state), saved(&want_state));
        // The first position is no guess.
        let part = vec![(&mut state, &[BROKEN, 1][..], Advance::Held)];
        bench.sweep(part).unwrap_err();
        assert!(state.is_poisoned());
    }
}
