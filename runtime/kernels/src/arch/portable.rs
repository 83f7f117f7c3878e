//! Targets without bodies of their own: the definitions are all there is.

use crate::dispatch::KernelSet;
use crate::environment::FpEnvironmentError;

pub(crate) fn has_avx2() -> bool {
    false
}

pub(crate) fn has_avx512() -> bool {
    false
}

pub(crate) fn avx2() -> Option<&'static KernelSet> {
    None
}

pub(crate) fn avx512() -> Option<&'static KernelSet> {
    None
}

/// No register is known here; the caller's probe computations decide.
pub(crate) fn check_control_register() -> Result<(), FpEnvironmentError> {
    Ok(())
}
