//! Every kernel of every set panics, before it touches memory, when the lengths
//! of its slices disagree.

use k3_kernels::{Bf16X3, Isa, KdaStep, KernelSet, MAX_SOURCES, Mxfp4Group};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Call = fn(&KernelSet);

/// Calls with one length wrong, by name. Every buffer is long enough to be read
/// by a kernel that forgot the check.
const CALLS: &[(&str, Call)] = &[
    ("matmul_bf16 weights", |s| {
        (s.matmul_bf16)(&[0; 62], &[0.0; 16], 1, &mut [0.0; 2]);
    }),
    ("matmul_bf16 positions", |s| {
        (s.matmul_bf16)(&[0; 64], &[0.0; 16], 0, &mut [0.0; 2]);
    }),
    ("matmul_bf16 x", |s| {
        (s.matmul_bf16)(&[0; 64], &[0.0; 17], 2, &mut [0.0; 4]);
    }),
    ("matmul_bf16 out", |s| {
        (s.matmul_bf16)(&[0; 64], &[0.0; 32], 2, &mut [0.0; 5]);
    }),
    ("matmul_f32 weights", |s| {
        (s.matmul_f32)(&[0; 124], &[0.0; 16], 1, &mut [0.0; 2]);
    }),
    ("matmul_mxfp4 width", |s| {
        (s.matmul_mxfp4)(&[0; 24], &[0; 2], &[0.0; 48], 1, &mut [0.0; 1]);
    }),
    ("matmul_mxfp4 packed", |s| {
        (s.matmul_mxfp4)(&[0; 31], &[0; 2], &[0.0; 32], 1, &mut [0.0; 2]);
    }),
    ("matmul_mxfp4 scales", |s| {
        (s.matmul_mxfp4)(&[0; 32], &[0; 1], &[0.0; 32], 1, &mut [0.0; 2]);
    }),
    ("mxfp4_prepare groups", |s| {
        (s.mxfp4_prepare)(&[0.0; 64], &mut [Mxfp4Group::default(); 1]);
    }),
    ("matmul_mxfp4_prepared groups", |s| {
        prepared(s, 16, 1, 1, 0, 1)
    }),
    ("matmul_mxfp4_prepared scales", |s| {
        prepared(s, 16, 2, 2, 0, 1)
    }),
    ("matmul_mxfp4_prepared width", |s| {
        prepared(s, 24, 1, 2, 0, 1)
    }),
    ("matmul_mxfp4_prepared position", |s| {
        prepared(s, 16, 1, 2, 2, 1)
    }),
    ("matmul_mxfp4_prepared out", |s| prepared(s, 16, 1, 2, 0, 2)),
    ("columns_bf16 weights", |s| {
        (s.columns_bf16)(&[0; 30], &[0.0; 2], &mut [0.0; 8]);
    }),
    ("router_bf16 weights", |s| {
        (s.router_bf16)(&[0; 62], &[0.0; 16], 1, &mut [0.0; 2]);
    }),
    ("router_f32 weights", |s| {
        (s.router_f32)(&[0; 124], &[0.0; 16], 1, &mut [0.0; 2]);
    }),
    ("matmul_bf16_x3 rows", |s| {
        packed(|w| (s.matmul_bf16_x3)(w, 1..3, &[0.0; 16], 1, &mut [0.0; 2]))
    }),
    ("matmul_bf16_x3 backwards", |s| {
        #[allow(clippy::reversed_empty_ranges, reason = "what is tested")]
        packed(|w| (s.matmul_bf16_x3)(w, 2..1, &[0.0; 16], 1, &mut []));
    }),
    ("matmul_bf16_x3 x", |s| {
        packed(|w| (s.matmul_bf16_x3)(w, 0..2, &[0.0; 17], 1, &mut [0.0; 2]))
    }),
    ("matmul_bf16_x3 out", |s| {
        packed(|w| (s.matmul_bf16_x3)(w, 0..2, &[0.0; 16], 1, &mut [0.0; 1]))
    }),
    ("matmul_bf16_x3 positions", |s| {
        packed(|w| (s.matmul_bf16_x3)(w, 0..2, &[0.0; 16], 0, &mut [0.0; 2]))
    }),
    ("router_bf16_x3 x", |s| {
        packed(|w| (s.router_bf16_x3)(w, 0..2, &[0.0; 15], 1, &mut [0.0; 2]))
    }),
    ("router_bf16_x3 rows", |s| {
        packed(|w| (s.router_bf16_x3)(w, 2..3, &[0.0; 16], 1, &mut [0.0; 1]))
    }),
    ("decode_bf16_x3 out", |s| {
        packed(|w| (s.decode_bf16_x3)(w, 0..2, &mut [0; 62]))
    }),
    ("decode_bf16_x3 rows", |s| {
        packed(|w| (s.decode_bf16_x3)(w, 1..3, &mut [0; 64]))
    }),
    ("rmsnorm weight", |s| {
        (s.rmsnorm)(&[0.0; 8], &[0.0; 7], 1e-5, &mut [0.0; 8]);
    }),
    ("rmsnorm out", |s| {
        (s.rmsnorm)(&[0.0; 8], &[0.0; 8], 1e-5, &mut [0.0; 7]);
    }),
    ("situ_glu up", |s| {
        (s.situ_glu)(&[0.0; 8], &[0.0; 7], 4.0, 25.0, &mut [0.0; 8]);
    }),
    ("gate_sigmoid gate", |s| {
        (s.gate_sigmoid)(&mut [0.0; 8], &[0.0; 7]);
    }),
    ("shortconv history", |s| {
        (s.shortconv)(&[0.0; 32], &mut [0.0; 23], &[0.0; 8], &mut [0.0; 8]);
    }),
    ("shortconv current", |s| {
        (s.shortconv)(&[0.0; 32], &mut [0.0; 24], &[0.0; 7], &mut [0.0; 8]);
    }),
    ("kda_decay bias", |s| {
        (s.kda_decay)(&[0.0; 8], &[0.0; 7], 1.0, -5.0, &mut [0.0; 8]);
    }),
    ("kda_step state", |s| kda_step(s, 63, 8)),
    ("kda_step key", |s| kda_step(s, 64, 7)),
    ("attn_res no source", |s| {
        (s.attn_res)(&[], &[0.0; 8], 1e-5, &mut [0.0; 8]);
    }),
    ("attn_res too many sources", |s| {
        (s.attn_res)(
            &[&[0.0_f32; 8][..]; MAX_SOURCES + 1],
            &[0.0; 8],
            1e-5,
            &mut [0.0; 8],
        );
    }),
    ("attn_res source", |s| {
        (s.attn_res)(&[&[0.0; 8], &[0.0; 7]], &[0.0; 8], 1e-5, &mut [0.0; 8]);
    }),
    ("mla_scores_latent cache", |s| {
        (s.mla_scores_latent)(&[0.0; 8], &[0.0; 4], &[0.0; 23], 1.0, &mut [0.0; 2]);
    }),
    ("mla_mix_latent cache", |s| {
        (s.mla_mix_latent)(&[0.0; 2], &[0.0; 23], 12, &mut [0.0; 8], &mut [0.0; 8]);
    }),
    ("mla_mix_latent stride", |s| {
        (s.mla_mix_latent)(&[0.0; 2], &[0.0; 14], 7, &mut [0.0; 8], &mut [0.0; 8]);
    }),
    ("mla_scores_expanded keys", |s| {
        (s.mla_scores_expanded)(
            &[0.0; 8],
            &[0.0; 4],
            &[0.0; 15],
            &[0.0; 8],
            1.0,
            &mut [0.0; 2],
        );
    }),
    ("mla_mix_expanded values", |s| {
        (s.mla_mix_expanded)(&[0.0; 2], &[0.0; 15], &mut [0.0; 8]);
    }),
    ("add", |s| (s.add)(&mut [0.0; 8], &[0.0; 7])),
    ("add_scaled", |s| {
        (s.add_scaled)(&mut [0.0; 8], 1.0, &[0.0; 7]);
    }),
    ("multiply", |s| (s.multiply)(&mut [0.0; 8], &[0.0; 7])),
    ("widen_bf16", |s| (s.widen_bf16)(&[0; 15], &mut [0.0; 8])),
];

/// Right for 16 packed bytes, one scale, two groups, a position below two and
/// one output.
fn prepared(
    set: &KernelSet,
    packed: usize,
    scales: usize,
    groups: usize,
    position: usize,
    out: usize,
) {
    (set.matmul_mxfp4_prepared)(
        &vec![0; packed],
        &vec![0; scales],
        &[0.0; 64],
        &vec![Mxfp4Group::default(); groups],
        &[position],
        &mut vec![0.0; out],
    );
}

/// Two rows of 16 columns.
fn packed(call: impl Fn(Bf16X3<'_>)) {
    let payload = [0; 12 + 2 * (8 + 22) + 64];
    call(Bf16X3::new(&payload, 2, 16).expect("sound lengths"));
}

fn kda_step(set: &KernelSet, state: usize, key: usize) {
    (set.kda_step)(KdaStep {
        state: &mut vec![0.0; state],
        alpha: &[0.0; 8],
        q: &[0.0; 8],
        k: &vec![0.0; key],
        v: &[0.0; 8],
        beta: 1.0,
        delta: &mut [0.0; 8],
        out: &mut [0.0; 8],
    });
}

#[test]
fn wrong_lengths_panic_in_every_set() {
    let mut accepted = Vec::new();
    for set in Isa::ALL.into_iter().filter_map(KernelSet::for_isa) {
        for (name, call) in CALLS {
            if catch_unwind(AssertUnwindSafe(|| call(set))).is_ok() {
                accepted.push(format!("{}: {name}", set.isa));
            }
        }
    }
    assert!(accepted.is_empty(), "accepted: {accepted:#?}");
}
