//! What a direct read must cover so that some bytes of a file arrive.

use crate::units::{align_down, align_up};

/// What a file system asks of direct reads: multiples of these, powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DioAlignment {
    /// Of memory addresses.
    pub memory_bytes: u64,
    /// Of file offsets and lengths.
    pub offset_bytes: u64,
}

impl DioAlignment {
    /// The least that is ever used: page-aligned requests suit every device.
    pub const FLOOR: Self = Self {
        memory_bytes: 4096,
        offset_bytes: 4096,
    };

    /// The alignment for a file system that names these needs (zero: it names
    /// none), raised to the floor.
    #[must_use]
    pub fn at_least(memory_bytes: u64, offset_bytes: u64) -> Self {
        Self {
            memory_bytes: memory_bytes.max(4096).next_power_of_two(),
            offset_bytes: offset_bytes.max(4096).next_power_of_two(),
        }
    }
}

/// The aligned part of a file around some wanted bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlignedWindow {
    /// First byte of the window in the file, a multiple of the alignment.
    pub start: u64,
    /// Length of the window, a multiple of the alignment.
    pub bytes: u64,
    /// Where the wanted bytes start inside the window: below the alignment.
    pub payload_start: u64,
    /// How many bytes are wanted.
    pub payload_bytes: u64,
}

impl AlignedWindow {
    /// The smallest window around `bytes` bytes at `offset`; `None` when it
    /// would pass the end of `u64`.
    ///
    /// # Panics
    ///
    /// When `alignment` is not a power of two.
    #[must_use]
    pub fn around(offset: u64, bytes: u64, alignment: u64) -> Option<Self> {
        assert!(alignment.is_power_of_two());
        let start = align_down(offset, alignment);
        let end = align_up(offset.checked_add(bytes)?, alignment)?;
        Some(Self {
            start,
            bytes: end - start,
            payload_start: offset - start,
            payload_bytes: bytes,
        })
    }

    /// How many bytes of the window a file of this length can fill.
    #[must_use]
    pub fn fillable_bytes(&self, file_bytes: u64) -> u64 {
        file_bytes.saturating_sub(self.start).min(self.bytes)
    }

    /// How many bytes of the window must have arrived before the payload is
    /// whole.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        self.payload_start + self.payload_bytes
    }

    /// Whether a file of this length holds the whole payload.
    #[must_use]
    pub fn payload_fits(&self, file_bytes: u64) -> bool {
        self.payload_bytes == 0 || self.fillable_bytes(file_bytes) >= self.needed_bytes()
    }

    /// Memory that suffices for `payload_bytes` bytes at any offset; `None`
    /// past the end of `u64`.
    ///
    /// # Panics
    ///
    /// When `alignment` is not a power of two.
    #[must_use]
    pub fn capacity_for(payload_bytes: u64, alignment: u64) -> Option<u64> {
        assert!(alignment.is_power_of_two());
        if payload_bytes == 0 {
            return Some(0);
        }
        align_up(payload_bytes.checked_add(alignment - 1)?, alignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(offset: u64, bytes: u64, alignment: u64) {
        let window = AlignedWindow::around(offset, bytes, alignment).unwrap();
        assert_eq!(window.start % alignment, 0);
        assert_eq!(window.bytes % alignment, 0);
        assert_eq!(window.start + window.payload_start, offset);
        assert!(window.payload_start < alignment);
        assert!(window.needed_bytes() <= window.bytes);
        if bytes > 0 {
            assert!(window.bytes - window.needed_bytes() < alignment, "smallest");
            assert!(window.bytes <= AlignedWindow::capacity_for(bytes, alignment).unwrap());
        }
    }

    #[test]
    fn every_offset_within_a_page() {
        for offset in 0..4096 {
            for bytes in [0, 1, 511, 4095, 4096, 4097, 17_547_264] {
                check(offset, bytes, 4096);
                check((5 << 32) + offset, bytes, 4096);
            }
        }
    }

    #[test]
    fn capacity_is_the_exact_worst_case() {
        for bytes in [1, 2, 4095, 4096, 4097, 8192, 12_289] {
            let worst = (0..4096)
                .map(|offset| AlignedWindow::around(offset, bytes, 4096).unwrap().bytes)
                .max();
            assert_eq!(worst, AlignedWindow::capacity_for(bytes, 4096), "{bytes}");
        }
        assert_eq!(AlignedWindow::capacity_for(0, 4096), Some(0));
        assert_eq!(AlignedWindow::capacity_for(u64::MAX, 4096), None);
    }

    #[test]
    fn the_tail_of_a_file() {
        let window = AlignedWindow::around(10_000, 234, 4096).unwrap();
        assert_eq!((window.start, window.bytes), (8192, 4096));
        assert_eq!(window.fillable_bytes(10_234), 2042);
        assert!(window.payload_fits(10_234), "the last byte is there");
        assert!(!window.payload_fits(10_233));
        assert!(!window.payload_fits(100), "the file ends before the window");
        assert_eq!(window.fillable_bytes(100), 0);
        assert!(window.payload_fits(1 << 40));
    }

    #[test]
    fn ends_of_the_number_range_are_refused() {
        assert_eq!(AlignedWindow::around(u64::MAX, 1, 4096), None);
        assert_eq!(AlignedWindow::around(u64::MAX - 4096, 4096, 4096), None);
        assert!(AlignedWindow::around(u64::MAX - 8191, 4096, 4096).is_some());
    }

    #[test]
    fn odd_needs_are_raised_to_powers_of_two() {
        assert_eq!(DioAlignment::at_least(0, 0), DioAlignment::FLOOR);
        assert_eq!(DioAlignment::at_least(4, 512), DioAlignment::FLOOR);
        let large = DioAlignment::at_least(512, 16_384);
        assert_eq!((large.memory_bytes, large.offset_bytes), (4096, 16_384));
    }

    proptest! {
        #[test]
        fn any_window(
            offset in 0..u64::MAX / 4,
            bytes in 0..u64::MAX / 4,
            shift in 0_u32..20,
            file_bytes: u64,
        ) {
            let alignment = 1_u64 << shift;
            check(offset, bytes, alignment);
            let window = AlignedWindow::around(offset, bytes, alignment).unwrap();
            prop_assert_eq!(
                window.payload_fits(file_bytes),
                bytes == 0 || offset + bytes <= file_bytes
            );
        }
    }
}
