//! x86-64: detection, the control register, AVX2 and AVX-512 bodies.

mod avx2;
mod avx512;
mod batch;
mod bf16_x3;
mod control;
mod mxfp4;
mod pointers;
mod stamp;
mod transpose;

pub(crate) use control::check_control_register;

use crate::dispatch::KernelSet;

/// Whether AVX2 and FMA are there, with the bit counts that every processor with
/// them has (BMI1, POPCNT), and the system saves their registers.
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("popcnt")
}

/// Whether AVX-512 F, BW, DQ and VL are there besides AVX2 and FMA.
pub(crate) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// Whether AVX-512 also multiplies bytes (VNNI) and permutes them (VBMI), which
/// its table's body for prepared activations uses where it can.
fn has_avx512_bytes() -> bool {
    is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vbmi")
}

/// Whether AVX-512 also permutes bytes (VBMI) and spreads them by a mask
/// (VBMI2), which its table's decoder of packed weights uses where it can.
fn has_avx512_expand() -> bool {
    is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512vbmi2")
}

/// The AVX2 table; `None` unless [`has_avx2`].
pub(crate) fn avx2() -> Option<&'static KernelSet> {
    has_avx2().then_some(&avx2::TABLE)
}

/// The AVX-512 table; `None` unless [`has_avx512`].
pub(crate) fn avx512() -> Option<&'static KernelSet> {
    has_avx512().then_some(&avx512::TABLE)
}
