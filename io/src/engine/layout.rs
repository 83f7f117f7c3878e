//! How a request becomes reads: arithmetic alone.
//!
//! The ranges of a request land back to back. Each is cut at multiples of the
//! piece size *in the file*, so that every piece's window is aligned and at most
//! one piece long. A piece is read straight into the target where the window
//! lies there aligned and touches nobody else's bytes; elsewhere it goes through a bounce
//! buffer and only its payload is copied. Buffered files need no windows.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::error::EngineError;
use super::request::{SEGMENTS_MAX, Segment};
use crate::direct::{FileId, FileTable};
use crate::units::{align_down, align_up, file, memory};
use crate::window::DioAlignment;

/// One range with everything that decides how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentPlan {
    pub(crate) file: FileId,
    /// Index of the file's device.
    pub(crate) device: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Alignment of direct reads, `None` for a buffered file.
    pub(crate) direct: Option<DioAlignment>,
    /// Where in the target its first byte lands.
    landing: usize,
    /// The part of the target that its windows may cover.
    room: (usize, usize),
}

/// One read of at most one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PiecePlan {
    pub(crate) file: FileId,
    /// `None`: buffered.
    pub(crate) direct: Option<DioAlignment>,
    /// The window in the file.
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// The wanted part of the window.
    pub(crate) payload_start: usize,
    pub(crate) payload_bytes: usize,
    /// Where in the target the wanted part lands.
    pub(crate) landing: usize,
    /// Whether it must be read elsewhere and copied.
    pub(crate) bounce: bool,
}

impl PiecePlan {
    /// The part of the target that this read writes itself.
    pub(crate) fn window_in_target(&self) -> Option<Range<usize>> {
        let start = self.landing.checked_sub(self.payload_start)?;
        (!self.bounce).then_some(start..start + self.bytes)
    }
}

/// A request's ranges in its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    segments: ArrayVec<SegmentPlan, SEGMENTS_MAX>,
    payload: Range<usize>,
    target_address: u64,
}

impl Layout {
    /// Places `segments` in a target of `target_bytes` at `target_address`.
    pub(crate) fn new(
        table: &FileTable,
        segments: &[Segment],
        target_address: u64,
        target_bytes: usize,
    ) -> Result<Self, EngineError> {
        let mut plans = ArrayVec::new();
        for segment in segments {
            let opened = table.get(segment.file);
            let end = segment.offset.checked_add(segment.bytes);
            if end.is_none_or(|end| end > opened.len_bytes()) {
                return Err(EngineError::OutOfRange {
                    path: opened.path().to_path_buf(),
                    offset: segment.offset,
                    bytes: segment.bytes,
                    file_bytes: opened.len_bytes(),
                });
            }
            plans.push(SegmentPlan {
                file: segment.file,
                device: table.device_index(segment.file),
                offset: segment.offset,
                bytes: segment.bytes,
                direct: opened.is_direct().then(|| opened.alignment()),
                landing: 0,
                room: (0, 0),
            });
        }
        Self::place(plans, target_address, target_bytes)
    }

    fn place(
        mut segments: ArrayVec<SegmentPlan, SEGMENTS_MAX>,
        target_address: u64,
        target_bytes: usize,
    ) -> Result<Self, EngineError> {
        // Sum of at most six lengths below 2^63: files end there.
        let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
        if total > file(target_bytes) {
            return Err(EngineError::TargetTooSmall {
                bytes: total,
                target_bytes: file(target_bytes),
            });
        }
        let total = memory(total);
        // The first window starts at the target's start, if there is room for
        // the bytes before the payload: then nothing of it is copied.
        let lead = segments.first().map_or(0, |segment| {
            let unit = segment.direct.unwrap_or(DioAlignment::FLOOR).offset_bytes;
            memory(segment.offset - align_down(segment.offset, unit))
        });
        let start = if lead + total <= target_bytes {
            lead
        } else {
            0
        };
        let last = segments.len().saturating_sub(1);
        let mut landing = start;
        for (index, segment) in segments.iter_mut().enumerate() {
            let end = landing + memory(segment.bytes);
            segment.landing = landing;
            segment.room = (
                if index == 0 { 0 } else { landing },
                if index == last { target_bytes } else { end },
            );
            landing = end;
        }
        Ok(Self {
            segments,
            payload: start..start + total,
            target_address,
        })
    }

    /// The layout of a request that is refused.
    pub(crate) fn empty() -> Self {
        Self {
            segments: ArrayVec::new(),
            payload: 0..0,
            target_address: 0,
        }
    }

    /// Where the bytes lie in the target once all pieces have landed.
    pub(crate) fn payload(&self) -> Range<usize> {
        self.payload.clone()
    }

    pub(crate) fn segments(&self) -> &[SegmentPlan] {
        &self.segments
    }

    /// Number of pieces of a segment.
    pub(crate) fn piece_count(&self, segment: usize, piece_bytes: usize) -> u64 {
        let segment = &self.segments[segment];
        if segment.bytes == 0 {
            return 0;
        }
        let (start, end) = segment.window();
        (end - start).div_ceil(file(piece_bytes))
    }

    /// Piece `index` of a segment.
    pub(crate) fn piece(&self, segment: usize, index: u64, piece_bytes: usize) -> PiecePlan {
        let segment = &self.segments[segment];
        let (start, end) = segment.window();
        let from = start + index * file(piece_bytes);
        let to = (from + file(piece_bytes)).min(end);
        debug_assert!(from < to, "no such piece");
        let payload_from = from.max(segment.offset);
        let payload_to = to.min(segment.offset + segment.bytes);
        let mut plan = PiecePlan {
            file: segment.file,
            direct: segment.direct,
            offset: from,
            bytes: memory(to - from),
            payload_start: memory(payload_from - from),
            payload_bytes: memory(payload_to - payload_from),
            landing: segment.landing + memory(payload_from - segment.offset),
            bounce: false,
        };
        if let Some(alignment) = segment.direct {
            plan.bounce = !plan.window_in_target().is_some_and(|window| {
                segment.room.0 <= window.start
                    && window.end <= segment.room.1
                    && (self.target_address + file(window.start))
                        .is_multiple_of(alignment.memory_bytes)
            });
        }
        plan
    }
}

impl SegmentPlan {
    /// The bytes of the file that are read for it.
    fn window(&self) -> (u64, u64) {
        let end = self.offset + self.bytes;
        match self.direct {
            None => (self.offset, end),
            Some(alignment) => (
                align_down(self.offset, alignment.offset_bytes),
                align_up(end, alignment.offset_bytes).expect("files end below 2^63"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PIECE: usize = 64 << 10;

    fn segment(offset: u64, bytes: u64, direct: bool) -> SegmentPlan {
        SegmentPlan {
            file: FileId(0),
            device: 0,
            offset,
            bytes,
            direct: direct.then_some(DioAlignment::FLOOR),
            landing: 0,
            room: (0, 0),
        }
    }

    fn pieces(layout: &Layout, piece_bytes: usize) -> Vec<(usize, PiecePlan)> {
        (0..layout.segments.len())
            .flat_map(|s| {
                (0..layout.piece_count(s, piece_bytes))
                    .map(move |i| (s, layout.piece(s, i, piece_bytes)))
            })
            .collect()
    }

    #[test]
    fn one_range_with_capacity_is_never_copied() {
        for offset in (0..8192).chain([(7 << 32) + 13]) {
            let bytes = 200_001;
            let capacity = crate::AlignedWindow::capacity_for(bytes, 4096)
                .map(memory)
                .unwrap();
            let plans = ArrayVec::from_iter([segment(offset, bytes, true)]);
            let layout = Layout::place(plans, 1 << 21, capacity).unwrap();
            assert!(
                pieces(&layout, PIECE)
                    .iter()
                    .all(|(_, piece)| !piece.bounce)
            );
            assert_eq!(layout.payload().start, memory(offset % 4096));
        }
    }

    #[test]
    fn a_tight_target_is_filled_through_copies() {
        let plans = ArrayVec::from_iter([segment(100, 200_000, true)]);
        let layout = Layout::place(plans, 1 << 21, 200_000).unwrap();
        assert_eq!(layout.payload(), 0..200_000);
        assert!(pieces(&layout, PIECE).iter().all(|(_, piece)| piece.bounce));
        let plans = ArrayVec::from_iter([segment(100, 200_000, true)]);
        let error = Layout::place(plans, 0, 199_999).unwrap_err();
        assert!(matches!(error, EngineError::TargetTooSmall { .. }));
    }

    #[test]
    fn congruent_ranges_copy_only_their_edges() {
        // Two ranges of one contiguous run, as two tensors of an expert.
        let plans = ArrayVec::from_iter([
            segment(1000, 300_000, true),
            segment(301_000, 300_000, true),
        ]);
        let layout = Layout::place(plans, 1 << 21, 1 << 20).unwrap();
        let all = pieces(&layout, PIECE);
        let copied: Vec<_> = all.iter().filter(|(_, piece)| piece.bounce).collect();
        assert_eq!(
            copied.len(),
            2,
            "the last of the first, the first of the second"
        );
        assert!(all.len() >= 10);
    }

    #[test]
    fn lengths_beyond_32_bits_split_right() {
        let bytes = (5 << 30) + 12_345;
        let plans = ArrayVec::from_iter([segment((9 << 30) + 77, bytes, true)]);
        let layout = Layout::place(plans, 1 << 21, memory(bytes) + 8192).unwrap();
        let count = layout.piece_count(0, 1 << 20);
        assert_eq!(count, 5 * 1024 + 1);
        let total: u64 = (0..count)
            .map(|index| file(layout.piece(0, index, 1 << 20).payload_bytes))
            .sum();
        assert_eq!(total, bytes);
    }

    proptest! {
        /// Pieces cover each range once and in order, land back to back, stay
        /// within limits, and direct writes never touch another's bytes.
        #[test]
        fn pieces_partition_and_never_collide(
            parts in prop::collection::vec((0_u64..300_000, 0_u64..200_000, any::<bool>()), 1..=6),
            slack in 0_usize..10_000,
            address in 0_u64..4,
        ) {
            let plans: ArrayVec<_, 6> =
                parts.iter().map(|&(o, b, d)| segment(o, b, d)).collect();
            let total: u64 = parts.iter().map(|part| part.1).sum();
            let target_bytes = memory(total) + slack;
            let layout = Layout::place(plans, address * 512, target_bytes).unwrap();
            let mut expected_landing = layout.payload().start;
            let mut written: Vec<Range<usize>> = Vec::new();
            let all = pieces(&layout, PIECE);
            for (s, segment) in layout.segments().iter().enumerate() {
                let mut at = segment.offset;
                for (_, piece) in all.iter().filter(|(of, _)| *of == s) {
                    prop_assert!(piece.bytes <= PIECE && piece.payload_bytes > 0);
                    prop_assert!(piece.payload_start + piece.payload_bytes <= piece.bytes);
                    prop_assert_eq!(piece.offset + file(piece.payload_start), at);
                    prop_assert_eq!(piece.landing, expected_landing);
                    at += file(piece.payload_bytes);
                    expected_landing += piece.payload_bytes;
                    if let Some(alignment) = piece.direct {
                        prop_assert!(piece.offset.is_multiple_of(alignment.offset_bytes));
                        prop_assert!(file(piece.bytes).is_multiple_of(alignment.offset_bytes));
                    }
                    let range = match piece.window_in_target() {
                        Some(window) => {
                            if piece.direct.is_some() {
                                prop_assert!((address * 512 + file(window.start)).is_multiple_of(4096));
                            }
                            window
                        }
                        None => piece.landing..piece.landing + piece.payload_bytes,
                    };
                    prop_assert!(range.end <= target_bytes);
                    for other in &written {
                        prop_assert!(range.end <= other.start || other.end <= range.start);
                    }
                    written.push(range);
                }
                prop_assert_eq!(at, segment.offset + segment.bytes);
            }
            prop_assert_eq!(expected_landing, layout.payload().end);
        }
    }
}
