//! Choosing an engine.

use std::sync::Arc;

use super::ReadEngine;
use super::config::EngineConfig;
use super::error::EngineError;
use super::pread::PreadEngine;
use super::uring::UringEngine;
use crate::direct::FileTable;

/// Which engine to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EnginePreference {
    /// io_uring; pread, reported as a fallback, where it is forbidden.
    Uring,
    /// pread.
    Pread,
}

/// Opens the preferred engine, or the one below it; the caps' fallbacks say
/// what is missing and why.
///
/// # Errors
///
/// When not even pread threads can be started.
pub fn open_engine(
    table: Arc<FileTable>,
    config: &EngineConfig,
    preference: EnginePreference,
) -> Result<Arc<dyn ReadEngine>, EngineError> {
    let refusal = match preference {
        EnginePreference::Pread => None,
        EnginePreference::Uring => match UringEngine::open(Arc::clone(&table), config) {
            Ok(engine) => return Ok(Arc::new(engine)),
            Err(error) => Some(error.to_string()),
        },
    };
    let mut engine = PreadEngine::open(table, config)?;
    engine.add_fallback(refusal);
    Ok(Arc::new(engine))
}
