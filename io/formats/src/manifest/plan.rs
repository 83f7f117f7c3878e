//! From an index to the ranges to be hashed.

use super::{
    FileKind, HEADER_BYTES, Manifest, ManifestFile, ManifestRange, ROOT_OFFSET, RangeContent,
};
use crate::experts::{EXPERT_PARTS, ExpertPart, ExpertRef};
use crate::identity::Identity;
use crate::safetensors::ShardIndex;

/// The files and ranges of a checkpoint whose hashes are still to come.
#[derive(Debug, Clone)]
pub struct ManifestPlan {
    files: Vec<ManifestFile>,
    ranges: Vec<ManifestRange>,
}

/// A span of a shard before it is sorted.
struct Span {
    offset: u64,
    bytes: u64,
    content: RangeContent,
}

impl ManifestPlan {
    /// Cuts the shards of `index` into ranges, and takes each of `others` (name
    /// and length) as one.
    ///
    /// # Panics
    ///
    /// When the tensors of a shard do not fill it, or two shards have one name:
    /// the index admits neither.
    pub fn new(index: &ShardIndex, mut others: Vec<(String, u64)>) -> Self {
        let mut spans: Vec<Vec<Span>> = index.shards().iter().map(|_| Vec::new()).collect();
        for (name, tensor) in index.tensors() {
            spans[usize::from(tensor.shard)].push(Span {
                offset: tensor.offset,
                bytes: tensor.bytes,
                content: RangeContent::Tensor(name.to_owned()),
            });
        }
        push_experts(index, &mut spans);
        let mut plan = Self {
            files: Vec::with_capacity(spans.len() + others.len()),
            ranges: Vec::with_capacity(spans.iter().map(|spans| spans.len() + 1).sum()),
        };
        let mut order: Vec<usize> = (0..spans.len()).collect();
        order.sort_by_key(|&shard| &index.shards()[shard].name);
        for shard in order {
            let info = &index.shards()[shard];
            let mut spans = std::mem::take(&mut spans[shard]);
            spans.push(Span {
                offset: 0,
                bytes: info.data_offset,
                content: RangeContent::Header,
            });
            spans.retain(|span| span.bytes > 0);
            spans.sort_unstable_by_key(|span| span.offset);
            plan.push_file(info.name.clone(), info.file_bytes, FileKind::Shard, spans);
        }
        others.sort();
        for (name, bytes) in others {
            let whole = Span {
                offset: 0,
                bytes,
                content: RangeContent::File,
            };
            let spans = if bytes == 0 { vec![] } else { vec![whole] };
            plan.push_file(name, bytes, FileKind::Other, spans);
        }
        plan
    }

    fn push_file(&mut self, name: String, bytes: u64, kind: FileKind, spans: Vec<Span>) {
        let file = self.files.len();
        if let Some(last) = self.files.last() {
            assert!(
                (last.kind, &last.name) < (kind, &name),
                "files are unique and in order"
            );
        }
        self.files.push(ManifestFile {
            name,
            bytes,
            kind,
            first_range: self.ranges.len(),
            range_count: spans.len(),
        });
        let mut end = 0;
        for span in spans {
            assert_eq!(span.offset, end, "the ranges of a file leave no gap");
            end += span.bytes;
            self.ranges.push(ManifestRange {
                file,
                offset: span.offset,
                bytes: span.bytes,
                content: span.content,
                hash: [0; 32],
            });
        }
        assert_eq!(end, bytes, "the ranges of a file fill it");
    }

    /// The files, as the manifest will list them.
    pub fn files(&self) -> &[ManifestFile] {
        &self.files
    }

    /// The ranges, as the manifest will list them; their hashes are not set.
    pub fn ranges(&self) -> &[ManifestRange] {
        &self.ranges
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The manifest, given the hash of each range.
    ///
    /// # Panics
    ///
    /// When there are more or fewer hashes than ranges.
    pub fn finish(mut self, identity: Identity, hashes: &[[u8; 32]]) -> Manifest {
        assert_eq!(hashes.len(), self.ranges.len(), "a hash for each range");
        for (range, hash) in self.ranges.iter_mut().zip(hashes) {
            range.hash = *hash;
        }
        let mut manifest = Manifest {
            identity,
            root: [0; 32],
            files: self.files,
            ranges: self.ranges,
        };
        let bytes = manifest.to_bytes();
        manifest
            .root
            .copy_from_slice(&bytes[ROOT_OFFSET..HEADER_BYTES]);
        manifest
    }
}

fn push_experts(index: &ShardIndex, spans: &mut [Vec<Span>]) {
    let experts = index.experts();
    for layer in 0..experts.layer_count() {
        for expert in 0..experts.experts_of_layer(layer) {
            let entry = experts.get(layer, expert).expect("ids are dense");
            // Both are 16-bit numbers in the names they come from.
            let number = |value: usize| u16::try_from(value).expect("a 16-bit number");
            push_expert(&entry, number(layer), number(expert), spans);
        }
    }
}

/// An expert's tensors, neighbours in one span.
fn push_expert(entry: &ExpertRef<'_>, layer: u16, expert: u16, spans: &mut [Vec<Span>]) {
    let mut open: Option<(usize, Span)> = None;
    for (number, part) in (0_u8..).zip(ExpertPart::ALL) {
        let tensor = entry.part(part);
        let shard = usize::from(tensor.shard);
        if let Some((last, span)) = &mut open
            && *last == shard
            && span.offset + span.bytes == tensor.offset
            && let RangeContent::Expert { part_count, .. } = &mut span.content
        {
            span.bytes += tensor.bytes;
            *part_count += 1;
            continue;
        }
        let next = Span {
            offset: tensor.offset,
            bytes: tensor.bytes,
            content: RangeContent::Expert {
                layer,
                expert,
                first_part: number,
                part_count: 1,
            },
        };
        if let Some((shard, span)) = open.replace((shard, next)) {
            spans[shard].push(span);
        }
    }
    if let Some((shard, span)) = open {
        spans[shard].push(span);
    }
    debug_assert_eq!(ExpertPart::ALL.len(), EXPERT_PARTS);
}
