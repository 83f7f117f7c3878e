//! The elementwise kernels of every instruction set against the scalar definitions, bit for
//! bit (any NaN equals any NaN), and the definitions against formulas written out here.

use k3_kernels::{Isa, KernelSet, math};

/// Lengths around every block size, and one that spans many blocks.
const LENGTHS: [usize; 14] = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 47, 65, 1_003];

/// Values at which special handling could differ between bodies.
const SPECIALS: [f32; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    f32::from_bits(1),
    f32::from_bits(0x8000_0001),
    88.722_84,
    -88.722_84,
    -87.5,
    -103.9,
    -103.972_08,
    -104.5,
    9.010_914,
    -9.010_914,
    5.960_464e-8,
    -2.980_232e-8,
    0.010_83,
];

fn scalar() -> &'static KernelSet {
    KernelSet::for_isa(Isa::Scalar).expect("the definitions are always there")
}

fn vector_sets() -> impl Iterator<Item = &'static KernelSet> {
    [Isa::Avx2, Isa::Avx512]
        .into_iter()
        .filter_map(KernelSet::for_isa)
}

/// `len` values: mostly of moderate size, one in five special. `seed` varies the sequence.
fn values(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..len)
        .map(|_| {
            // xorshift32
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            match state % 5 {
                0 => SPECIALS[usize::try_from(state / 5).expect("fits") % SPECIALS.len()],
                1 => f32::from_bits(state.rotate_left(11)),
                _ => f32::from(u16::try_from(state >> 16).expect("16 bits")) / 2_048.0 - 16.0,
            }
        })
        .collect()
}

fn assert_same(isa: Isa, kernel: &str, got: &[f32], expected: &[f32]) {
    let len = expected.len();
    assert_eq!(got.len(), len);
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!(
            got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan()),
            "{kernel} in {isa}, length {len}, element {i}: {got:e} instead of {expected:e}"
        );
    }
}

/// Runs `kernel` of every set on the same data and compares what it leaves.
fn compare(name: &str, kernel: impl Fn(&KernelSet) -> Vec<f32>) {
    let expected = kernel(scalar());
    for set in vector_sets() {
        assert_same(set.isa, name, &kernel(set), &expected);
    }
}

#[test]
fn one_operand_kernels_agree() {
    for len in LENGTHS {
        for seed in 0..40 {
            let x = values(len, seed);
            let in_place = |kernel: fn(&mut [f32])| {
                let mut x = x.clone();
                kernel(&mut x);
                x
            };
            compare("exp", |set| in_place(set.exp));
            compare("tanh", |set| in_place(set.tanh));
            compare("sigmoid", |set| in_place(set.sigmoid));
            compare("softmax", |set| in_place(set.softmax));
        }
    }
}

#[test]
fn softmax_agrees_on_finite_scores() {
    for len in LENGTHS {
        for seed in 0..40 {
            let mut x = values(len, seed);
            x.iter_mut().for_each(|x| *x = x.clamp(-60.0, 60.0));
            x.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = -0.0);
            compare("softmax", |set| {
                let mut x = x.clone();
                (set.softmax)(&mut x);
                x
            });
        }
    }
}

/// Every special value in every lane, alone among ordinary neighbours.
#[test]
fn specials_agree_in_every_lane() {
    for special in SPECIALS {
        for lane in 0..37 {
            let mut x = vec![0.75_f32; 37];
            x[lane] = special;
            let in_place = |kernel: fn(&mut [f32])| {
                let mut x = x.clone();
                kernel(&mut x);
                x
            };
            compare("exp", |set| in_place(set.exp));
            compare("tanh", |set| in_place(set.tanh));
            compare("sigmoid", |set| in_place(set.sigmoid));
        }
    }
}

#[test]
fn two_operand_kernels_agree() {
    for len in LENGTHS {
        for seed in 0..40 {
            let (a, b) = (values(len, seed), values(len, seed + 1_000));
            compare("situ_glu", |set| {
                let mut out = vec![f32::NAN; len];
                (set.situ_glu)(&a, &b, 4.0, 25.0, &mut out);
                out
            });
            compare("gate_sigmoid", |set| {
                let mut values = a.clone();
                (set.gate_sigmoid)(&mut values, &b);
                values
            });
            compare("kda_decay", |set| {
                let mut alpha = vec![f32::NAN; len];
                (set.kda_decay)(&a, &b, 1.7, -5.0, &mut alpha);
                alpha
            });
        }
    }
}

#[test]
fn shortconv_agrees_and_updates_its_history() {
    for channels in LENGTHS {
        for k in 1..6_usize {
            let seed = u32::try_from(k).expect("small");
            let taps = values(channels * k, seed);
            let history = values(channels * (k - 1), seed + 50);
            let current = values(channels, seed + 100);
            compare("shortconv", |set| {
                let mut history = history.clone();
                let mut out = vec![f32::NAN; channels];
                (set.shortconv)(&taps, &mut history, &current, &mut out);
                out.extend(&history);
                // A second step reads what the first left.
                (set.shortconv)(&taps, &mut history, &current, &mut out[..channels]);
                out.extend(&history);
                out
            });
        }
    }
}

/// Fails for a convolution that starts with the oldest tap, that fuses its products, or that
/// reads `taps` as [k][channels].
#[test]
fn shortconv_is_newest_then_oldest_to_newest() {
    let (channels, k) = (19, 4);
    let number = |n: usize| f32::from(u16::try_from(n).expect("small"));
    let taps: Vec<f32> = (0..channels * k)
        .map(|n| 0.1 + number(n * 37 % 23) / 7.0)
        .collect();
    let history: Vec<f32> = (0..channels * (k - 1))
        .map(|n| number(n * 53 % 29) / 11.0 - 1.3)
        .collect();
    let current: Vec<f32> = (0..channels)
        .map(|n| number(n * 17 % 31) / 13.0 - 1.1)
        .collect();
    for set in vector_sets().chain([scalar()]) {
        let mut after = history.clone();
        let mut out = vec![0.0; channels];
        (set.shortconv)(&taps, &mut after, &current, &mut out);
        for c in 0..channels {
            let tap = |j: usize| taps[c * k + j];
            let past = |j: usize| history[j * channels + c];
            let acc = tap(3) * current[c] + tap(0) * past(0) + tap(1) * past(1) + tap(2) * past(2);
            let expected = acc * (1.0 / (1.0 + math::exp(-acc)));
            assert_eq!(
                out[c].to_bits(),
                expected.to_bits(),
                "{}, channel {c}",
                set.isa
            );
        }
        assert_eq!(after[..channels * 2], history[channels..]);
        assert_eq!(after[channels * 2..], current);
    }
}

/// Fails for a situ_glu that takes the sigmoid of the capped gate, or multiplies in another
/// order.
#[test]
fn situ_glu_takes_the_sigmoid_of_the_uncapped_gate() {
    let gate: Vec<f32> = (0..67_u8).map(|n| f32::from(n) * 0.37 - 12.0).collect();
    let up: Vec<f32> = (0..67_u8).map(|n| 40.0 - f32::from(n) * 1.21).collect();
    for set in vector_sets().chain([scalar()]) {
        let mut out = vec![0.0; gate.len()];
        (set.situ_glu)(&gate, &up, 4.0, 25.0, &mut out);
        for ((&g, &u), got) in gate.iter().zip(&up).zip(out) {
            let a = (4.0 * math::tanh(g / 4.0)) * (1.0 / (1.0 + math::exp(-g)));
            let expected = a * (25.0 * math::tanh(u / 25.0));
            assert_eq!(got.to_bits(), expected.to_bits(), "{} at {g}, {u}", set.isa);
        }
    }
}

/// Fails for a decay whose bias is added after the scaling, or whose bound sits inside the
/// sigmoid.
#[test]
fn kda_decay_is_exp_of_the_bounded_gate() {
    let z: Vec<f32> = (0..67_u8).map(|n| f32::from(n) * 0.21 - 7.0).collect();
    let bias: Vec<f32> = (0..67_u8).map(|n| 2.0 - f32::from(n) * 0.05).collect();
    let (a, lower_bound) = (1.3_f32, -5.0_f32);
    for set in vector_sets().chain([scalar()]) {
        let mut alpha = vec![0.0; z.len()];
        (set.kda_decay)(&z, &bias, a, lower_bound, &mut alpha);
        for ((&z, &bias), got) in z.iter().zip(&bias).zip(alpha) {
            let u = a * (z + bias);
            let expected = math::exp(lower_bound * (1.0 / (1.0 + math::exp(-u))));
            assert_eq!(got.to_bits(), expected.to_bits(), "{} at {z}", set.isa);
            assert!((0.0..=1.0).contains(&got));
        }
    }
}

#[test]
#[should_panic(expected = "history is not [k - 1][channels]")]
fn shortconv_refuses_a_wrong_history() {
    let set = KernelSet::detect();
    (set.shortconv)(&[0.0; 32], &mut [0.0; 16], &[0.0; 8], &mut [0.0; 8]);
}

#[test]
#[should_panic(expected = "second input and output disagree")]
fn situ_glu_refuses_inputs_of_two_lengths() {
    let set = KernelSet::detect();
    (set.situ_glu)(&[0.0; 8], &[0.0; 7], 4.0, 25.0, &mut [0.0; 8]);
}
