//! Elementary functions with the same bits on every machine.
//!
//! Nothing here calls the platform's libm: its results differ between versions and
//! platforms. Each function is a fixed sequence of f64 additions, multiplications, divisions
//! and conversions, each rounded once (never fused), plus integer operations on bit patterns.
//! The vector bodies in `arch` perform the same sequence per lane, so all of them agree by
//! construction.
//!
//! | function | promise |
//! |---|---|
//! | [`exp`], [`tanh`] | correctly rounded (to nearest, ties to even) for all 2^32 inputs |
//! | [`sigmoid`] | `1 / (1 + exp(-x))`, each of the three steps rounded to f32 |
//! | [`ln64`] | within 0.52 ulp |
//!
//! The first line is proved by running every input (`tests/math_exhaustive.rs`); methods,
//! error bounds and the figures of that run are in `docs/math.md`. All functions require round
//! to nearest and gradual underflow (no FTZ, no DAZ), which compute threads assert.

mod exp;
mod ln64;
#[rustfmt::skip]
pub(crate) mod tables;
mod tanh;

pub use exp::{exp, sigmoid};
pub use ln64::ln64;
pub use tanh::tanh;

// The vector bodies repeat the scalar sequences and share their constants.
#[cfg(target_arch = "x86_64")]
pub(crate) use exp::{EXP_MAX, EXP_MIN, MAGIC, table_index};
#[cfg(target_arch = "x86_64")]
pub(crate) use tanh::TANH_MAX;

/// The one rounding to f32 (to nearest, ties to even; overflow to infinity, gradual underflow).
#[allow(
    clippy::cast_possible_truncation,
    reason = "the rounding to f32 is the point of this function"
)]
#[inline]
fn round_to_f32(value: f64) -> f32 {
    value as f32
}
