//! Who owns which memory, and when bytes move.
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | [`trunk`] | the streamer: blocks in sweep order, ahead of compute |
//! | [`cache`] | the expert cache: demands in, leases out as they arrive |
//! | [`experts`] | its books: slots, policies, counts; no threads, no I/O |
//! | [`sim`] | replays of expert traces through the same books |
//! | [`gauges`] | what all this counts, for other threads to look at |
//! | `lookahead` | the routers, kept to guess with |
//! | [`source`] | both behind the trait the forward loop is fed from |
//! | `past` | pages of sequences that do not stay in memory |
//! | `prefault` | the helper that touches memory ahead of the reads |
//! | `room` | whether that memory is still there |
//! | `spill` | what is set up for them |
//! | [`supervisor`] | ordered start and stop |
//! | [`scheduler`] | requests from any thread, run on one |
//! | [`mod@bench`] | what all of it achieves, against what it is made of |
//!
//! # Invariants
//!
//! - Each thread owns its state; others reach it through bounded channels.
//!   Channels that carry leases are as long as the leases that can exist, so
//!   sending never waits.
//! - A lease keeps its memory alive; memory is not reused while one lives.
//! - What is resident follows from demands, never from timing.
//! - Every queued read is answered before an actor ends.
#![forbid(unsafe_code)]

pub mod bench;
pub mod cache;
pub mod error;
pub mod experts;
pub mod gauges;
mod lookahead;
mod past;
pub mod planning;
mod prefault;
mod room;
mod rows;
pub mod scheduler;
pub mod sim;
pub mod source;
mod spill;
pub mod supervisor;
mod tags;
pub mod trunk;
mod units;

pub use error::ActorError;
pub use gauges::StreamGauges;
pub use past::SpillCounts;
pub use prefault::PrefaultCounts;
pub use room::MemoryTaken;
pub use source::{StreamLease, StreamingSource, SweepReads};
pub use supervisor::{ShutdownReport, StreamSettings, Supervisor};
