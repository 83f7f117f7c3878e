//! The SSE control and status register.

use std::arch::asm;

use crate::environment::FpEnvironmentError;

/// Denormals-are-zero (bit 6), rounding control (bits 13 and 14) and
/// flush-to-zero (bit 15).
const MUST_BE_CLEAR: u32 = 1 << 6 | 3 << 13 | 1 << 15;

fn mxcsr() -> u32 {
    let mut value = 0_u32;
    // SAFETY: stmxcsr stores four bytes at the operand, which is a live, aligned
    // u32, and changes no register, flag or stack.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack, preserves_flags));
    }
    value
}

/// Refuses another rounding mode than to nearest, FTZ and DAZ.
pub(crate) fn check_control_register() -> Result<(), FpEnvironmentError> {
    let found = mxcsr();
    if found & MUST_BE_CLEAR == 0 {
        Ok(())
    } else {
        Err(FpEnvironmentError::ControlRegister {
            found,
            mask: MUST_BE_CLEAR,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::arithmetic_fault;

    fn set_mxcsr(value: u32) {
        // SAFETY: ldmxcsr loads four bytes from a live u32; the values used here
        // keep all exceptions masked and reserved bits clear. Between setting a
        // bit and restoring the register the tests only do arithmetic that the
        // optimiser cannot see through.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, readonly));
        }
    }

    /// The register check and the probes while `bits` are set.
    fn found_with(bits: u32) -> (Result<(), FpEnvironmentError>, Option<&'static str>) {
        let before = mxcsr();
        set_mxcsr(before | bits);
        let found = (check_control_register(), arithmetic_fault());
        set_mxcsr(before);
        found
    }

    /// Fails a check that looks at fewer bits than FTZ, DAZ and the rounding.
    #[test]
    fn each_forbidden_bit_is_found_in_the_register() {
        assert_eq!(found_with(0), (Ok(()), None));
        for bit in [6, 13, 14, 15] {
            let (result, _) = found_with(1 << bit);
            assert!(
                matches!(result, Err(FpEnvironmentError::ControlRegister { found, .. })
                    if found & 1 << bit != 0),
                "bit {bit}: {result:?}"
            );
        }
    }

    /// Targets without a register check rely on the probe computations alone.
    #[test]
    fn each_forbidden_mode_shows_in_the_probes() {
        for (bits, word) in [
            (1 << 15, "results"),
            (1 << 6, "operands"),
            (1 << 13, "minus infinity"),
            (2 << 13, "plus infinity"),
            (3 << 13, "towards zero"),
        ] {
            let (_, fault) = found_with(bits);
            let named = fault.is_some_and(|fault| fault.contains(word));
            assert!(named, "bits {bits:#x}: {fault:?}");
        }
    }
}
