//! Positions in pages: where a page ends, and which page it is, shows nowhere.

mod common;

use common::{Way, all_logits, assert_same_bits, load, open, prompt, write};
use k3_kernels::Isa;
use k3_models::kimi_k3::{AttentionForm, KimiK3, KimiK3State};
use k3_models::{
    Advance, LogitRows, ModelError, ModelFamily as _, PAGE_POSITIONS, PagePool, Segment,
    SequenceState as _, Sweep, WorkspaceSize, pages_for,
};
use k3_runtime::{
    Cancel, Checkpoint, ComputePool, ResidentSource, RunError, SchedulerSettings, forward,
};
use k3_testkit::{Rng, TinySpec, reference};

const FORMS: [(AttentionForm, reference::AttentionForm); 2] = [
    (AttentionForm::Latent, reference::AttentionForm::Latent),
    (AttentionForm::Expanded, reference::AttentionForm::Expanded),
];
const CONTEXT: usize = 200;

fn specs() -> [(&'static str, TinySpec); 2] {
    [("small", TinySpec::small(1)), ("odd", TinySpec::odd(2))]
}

/// A model with one workspace for all its sweeps.
struct Bench {
    model: KimiK3,
    source: ResidentSource,
    workers: ComputePool,
    workspace: <KimiK3 as k3_models::ModelFamily>::Workspace,
}

impl Bench {
    fn new(checkpoint: &Checkpoint, form: AttentionForm) -> Self {
        let (model, source) = load(checkpoint, form, Way::default());
        let workspace = model.new_workspace(WorkspaceSize {
            positions: CONTEXT,
            held_positions: 16,
            logit_rows: CONTEXT,
            context_positions: CONTEXT,
            workers: 2,
        });
        Self {
            model,
            source,
            workers: ComputePool::new(2).unwrap().splitting_everything(),
            workspace,
        }
    }

    /// All logits of one sweep of one sequence.
    fn sweep(
        &mut self,
        state: &mut KimiK3State,
        ids: &[u32],
        advance: Advance,
    ) -> Result<Vec<f32>, RunError> {
        let sweep = Sweep::new(vec![Segment {
            tokens: ids.to_vec(),
            logits: LogitRows::All,
            advance,
        }]);
        let (finished, _) = forward(
            &self.model,
            &mut self.source,
            &sweep,
            vec![state],
            &mut self.workspace,
            &self.workers,
            &mut (),
            &Cancel::default(),
        )?;
        Ok(finished.logits.to_vec())
    }

    /// An empty sequence with pages of `pool`.
    fn state(&self, positions: usize, pool: &mut PagePool) -> KimiK3State {
        let mut state = self.model.empty_state();
        state.reserve(positions, pool).unwrap();
        state
    }

    /// Gives `pool` its pages back in another order, each used before.
    fn shuffle(&self, pool: &mut PagePool, random: &mut Rng) {
        let count = pool.free_count();
        let mut taken: Vec<_> = (0..count)
            .map(|_| Some(self.state(PAGE_POSITIONS, pool)))
            .collect();
        for index in random.order(count) {
            taken[index].take().unwrap().release(pool);
        }
        assert_eq!(pool.free_count(), count);
    }
}

fn saved(state: &KimiK3State) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.save(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, state.saved_bytes(state.position()));
    bytes
}

/// Against the second implementation, which knows no pages.
#[test]
fn chunks_and_steps_across_page_borders_equal_the_reference() {
    for (name, spec) in specs() {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let oracle = written.tiny.reference();
        let ids = prompt(3 * PAGE_POSITIONS + 2, written.tiny.config.vocab_size, 3);
        for (form, oracle_form) in FORMS {
            let want = oracle.forward(&ids, oracle_form, None);
            let vocab = want.logits().len() / ids.len();
            for len in [63, 64, 65, 127, 128, 129, ids.len()] {
                for (chunk, threads, isa) in [
                    (len, 1, Isa::Scalar),
                    (len, 3, Way::default().isa),
                    (65, 2, Way::default().isa),
                    (64, 1, Way::default().isa),
                    (63, 2, Way::default().isa),
                    (1, 1, Way::default().isa),
                ] {
                    let way = Way {
                        chunk,
                        threads,
                        isa,
                        // Several blocks for the heads of a layer.
                        block_bytes: 1000,
                    };
                    let got = all_logits(&checkpoint, &ids[..len], form, way).unwrap();
                    let what = (name, form, len, way);
                    assert_same_bits(&got, &want.logits()[..len * vocab], &what);
                }
            }
        }
    }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The figures are of states that lay in one piece.
#[test]
fn saved_states_have_the_bytes_they_had_before_there_were_pages() {
    let want = [
        [0x6920_621e_8095_9666, 0x7587_40b3_b3bc_1528],
        [0xed99_7106_54fb_d8f0, 0x8242_5af9_f9aa_3cb6],
    ];
    for ((form, _), want) in FORMS.into_iter().zip(want) {
        for ((name, spec), want) in specs().into_iter().zip(want) {
            let written = write(&spec);
            let checkpoint = open(written.dir.path()).unwrap();
            let ids = prompt(150, written.tiny.config.vocab_size, 9);
            let mut bench = Bench::new(&checkpoint, form);
            let mut state = bench.model.new_state(150);
            bench.sweep(&mut state, &ids[..130], Advance::All).unwrap();
            let got = hash(&saved(&state));
            assert_eq!(got, want, "{form} {name}: {got:#018x}");
        }
    }
}

#[test]
fn the_order_of_pages_shows_nowhere() {
    for (name, spec) in specs() {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        let ids = prompt(190, vocab, 4);
        for (form, _) in FORMS {
            let mut bench = Bench::new(&checkpoint, form);
            let mut whole = bench.model.new_state(ids.len());
            let want = bench.sweep(&mut whole, &ids, Advance::All).unwrap();
            let mut pool = bench.model.new_pool(9);
            let mut random = Rng::new(7);
            for cut in [1, 63, 64, 65, 127, 128, 129, 189] {
                bench.shuffle(&mut pool, &mut random);
                let what = (name, form, cut);
                let mut state = bench.state(190, &mut pool);
                let start = bench.sweep(&mut state, &ids[..cut], Advance::All).unwrap();
                assert_same_bits(&start, &want[..cut * vocab], &what);
                let bytes = saved(&state);
                bench.shuffle(&mut pool, &mut random);
                // Of other lengths, and not empty.
                let mut copied = bench.state(191, &mut pool);
                let mut restored = bench.state(192, &mut pool);
                for other in [&mut copied, &mut restored] {
                    bench.sweep(other, &ids[5..80], Advance::All).unwrap();
                }
                copied.copy_from(&state).unwrap();
                restored.restore(cut, &mut bytes.as_slice()).unwrap();
                for state in [&mut state, &mut copied, &mut restored] {
                    assert_eq!(saved(state), bytes, "{what:?}");
                    let rest = bench.sweep(state, &ids[cut..], Advance::All).unwrap();
                    assert_same_bits(&rest, &want[cut * vocab..], &what);
                    assert_eq!(saved(state), saved(&whole), "{what:?}");
                    state.release(&mut pool);
                }
                assert_eq!(pool.free_count(), pool.page_count());
            }
        }
    }
}

#[test]
fn guesses_across_a_page_border_are_taken_or_rolled_back() {
    for (name, spec) in specs() {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        let ids = prompt(80, vocab, 5);
        let wrong = prompt(6, vocab, 6);
        for (form, _) in FORMS {
            let mut bench = Bench::new(&checkpoint, form);
            let mut whole = bench.model.new_state(ids.len());
            let want = bench.sweep(&mut whole, &ids, Advance::All).unwrap();
            for start in [58, 61, 63, 64] {
                for accepted in 0..=6 {
                    let what = (name, form, start, accepted);
                    let mut state = bench.model.new_state(ids.len());
                    bench
                        .sweep(&mut state, &ids[..start], Advance::All)
                        .unwrap();
                    let right = &ids[start..start + accepted];
                    let guessed = [right, &wrong[accepted..]].concat();
                    bench.sweep(&mut state, &guessed, Advance::Held).unwrap();
                    let workspace = &mut bench.workspace;
                    bench
                        .model
                        .commit(workspace, 0, &mut state, accepted, &bench.workers);
                    let done = start + accepted;
                    let rest = bench.sweep(&mut state, &ids[done..], Advance::All).unwrap();
                    assert_same_bits(&rest, &want[done * vocab..], &what);
                    assert_eq!(saved(&state), saved(&whole), "{what:?}");
                }
            }
        }
    }
}

#[test]
fn a_sequence_has_the_positions_it_reserved_and_no_more() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let mut bench = Bench::new(&checkpoint, AttentionForm::Latent);
    let mut pool = bench.model.new_pool(3);
    let mut state = bench.state(65, &mut pool);
    assert_eq!((state.capacity(), pool.free_count()), (65, 1));
    let ids = prompt(66, written.tiny.config.vocab_size, 1);
    // There is room in the last page; it was not asked for.
    let refused = bench.sweep(&mut state, &ids, Advance::All);
    assert!(matches!(
        refused,
        Err(RunError::Model(ModelError::ContextFull {
            needed: 66,
            capacity: 65
        }))
    ));
    bench.sweep(&mut state, &ids[..65], Advance::All).unwrap();
    // A sequence that goes on may reserve more, if there is more.
    let short = state.reserve(4 * PAGE_POSITIONS, &mut pool).unwrap_err();
    assert_eq!((short.needed, short.free), (2, 1));
    assert!(short.to_string().contains("--context-total"), "{short}");
    assert_eq!((state.capacity(), state.position()), (65, 65));
    state.reserve(66, &mut pool).unwrap();
    bench.sweep(&mut state, &ids[65..], Advance::All).unwrap();
    // A reset keeps the pages, a release does not.
    state.reset();
    assert_eq!((state.capacity(), state.position()), (66, 0));
    state.release(&mut pool);
    assert_eq!((state.capacity(), pool.free_count()), (0, 3));
    let refused = bench.sweep(&mut state, &ids[..1], Advance::All);
    assert!(matches!(
        refused,
        Err(RunError::Model(ModelError::ContextFull { .. }))
    ));
}

#[test]
fn what_is_planned_for_states_is_what_they_reserve() {
    for (_, spec) in specs() {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        for (form, _) in FORMS {
            let bench = Bench::new(&checkpoint, form);
            for (sequences_max, context, total) in [
                (1, 1, None),
                (1, 64, None),
                (3, 65, None),
                (3, 65, Some(65)),
                (3, 65, Some(129)),
                (3, 65, Some(10_000)),
                (64, 4096, Some(8192)),
            ] {
                let settings = SchedulerSettings {
                    sequences_max,
                    context_total: total,
                    ..SchedulerSettings::single(context, 16)
                };
                let planned = settings.planned_bytes(&bench.model, 2).unwrap();
                let pool = bench.model.new_pool(settings.page_count());
                let fixed = bench.model.empty_state().saved_bytes(0);
                let reserved = fixed * sequences_max as u64 + pool.bytes();
                let what = (form, sequences_max, context, total);
                assert_eq!(planned.state_bytes, reserved, "{what:?}");
                // A sequence alone takes what a session plans.
                let alone = bench.model.footprint().state_bytes(context as u64);
                let pages = pages_for(context) * 4 * bench.model.page_len();
                assert_eq!(alone, fixed + pages as u64, "{what:?}");
            }
        }
    }
}

#[test]
fn less_than_one_context_in_all_is_refused() {
    let written = write(&TinySpec::small(1));
    let checkpoint = open(written.dir.path()).unwrap();
    let bench = Bench::new(&checkpoint, AttentionForm::Latent);
    let settings = SchedulerSettings {
        sequences_max: 4,
        context_total: Some(99),
        ..SchedulerSettings::single(100, 16)
    };
    let refused = settings.planned_bytes(&bench.model, 1).unwrap_err();
    assert!(matches!(
        refused,
        RunError::ContextTotal {
            total: 99,
            context: 100
        }
    ));
}
