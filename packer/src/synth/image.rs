//! A shard's bytes, any range of them.

use std::ops::Range;

use k3_formats::synth::{ShardLayout, SynthValues};

use super::plan::{Content, DISK_BLOCK_BYTES};

/// Bytes generated and written at once.
pub(super) const PIECE_BYTES: usize = 4 << 20;

/// A shard: its header, and where its tensors lie.
#[derive(Debug)]
pub(super) struct ShardImage {
    layout: ShardLayout,
    header: Vec<u8>,
    /// Where each tensor begins in the file, and where the last ends.
    starts: Vec<u64>,
}

impl ShardImage {
    pub(super) fn new(layout: ShardLayout) -> Self {
        let header = layout.header();
        let mut end = header.len() as u64;
        let mut starts = vec![end];
        for tensor in &layout.tensors {
            end += tensor.size_bytes();
            starts.push(end);
        }
        Self {
            layout,
            header,
            starts,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.layout.name
    }

    /// Length of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// The ranges to be written, in order, each at most [`PIECE_BYTES`] long:
    /// the whole file in equal pieces, or header and vectors.
    pub(super) fn ranges(&self, content: Content) -> Vec<Range<u64>> {
        match content {
            Content::Everything => cut(0..self.file_bytes()).collect(),
            Content::VectorsOnly => {
                let header = 0..self.header.len() as u64;
                let mut merged: Vec<_> = std::iter::once(header).collect();
                for (index, tensor) in self.layout.tensors.iter().enumerate() {
                    if !tensor.role.is_vector() {
                        continue;
                    }
                    let range = self.starts[index]..self.starts[index + 1];
                    match merged.last_mut() {
                        Some(last) if last.end == range.start => last.end = range.end,
                        _ => merged.push(range),
                    }
                }
                merged.into_iter().flat_map(cut).collect()
            }
        }
    }

    /// Fills `out` with the file's bytes from `offset` on, zeros after its end.
    pub(super) fn fill(&self, values: &SynthValues, offset: u64, out: &mut [u8]) {
        let mut position = offset;
        let mut rest = out;
        while !rest.is_empty() {
            // The header counts as what stands before tensor 0.
            let part = self.starts.partition_point(|start| *start <= position);
            let Some(end) = self.starts.get(part) else {
                rest.fill(0);
                return;
            };
            let left = usize::try_from(end - position).unwrap_or(usize::MAX);
            let (begin, after) = rest.split_at_mut(left.min(rest.len()));
            match part.checked_sub(1) {
                None => {
                    let from = self.header.len() - left;
                    begin.copy_from_slice(&self.header[from..from + begin.len()]);
                }
                Some(index) => {
                    let tensor = &self.layout.tensors[index];
                    values.fill(tensor, position - self.starts[index], begin);
                }
            }
            position += begin.len() as u64;
            rest = after;
        }
    }
}

fn cut(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let size = PIECE_BYTES as u64;
    let count = (range.end - range.start).div_ceil(size);
    (0..count).map(move |index| {
        let start = range.start + index * size;
        start..range.end.min(start + size)
    })
}

pub(super) fn range_bytes(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Most disk space that these ranges of a file take.
pub(super) fn disk_bytes(ranges: &[Range<u64>]) -> u64 {
    let block = DISK_BLOCK_BYTES;
    let blocks = ranges
        .iter()
        .map(|range| range.end.div_ceil(block) - range.start / block);
    blocks.sum::<u64>() * block
}

#[cfg(test)]
mod tests {
    use k3_formats::synth::{Resizing, Vision, released_config, shards};

    use super::*;

    fn image() -> ShardImage {
        let mut base = released_config();
        base.hidden_size = 96;
        base.kda_heads = 3;
        base.kda_head_dim = 8;
        base.routed_expert_hidden_size = 64;
        base.moe_intermediate_size = 32;
        let resizing = Resizing {
            layer_count: Some(3),
            expert_count: Some(5),
        };
        let config = resizing.apply(&base).unwrap();
        ShardImage::new(shards(&config, Vision::Left).nth(1).unwrap())
    }

    #[test]
    fn any_cut_gives_the_same_bytes() {
        let (image, values) = (image(), SynthValues::new(3));
        let size = usize::try_from(image.file_bytes()).unwrap();
        let mut whole = vec![0; size + 5];
        image.fill(&values, 0, &mut whole);
        assert_eq!(whole[..image.header.len()], image.header);
        assert_eq!(whole[size..], [0; 5]);
        for step in [1009, 4096] {
            for (index, expected) in whole.chunks(step).enumerate() {
                let mut part = vec![1; expected.len()];
                image.fill(&values, (index * step) as u64, &mut part);
                assert_eq!(part, expected, "{step} bytes at {index}");
            }
        }
    }

    #[test]
    fn ranges_cover_what_is_written_and_no_more() {
        let image = image();
        let whole: u64 = image
            .ranges(Content::Everything)
            .iter()
            .map(range_bytes)
            .sum();
        assert_eq!(whole, image.file_bytes());
        let vectors = image
            .layout
            .tensors
            .iter()
            .filter(|tensor| tensor.role.is_vector());
        let vector_bytes: u64 = vectors.map(|tensor| tensor.size_bytes()).sum();
        let ranges = image.ranges(Content::VectorsOnly);
        let sum: u64 = ranges.iter().map(range_bytes).sum();
        assert_eq!(sum, image.header.len() as u64 + vector_bytes);
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        assert_eq!(disk_bytes(&[0..1, 4095..4097, 8192..12_288]), 4 * 4096);
    }
}
