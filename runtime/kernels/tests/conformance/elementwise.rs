//! Norms and elementwise kernels: every length around the vector widths.

use crate::buffers::{Bytes, Floats};
use crate::compare::{against_scalar, assert_same, unwritten};
use crate::slow;
use crate::values::{self, Class, Random};
use k3_kernels::KernelSet;

/// Inputs of one length; which of them a kernel reads is its own business.
struct Inputs {
    a: Floats,
    b: Floats,
    bf16: Bytes,
    scalar: f32,
    /// Of the convolution, `[channels][tap_count]`.
    taps: Floats,
    tap_count: usize,
    eps: f32,
    /// Caps of the gate and of the linear part.
    betas: (f32, f32),
    decay_bound: f32,
}

impl Inputs {
    fn new(random: &mut Random, class: Class, len: usize, seed: usize) -> Self {
        let tap_count = random.pick(&TAP_COUNTS);
        let mut floats = |len: usize, offset: usize| {
            let content = values::f32s(random, class, len);
            Floats::new(&content, seed + offset)
        };
        Self {
            a: floats(len, 0),
            b: floats(len, 1),
            taps: floats(tap_count * len, 2),
            tap_count,
            bf16: Bytes::new(&values::bf16_bytes(random, class, len), 2 * seed + 1),
            scalar: values::f32s(random, class, 1)[0],
            eps: random.pick(&values::EPSILONS),
            betas: random.pick(&BETAS),
            decay_bound: random.pick(&DECAY_BOUNDS),
        }
    }

    /// What the convolution has seen before.
    fn history(&self, channels: usize) -> Vec<f32> {
        self.taps.get()[..(self.tap_count - 1) * channels].to_vec()
    }
}

// What a configuration may say, so that no kernel gets by with the released values.
const TAP_COUNTS: [usize; 6] = [1, 2, 3, 4, 5, 6];
const BETAS: [(f32, f32); 5] = [
    (4.0, 25.0),
    (25.0, 4.0),
    (1.0, 1.0),
    (0.3, 7.0),
    (100.0, 0.5),
];
const DECAY_BOUNDS: [f32; 4] = [-5.0, -1.0, -0.25, 0.0];

/// A kernel that updates `target` (of the inputs' length) in place.
struct Kernel {
    name: &'static str,
    run: fn(&KernelSet, &Inputs, &mut [f32]),
}

const KERNELS: [Kernel; 15] = [
    Kernel {
        name: "rmsnorm",
        run: |set, x, out| (set.rmsnorm)(x.a.get(), x.b.get(), x.eps, out),
    },
    Kernel {
        name: "l2norm",
        run: |set, _, v| (set.l2norm)(v),
    },
    Kernel {
        name: "sigmoid",
        run: |set, _, v| (set.sigmoid)(v),
    },
    Kernel {
        name: "exp",
        run: |set, _, v| (set.exp)(v),
    },
    Kernel {
        name: "tanh",
        run: |set, _, v| (set.tanh)(v),
    },
    Kernel {
        name: "situ_glu",
        run: |set, x, out| (set.situ_glu)(x.a.get(), x.b.get(), x.betas.0, x.betas.1, out),
    },
    Kernel {
        name: "gate_sigmoid",
        run: |set, x, v| (set.gate_sigmoid)(v, x.a.get()),
    },
    Kernel {
        name: "kda_decay",
        run: |set, x, out| (set.kda_decay)(x.a.get(), x.b.get(), x.scalar, x.decay_bound, out),
    },
    Kernel {
        name: "softmax",
        run: |set, _, v| (set.softmax)(v),
    },
    Kernel {
        name: "add",
        run: |set, x, v| (set.add)(v, x.a.get()),
    },
    Kernel {
        name: "add_scaled",
        run: |set, x, v| (set.add_scaled)(v, x.scalar, x.a.get()),
    },
    Kernel {
        name: "multiply",
        run: |set, x, v| (set.multiply)(v, x.a.get()),
    },
    Kernel {
        name: "widen_bf16",
        run: |set, x, out| (set.widen_bf16)(x.bf16.get(), out),
    },
    Kernel {
        name: "shortconv output",
        run: |set, x, out| {
            let mut history = x.history(out.len());
            (set.shortconv)(x.taps.get(), &mut history, x.a.get(), out);
        },
    },
    Kernel {
        name: "shortconv newest history",
        run: |set, x, out| {
            let len = out.len();
            let before = x.history(len);
            let mut history = before.clone();
            (set.shortconv)(x.taps.get(), &mut history, x.a.get(), &mut vec![0.0; len]);
            let Some(newest) = x.tap_count.checked_sub(2) else {
                return assert!(history.is_empty(), "one tap remembers nothing");
            };
            // The newest row has just entered; the others have moved up.
            out.copy_from_slice(&history[newest * len..]);
            assert_same(&before[len..], &history[..newest * len], "moved history");
        },
    },
];

#[test]
fn elementwise_kernels_equal_the_definition() {
    for len in (0..=70).chain([127, 128, 129, 1000]) {
        let seeds = if slow() { 48 } else { 12 };
        for seed in 0..seeds {
            let random = &mut Random::new((len * 100 + seed) as u64);
            let class = Class::ALL[seed % Class::ALL.len()];
            let inputs = Inputs::new(random, class, len, seed);
            let target = values::f32s(random, class, len);
            for kernel in &KERNELS {
                let what = format!("{} of {len}, {class:?}, seed {seed}", kernel.name);
                // An output that is only written must not depend on its content.
                let initial = if kernel.name.starts_with("shortconv") {
                    unwritten(len)
                } else {
                    target.clone()
                };
                against_scalar(&what, &initial, seed, |set, target| {
                    (kernel.run)(set, &inputs, target);
                });
            }
        }
    }
}

/// A kernel with one of these numbers built in differs from the definition in the cases
/// above: each number alone changes a result.
#[test]
fn every_parameter_changes_results() {
    const LEN: usize = 16;
    let result = |name: &str, change: fn(&mut Inputs)| {
        let mut inputs = Inputs::new(&mut Random::new(9), Class::Ordinary, LEN, 0);
        change(&mut inputs);
        let kernel = KERNELS.iter().find(|kernel| kernel.name == name).unwrap();
        let mut out = unwritten(LEN);
        (kernel.run)(crate::scalar(), &inputs, &mut out);
        out
    };
    let differ = |name: &str, one: fn(&mut Inputs), other: fn(&mut Inputs)| {
        assert_ne!(result(name, one), result(name, other), "{name}");
    };
    differ("rmsnorm", |x| x.eps = 1e-5, |x| x.eps = 1.0);
    differ(
        "situ_glu",
        |x| x.betas = (4.0, 25.0),
        |x| x.betas = (25.0, 25.0),
    );
    differ(
        "situ_glu",
        |x| x.betas = (4.0, 25.0),
        |x| x.betas = (4.0, 4.0),
    );
    differ(
        "kda_decay",
        |x| x.decay_bound = -5.0,
        |x| x.decay_bound = -1.0,
    );
    differ(
        "kda_decay",
        |x| x.decay_bound = -1.0,
        |x| x.decay_bound = -0.25,
    );
}
