//! Elementwise kernels in AVX-512: 16 f32 at a time, `exp` and `tanh` as two halves of 8 f64.
//!
//! Each lane performs the operations of `crate::math` in the same order. AVX-512 instructions
//! round exactly as the scalar ones do, so the bits are the same by construction; the
//! conformance tests check it all the same. A slice's last, incomplete block runs padded with
//! zeros.

use std::arch::x86_64::*;
use std::array;

use crate::generic::elementwise::{ShortconvShape, assert_same_len};
use crate::math::tables::{
    EXP_C2, EXP_C3, EXP_C4, EXP_C5, EXP_C6, EXP_C7, EXP_INVERSE_STEP, EXP_STEP_HEAD, EXP_STEP_TAIL,
    EXP_TABLE,
};
use crate::math::{EXP_MAX, EXP_MIN, MAGIC, TANH_MAX};

/// f32 lanes of a block.
const LANES: usize = 16;

static TABLE_HEADS: [[f64; 8]; 4] = table_column(0);
static TABLE_TAILS: [[f64; 8]; 4] = table_column(1);

/// See [`crate::KernelSet::exp`].
pub(crate) fn exp(x: &mut [f32]) {
    // SAFETY: this entry is reachable only through a table that exists where AVX-512 F and
    // DQ were detected.
    unsafe { exp_body(x) }
}

/// See [`crate::KernelSet::tanh`].
pub(crate) fn tanh(x: &mut [f32]) {
    // SAFETY: as in `exp`.
    unsafe { tanh_body(x) }
}

/// See [`crate::KernelSet::sigmoid`].
pub(crate) fn sigmoid(x: &mut [f32]) {
    // SAFETY: as in `exp`.
    unsafe { sigmoid_body(x) }
}

/// See [`crate::KernelSet::situ_glu`].
pub(crate) fn situ_glu(gate: &[f32], up: &[f32], beta: f32, linear_beta: f32, out: &mut [f32]) {
    assert_same_len(gate, up, out);
    // SAFETY: as in `exp`.
    unsafe { situ_glu_body(gate, up, beta, linear_beta, out) }
}

/// See [`crate::KernelSet::gate_sigmoid`].
pub(crate) fn gate_sigmoid(values: &mut [f32], gate: &[f32]) {
    assert_eq!(values.len(), gate.len(), "one gate per value");
    // SAFETY: as in `exp`.
    unsafe { gate_sigmoid_body(values, gate) }
}

/// See [`crate::KernelSet::kda_decay`].
pub(crate) fn kda_decay(z: &[f32], dt_bias: &[f32], a: f32, lower_bound: f32, alpha: &mut [f32]) {
    assert_same_len(z, dt_bias, alpha);
    // SAFETY: as in `exp`.
    unsafe { kda_decay_body(z, dt_bias, a, lower_bound, alpha) }
}

/// See [`crate::KernelSet::shortconv`].
pub(crate) fn shortconv(taps: &[f32], history: &mut [f32], current: &[f32], out: &mut [f32]) {
    let shape = ShortconvShape::new(taps, history, current, out);
    // SAFETY: as in `exp`.
    unsafe { shortconv_body(shape, taps, history, current, out) }
    shape.advance(history, current);
}

/// See [`crate::KernelSet::softmax`].
pub(crate) fn softmax(scores: &mut [f32]) {
    // SAFETY: as in `exp`.
    unsafe { softmax_body(scores) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn exp_body(x: &mut [f32]) {
    map(x, |x| exp_block(x));
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn tanh_body(x: &mut [f32]) {
    map(x, |x| tanh_block(x));
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn sigmoid_body(x: &mut [f32]) {
    map(x, |x| sigmoid_block(x));
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn situ_glu_body(gate: &[f32], up: &[f32], beta: f32, linear_beta: f32, out: &mut [f32]) {
    let beta = _mm512_set1_ps(beta);
    let linear_beta = _mm512_set1_ps(linear_beta);
    combine(gate, up, out, |gate, up| {
        let capped = _mm512_mul_ps(beta, tanh_block(_mm512_div_ps(gate, beta)));
        let a = _mm512_mul_ps(capped, sigmoid_block(gate));
        let up = _mm512_mul_ps(linear_beta, tanh_block(_mm512_div_ps(up, linear_beta)));
        _mm512_mul_ps(a, up)
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn gate_sigmoid_body(values: &mut [f32], gate: &[f32]) {
    let (blocks, rest) = values.as_chunks_mut::<LANES>();
    let (gate_blocks, gate_rest) = gate.as_chunks::<LANES>();
    let update = |values: &mut [f32; LANES], gate: &[f32; LANES]| {
        store(
            values,
            _mm512_mul_ps(load(values), sigmoid_block(load(gate))),
        );
    };
    for (values, gate) in blocks.iter_mut().zip(gate_blocks) {
        update(values, gate);
    }
    if !rest.is_empty() {
        let mut last = padded(rest);
        update(&mut last, &padded(gate_rest));
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn kda_decay_body(z: &[f32], dt_bias: &[f32], a: f32, lower_bound: f32, alpha: &mut [f32]) {
    let a = _mm512_set1_ps(a);
    let lower_bound = _mm512_set1_ps(lower_bound);
    combine(z, dt_bias, alpha, |z, bias| {
        let u = _mm512_mul_ps(a, _mm512_add_ps(z, bias));
        exp_block(_mm512_mul_ps(lower_bound, sigmoid_block(u)))
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn shortconv_body(
    shape: ShortconvShape,
    taps: &[f32],
    history: &[f32],
    current: &[f32],
    out: &mut [f32],
) {
    let k = shape.taps;
    let (blocks, rest) = out.as_chunks_mut::<LANES>();
    let (current_blocks, _) = current.as_chunks::<LANES>();
    let first_of_rest = blocks.len() * LANES;
    for (index, (out, current)) in blocks.iter_mut().zip(current_blocks).enumerate() {
        let first = index * LANES;
        let block_taps = &taps[first * k..][..LANES * k];
        // Tap j of each channel: a stride of k in memory.
        let tap = |j: usize| load(&array::from_fn(|lane| block_taps[lane * k + j]));
        let mut acc = _mm512_mul_ps(tap(k - 1), load(current));
        for j in 0..k - 1 {
            let row = history[j * shape.channels + first..].first_chunk();
            let row = load(row.expect("a full block of channels"));
            acc = _mm512_add_ps(acc, _mm512_mul_ps(tap(j), row));
        }
        store(out, _mm512_mul_ps(acc, sigmoid_block(acc)));
    }
    for (channel, out) in (first_of_rest..).zip(rest) {
        *out = shape.channel(taps, history, current, channel);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn softmax_body(scores: &mut [f32]) {
    let max = maximum(scores);
    let max = _mm512_set1_ps(max);
    map(scores, |score| exp_block(_mm512_sub_ps(score, max)));
    let mut z = 0.0_f64;
    for &e in scores.iter() {
        z += f64::from(e);
    }
    let z = _mm512_set1_pd(z);
    map(scores, |e| {
        let (low, high) = widen(e);
        narrow(_mm512_div_pd(low, z), _mm512_div_pd(high, z))
    });
}

/// The largest number in `x`, NaNs ignored; -inf if there is none. The order of comparisons
/// only decides between zeros of either sign, which `exp(score - max)` does not tell apart.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn maximum(x: &[f32]) -> f32 {
    let (blocks, rest) = x.as_chunks::<LANES>();
    let mut lanes = _mm512_set1_ps(f32::NEG_INFINITY);
    for block in blocks {
        // The second operand wins over a NaN.
        lanes = _mm512_max_ps(load(block), lanes);
    }
    let mut block = [0.0; LANES];
    store(&mut block, lanes);
    block
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max)
}

/// `x = f(x)` block by block.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn map(x: &mut [f32], f: impl Fn(__m512) -> __m512) {
    let (blocks, rest) = x.as_chunks_mut::<LANES>();
    for block in blocks {
        store(block, f(load(block)));
    }
    if !rest.is_empty() {
        let mut last = padded(rest);
        let result = f(load(&last));
        store(&mut last, result);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// `out = f(a, b)` block by block; all of one length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn combine(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(__m512, __m512) -> __m512) {
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    let (blocks, rest) = out.as_chunks_mut::<LANES>();
    for ((out, a), b) in blocks.iter_mut().zip(a_blocks).zip(b_blocks) {
        store(out, f(load(a), load(b)));
    }
    if !rest.is_empty() {
        let mut last = [0.0; LANES];
        store(&mut last, f(load(&padded(a_rest)), load(&padded(b_rest))));
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// `rest`, shorter than a block, filled up with zeros.
#[inline]
fn padded(rest: &[f32]) -> [f32; LANES] {
    let mut block = [0.0; LANES];
    block[..rest.len()].copy_from_slice(rest);
    block
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn load(block: &[f32; LANES]) -> __m512 {
    // SAFETY: the array holds the 64 bytes read; the load needs no alignment.
    unsafe { _mm512_loadu_ps(block.as_ptr()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn store(block: &mut [f32; LANES], value: __m512) {
    // SAFETY: the array holds the 64 bytes written; the store needs no alignment.
    unsafe { _mm512_storeu_ps(block.as_mut_ptr(), value) }
}

/// 16 f32 as two times 8 f64, exactly.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn widen(x: __m512) -> (__m512d, __m512d) {
    (
        _mm512_cvtps_pd(_mm512_castps512_ps256(x)),
        _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(x)),
    )
}

/// Two times 8 f64, each rounded to f32.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn narrow(low: __m512d, high: __m512d) -> __m512 {
    let low = _mm512_castps256_ps512(_mm512_cvtpd_ps(low));
    _mm512_insertf32x8::<1>(low, _mm512_cvtpd_ps(high))
}

/// 1 / (1 + e^-x).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn sigmoid_block(x: __m512) -> __m512 {
    let one = _mm512_set1_ps(1.0);
    let negated = _mm512_xor_ps(x, _mm512_set1_ps(-0.0));
    _mm512_div_ps(one, _mm512_add_ps(one, exp_block(negated)))
}

/// `crate::math::exp` in each lane.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn exp_block(x: __m512) -> __m512 {
    let (low, high) = widen(x);
    narrow(exp_half(low), exp_half(high))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn exp_half(y: __m512d) -> __m512d {
    // On a NaN both return their second operand.
    let y = _mm512_max_pd(_mm512_set1_pd(EXP_MIN), y);
    let y = _mm512_min_pd(_mm512_set1_pd(EXP_MAX), y);
    let ExpParts { scale, head, tail } = exp_parts(y);
    _mm512_mul_pd(_mm512_add_pd(head, tail), scale)
}

/// `crate::math::tanh` in each lane.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn tanh_block(x: __m512) -> __m512 {
    let sign_bit = _mm512_set1_ps(-0.0);
    let (low, high) = widen(_mm512_andnot_ps(sign_bit, x));
    let magnitude = narrow(tanh_half(low), tanh_half(high));
    _mm512_or_ps(magnitude, _mm512_and_ps(x, sign_bit))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn tanh_half(magnitude: __m512d) -> __m512d {
    let one = _mm512_set1_pd(1.0);
    // On a NaN it returns its second operand.
    let magnitude = _mm512_min_pd(_mm512_set1_pd(TANH_MAX), magnitude);
    let ExpParts { scale, head, tail } = exp_parts(_mm512_add_pd(magnitude, magnitude));
    let head = _mm512_mul_pd(head, scale);
    let tail = _mm512_mul_pd(tail, scale);
    _mm512_div_pd(
        _mm512_add_pd(_mm512_sub_pd(head, one), tail),
        _mm512_add_pd(_mm512_add_pd(head, one), tail),
    )
}

/// e^y = scale * (head + tail), as in `crate::math`.
struct ExpParts {
    scale: __m512d,
    head: __m512d,
    tail: __m512d,
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn exp_parts(y: __m512d) -> ExpParts {
    let magic = _mm512_set1_pd(MAGIC);
    let shifted = multiply_add(y, EXP_INVERSE_STEP, magic);
    let steps = _mm512_sub_pd(shifted, magic);
    let bits = _mm512_castpd_si512(shifted);
    let (table_head, table_tail) = table_entries(bits);
    let biased = _mm512_add_epi64(_mm512_srli_epi64::<5>(bits), _mm512_set1_epi64(1023));
    let scale = _mm512_castsi512_pd(_mm512_slli_epi64::<52>(biased));

    let r = _mm512_sub_pd(
        _mm512_sub_pd(y, _mm512_mul_pd(steps, _mm512_set1_pd(EXP_STEP_HEAD))),
        _mm512_mul_pd(steps, _mm512_set1_pd(EXP_STEP_TAIL)),
    );
    let r2 = _mm512_mul_pd(r, r);
    let c45 = multiply_add(r, EXP_C5, _mm512_set1_pd(EXP_C4));
    let c67 = multiply_add(r, EXP_C7, _mm512_set1_pd(EXP_C6));
    let high = _mm512_add_pd(c45, _mm512_mul_pd(r2, c67));
    let c23 = multiply_add(r, EXP_C3, _mm512_set1_pd(EXP_C2));
    let q = _mm512_add_pd(c23, _mm512_mul_pd(r2, high));
    let p = _mm512_add_pd(r, _mm512_mul_pd(r2, q));
    ExpParts {
        scale,
        head: table_head,
        tail: _mm512_add_pd(table_tail, _mm512_mul_pd(table_head, p)),
    }
}

/// `x * factor + term`, rounded twice.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn multiply_add(x: __m512d, factor: f64, term: __m512d) -> __m512d {
    _mm512_add_pd(_mm512_mul_pd(x, _mm512_set1_pd(factor)), term)
}

/// The table's heads and tails for eight shifted arguments. The 32 entries fill four registers,
/// and a two-register permutation reads 16 of them: no memory access in the loop.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn table_entries(bits: __m512i) -> (__m512d, __m512d) {
    (select(&TABLE_HEADS, bits), select(&TABLE_TAILS, bits))
}

/// `table[i]`, i = the low five bits of each lane.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
#[inline]
fn select(table: &[[f64; 8]; 4], bits: __m512i) -> __m512d {
    // SAFETY: each array holds the 64 bytes read; the loads need no alignment.
    let quarter = |n: usize| unsafe { _mm512_loadu_pd(table[n].as_ptr()) };
    // The permutation looks at the low four bits alone; the fifth picks the half.
    let lower = _mm512_permutex2var_pd(quarter(0), bits, quarter(1));
    let upper = _mm512_permutex2var_pd(quarter(2), bits, quarter(3));
    let in_upper = _mm512_test_epi64_mask(bits, _mm512_set1_epi64(16));
    _mm512_mask_blend_pd(in_upper, lower, upper)
}

/// One column of `EXP_TABLE`, a register's worth per row.
const fn table_column(column: usize) -> [[f64; 8]; 4] {
    let mut rows = [[0.0; 8]; 4];
    let mut j = 0;
    while j < 32 {
        rows[j / 8][j % 8] = EXP_TABLE[j][column];
        j += 1;
    }
    rows
}
