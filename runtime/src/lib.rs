//! The synchronous engine: one forward loop, pool, sampler, sessions.
#![forbid(unsafe_code)]
