//! Kimi K3: gated delta attention (KDA) and latent attention without rotation
//! (MLA) in alternation, attention residuals over depth, a latent mixture of
//! MXFP4 experts.
//!
//! | module | holds |
//! |---|---|
//! | [`layout`] | tensor names to places, checked against the configuration |
//! | [`vectors`] | the small tensors, resident as stored |
//! | [`state`] | what a sequence carries |
//! | `op` | the matrix products of a sweep and the buffers they join |
//! | `past` | a layer's parts of pages that are not in memory |
//! | `workspace` | activation buffers, allocated once |
//! | `run` | one sweep: dispatch of blocks, wiring of a layer |
//! | `kda`, `mla`, `moe` | the three mechanisms |
//! | `held` | positions that count only once they are committed |
//! | `faults` | what went wrong for which segment |
//! | `product` | the product of one block, packed or not |
//! | `lookahead` | a guess at the next layer's experts |
//!
//! The arithmetic is defined in `docs/numerics.md`, kernel by kernel.

mod faults;
mod held;
mod kda;
pub mod layout;
mod lookahead;
mod mla;
mod model;
mod moe;
mod names;
mod op;
mod past;
mod phases;
mod product;
mod run;
pub mod state;
pub mod vectors;
mod workspace;

pub use layout::KimiK3Layout;
pub use model::{AttentionForm, KimiK3, NUMERICS_VERSION, PlannedModel};
pub use run::KimiK3Run;
pub use state::KimiK3State;
pub use workspace::KimiK3Workspace;
