//! The packed trunk: blocks of weights, rewritten offline.
//!
//! | module | holds |
//! |---|---|
//! | [`Codec`] | how a block's bytes are stored |
//! | [`bf16_x3`] | the payload of a `bf16-x3` block |
//!
//! `docs/formats/trunk.md` has every byte.

pub mod bf16_x3;
mod codec;

pub use codec::Codec;
