//! The synchronous engine: from an open checkpoint to logits and tokens.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`checkpoint`] | a checkpoint directory, opened and indexed |
//! | [`trunk`] | a trunk in files of its own, packed or raw |
//! | [`source`] | [`WeightSource`]: where [`forward`](forward::forward) gets its bytes |
//! | [`memory`] | whether a run fits, asked before anything is reserved |
//! | [`resident`] | the source that keeps every weight in memory |
//! | [`forward`](mod@forward) | the one walk through a sweep's program |
//! | [`pool`] | compute threads with a static split |
//! | [`placement`] | which processor each of them runs on |
//! | [`session`] | one conversation: prefill, steps, teacher forcing |
//! | [`scheduler`] | many sequences, one walk: who takes part in which sweep |
//! | [`draft`](mod@draft) | guesses of the tokens to come, and how many a sweep carries |
//! | [`prefix`] | states in files: saved conversations, a cache of prefixes |
//! | [`sampler`], [`philox`] | from logits to a token, reproducibly |
//! | [`report`] | what a run tells about itself |
//! | [`ladder`] | the same run at several budgets, held to each |
//! | [`statistics`] | medians and spreads of measurements |
//!
//! # Invariants
//!
//! - There is one forward loop. Decoding, prefill and checking differ in the
//!   sweep they form, never in the code that runs it.
//! - The loop holds one lease at a time and cannot tell which source it is
//!   fed from.
//! - No async here: actors drive this crate, not the other way round.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod draft;
pub mod error;
pub mod forward;
pub mod ladder;
pub mod memory;
pub mod philox;
pub mod placement;
pub mod pool;
pub mod prefix;
pub mod report;
pub mod resident;
pub mod sampler;
pub mod scheduler;
pub mod session;
pub mod source;
pub mod statistics;
pub mod trunk;

pub use checkpoint::{Checkpoint, CheckpointPaths};
pub use error::RunError;
pub use forward::{Cancel, StopSignal, SweepObserver, SweepProgress, forward};
pub use memory::{MemoryNeed, check_memory};
pub use placement::{Placement, PlacementReport};
pub use pool::ComputePool;
pub use prefix::{PrefixStore, SnapshotFile};
pub use report::RunReport;
pub use resident::ResidentSource;
pub use sampler::{
    History, SampleError, Sampler, SamplingSettings, StopText, TokenLogprob, TokenLogprobs,
    logprobs,
};
pub use scheduler::{GenerateRequest, Scheduler, SchedulerSettings, SpillSizes};
pub use session::{POSITIONS_MAX, Session, SessionBytes, SessionSettings};
pub use source::{ReadBytes, WeightSource};
pub use trunk::{Checksums, Trunk, TrunkChecks};
