//! Measures of single parts, each beside what bounds it.
//!
//! How fast a kernel is says little by itself: machines differ, and so does one
//! machine from minute to minute. What counts are ratios of measures that take
//! turns: a matrix product to reading the same memory, eight positions to one,
//! two threads to one. Rates are work per second of *CPU time*, so that they are
//! those of a free core while others use the machine too.
//!
//! # Invariants
//!
//! - Whatever is timed is also compared, bit for bit, with the scalar definition
//!   on a sample of its outputs in the same run; differences are counted.
//! - Weights come from more memory than a cache holds, and all measures take
//!   theirs from it in turn.
//! - Medians and quartiles, never means.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`clock`] | CPU time |
//! | [`rounds`] | passes of calls, calibrated and in turn |
//! | [`weights`] | seeded weights in huge pages |
//! | [`kernels`] | every kernel at released sizes, its rows and limits |
//! | [`experts`] | what coding experts would save, and what decoding costs |
//! | [`fork_join`] | what it costs to hand out a job |

#![forbid(unsafe_code)]

pub mod clock;
pub mod error;
pub mod experts;
pub mod fork_join;
pub mod kernels;
pub mod rounds;
mod values;
pub mod weights;

pub use error::MeasureError;
