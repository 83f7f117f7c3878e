//! Synthetic checkpoints on disk.
//!
//! [`SynthPlan`] knows every size before anything exists; [`write()`] makes the
//! directory. What the bytes are is `k3_formats::synth`'s business.
//!
//! ```no_run
//! use std::num::NonZeroUsize;
//! use std::sync::atomic::AtomicBool;
//!
//! use k3_formats::synth::{Vision, released_config};
//! use k3_pack::synth::{Content, RESERVE_BYTES, SynthPlan, SynthSettings, write};
//!
//! let settings = SynthSettings {
//!     out: "/data/k3shape".into(),
//!     config: released_config(),
//!     vision: Vision::Included,
//!     seed: 0,
//!     content: Content::VectorsOnly,
//!     replace: false,
//!     threads: NonZeroUsize::MIN,
//!     reserve_bytes: RESERVE_BYTES,
//! };
//! let plan = SynthPlan::new(&settings)?;
//! write(&plan, &AtomicBool::new(false), &|_bytes| ())?;
//! # Ok::<(), k3_pack::PackError>(())
//! ```

mod image;
mod plan;
mod shard_file;
pub(crate) mod target;
mod write;

pub use plan::{Content, RESERVE_BYTES, SynthPlan, SynthSettings};
pub use write::{SynthSummary, write};
