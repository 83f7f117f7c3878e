//! One expert's place in the shards.

use std::ops::Deref;

use super::name::{EXPERT_PARTS, ExpertPart};
use crate::dtype::Dtype;
use crate::tensor::{Shape, TensorRef};

/// One expert tensor in 24 bytes. Layer, expert and part are the sort key of
/// the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartEntry {
    pub(crate) offset: u64,
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) layer: u16,
    pub(crate) expert: u16,
    pub(crate) shard: u16,
    pub(crate) part: ExpertPart,
    pub(crate) dtype: Dtype,
}

impl PartEntry {
    pub(crate) fn bytes(&self) -> u64 {
        // Checked when the header was read: this is the length of its range.
        u64::from(self.rows) * u64::from(self.columns) * self.dtype.size_bytes()
    }

    pub(crate) fn tensor(&self) -> TensorRef {
        let dimensions = [u64::from(self.rows), u64::from(self.columns)];
        TensorRef {
            shard: self.shard,
            dtype: self.dtype,
            shape: Shape::new(&dimensions).unwrap_or(Shape::SCALAR),
            offset: self.offset,
            bytes: self.bytes(),
        }
    }
}

/// The six tensors of one routed expert.
#[derive(Debug, Clone, Copy)]
pub struct ExpertRef<'a> {
    /// Exactly [`EXPERT_PARTS`] entries in the order of [`ExpertPart::ALL`].
    parts: &'a [PartEntry],
}

impl<'a> ExpertRef<'a> {
    pub(crate) fn new(parts: &'a [PartEntry]) -> Self {
        assert_eq!(parts.len(), EXPERT_PARTS, "parts of an expert");
        Self { parts }
    }

    /// Where one of the six tensors lies.
    pub fn part(&self, part: ExpertPart) -> TensorRef {
        self.parts[part as usize].tensor()
    }

    /// Bytes of each tensor, in the order of [`ExpertPart::ALL`]: with it, the
    /// parts' ranges within the concatenation of [`ExpertRef::segments`].
    pub fn part_bytes(&self) -> [u64; EXPERT_PARTS] {
        ExpertPart::ALL.map(|part| self.parts[part as usize].bytes())
    }

    /// Bytes of all six tensors.
    pub fn total_bytes(&self) -> u64 {
        self.part_bytes().iter().sum()
    }

    /// The file ranges that hold the six tensors in the order of
    /// [`ExpertPart::ALL`], neighbours merged: one range in released shards.
    pub fn segments(&self) -> Segments {
        let mut segments = Segments {
            segments: [Segment::default(); EXPERT_PARTS],
            count: 0,
        };
        for entry in self.parts {
            segments.push(Segment {
                shard: entry.shard,
                offset: entry.offset,
                bytes: entry.bytes(),
            });
        }
        segments
    }

    /// Whether one read brings the whole expert.
    pub fn is_contiguous(&self) -> bool {
        self.segments().len() == 1
    }
}

/// A range of a shard file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segment {
    /// Index of the shard.
    pub shard: u16,
    /// First byte, counted from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// One to six ranges; a slice without an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    segments: [Segment; EXPERT_PARTS],
    count: usize,
}

impl Segments {
    fn push(&mut self, next: Segment) {
        if let Some(last) = self.segments[..self.count].last_mut()
            && last.shard == next.shard
            && last.offset + last.bytes == next.offset
        {
            last.bytes += next.bytes;
            return;
        }
        self.segments[self.count] = next;
        self.count += 1;
    }
}

impl Deref for Segments {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        &self.segments[..self.count]
    }
}
