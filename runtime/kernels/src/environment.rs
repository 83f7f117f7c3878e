//! The floating-point environment the contract relies on.

use std::hint::black_box;

use crate::arch;

/// The floating-point environment of this thread would change results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FpEnvironmentError {
    /// The control register asks for another rounding or for flushing.
    #[error(
        "the floating-point control register is {found:#06x}: rounding must be to nearest and \
         subnormals must not be flushed (mask {mask:#06x} must be clear); a library loaded into \
         this process or a compiler flag such as -ffast-math has changed it"
    )]
    ControlRegister {
        /// The register's value.
        found: u32,
        /// The bits that must be zero.
        mask: u32,
    },
    /// Arithmetic on this thread misbehaves in the named way.
    #[error(
        "this thread's arithmetic {fault}: a library loaded into this process or a compiler flag \
         such as -ffast-math has changed the floating-point environment"
    )]
    Arithmetic {
        /// What a probe computation found.
        fault: &'static str,
    },
}

/// Checks that this thread rounds to nearest and neither flushes subnormal
/// results to zero nor treats subnormal operands as zero.
///
/// On x86-64 the control register (MXCSR) is read; on every target four probe
/// computations are made as well. The environment belongs to a thread: call
/// this on every thread that computes.
///
/// # Errors
/// [`FpEnvironmentError`] naming the register's value or the probe that failed.
pub fn check_fp_environment() -> Result<(), FpEnvironmentError> {
    arch::check_control_register()?;
    match arithmetic_fault() {
        Some(fault) => Err(FpEnvironmentError::Arithmetic { fault }),
        None => Ok(()),
    }
}

/// The first of four probe computations that goes wrong, in words.
pub(crate) fn arithmetic_fault() -> Option<&'static str> {
    // The first two compare bits: a comparison of a subnormal would itself treat
    // it as zero.
    let probes = [
        (
            (black_box(f32::MIN_POSITIVE) * 0.5).to_bits() != 0,
            "flushes subnormal results to zero",
        ),
        (
            (black_box(f32::from_bits(1)) * 8_388_608.0).to_bits() != 0,
            "treats subnormal operands as zero",
        ),
        (
            black_box(1.0_f32) + f32::EPSILON * 0.5 == 1.0,
            "rounds towards plus infinity",
        ),
        (
            black_box(1.0_f32) + f32::EPSILON * 0.75 == 1.0 + f32::EPSILON,
            "rounds towards zero or minus infinity",
        ),
    ];
    let failed = probes.into_iter().find(|&(holds, _)| !holds);
    failed.map(|(_, fault)| fault)
}

/// Panics unless [`check_fp_environment`] succeeds. Every compute thread calls
/// this once before its first kernel.
///
/// # Panics
/// With the message of [`FpEnvironmentError`].
pub fn assert_fp_environment() {
    if let Err(error) = check_fp_environment() {
        panic!("{error}");
    }
}
