//! Replays an expert trace against a cache that reads nothing.
//!
//! [`replay`] answers what a policy would have hit at given slot counts, step by
//! step, beside the bound no policy can pass. In the `batch` model every demand
//! goes through the same [`SlotTable`](crate::experts::SlotTable) as in a real run.

mod accesses;
mod belady;
mod error;
mod names;
mod replay;
mod report;
mod steps;

pub use belady::Belady;
pub use error::ReplayError;
pub use names::{AccessModel, ReplayPolicy};
pub use replay::{ReplaySettings, replay};
pub use report::{PhaseTallies, ReplayReport, ReplayRow, ReplayStep, Tally};
