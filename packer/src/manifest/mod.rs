//! The integrity manifest of a checkpoint.
//!
//! | module | holds |
//! |---|---|
//! | `job` | what is to be hashed: shards by range, other files whole |
//! | `make` | hashing it, and the file |

mod job;
mod make;

pub use job::ManifestJob;
pub use make::{ManifestSummary, make};
