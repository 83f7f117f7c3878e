//! Bytes from files into caller-owned memory.
//!
//! # Invariants
//!
//! - Whatever goes wrong with a file is an error that names it, the place and
//!   the way out; a short read never passes for a whole one.
//! - A file's length is taken when it is opened. Reads are checked against it,
//!   and [`FileReader::recheck_len`] tells whether it still holds.
//! - Nothing here knows a model: what the bytes mean is `k3-formats`' business.
//!
//! # Map
//!
//! | item | purpose |
//! |---|---|
//! | [`FileReader`] | positional reads of one file |
//! | [`CheckpointFiles`] | the files of a checkpoint directory |
//! | [`TrunkFiles`] | the files of a packed trunk |
//! | [`read_small`] | a whole file, up to a limit |
//! | [`replace_file`] | a small file, complete or not at all |
//! | [`SpillFile`] | what a run writes away and reads back, gone with the process |
//!
//! Weights take another way than headers and small files: direct reads into
//! long-lived memory, several requests at a time.
//!
//! | item | purpose |
//! |---|---|
//! | [`HugeArena`] | memory reserved once, in huge pages where there are any |
//! | [`SlotArena`], [`RingArena`] | its parts, lent as [`WriteLease`] and [`ReadLease`] |
//! | [`AlignedWindow`] | what a direct read must cover to get some bytes |
//! | [`FileTable`] | the files reads go to, each direct where the file system allows |
//! | [`ReadEngine`] | requests in, filled leases out: [`UringEngine`], [`PreadEngine`] |
//! | [`DiskProfile`] | what the disk gives, measured through an engine |
//! | [`hash_ranges`] | hashes of many ranges, at the speed of the disk |
//!
//! - Memory that the kernel may write is owned by the request until the last
//!   read of it has completed, whoever lost interest meanwhile.
//! - Every request is answered exactly once.
//! - Unsafe code lives in `arena`, `arena::map`, `arena::range`, `lease::handles`, `direct::dio`,
//!   `engine::{landing, pread, uring}` and, for tests, `refusal`; what decides who may touch which
//!   byte (lease states, ring, layout, retries) is safe and tested apart.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use k3_io::{
//!     AlignedWindow, DirectPolicy, EngineConfig, EnginePreference, FileId, FileTable, HugeArena,
//!     PagePolicy, ReadClass, ReadRequest, RingArena, Segment, open_engine,
//! };
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shard");
//! # std::fs::write(&path, vec![7_u8; 50_000])?;
//! let table = Arc::new(FileTable::open([&path], DirectPolicy::Probe)?);
//! let (arena, report) = HugeArena::reserve(8 << 20, PagePolicy::Transparent)?;
//! let ring = RingArena::new(&arena, 0..report.bytes, 64, None)?;
//! let engine = open_engine(
//!     Arc::clone(&table),
//!     &EngineConfig::default(),
//!     EnginePreference::Uring,
//! )?;
//!
//! let segment = Segment { file: FileId(0), offset: 12_345, bytes: 30_000 };
//! let room = AlignedWindow::capacity_for(segment.bytes, table.alignment_bytes());
//! let target = ring.allocate(usize::try_from(room.unwrap())?).expect("an empty ring");
//! let (reply, answers) = crossbeam_channel::bounded(64);
//! engine.submit(ReadRequest::single(segment, target, ReadClass::AwaitedBlock, 1, reply));
//!
//! let done = answers.recv()?;
//! done.result?;
//! let block = done.target.freeze(done.payload);
//! assert!(block.len() == 30_000 && block.iter().all(|&byte| byte == 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_op_in_unsafe_fn)]

mod arena;
mod checkpoint;
mod direct;
mod engine;
mod error;
mod file;
mod hashing;
mod lease;
#[cfg(feature = "numa")]
pub mod numa;
mod probe;
#[cfg(any(test, feature = "testing"))]
mod refusal;
mod replace;
mod spill;
mod trunk;
mod units;
mod window;

pub use arena::{
    HugeArena, PREFAULT_STEP_BYTES, PagePolicy, PageReport, PrefaultMethod, ResidentPages,
};
pub use checkpoint::{
    CONFIG_NAME, CheckpointFiles, Description, INDEX_NAME, VOCABULARY_NAME, read_manifest,
    read_vocabulary,
};
pub use direct::{DirectFile, DirectPolicy, FileId, FileTable};
#[cfg(feature = "testing")]
pub use engine::conformance;
pub use engine::{
    DeviceCaps, DeviceCounters, EngineCaps, EngineConfig, EngineCounters, EngineError, EngineKind,
    EnginePreference, FixedBuffers, PreadEngine, ReadClass, ReadDone, ReadEngine, ReadRequest,
    SEGMENTS_MAX, Segment, UringEngine, open_engine,
};
#[cfg(any(test, feature = "testing"))]
pub use engine::{Fault, FaultHook, ReadCall};
#[cfg(feature = "testing")]
pub use engine::{FaultyEngine, FaultyPlan};
pub use error::IoError;
pub use file::{FileReader, read_small};
pub use hashing::{Digest, HashKind, HashSettings, HashSink, HashSummary, hash_ranges};
pub use lease::{
    Generation, RING_ALIGNMENT, ReadLease, RingAllocation, RingArena, RingState, SlotArena,
    SlotState, Word, WriteLease,
};
pub use probe::{
    DiskProfile, DiskReader, PassLimits, ProbeBounds, ProbeCell, ReadPass, ReadWay,
    process_cpu_seconds,
};
#[cfg(feature = "testing")]
pub use refusal::{UringCall, refuse_affinity, refuse_io_uring, refuse_preads};
pub use replace::{beside, rename_to_disk, replace_file};
pub use spill::{SpillError, SpillFile};
pub use trunk::{PARTIAL_ENDING, PackedFiles, TrunkFiles};
pub use window::{AlignedWindow, DioAlignment};
