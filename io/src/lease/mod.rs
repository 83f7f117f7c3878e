//! The right to write or read a piece of an arena.
//!
//! A [`WriteLease`] is exclusive; [`WriteLease::freeze`] turns it into
//! [`ReadLease`]s whose last drop returns the memory. Which of the two exists
//! is decided by one atomic word per piece ([`SlotState`], no unsafe code, model-checked in
//! `tests/lease_model.rs`), where the piece lies by [`RingState`] or a
//! slot's index (no unsafe code either). Every lease holds its owner and through it the arena.

mod handles;
mod ring;
mod ring_arena;
mod slots;
mod state;
mod table;

pub use handles::{ReadLease, WriteLease};
pub use ring::{RING_ALIGNMENT, RingAllocation, RingState};
pub use ring_arena::RingArena;
pub use slots::SlotArena;
pub use state::{Generation, SlotState, Word};
