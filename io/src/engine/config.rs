//! How an engine is set up, and what it turned out to be.

use std::fmt;
use std::sync::Arc;

#[cfg(any(test, feature = "testing"))]
use super::fault::FaultHook;
use crate::arena::HugeArena;
use crate::units::MIB;

/// Largest piece that is ever used: a single system call reads less than 2 GiB.
const PIECE_BYTES_MAX: usize = 1 << 30;

/// Which buffers an io_uring engine registers with the kernel. Registering
/// halves the CPU cost of a read, pins the memory (touching all of it) and
/// counts against RLIMIT_MEMLOCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixedBuffers {
    /// None.
    Off,
    /// Parts of the arenas that [`super::ReadEngine::memory_ready`] names.
    WhenReady,
    /// The whole arenas before the first read.
    AtStart,
}

/// Settings of a read engine; [`EngineConfig::default`] is what was measured
/// best.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Largest single read, in bytes; raised to a multiple of the alignment.
    /// 512 KiB to 1 MiB is best, more loses bandwidth.
    pub piece_bytes: usize,
    /// Bytes in flight on one device, at least one piece. 2 to 4 MiB reach
    /// 95 % of a device's best, more only helps striped drives.
    pub in_flight_bytes: usize,
    /// Threads of a pread engine on each device.
    pub threads: usize,
    /// Arenas whose memory reads land in, for registration.
    pub arenas: Vec<Arc<HugeArena>>,
    /// What of them to register.
    pub fixed_buffers: FixedBuffers,
    /// Unit of registration, at most 1 GiB (the kernel's limit for a buffer).
    pub fixed_piece_bytes: usize,
    /// Faults to inject, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub faults: Option<Arc<dyn FaultHook>>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            piece_bytes: MIB,
            in_flight_bytes: 8 * MIB,
            threads: 4,
            arenas: Vec::new(),
            fixed_buffers: FixedBuffers::WhenReady,
            fixed_piece_bytes: 256 * MIB,
            #[cfg(any(test, feature = "testing"))]
            faults: None,
        }
    }
}

impl EngineConfig {
    /// Piece size for files of this alignment.
    pub(crate) fn piece_bytes_for(&self, alignment: usize) -> usize {
        self.piece_bytes
            .clamp(1, PIECE_BYTES_MAX)
            .next_multiple_of(alignment)
    }
}

/// The two ways of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// Threads that call `pread`.
    Pread,
    /// One io_uring per device.
    Uring,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pread => "pread",
            Self::Uring => "io_uring",
        })
    }
}

/// What an engine found on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCaps {
    /// Number of the device (`st_dev`).
    pub device: u64,
    /// Files on it.
    pub file_count: usize,
    /// Of those, read past the page cache.
    pub direct_file_count: usize,
    /// Threads that read.
    pub threads: usize,
    /// Bytes it keeps in flight at most.
    pub in_flight_bytes: usize,
    /// Largest single read.
    pub piece_bytes: usize,
    /// Set-up flags of the ring that the kernel took; empty for pread.
    pub ring_flags: String,
    /// Bytes of the arenas that are registered now.
    pub fixed_bytes: usize,
    /// Most bytes that bounce buffers can take up; touched only by requests of
    /// several ranges or tight targets.
    pub bounce_bytes: usize,
}

/// What an engine is, as far as it is known now: fixed buffers and fallbacks
/// can still change while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCaps {
    /// How it reads.
    pub kind: EngineKind,
    /// Its devices, in the order of the file table.
    pub devices: Vec<DeviceCaps>,
    /// Everything that is less than what was asked for, one sentence each.
    pub fallbacks: Vec<String>,
}
