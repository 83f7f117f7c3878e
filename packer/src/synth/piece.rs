//! The unit of work, and memory that direct writes accept.

/// Bytes generated and written at once.
pub(super) const PIECE_BYTES: usize = 4 << 20;
/// What direct writes want of memory, place and length.
pub(super) const DIRECT_ALIGNMENT: usize = 4096;

/// Aligned memory for one piece.
#[derive(Debug)]
pub(super) struct PieceBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl PieceBuffer {
    pub(super) fn new() -> Self {
        let memory = vec![0_u8; PIECE_BYTES + DIRECT_ALIGNMENT];
        // Where the allocator put it does not change: the vector never grows.
        let start = memory.as_ptr().align_offset(DIRECT_ALIGNMENT);
        assert!(start < DIRECT_ALIGNMENT, "bytes can be aligned");
        Self { memory, start }
    }

    /// The first `len` bytes.
    ///
    /// # Panics
    ///
    /// When that is more than [`PIECE_BYTES`].
    pub(super) fn bytes(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= PIECE_BYTES, "{len} bytes of a piece");
        &mut self.memory[self.start..self.start + len]
    }
}
