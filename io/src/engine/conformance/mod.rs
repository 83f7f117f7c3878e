//! What every read engine must do: one suite, run against each of them.
//!
//! [`run`] takes a way to open an engine over a file table and checks it
//! against files read with the standard library. A failing check panics.

mod basics;
mod files;
mod lifecycle;
mod load;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use super::ReadEngine;
use super::config::EngineConfig;
use super::error::EngineError;
use super::fault::{Fault, FaultHook, ReadCall};
use super::request::{ReadClass, ReadDone, ReadRequest, Segment};
use crate::arena::{HugeArena, PagePolicy};
use crate::direct::{DirectPolicy, FileId, FileTable};
use crate::lease::RingArena;
use crate::units::{file, memory};

pub use files::TestFiles;

/// Opens the engine under test.
pub type OpenEngine<'a> =
    dyn Fn(Arc<FileTable>, &EngineConfig) -> Result<Arc<dyn ReadEngine>, EngineError> + 'a;

/// How long any single answer may take. Far above what a loaded machine needs:
/// only a lost answer waits this long.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What the engine under test promises beyond the trait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promises {
    /// Counters are exact: nothing re-reads or alters answers.
    pub exact_counters: bool,
    /// Pieces of a more urgent class start first, and answers keep that order.
    pub ordered: bool,
}

/// Runs the whole suite with files below `directory`.
///
/// # Panics
///
/// When the engine breaks a rule.
pub fn run(open: &OpenEngine<'_>, directory: &std::path::Path, promises: Promises) {
    let files = TestFiles::create(directory);
    for policy in [DirectPolicy::Probe, DirectPolicy::Never] {
        basics::every_odd_place(open, &files, policy);
        basics::several_ranges(open, &files, policy);
        basics::tight_targets(open, &files, policy);
        load::many_at_once(open, &files, policy);
        if promises.exact_counters {
            load::counters_are_exact(open, &files, policy);
        }
    }
    basics::refusals(open, &files);
    basics::beyond_four_gib(open, &files);
    basics::a_file_cut_while_in_use(open, directory);
    if promises.ordered {
        load::urgent_overtakes(open, &files);
        load::promotion_overtakes(open, &files);
    }
    lifecycle::a_requester_goes_away(open, &files);
    lifecycle::cancelling(open, &files);
    lifecycle::shutdown_answers_everybody(open, &files);
    lifecycle::a_hundred_engines(open, &files);
}

/// An engine with memory to read into and a channel for answers.
pub(super) struct Bench {
    pub(super) engine: Arc<dyn ReadEngine>,
    pub(super) table: Arc<FileTable>,
    ring: RingArena,
    reply: crossbeam_channel::Sender<ReadDone>,
    pub(super) answers: Receiver<ReadDone>,
}

/// Leases of a bench, and so answers that can be under way.
const LEASES_MAX: usize = 256;

impl Bench {
    pub(super) fn new(
        open: &OpenEngine<'_>,
        paths: &[std::path::PathBuf],
        policy: DirectPolicy,
        memory_bytes: usize,
        configure: impl FnOnce(&mut EngineConfig),
    ) -> Self {
        let table = Arc::new(FileTable::open(paths, policy).expect("test files open"));
        let (arena, report) =
            HugeArena::reserve(memory_bytes, PagePolicy::Transparent).expect("test memory");
        let mut config = EngineConfig {
            arenas: vec![Arc::clone(&arena)],
            ..EngineConfig::default()
        };
        configure(&mut config);
        let engine = open(Arc::clone(&table), &config).expect("the engine opens");
        engine.memory_ready(&arena, 0..report.bytes);
        let ring = RingArena::new(&arena, 0..report.bytes, LEASES_MAX, None).expect("a ring");
        let (reply, answers) = bounded(LEASES_MAX);
        Self {
            engine,
            table,
            ring,
            reply,
            answers,
        }
    }

    /// A request with room for an aligned window around `segments`.
    pub(super) fn request(&self, segments: &[Segment], tag: u64, class: ReadClass) -> ReadRequest {
        let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let alignment = self.table.alignment_bytes();
        let capacity = crate::AlignedWindow::capacity_for(total, alignment).expect("small");
        self.request_into(segments, memory(capacity).max(1), tag, class)
    }

    /// A request with a target of `target_bytes`, rounded up by the ring; its
    /// unused end is as long as the rounding.
    pub(super) fn request_into(
        &self,
        segments: &[Segment],
        target_bytes: usize,
        tag: u64,
        class: ReadClass,
    ) -> ReadRequest {
        let mut target = self.ring.allocate(target_bytes).expect("room in the ring");
        target.fill(0xEE);
        ReadRequest {
            segments: segments.iter().copied().collect(),
            target,
            class,
            tag,
            reply: self.reply.clone(),
        }
    }

    pub(super) fn submit(&self, segments: &[Segment], tag: u64) {
        self.engine
            .submit(self.request(segments, tag, ReadClass::Expert));
    }

    pub(super) fn answer(&self) -> ReadDone {
        self.answers
            .recv_timeout(ANSWER_LIMIT)
            .expect("an answer within the limit")
    }

    /// Reads and returns the payload.
    pub(super) fn read(&self, segments: &[Segment]) -> Result<Vec<u8>, EngineError> {
        self.submit(segments, 7);
        let done = self.answer();
        assert_eq!(done.tag, 7);
        done.result?;
        Ok(done.target.freeze(done.payload).to_vec())
    }

    pub(super) fn memory_in_use(&self) -> usize {
        self.ring.used_bytes()
    }
}

/// Holds every read of an engine until it is opened, so that what is queued
/// meanwhile does not depend on the speed of disk or machine.
#[derive(Debug, Default)]
pub(super) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn open(&self) {
        *self.open.lock().expect("no panic under the lock") = true;
        self.opened.notify_all();
    }
}

impl FaultHook for Gate {
    fn before(&self, _call: ReadCall<'_>) -> Fault {
        let open = self.open.lock().expect("no panic under the lock");
        let held = self
            .opened
            .wait_timeout_while(open, ANSWER_LIMIT, |open| !*open);
        assert!(!held.expect("no panic under the lock").1.timed_out());
        Fault::None
    }
}

/// A range of the n-th file.
pub(super) fn segment(file_index: u32, offset: u64, bytes: usize) -> Segment {
    Segment {
        file: FileId(file_index),
        offset,
        bytes: file(bytes),
    }
}

/// Compares without printing megabytes.
#[track_caller]
pub(super) fn assert_same(found: &[u8], expected: &[u8], what: impl fmt::Debug) {
    assert_eq!(found.len(), expected.len(), "{what:?}");
    if let Some(at) = (0..found.len()).find(|&at| found[at] != expected[at]) {
        panic!(
            "{what:?}: byte {at} of {} is {:#x} instead of {:#x}",
            found.len(),
            found[at],
            expected[at]
        );
    }
}
