//! Registered buffers: memory pinned once instead of at every read.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use io_uring::IoUring;
use nix::sys::resource::{Resource, getrlimit};

use crate::arena::HugeArena;
use crate::units::{file, memory};

/// Largest buffer the kernel registers.
const BUFFER_BYTES_MAX: usize = 1 << 30;
/// Most buffers a ring takes, less the one for the self-test.
const BUFFERS_MAX: usize = 16_383;

/// The part of an arena that is registered as one buffer, or will be.
#[derive(Debug)]
struct Piece {
    addresses: Range<u64>,
    registered: bool,
}

/// Which addresses are registered under which index. Index 0 is the
/// self-test's.
#[derive(Debug)]
pub(super) struct FixedTable {
    /// In order of address.
    pieces: Vec<Piece>,
    /// Once the kernel has refused, no more is registered; `None` until then.
    refusal: Option<String>,
    registered_bytes: usize,
    /// Registered memory must outlive its registration.
    _arenas: Vec<Arc<HugeArena>>,
}

impl FixedTable {
    /// Cuts the arenas into buffers of `piece_bytes`; registers nothing yet.
    pub(super) fn new(arenas: &[Arc<HugeArena>], piece_bytes: usize) -> Self {
        let piece_bytes = file(piece_bytes.clamp(2 << 20, BUFFER_BYTES_MAX));
        let mut pieces = Vec::new();
        for arena in arenas {
            let start = file(arena.base().as_ptr().addr());
            let end = start + file(arena.len_bytes());
            let mut at = start;
            while at < end && pieces.len() < BUFFERS_MAX {
                let to = (at + piece_bytes).min(end);
                pieces.push(Piece {
                    addresses: at..to,
                    registered: false,
                });
                at = to;
            }
        }
        pieces.sort_by_key(|piece| piece.addresses.start);
        Self {
            pieces,
            refusal: None,
            registered_bytes: 0,
            _arenas: arenas.to_vec(),
        }
    }

    /// No registration at all.
    pub(super) fn none() -> Self {
        Self::new(&[], BUFFER_BYTES_MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Reserves the kernel's table; the self-test's entry is included.
    pub(super) fn reserve(&self, ring: &IoUring) -> io::Result<()> {
        let entries = u32::try_from(self.pieces.len() + 1).expect("at most 16384 pieces");
        ring.submitter().register_buffers_sparse(entries)
    }

    /// All memory of the arenas.
    pub(super) fn everything(&self) -> Vec<Range<u64>> {
        let pieces = self.pieces.iter();
        pieces.map(|piece| piece.addresses.clone()).collect()
    }

    /// Registers the pieces that lie inside `addresses`; a line for the report
    /// when the kernel refuses.
    pub(super) fn register(&mut self, ring: &IoUring, addresses: &Range<u64>) -> Option<String> {
        for index in 0..self.pieces.len() {
            let piece = &self.pieces[index];
            let inside =
                addresses.start <= piece.addresses.start && piece.addresses.end <= addresses.end;
            if piece.registered || !inside || self.refusal.is_some() {
                continue;
            }
            let bytes = memory(piece.addresses.end - piece.addresses.start);
            if let Err(error) = update(ring, index + 1, piece.addresses.start, bytes) {
                self.refusal = Some(self.describe(&error, bytes));
                return self.refusal.clone();
            }
            self.pieces[index].registered = true;
            self.registered_bytes += bytes;
        }
        None
    }

    fn describe(&self, error: &io::Error, bytes: usize) -> String {
        let total: u64 = self
            .pieces
            .iter()
            .map(|piece| piece.addresses.end - piece.addresses.start)
            .sum();
        let limit = match getrlimit(Resource::RLIMIT_MEMLOCK) {
            Ok((soft, _)) => format!("RLIMIT_MEMLOCK is {soft} bytes"),
            Err(errno) => format!("RLIMIT_MEMLOCK is unknown: {errno}"),
        };
        format!(
            "io_uring registered {} of {total} bytes of buffers; the next {bytes} were refused: \
             {error} ({limit}); reads into the rest cost more CPU",
            self.registered_bytes
        )
    }

    pub(super) fn registered_bytes(&self) -> usize {
        self.registered_bytes
    }

    /// The registered buffer that holds all of these bytes.
    pub(super) fn lookup(&self, address: u64, bytes: usize) -> Option<u16> {
        let after = self
            .pieces
            .partition_point(|piece| piece.addresses.start <= address);
        let index = after.checked_sub(1)?;
        let piece = &self.pieces[index];
        let inside = address + file(bytes) <= piece.addresses.end;
        if !piece.registered || !inside {
            return None;
        }
        u16::try_from(index + 1).ok()
    }

    /// Stops using registered buffers.
    pub(super) fn disable(&mut self) {
        self.pieces.clear();
        self.registered_bytes = 0;
    }
}

/// Puts one buffer into the kernel's table.
pub(super) fn update(ring: &IoUring, index: usize, address: u64, bytes: usize) -> io::Result<()> {
    let buffer = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(memory(address)),
        iov_len: bytes,
    };
    let index = u32::try_from(index).expect("a table of at most 16384 entries");
    // SAFETY: the buffer is a part of an arena that `FixedTable` or the
    // self-test keeps alive for longer than the ring; the kernel only pins it.
    unsafe {
        ring.submitter()
            .register_buffers_update(index, &[buffer], None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::PagePolicy;

    #[test]
    fn only_whole_registered_buffers_are_found() {
        let (arena, _) = HugeArena::reserve(10 << 20, PagePolicy::Transparent).unwrap();
        let base = file(arena.base().as_ptr().addr());
        let mut table = FixedTable::new(&[Arc::clone(&arena)], 4 << 20);
        assert_eq!(table.everything().len(), 3);
        assert_eq!(table.lookup(base, 4096), None, "not registered yet");
        for piece in &mut table.pieces {
            piece.registered = true;
        }
        assert_eq!(table.lookup(base, 4 << 20), Some(1));
        assert_eq!(table.lookup(base + (4 << 20), 4096), Some(2));
        assert_eq!(table.lookup(base + (9 << 20), 1 << 20), Some(3));
        let border = base + (4 << 20) - 4096;
        assert_eq!(table.lookup(border, 8192), None, "across a border");
        assert_eq!(table.lookup(base - 4096, 4096), None);
        assert_eq!(table.lookup(base + (10 << 20), 4096), None);
        table.disable();
        assert_eq!(table.lookup(base, 4096), None);
    }
}
