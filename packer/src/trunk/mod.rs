//! Packed trunks: the blocks of a checkpoint's sweep, stored smaller.
//!
//! [`TrunkSource`] is the checkpoint cut into blocks, [`TrunkPlan`] what becomes
//! of each block, [`pack()`] makes the files, [`verify()`] compares them with the
//! checkpoint. What the bytes are is `k3_formats::trunk`'s business.
//!
//! # How a run survives whatever ends it
//!
//! Stripes are written in order under names that end in `.partial`, their first
//! page, the header, last of all. A journal in the first directory says what was
//! asked for and, record by record, how far the stripes are on the disk: bytes
//! are synced before the record that covers them, and a record counts only with
//! its checksum. A run that finds the journal cuts the stripes to what it says
//! and goes on; the bytes follow from the plan and the weights alone, so the
//! files come out the same. At the end all stripes are renamed, the one with the
//! table last: before that the set is not complete, and no reader takes it.

mod encode;
mod error;
mod finish;
mod journal;
mod pipeline;
mod plan;
mod session;
mod source;
mod space;
mod stripe_file;
mod summary;
mod verify;

use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub use error::TrunkError;
pub use finish::Point;
pub use journal::JOURNAL_NAME;
pub use pipeline::{BLOCK_BYTES_MAX, Hooks};
pub use plan::{RecordInterval, TrunkPlan, TrunkSettings};
pub use source::{SourcePaths, TrunkSource};
pub use space::TRUNK_RESERVE_BYTES_MAX;
pub use summary::{StripeSummary, TrunkSummary};
pub use verify::{Verified, verify};

use crate::error::PackError;

/// Packs the trunk that `plan` describes, or goes on where an earlier run of the
/// same plan was ended.
///
/// # Errors
///
/// What is in the way, what the system reports, and [`TrunkError::Stopped`] once
/// `cancel` is set. Nothing that opens is left then; what is written is kept for
/// the next run.
pub fn pack(
    source: &TrunkSource,
    plan: &TrunkPlan,
    cancel: &AtomicBool,
    hooks: &Hooks<'_>,
) -> Result<TrunkSummary, PackError> {
    let started = Instant::now();
    // One that cannot be used is told before the work, not after it.
    source.manifest()?;
    let mut session = session::Session::open(source, plan, hooks)?;
    let resumed_blocks = session.done();
    if let Err(error) = space::require(source, plan, &session) {
        // What has no block yet is in the way of other options and nothing else.
        session.abandon_if_empty(plan);
        return Err(error);
    }
    (hooks.on_start)(source.raw_bytes_of(0..resumed_blocks));
    pipeline::run(source, plan, &mut session, cancel, hooks)?;
    source.recheck()?;
    let is_direct = session.is_direct();
    let packed = finish::finish(source, plan, session, hooks)?;
    Ok(TrunkSummary::new(
        source,
        &packed,
        resumed_blocks,
        is_direct,
        started.elapsed(),
    ))
}
