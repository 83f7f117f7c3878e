//! Slices inside larger buffers, so that a stray access shows.

/// A byte read from here makes any bf16 or f32 a NaN, any nibble -6 and any
/// scale a NaN.
const POISON: u8 = 0xFF;

/// Bytes at an odd address, surrounded by poison.
pub(crate) struct Bytes {
    buffer: Vec<u8>,
    start: usize,
    len: usize,
}

impl Bytes {
    /// Copies `content` to an address that is `offset` modulo 64.
    pub(crate) fn new(content: &[u8], offset: usize) -> Self {
        let mut buffer = vec![POISON; content.len() + 256];
        let start = 64 + (64 - buffer.as_ptr().addr() % 64) % 64 + offset % 64;
        buffer[start..][..content.len()].copy_from_slice(content);
        Self {
            buffer,
            start,
            len: content.len(),
        }
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.buffer[self.start..][..self.len]
    }
}

/// Values padded by `PAD` NaNs in front and behind.
pub(crate) struct Floats {
    buffer: Vec<f32>,
    start: usize,
    len: usize,
}

const PAD: usize = 24;

impl Floats {
    /// Copies `content`, `offset` modulo 8 values away from the padding's end.
    pub(crate) fn new(content: &[f32], offset: usize) -> Self {
        let mut buffer = vec![f32::from_bits(0xFFFF_FFFF); content.len() + 2 * PAD];
        let start = PAD - 8 + offset % 8;
        buffer[start..][..content.len()].copy_from_slice(content);
        Self {
            buffer,
            start,
            len: content.len(),
        }
    }

    pub(crate) fn get(&self) -> &[f32] {
        &self.buffer[self.start..][..self.len]
    }

    pub(crate) fn get_mut(&mut self) -> &mut [f32] {
        &mut self.buffer[self.start..][..self.len]
    }

    /// Panics if a value outside the slice was written.
    pub(crate) fn check_surroundings(&self, what: &str) {
        let intact = |values: &[f32]| values.iter().all(|value| value.to_bits() == !0);
        assert!(
            intact(&self.buffer[..self.start]) && intact(&self.buffer[self.start + self.len..]),
            "{what}: wrote outside the output"
        );
    }
}
