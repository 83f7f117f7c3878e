//! States kept in files: one conversation under a name, and a cache of prefixes.
//!
//! A prefix is the first token ids of a conversation, and its entry the state after
//! them. A later run whose ids begin with the same ones loads the state instead of
//! computing it. The files are described in `docs/formats/snapshot.md`.
//!
//! - [`SnapshotFile`]: one state under a path of the caller's choice.
//! - [`PrefixStore`]: a directory of states with a limit, shared by any number of
//!   processes at the same time. Entries that were used longest ago go first.
//!
//! # Invariants
//!
//! - A state comes from one file as a whole: states are never joined, and never cut
//!   back to fewer positions.
//! - Under its name a file is whole: it is written beside, reaches the disk and is
//!   renamed. A process that is killed leaves at most a hidden file, which the next
//!   one removes.
//! - No byte reaches a state before its checksum was compared. What a hit hands out
//!   was compared with the ids themselves.
//! - Nothing here is needed for a result: whatever fails, a run computes the same
//!   from the first id.

mod error;
mod file;
mod names;
mod partial;
mod read;
mod room;
mod steps;
mod store;
#[cfg(test)]
mod tests;

pub use error::PrefixError;
pub use file::{ConversationIds, SnapshotDraft, SnapshotFile};
pub use k3_formats::snapshot::{SnapshotBinding as Binding, StateForm};
pub use read::Hit;
pub use store::{PrefixStatistics, PrefixStore, Saved};
