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

    fn set_mxcsr(value: u32) {
        // SAFETY: ldmxcsr loads four bytes from a live u32; the values used by
        // the test keep all exceptions masked and reserved bits clear.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, readonly));
        }
    }

    /// Fails a check that looks at fewer bits than FTZ, DAZ and the rounding.
    #[test]
    fn each_forbidden_bit_is_found() {
        let before = mxcsr();
        assert_eq!(check_control_register(), Ok(()));
        for bit in [6, 13, 14, 15] {
            set_mxcsr(before | 1 << bit);
            let result = check_control_register();
            set_mxcsr(before);
            assert!(
                matches!(result, Err(FpEnvironmentError::ControlRegister { found, .. })
                    if found & 1 << bit != 0),
                "bit {bit}: {result:?}"
            );
        }
    }
}
