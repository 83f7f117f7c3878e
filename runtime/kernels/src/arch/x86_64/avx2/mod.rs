//! AVX2 and FMA: 4 f64 or 8 f32 per vector, 16 registers.

mod attn_res;
mod batch;
mod bf16_x3;
mod columns;
mod dot;
mod elementwise;
mod kda;
mod matmul;
mod mla;
mod mxfp4;
mod serial;
mod stream;
mod vector;

pub(super) use bf16_x3::Packed;

use crate::dispatch::{Isa, KernelSet};

/// Reachable only where the features were detected.
pub(super) static TABLE: KernelSet = KernelSet {
    isa: Isa::Avx2,
    matmul_bf16: matmul::matmul_bf16,
    matmul_f32: matmul::matmul_f32,
    matmul_mxfp4: mxfp4::matmul_mxfp4,
    mxfp4_prepare: vector::mxfp4_prepare,
    matmul_mxfp4_prepared: mxfp4::matmul_mxfp4_prepared,
    columns_bf16: columns::columns_bf16,
    router_bf16: matmul::router_bf16,
    matmul_bf16_x3: bf16_x3::matmul_bf16_x3,
    router_bf16_x3: bf16_x3::router_bf16_x3,
    decode_bf16_x3: bf16_x3::decode_bf16_x3,
    router_f32: matmul::router_f32,
    rmsnorm: vector::rmsnorm,
    l2norm: vector::l2norm,
    sigmoid: elementwise::sigmoid,
    exp: elementwise::exp,
    tanh: elementwise::tanh,
    situ_glu: elementwise::situ_glu,
    gate_sigmoid: elementwise::gate_sigmoid,
    shortconv: elementwise::shortconv,
    kda_decay: elementwise::kda_decay,
    kda_step: kda::kda_step,
    softmax: elementwise::softmax,
    attn_res: attn_res::attn_res,
    mla_scores_latent: mla::mla_scores_latent,
    mla_mix_latent: mla::mla_mix_latent,
    mla_scores_expanded: mla::mla_scores_expanded,
    mla_mix_expanded: mla::mla_mix_expanded,
    add: vector::add,
    add_scaled: vector::add_scaled,
    multiply: vector::multiply,
    widen_bf16: vector::widen_bf16,
    read_sums: stream::read_sums,
};
