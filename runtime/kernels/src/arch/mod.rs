//! Bodies for particular instruction sets, and what only a target can tell.
//!
//! The only place of `unsafe` code in this crate. A body is reachable solely
//! through a table that exists only where its instruction set was detected;
//! each table entry is a safe function that checks every slice length before it
//! enters the body.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{avx2, avx512, check_control_register, has_avx2, has_avx512};

#[cfg(not(target_arch = "x86_64"))]
mod portable;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::{avx2, avx512, check_control_register, has_avx2, has_avx512};
