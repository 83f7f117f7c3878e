//! Norms and elementwise kernels: every length around the vector widths.

use crate::buffers::{Bytes, Floats};
use crate::compare::{against_scalar, unwritten};
use crate::slow;
use crate::values::{self, Class, Random};
use k3_kernels::KernelSet;

/// Inputs of one length; which of them a kernel reads is its own business.
struct Inputs {
    a: Floats,
    b: Floats,
    bf16: Bytes,
    scalar: f32,
    taps: Floats,
}

/// Taps per channel of the convolution cases.
const TAPS: usize = 4;

/// A kernel that updates `target` (of the inputs' length) in place.
struct Kernel {
    name: &'static str,
    run: fn(&KernelSet, &Inputs, &mut [f32]),
}

const KERNELS: [Kernel; 15] = [
    Kernel {
        name: "rmsnorm",
        run: |set, x, out| (set.rmsnorm)(x.a.get(), x.b.get(), 1e-5, out),
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
        run: |set, x, out| (set.situ_glu)(x.a.get(), x.b.get(), 4.0, 25.0, out),
    },
    Kernel {
        name: "gate_sigmoid",
        run: |set, x, v| (set.gate_sigmoid)(v, x.a.get()),
    },
    Kernel {
        name: "kda_decay",
        run: |set, x, out| (set.kda_decay)(x.a.get(), x.b.get(), x.scalar, -5.0, out),
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
            let mut history = x.taps.get()[..(TAPS - 1) * out.len()].to_vec();
            (set.shortconv)(x.taps.get(), &mut history, x.a.get(), out);
        },
    },
    Kernel {
        name: "shortconv newest history",
        run: |set, x, out| {
            let len = out.len();
            let mut history = x.taps.get()[..(TAPS - 1) * len].to_vec();
            (set.shortconv)(x.taps.get(), &mut history, x.a.get(), &mut vec![0.0; len]);
            // The newest row has just entered; the middle one has moved up.
            out.copy_from_slice(&history[(TAPS - 2) * len..]);
            assert_eq!(
                history[..len]
                    .iter()
                    .map(|v| v.to_bits())
                    .collect::<Vec<_>>(),
                x.taps.get()[len..2 * len]
                    .iter()
                    .map(|v| v.to_bits())
                    .collect::<Vec<_>>(),
            );
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
            let inputs = Inputs {
                a: Floats::new(&values::f32s(random, class, len), seed),
                b: Floats::new(&values::f32s(random, class, len), seed + 1),
                bf16: Bytes::new(&values::bf16_bytes(random, class, len), 2 * seed + 1),
                scalar: values::f32s(random, class, 1)[0],
                taps: Floats::new(&values::f32s(random, class, TAPS * len), seed + 2),
            };
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
