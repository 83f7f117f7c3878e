//! Which expert lies in which slot, decided apart from any reading.
//!
//! [`SlotTable`] is the books of the expert cache: plain arrays with one owner,
//! no threads, no I/O. An [`EvictionPolicy`] says which experts are worth a slot.
//!
//! # Invariants
//!
//! - What is resident after a sweep follows from the demands alone. The order in
//!   which reads complete and leases end decides which slot an expert lies in, and
//!   nothing else.
//! - A slot that is being filled, is leased, or is about to be leased is never
//!   given to another expert.
//! - Every demand can be served, however many experts it names, as soon as
//!   there is one transit slot.

mod check;
mod counters;
mod policy;
mod shape;
mod slot;
mod slots;

pub use counters::CacheCounters;
pub use policy::{
    DecayedFrequency, DeepLayers, EvictionPolicy, Lru, PolicyOutcome, eviction_policy,
};
pub(crate) use policy::{RankedSet, Usage};
pub use shape::CacheShape;
pub use slot::{SlotId, SlotState};
pub use slots::{DemandPlan, SlotTable};
