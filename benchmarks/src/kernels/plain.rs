//! Kernels over activations and states, at released sizes.
//!
//! What a kernel updates in place is copied in before each call where repeated
//! calls would end in other numbers than a run has; the copy counts.

use std::hint::black_box;

use k3_kernels::{KdaStep, KernelSet};

use super::{Group, Spec, Work, scalar};
use crate::rounds::{Compared, Kernel};
use crate::values::Random;

/// Width of a hidden state.
const HIDDEN: usize = 7168;
/// Values of one slice of an elementwise call, as much as stays close.
const SLICE: usize = 1024;
/// Heads of a layer, and the width of each.
const HEADS: usize = 96;
const HEAD: usize = 128;
/// Positions in the cache of the full attention.
const CONTEXT: usize = 4096;
/// Widths of its latent and rotary parts.
const LATENT: usize = 512;
const ROPE: usize = 64;
/// Sources of a residual mix.
const SOURCES: usize = 8;
/// Width of an expert's inner activations.
const INNER: usize = 3072;

/// Writes outputs, or updates them, from inputs that it may use as scratch.
type Run<I> = fn(&KernelSet, &mut I, &mut [f32]);

/// A kernel, its inputs and its outputs.
struct Plain<I> {
    set: &'static KernelSet,
    inputs: I,
    out: Vec<f32>,
    run: Run<I>,
}

impl<I: Send> Kernel for Plain<I> {
    fn call(&mut self) {
        (self.run)(self.set, black_box(&mut self.inputs), &mut self.out);
        black_box(&mut self.out);
    }

    fn compare(&mut self, _round: usize) -> Compared {
        let mut expected = self.out.clone();
        (self.run)(scalar(), &mut self.inputs, &mut expected);
        (self.run)(self.set, &mut self.inputs, &mut self.out);
        Compared::of(&self.out, &expected)
    }
}

fn spec(
    (group, name, shape): (Group, &'static str, &'static str),
    (bytes, operations): (usize, usize),
    build: for<'w> fn(
        &'static KernelSet,
        &'w crate::weights::Weights,
        usize,
    ) -> Box<dyn Kernel + 'w>,
) -> Spec {
    Spec {
        group,
        name,
        positions: None,
        shape,
        work: Work {
            bytes: bytes as u64,
            operations: operations as u64,
        },
        weights: None,
        beside: None,
        build,
    }
}

/// What is measured over activations and states.
pub(super) fn specs() -> Vec<Spec> {
    let mut specs = vec![kda()];
    specs.extend(attention());
    specs.extend(elementwise());
    specs.extend(norms());
    specs
}

/// All heads of a layer, one position.
fn kda() -> Spec {
    struct Head {
        alpha: Vec<f32>,
        q: Vec<f32>,
        k: Vec<f32>,
        v: Vec<f32>,
        delta: Vec<f32>,
    }
    let state = HEADS * HEAD * HEAD;
    spec(
        (Group::Kda, "kda step", "96 heads of 128"),
        // The states are read and written.
        (2 * 4 * state, 4 * state),
        |set, _, _| {
            let mut random = Random::new(3);
            let mut head = || Head {
                alpha: random.between(0.9, 1.0, HEAD),
                q: random.direction(HEAD),
                k: random.direction(HEAD),
                v: random.normal(HEAD),
                delta: vec![0.0; HEAD],
            };
            Box::new(Plain {
                set,
                inputs: (0..HEADS).map(|_| head()).collect::<Vec<_>>(),
                out: vec![0.0; HEADS * (HEAD * HEAD + HEAD)],
                run: |set, heads, out| {
                    let outs = out.chunks_exact_mut(HEAD * HEAD + HEAD);
                    for (head, out) in heads.iter_mut().zip(outs) {
                        let (state, out) = out.split_at_mut(HEAD * HEAD);
                        (set.kda_step)(KdaStep {
                            state,
                            alpha: &head.alpha,
                            q: &head.q,
                            k: &head.k,
                            v: &head.v,
                            beta: 0.5,
                            delta: &mut head.delta,
                            out,
                        });
                    }
                },
            })
        },
    )
}

/// One head over a long cache.
struct Cache {
    query: Vec<f32>,
    rope: Vec<f32>,
    rows: Vec<f32>,
    ropes: Vec<f32>,
    weights: Vec<f32>,
    sums: Vec<f64>,
}

impl Cache {
    fn new(query: usize, row: usize) -> Self {
        let mut random = Random::new(5);
        Self {
            query: random.normal(query),
            rope: random.normal(ROPE),
            rows: random.normal(CONTEXT * row),
            ropes: random.normal(CONTEXT * ROPE),
            weights: random.between(0.0, 2.0 / CONTEXT as f32, CONTEXT),
            sums: vec![0.0; LATENT],
        }
    }
}

fn attention() -> [Spec; 5] {
    const SCALE: f32 = 0.072_168_78;
    let of = |name, shape| (Group::Attention, name, shape);
    let work = |width| (4 * CONTEXT * width, CONTEXT * width);
    [
        spec(
            of("scores latent", "4096 x (512+64)"),
            work(LATENT + ROPE),
            |set, _, _| {
                Box::new(Plain {
                    set,
                    inputs: Cache::new(LATENT, LATENT + ROPE),
                    out: vec![0.0; CONTEXT],
                    run: |set, x, out| {
                        (set.mla_scores_latent)(&x.query, &x.rope, &x.rows, SCALE, out);
                    },
                })
            },
        ),
        spec(of("mix latent", "4096 x 512"), work(LATENT), |set, _, _| {
            Box::new(Plain {
                set,
                inputs: Cache::new(LATENT, LATENT + ROPE),
                out: vec![0.0; LATENT],
                run: |set, x, out| {
                    let stride = LATENT + ROPE;
                    x.sums.fill(0.0);
                    (set.mla_mix_latent)(&x.weights, &x.rows, stride, &mut x.sums, out);
                },
            })
        }),
        spec(
            of("scores expanded", "4096 x (128+64)"),
            work(HEAD + ROPE),
            |set, _, _| {
                Box::new(Plain {
                    set,
                    inputs: Cache::new(HEAD, HEAD),
                    out: vec![0.0; CONTEXT],
                    run: |set, x, out| {
                        let (keys, ropes) = (&x.rows, &x.ropes);
                        (set.mla_scores_expanded)(&x.query, &x.rope, keys, ropes, SCALE, out);
                    },
                })
            },
        ),
        spec(of("mix expanded", "4096 x 128"), work(HEAD), |set, _, _| {
            Box::new(Plain {
                set,
                inputs: Cache::new(HEAD, HEAD),
                out: vec![0.0; HEAD],
                run: |set, x, out| {
                    out.fill(0.0);
                    (set.mla_mix_expanded)(&x.weights, &x.rows, out);
                },
            })
        }),
        spec(of("softmax", "4096"), work(1), |set, _, _| {
            Box::new(Plain {
                set,
                inputs: Random::new(7).normal(CONTEXT),
                out: vec![0.0; CONTEXT],
                run: |set, scores, out| {
                    out.copy_from_slice(scores);
                    (set.softmax)(out);
                },
            })
        }),
    ]
}

/// Applies an in-place kernel to copies of values, slice by slice.
fn in_place(kernel: fn(&mut [f32]), values: &[f32], out: &mut [f32]) {
    for (out, values) in out.chunks_mut(SLICE).zip(values.chunks(SLICE)) {
        out.copy_from_slice(values);
        kernel(out);
    }
}

fn elementwise() -> [Spec; 3] {
    let of = |name, shape| (Group::Elementwise, name, shape);
    [
        spec(of("exp", "7168"), (4 * HIDDEN, HIDDEN), |set, _, _| {
            Box::new(Plain {
                set,
                inputs: Random::new(11).between(-20.0, 2.0, HIDDEN),
                out: vec![0.0; HIDDEN],
                run: |set, values, out| in_place(set.exp, values, out),
            })
        }),
        spec(of("tanh", "7168"), (4 * HIDDEN, HIDDEN), |set, _, _| {
            Box::new(Plain {
                set,
                inputs: Random::new(13).normal(HIDDEN),
                out: vec![0.0; HIDDEN],
                run: |set, values, out| in_place(set.tanh, values, out),
            })
        }),
        spec(of("situ", "3072"), (2 * 4 * INNER, INNER), |set, _, _| {
            let mut random = Random::new(17);
            Box::new(Plain {
                set,
                inputs: (random.normal(INNER), random.normal(INNER)),
                out: vec![0.0; INNER],
                run: |set, (gate, up), out| (set.situ_glu)(gate, up, 4.0, 25.0, out),
            })
        }),
    ]
}

fn norms() -> [Spec; 2] {
    const EPS: f32 = 1e-5;
    [
        spec(
            (Group::Norm, "rmsnorm", "7168"),
            (2 * 4 * HIDDEN, HIDDEN),
            |set, _, _| {
                let mut random = Random::new(19);
                Box::new(Plain {
                    set,
                    inputs: (random.normal(HIDDEN), random.between(0.8, 1.2, HIDDEN)),
                    out: vec![0.0; HIDDEN],
                    run: |set, (x, weight), out| (set.rmsnorm)(x, weight, EPS, out),
                })
            },
        ),
        spec(
            (Group::Norm, "residual mix", "8 x 7168"),
            (4 * SOURCES * HIDDEN, SOURCES * HIDDEN),
            |set, _, _| {
                let mut random = Random::new(23);
                Box::new(Plain {
                    set,
                    inputs: (
                        random.normal(SOURCES * HIDDEN),
                        random.between(-0.02, 0.02, HIDDEN),
                    ),
                    out: vec![0.0; HIDDEN],
                    run: |set, (sources, fold), out| {
                        let mut parts = sources.chunks_exact(HIDDEN);
                        let sources: [&[f32]; SOURCES] =
                            std::array::from_fn(|_| parts.next().expect("as many as there are"));
                        (set.attn_res)(&sources, fold, EPS, out);
                    },
                })
            },
        ),
    ]
}
