//! x86-64: detection, the control register, AVX2 and AVX-512 bodies.

mod control;

pub(crate) use control::check_control_register;

use crate::dispatch::{Isa, KernelSet};

/// Whether AVX2 and FMA are there, and the system saves their registers.
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// Whether AVX-512 F, BW, DQ and VL are there besides AVX2 and FMA.
pub(crate) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// The AVX2 table; `None` unless [`has_avx2`].
pub(crate) fn avx2() -> Option<&'static KernelSet> {
    static TABLE: std::sync::OnceLock<KernelSet> = std::sync::OnceLock::new();
    let scalar = KernelSet::for_isa(Isa::Scalar)?;
    has_avx2().then(|| {
        TABLE.get_or_init(|| KernelSet {
            isa: Isa::Avx2,
            ..*scalar
        })
    })
}

/// The AVX-512 table; `None` unless [`has_avx512`].
pub(crate) fn avx512() -> Option<&'static KernelSet> {
    static TABLE: std::sync::OnceLock<KernelSet> = std::sync::OnceLock::new();
    let scalar = KernelSet::for_isa(Isa::Scalar)?;
    has_avx512().then(|| {
        TABLE.get_or_init(|| KernelSet {
            isa: Isa::Avx512,
            ..*scalar
        })
    })
}
