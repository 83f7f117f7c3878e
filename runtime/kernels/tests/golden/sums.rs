//! Products, norms and elementwise kernels.

use k3_kernels::KernelSet;

use crate::case::{Inputs, Outputs, only};

type Matmul = fn(&[u8], &[f32], usize, &mut [f32]);

/// `[rows][positions]`, as kernels write it, to `[positions][rows]`, as the
/// file has it.
fn by_position(out: &[f32], positions: usize) -> Vec<f32> {
    let rows = out.len() / positions;
    (0..out.len())
        .map(|index| out[index % rows * positions + index / rows])
        .collect()
}

fn matmul(kernel: Matmul, weights: &[u8], inputs: &Inputs<'_>) -> Outputs {
    let (rows, positions) = (inputs.count("rows"), inputs.count("positions"));
    let x = inputs.floats("x");
    assert_eq!(x.len(), positions * inputs.count("cols"));
    let mut out = vec![f32::NAN; rows * positions];
    kernel(weights, &x, positions, &mut out);
    only("y", &by_position(&out, positions))
}

pub(crate) fn matmul_bf16(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    matmul(set.matmul_bf16, &inputs.bf16_bytes("weights"), inputs)
}

pub(crate) fn matmul_f32(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    matmul(set.matmul_f32, &inputs.float_bytes("weights"), inputs)
}

pub(crate) fn router_bf16(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    matmul(set.router_bf16, &inputs.bf16_bytes("weights"), inputs)
}

pub(crate) fn router_f32(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    matmul(set.router_f32, &inputs.float_bytes("weights"), inputs)
}

pub(crate) fn columns_bf16(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let x = inputs.floats("x");
    assert_eq!(x.len(), inputs.count("n"));
    let mut out = vec![f32::NAN; inputs.count("cols")];
    (set.columns_bf16)(&inputs.bf16_bytes("weights"), &x, &mut out);
    only("y", &out)
}

fn mxfp4(set: &KernelSet, inputs: &Inputs<'_>) -> (Outputs, u64) {
    let (rows, positions) = (inputs.count("rows"), inputs.count("positions"));
    let x = inputs.floats("x");
    assert_eq!(x.len(), positions * inputs.count("cols"));
    let (packed, scales) = (inputs.bytes("packed"), inputs.bytes("scales"));
    let mut out = vec![f32::NAN; rows * positions];
    let skipped = (set.matmul_mxfp4)(&packed, &scales, &x, positions, &mut out);
    (only("y", &by_position(&out, positions)), skipped)
}

pub(crate) fn matmul_mxfp4(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (outputs, skipped) = mxfp4(set, inputs);
    assert_eq!(skipped, 0);
    outputs
}

pub(crate) fn matmul_mxfp4_and_skipped(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (mut outputs, skipped) = mxfp4(set, inputs);
    outputs.insert("skipped_groups", vec![u32::try_from(skipped).unwrap()]);
    outputs
}

fn rmsnorm_rows(set: &KernelSet, inputs: &Inputs<'_>, positions: usize) -> Outputs {
    let (x, weight) = (inputs.floats("x"), inputs.floats("weight"));
    let (width, eps) = (inputs.count("n"), inputs.setting("eps"));
    assert_eq!(x.len(), positions * width);
    let mut out = vec![f32::NAN; x.len()];
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        (set.rmsnorm)(x, &weight, eps, out);
    }
    only("y", &out)
}

pub(crate) fn rmsnorm(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    rmsnorm_rows(set, inputs, 1)
}

pub(crate) fn rmsnorm_of_positions(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    rmsnorm_rows(set, inputs, inputs.count("positions"))
}

pub(crate) fn l2norm(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let mut v = inputs.floats("v");
    let width = inputs.count("n");
    assert_eq!(v.len(), inputs.count("vectors") * width);
    v.chunks_exact_mut(width).for_each(set.l2norm);
    only("y", &v)
}

pub(crate) fn situ_glu(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (gate, up) = (inputs.floats("gate"), inputs.floats("up"));
    let (beta, linear_beta) = (inputs.setting("beta"), inputs.setting("linear_beta"));
    let mut out = vec![f32::NAN; inputs.count("n")];
    (set.situ_glu)(&gate, &up, beta, linear_beta, &mut out);
    only("y", &out)
}

pub(crate) fn shortconv(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (taps, current) = (inputs.floats("taps"), inputs.floats("current"));
    let channels = inputs.count("channels");
    let before = inputs.floats("history");
    assert_eq!(before.len(), (inputs.count("taps") - 1) * channels);
    let (mut history, mut out) = (before.clone(), vec![f32::NAN; channels]);
    (set.shortconv)(&taps, &mut history, &current, &mut out);
    // The oldest row has left, the current one has entered.
    assert_eq!(history, [&before[channels..], &current].concat());
    only("y", &out)
}

fn in_place(
    kernel: fn(&mut [f32]),
    values: &str,
    out: &'static str,
    inputs: &Inputs<'_>,
) -> Outputs {
    let mut values = inputs.floats(values);
    assert_eq!(values.len(), inputs.count("n"));
    kernel(&mut values);
    only(out, &values)
}

pub(crate) fn exp(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    in_place(set.exp, "x", "y", inputs)
}

pub(crate) fn tanh(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    in_place(set.tanh, "x", "y", inputs)
}

pub(crate) fn sigmoid(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    in_place(set.sigmoid, "x", "y", inputs)
}

pub(crate) fn softmax(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    in_place(set.softmax, "scores", "p", inputs)
}
