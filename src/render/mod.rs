//! What a person reads: errors, reports, tables, progress.

pub(crate) mod error;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod style;
pub(crate) mod table;
