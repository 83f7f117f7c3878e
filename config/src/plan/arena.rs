//! How much room bytes take once direct reads and pages have had their say.

/// Alignment rules of the arenas that reads land in.
///
/// A direct read starts and ends on an alignment boundary, while a block may
/// start anywhere in its file: the place it is read into must hold the whole
/// *window* around it. An arena is reserved in whole granules (pages).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaLayout {
    /// Where direct reads may start and end, in bytes; 1 for buffered reads.
    pub alignment_bytes: u64,
    /// What an arena's size is a multiple of, in bytes.
    pub granule_bytes: u64,
}

impl ArenaLayout {
    /// No alignment and no pages: every byte counts once.
    pub const EXACT: Self = Self {
        alignment_bytes: 1,
        granule_bytes: 1,
    };

    /// Direct reads into ordinary pages.
    pub const PAGES_4K: Self = Self {
        alignment_bytes: 4096,
        granule_bytes: 4096,
    };

    /// Direct reads into huge pages.
    pub const PAGES_2M: Self = Self {
        alignment_bytes: 4096,
        granule_bytes: 2 << 20,
    };

    /// The largest aligned window around `bytes` that start anywhere.
    ///
    /// ```
    /// use k3_config::ArenaLayout;
    /// let layout = ArenaLayout::PAGES_4K;
    /// assert_eq!(layout.window_bytes(0), 0);
    /// assert_eq!(layout.window_bytes(1), 4096);
    /// // The last byte of one page and the first of the next.
    /// assert_eq!(layout.window_bytes(2), 8192);
    /// assert_eq!(layout.window_bytes(17_547_264), 17_547_264 + 4096);
    /// ```
    ///
    /// # Panics
    ///
    /// If the alignment is 0 or the window leaves 64 bits: no file holds a
    /// tensor of that size.
    #[must_use]
    pub fn window_bytes(self, bytes: u64) -> u64 {
        assert!(
            self.alignment_bytes > 0,
            "an alignment is at least one byte"
        );
        let Some(beyond_first) = bytes.checked_sub(1) else {
            return 0;
        };
        let units = beyond_first.div_ceil(self.alignment_bytes) + 1;
        let window = units.checked_mul(self.alignment_bytes);
        let window = window.expect("a block is far smaller than 2^64 bytes");
        assert!(window >= bytes, "a window holds its block");
        window
    }

    /// `bytes` rounded up to whole granules.
    pub(super) fn reserve(self, bytes: u128) -> u128 {
        assert!(self.granule_bytes > 0, "a granule is at least one byte");
        let reserved = bytes.next_multiple_of(u128::from(self.granule_bytes));
        assert!(reserved >= bytes, "an arena holds what it is for");
        reserved
    }

    /// The whole granules within `bytes`.
    pub(super) fn whole_granules(self, bytes: u128) -> u128 {
        assert!(self.granule_bytes > 0, "a granule is at least one byte");
        let whole = bytes - bytes % u128::from(self.granule_bytes);
        assert!(whole <= bytes, "rounding down does not add");
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_the_worst_case_over_all_offsets() {
        let layout = ArenaLayout {
            alignment_bytes: 8,
            granule_bytes: 8,
        };
        for bytes in 0..100u64 {
            let worst = (0..8)
                .map(|offset: u64| {
                    (offset + bytes).next_multiple_of(8)
                        - if bytes == 0 {
                            (offset + bytes).next_multiple_of(8)
                        } else {
                            0
                        }
                })
                .max();
            assert_eq!(layout.window_bytes(bytes), worst.unwrap(), "{bytes}");
            assert_eq!(ArenaLayout::EXACT.window_bytes(bytes), bytes);
        }
    }

    #[test]
    fn granules_round_up_and_down() {
        let layout = ArenaLayout::PAGES_2M;
        assert_eq!(layout.reserve(1), 2 << 20);
        assert_eq!(layout.reserve(2 << 20), 2 << 20);
        assert_eq!(layout.whole_granules((2 << 20) - 1), 0);
        assert_eq!(layout.whole_granules(5 << 20), 4 << 20);
    }
}
