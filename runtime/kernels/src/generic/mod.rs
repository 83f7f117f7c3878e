//! The definition of every kernel, one readable function each.
//!
//! These bodies are the specification in code: short, scalar, without tricks.
//! The instruction-set bodies in `crate::arch` must give the same bits on every
//! input. Most helpers are `inline(always)` so that an instruction-set module
//! can stamp a definition with its own target features; that changes no bits,
//! because Rust neither contracts nor reassociates floating-point arithmetic.

pub(crate) mod attn_res;
pub(crate) mod bf16_x3;
pub(crate) mod elementwise;
pub(crate) mod kda;
pub(crate) mod lanes;
pub(crate) mod matmul;
pub(crate) mod mla;
pub(crate) mod mxfp4;
pub(crate) mod mxfp4_prepared;
pub(crate) mod norm;
pub(crate) mod router;
pub(crate) mod shape;
pub(crate) mod stream;
pub(crate) mod vector;
