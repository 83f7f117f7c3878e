//! What the test binaries share.

use std::io::Write;
use std::sync::Arc;

use k3_io::{
    DirectPolicy, EngineConfig, EngineError, FileTable, PreadEngine, ReadEngine, UringEngine,
};

/// Opens a pread engine.
pub(crate) fn open_pread(
    table: Arc<FileTable>,
    config: &EngineConfig,
) -> Result<Arc<dyn ReadEngine>, EngineError> {
    Ok(Arc::new(PreadEngine::open(table, config)?))
}

/// Opens an io_uring engine.
pub(crate) fn open_uring(
    table: Arc<FileTable>,
    config: &EngineConfig,
) -> Result<Arc<dyn ReadEngine>, EngineError> {
    Ok(Arc::new(UringEngine::open(table, config)?))
}

/// Whether io_uring works here; says so when it does not.
pub(crate) fn uring_here() -> bool {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("probe");
    std::fs::write(&path, [1_u8; 100]).unwrap();
    let table = FileTable::open([&path], DirectPolicy::Probe).unwrap();
    match open_uring(Arc::new(table), &EngineConfig::default()) {
        Ok(_) => true,
        Err(error) => {
            note(&format!("not run: {error}"));
            false
        }
    }
}

/// A line for whoever reads the test's output.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
