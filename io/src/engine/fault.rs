//! Faults injected below an engine, at its system calls.

use std::fmt;
use std::path::Path;
use std::time::Duration;

/// A system call that an engine is about to make.
#[derive(Debug, Clone, Copy)]
pub struct ReadCall<'a> {
    /// The file.
    pub path: &'a Path,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub bytes: usize,
    /// Whether it goes through the page cache.
    pub buffered: bool,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It works.
    None,
    /// It brings at most this many bytes; the rest of the buffer is garbage.
    Short(usize),
    /// It fails with this errno and leaves garbage.
    Errno(i32),
    /// It takes longer.
    Delay(Duration),
}

/// Decides the fate of each system call of an engine.
pub trait FaultHook: Send + Sync + fmt::Debug {
    /// Called before each call, from the thread that makes it.
    fn before(&self, call: ReadCall<'_>) -> Fault;
}

/// Overwrites what a faulty read left, so that using it cannot go unnoticed.
pub(crate) fn scribble(bytes: &mut [u8]) {
    bytes.fill(0xA5);
}
