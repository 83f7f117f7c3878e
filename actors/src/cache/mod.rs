//! The expert cache as an actor: demands in, leases out, as they arrive.
//!
//! The books ([`crate::experts::SlotTable`]) and the memory are under one lock.
//! Compute enters all ids of a layer at once, takes what is resident on the spot
//! and asks for the rest in disk order; one thread hands each expert over when it
//! has landed. How the books end up follows from the demands alone, whatever
//! the disk does.
//!
//! Experts that the next layer will probably demand are read when the demand at
//! hand leaves nothing else to read, in the class of read-ahead: a demand
//! overtakes them, and one that is demanded moves up to the demand's class. None
//! is handed over before it is demanded, and none counts as a hit.

mod actor;
mod books;
mod handle;
#[cfg(test)]
mod tests;

use std::fmt;

use arrayvec::ArrayVec;
use k3_io::{EngineError, SEGMENTS_MAX, Segment, SlotArena};
use k3_models::ExpertKey;

use crate::experts::{CacheShape, EvictionPolicy};

pub use handle::{ExpertCounts, ExpertHandle, ExpertLease};

/// Where an expert lies: the ranges to read, in order.
pub type ExpertPlaces = Box<dyn Fn(ExpertKey) -> ArrayVec<Segment, SEGMENTS_MAX> + Send>;

/// Memory and books of the cache.
pub struct CacheSettings {
    /// Sizes.
    pub shape: CacheShape,
    /// What to keep.
    pub policy: Box<dyn EvictionPolicy>,
    /// One place for every slot of the shape.
    pub slots: SlotArena,
    /// Where experts lie.
    pub places: ExpertPlaces,
}

impl fmt::Debug for CacheSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheSettings")
            .field("shape", &self.shape)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// One expert, read, on its way to compute.
#[derive(Debug)]
struct Delivery {
    sweep: u64,
    expert: Result<ExpertLease, EngineError>,
}
