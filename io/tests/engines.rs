//! The conformance suite, for each engine and in hostile surroundings.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{note, open_pread, open_uring};
use k3_io::conformance::{self, Promises};
use k3_io::{EngineConfig, FaultyEngine, FaultyPlan, FileTable, ReadEngine};

const STRICT: Promises = Promises {
    exact_counters: true,
    ordered: true,
};

#[test]
fn pread_conforms() {
    let directory = tempfile::tempdir().unwrap();
    conformance::run(&open_pread, directory.path(), STRICT);
}

#[test]
fn uring_conforms() {
    if !common::uring_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    conformance::run(&open_uring, directory.path(), STRICT);
}

/// The wrapper itself: answers late and in any order, but right.
#[test]
fn a_disorderly_engine_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let open = |table: Arc<FileTable>, config: &EngineConfig| {
        let plan = FaultyPlan {
            seed: 42,
            delay_max: Duration::from_micros(300),
            reorder: 5,
            ..FaultyPlan::default()
        };
        let inner = open_pread(Arc::clone(&table), config)?;
        let engine: Arc<dyn ReadEngine> = Arc::new(FaultyEngine::new(inner, table, plan));
        Ok(engine)
    };
    let promises = Promises {
        exact_counters: true,
        ordered: false,
    };
    conformance::run(&open, directory.path(), promises);
}

#[test]
fn engines_conform_on_tmpfs() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return note("not run: /dev/shm is not writable");
    };
    conformance::run(&open_pread, directory.path(), STRICT);
    if common::uring_here() {
        conformance::run(&open_uring, directory.path(), STRICT);
    }
}
