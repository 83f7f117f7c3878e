//! Every plausible mistake is noticed by a fixture, and here is by which.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use common::differing;
use k3_kernels::{Isa, KdaStep, KernelSet};
use k3_testkit::reference::{KdaInput, kda_step};
use k3_testkit::{AttentionForm, Forward, Mistake, Reference, TinySpec};

const PROMPT: [u32; 9] = [3, 17, 3, 60, 99, 41, 0, 7, 100];

/// The mistakes no logit of a sane model can show, told apart at the kernel.
const KERNEL_LEVEL: [Mistake; 1] = [Mistake::BetaBeforeZeroTest];

/// The mistakes the committed checkpoints leave to the generated ones: only the
/// order probe magnifies the order of a matmul.
const NOT_COMMITTED: [Mistake; 2] = [Mistake::BetaBeforeZeroTest, Mistake::MatmulSerial];

struct Fixture {
    name: String,
    reference: Reference,
    right: BTreeMap<&'static str, Forward>,
}

const FORMS: [(&str, AttentionForm); 2] = [
    ("latent", AttentionForm::Latent),
    ("expanded", AttentionForm::Expanded),
];

impl Fixture {
    fn new(name: impl Into<String>, reference: Reference) -> Self {
        let right = FORMS
            .map(|(name, form)| (name, reference.forward(&PROMPT, form, None)))
            .into();
        Self {
            name: name.into(),
            reference,
            right,
        }
    }
}

/// Generated checkpoints, each told by its preset.
fn generated() -> Vec<Fixture> {
    [
        ("small", TinySpec::small(11)),
        ("odd", TinySpec::odd(11)),
        ("order_probe", TinySpec::order_probe(11)),
    ]
    .map(|(name, spec)| Fixture::new(name, spec.generate().reference()))
    .into()
}

/// The committed checkpoints of `fixtures/`.
fn committed() -> Vec<Fixture> {
    let dirs = common::fixture_dirs().into_iter();
    dirs.map(|dir| {
        let name = dir.file_name().unwrap().to_string_lossy();
        Fixture::new(format!("fixtures/{name}"), Reference::open(&dir).unwrap())
    })
    .collect()
}

/// Logits of the whole prompt that differ in some bit, per form.
fn differing_logits(fixture: &Fixture, mistake: Mistake) -> [usize; 2] {
    FORMS.map(|(name, form)| {
        let wrong = fixture.reference.forward(&PROMPT, form, Some(mistake));
        differing(wrong.logits(), fixture.right[name].logits())
    })
}

#[test]
#[allow(clippy::print_stdout, reason = "the table is what this test is for")]
fn every_mistake_is_noticed() {
    let groups = [generated(), committed()];
    let mut table = String::from("mistake: differing logits, latent and expanded form\n");
    let mut unnoticed = Vec::new();
    for mistake in Mistake::all() {
        write!(table, "{mistake:48}").unwrap();
        for (group, excused) in groups.iter().zip([&KERNEL_LEVEL[..], &NOT_COMMITTED]) {
            let mut noticed = excused.contains(&mistake);
            for fixture in group {
                let [latent, expanded] = differing_logits(fixture, mistake);
                noticed |= latent > 0 && expanded > 0;
                write!(table, "  {} {latent:4} {expanded:4}", fixture.name).unwrap();
            }
            if !noticed {
                unnoticed.push(mistake);
            }
        }
        table.push('\n');
    }
    println!("{table}");
    assert!(unnoticed.is_empty(), "unnoticed: {unnoticed:?}\n{table}");
}

/// A wrong order of an f64 sum is invisible in ordinary tiny weights: two orders
/// differ far below an f32's last bit. The probe exists for it and must stay
/// able to tell.
#[test]
fn the_order_of_a_sum_needs_the_probe() {
    let fixtures = generated();
    for mistake in [Mistake::RouterInLanes, Mistake::MatmulSerial] {
        let seen = |name: &str| {
            let fixture = fixtures.iter().find(|fixture| fixture.name == name);
            differing_logits(fixture.unwrap(), mistake)
        };
        let probed = seen("order_probe");
        assert!(
            probed.iter().all(|&count| count > PROMPT.len() * 100),
            "{mistake}"
        );
        assert_eq!(seen("small"), [0, 0], "{mistake}");
    }
}

/// A key so small that `k * beta` underflows to zero while `k` does not, over a
/// state so large that `k` still reads something from it.
const UNDERFLOWING: KdaInput<'static> = KdaInput {
    alpha: &[1.0, 1.0],
    q: &[0.0, 1.0],
    k: &[1e-38, 1.0],
    v: &[0.0, 0.0],
    beta: 1e-8,
};
const UNDERFLOWING_STATE: [f32; 4] = [f32::MAX, 1.0, 0.0, 3.0];

fn underflowing_step(mistake: Option<Mistake>) -> (Vec<f32>, Vec<f32>) {
    let mut state = UNDERFLOWING_STATE.to_vec();
    let out = kda_step(&mut state, UNDERFLOWING, mistake);
    (state, out)
}

/// The engine's kernels on the same constructed step, so that the mistake could
/// not hide there either.
#[test]
fn every_engine_body_passes_the_underflow_case() {
    let (right_state, right_out) = underflowing_step(None);
    for kernels in Isa::ALL.into_iter().filter_map(KernelSet::for_isa) {
        let mut state = UNDERFLOWING_STATE;
        let (mut delta, mut out) = ([0.0; 2], [0.0; 2]);
        (kernels.kda_step)(KdaStep {
            state: &mut state,
            alpha: UNDERFLOWING.alpha,
            q: UNDERFLOWING.q,
            k: UNDERFLOWING.k,
            v: UNDERFLOWING.v,
            beta: UNDERFLOWING.beta,
            delta: &mut delta,
            out: &mut out,
        });
        assert_eq!(differing(&state, &right_state), 0, "{}", kernels.isa);
        assert_eq!(differing(&out, &right_out), 0, "{}", kernels.isa);
    }
}

#[test]
fn beta_before_the_zero_test_is_noticed_at_the_kernel() {
    assert_eq!(1e-38_f32 * 1e-8, 0.0, "the product underflows");
    let (state, out) = underflowing_step(None);
    let (wrong_state, wrong_out) = underflowing_step(Some(Mistake::BetaBeforeZeroTest));
    // u[0] = 1e-38 * MAX, so the difference reaches the second key's row.
    assert_ne!(state[2].to_bits(), wrong_state[2].to_bits());
    assert_ne!(out[0].to_bits(), wrong_out[0].to_bits());

    // And an infinite difference shows the skip of the update itself.
    let overflowing = |mistake| {
        let mut state = vec![1.0];
        let input = KdaInput {
            alpha: &[1.0],
            q: &[1.0],
            k: &[1e-38],
            v: &[f32::INFINITY],
            beta: 1e-8,
        };
        kda_step(&mut state, input, mistake)[0]
    };
    assert!(overflowing(None).is_nan(), "0 * inf is added");
    assert_eq!(overflowing(Some(Mistake::BetaBeforeZeroTest)), 1.0);
}

#[test]
fn a_zero_key_of_either_sign_is_skipped_and_a_zero_query_only_in_the_output() {
    for zero in [0.0, -0.0] {
        let mut state = vec![f32::INFINITY, 5.0];
        state.extend([7.0, 8.0]);
        let input = KdaInput {
            alpha: &[1.0, 1.0],
            q: &[zero, 1.0],
            k: &[zero, 1.0],
            v: &[1.0, 2.0],
            beta: 0.5,
        };
        let out = kda_step(&mut state, input, None);
        assert_eq!(out, [7.0 + 0.5 * (1.0 - 7.0), 8.0 + 0.5 * (2.0 - 8.0)]);
        assert_eq!(state, [f32::INFINITY, 5.0, 4.0, 5.0]);
    }
}
