//! Arithmetic with a stated exactness contract.
//!
//! Every number the runtime produces is defined by one readable function in
//! `generic`; every other body (AVX2, AVX-512) gives the same bits, whatever
//! the instruction set, the number of threads or the number of positions
//! computed together. `docs/numerics.md` is the specification.
//!
//! # Invariants
//!
//! - Dot products accumulate in f64, where the product of two f32 is exact, so
//!   fused and separate multiply-add agree and only the order of additions
//!   matters. That order is part of each kernel's documentation.
//! - f32 expressions are evaluated left to right, each step rounded once and
//!   never fused.
//! - Nothing calls the platform's libm: see [`math`].
//! - Weights are byte slices, little-endian, without any alignment promise.
//! - Kernels allocate nothing, start no threads and open no files. Parallelism
//!   is the caller's, and only over independent outputs.
//! - Comparisons between bodies treat any NaN as equal to any NaN: payloads are
//!   not part of the contract.
//!
//! # Map
//!
//! - [`KernelSet`]: the table of kernels of one instruction set ([`Isa`]).
//! - [`Bf16X3`]: bf16 weights in packed rows, checked.
//! - [`math`]: correctly rounded `exp` and `tanh`, `sigmoid`, `ln64`.
//! - [`argmax`], [`router_select`]: choices, with non-finite values refused.
//! - [`assert_fp_environment`]: round to nearest, no flushing of subnormals.
//! - `generic`: the definitions. `arch`: the instruction-set bodies, the only
//!   place of `unsafe` code.

//!
//! # Example
//!
//! ```
//! use k3_kernels::{Isa, KernelSet};
//!
//! // Two rows of three bf16 weights, two positions of activations.
//! let weights: Vec<u8> = [1.0_f32, 2.0, 3.0, -1.0, 0.5, 0.0]
//!     .iter()
//!     .flat_map(|w| [w.to_le_bytes()[2], w.to_le_bytes()[3]])
//!     .collect();
//! let x = [1.0, 1.0, 1.0, 2.0, 4.0, 8.0];
//! for set in Isa::ALL.into_iter().filter_map(KernelSet::for_isa) {
//!     let mut out = [0.0; 4];
//!     (set.matmul_bf16)(&weights, &x, 2, &mut out);
//!     // [rows][positions], the same bits in every set.
//!     assert_eq!(out, [6.0, 34.0, -0.5, 0.0]);
//! }
//! ```

#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    reason = "intrinsics, and loads without bounds checks in the hot loops"
)]
mod arch;
mod dispatch;
mod environment;
mod generic;
pub mod math;
mod select;

pub use dispatch::{Isa, KernelSet, ParseIsaError};
pub use environment::{FpEnvironmentError, assert_fp_environment, check_fp_environment};
pub use generic::attn_res::MAX_SOURCES;
pub use generic::bf16_x3::{Bf16X3, Bf16X3Error};
pub use generic::kda::KdaStep;
pub use generic::mxfp4::{MXFP4_GROUP, e2m1_value, e8m0_scale};
pub use generic::mxfp4_prepared::Mxfp4Group;
pub use select::{NonFinite, Pick, argmax, router_select};
