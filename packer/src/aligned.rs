//! Memory that direct writes accept.

/// What direct writes want of memory, place and length.
pub(crate) const DIRECT_ALIGNMENT: usize = 4096;

/// Aligned memory of a fixed size.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    pub(crate) fn new(capacity: usize) -> Self {
        let memory = vec![0_u8; capacity + DIRECT_ALIGNMENT];
        // Where the allocator put it does not change: the vector never grows.
        let start = memory.as_ptr().align_offset(DIRECT_ALIGNMENT);
        assert!(start < DIRECT_ALIGNMENT, "bytes can be aligned");
        Self { memory, start }
    }

    /// The first `len` bytes.
    ///
    /// # Panics
    ///
    /// When that is more than the capacity.
    pub(crate) fn bytes(&mut self, len: usize) -> &mut [u8] {
        let capacity = self.memory.len() - DIRECT_ALIGNMENT;
        assert!(len <= capacity, "{len} bytes of {capacity}");
        &mut self.memory[self.start..self.start + len]
    }
}
