//! Weights that lie in memory, more of them than any cache holds.
//!
//! Compute alone needs weights that come from memory as they do in a run, where
//! a block was just written by the disk, and not from a cache; and it needs them
//! to be such that the kernels do what they do in a run. So the buffers hold
//! blocks and experts of the checkpoint, and every request takes the next bytes
//! of its kind, around and around.

use std::ops::ControlFlow;

use k3_formats::Dtype;
use k3_io::{HugeArena, PagePolicy, ReadLease, SlotArena};
use k3_models::{Block, BlockIndex, ExpertDemand, ExpertKey, ModelFamily, Sweep};
use k3_runtime::{Checkpoint, RunError, WeightSource};

use super::error::BenchError;
use crate::units::memory;

/// Embedding rows that take turns.
const ROWS_MAX: u64 = 64;

/// Hands out weights from memory, whichever are next.
#[derive(Debug)]
pub(super) struct CyclingSource {
    /// By type of element: blocks are never read as another type.
    trunk: Vec<(Dtype, Cycle)>,
    /// Type and size of every block.
    blocks: Vec<(Dtype, usize)>,
    experts: Option<Cycle>,
    expert_bytes: usize,
    rows: Cycle,
    row_bytes: usize,
    /// What the memory of blocks and experts had to do without.
    fallbacks: Vec<String>,
    /// Demanded and not taken, last first.
    pending: Vec<ExpertKey>,
}

/// Bytes that are handed out in turn.
#[derive(Debug)]
struct Cycle {
    bytes: ReadLease,
    next: usize,
}

impl Cycle {
    /// The next `bytes`, in one piece.
    fn take(&mut self, bytes: usize) -> &[u8] {
        if self.next + bytes > self.bytes.len() {
            self.next = 0;
        }
        let start = self.next;
        self.next += bytes;
        &self.bytes[start..self.next]
    }
}

/// Something to copy from the checkpoint: parts of shards, back to back.
type Parts = Vec<(u16, u64, u64)>;

/// What each kind of weights is filled with.
struct Fillings {
    trunk: Vec<(Dtype, Parts)>,
    experts: Parts,
    rows: Parts,
}

impl Fillings {
    /// Half of `bytes` for blocks, half for experts; no more than there is and
    /// no less than one of each.
    fn choose<M: ModelFamily>(model: &M, checkpoint: &Checkpoint, bytes: u64) -> Self {
        let program = model.program();
        let mut dtypes: Vec<Dtype> = Vec::new();
        for block in &program.blocks {
            if !dtypes.contains(&block.dtype) {
                dtypes.push(block.dtype);
            }
        }
        let total: u64 = program.blocks.iter().map(|block| block.bytes).sum();
        let trunk = dtypes.into_iter().map(|dtype| {
            let of_type = || {
                program
                    .blocks
                    .iter()
                    .filter(move |block| block.dtype == dtype)
            };
            let share: u64 = of_type().map(|block| block.bytes).sum();
            let wanted = scaled(bytes / 2, share, total);
            (dtype, blocks(of_type(), wanted))
        });
        let row_bytes = program.embedding_row_bytes();
        let embedding = &program.embedding;
        let rows = ROWS_MAX.min(embedding.bytes / row_bytes);
        Self {
            trunk: trunk.collect(),
            experts: experts(model, checkpoint, bytes / 2),
            rows: vec![(embedding.shard, embedding.offset, rows * row_bytes)],
        }
    }

    fn total_bytes(&self) -> u64 {
        let trunk = self.trunk.iter().flat_map(|(_, parts)| parts);
        let all = trunk.chain(&self.experts).chain(&self.rows);
        all.map(|(_, _, bytes)| bytes).sum()
    }
}

/// `value * part / whole` without overflow.
fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(scaled).expect("a part of the value")
}

/// Blocks from the first on, until there are `wanted` bytes of them and the
/// largest fits.
fn blocks<'b>(blocks: impl Iterator<Item = &'b Block> + Clone, wanted: u64) -> Parts {
    let largest = blocks.clone().map(|block| block.bytes).max().unwrap_or(0);
    let mut left = wanted.max(largest);
    let mut parts = Parts::new();
    for block in blocks {
        if left == 0 {
            break;
        }
        parts.push((block.shard, block.offset, block.bytes));
        left = left.saturating_sub(block.bytes);
    }
    parts
}

/// Whole experts, one of each layer before another of the first.
fn experts<M: ModelFamily>(model: &M, checkpoint: &Checkpoint, wanted: u64) -> Parts {
    let footprint = model.footprint();
    let directory = checkpoint.index().experts();
    let layers = model.program().steps.iter().filter_map(|step| match step {
        k3_models::Step::Route(layer) => Some(layer.index()),
        _ => None,
    });
    let layers: Vec<usize> = layers.collect();
    let per_layer = usize::try_from(footprint.experts_per_layer).expect("32 bits fit");
    let keys = (0..per_layer).flat_map(|expert| layers.iter().map(move |&layer| (layer, expert)));
    let count = wanted.div_ceil(footprint.expert_bytes.max(1)).max(1);
    let mut parts = Parts::new();
    for (layer, expert) in keys.take(memory(count)) {
        let place = directory.get(layer, expert);
        let place = place.expect("the index holds every expert of the model");
        let segments = place.segments();
        let segments = segments.iter();
        parts.extend(segments.map(|segment| (segment.shard, segment.offset, segment.bytes)));
    }
    parts
}

impl CyclingSource {
    /// Fills buffers of about `bytes` from `checkpoint`; `progress` is told
    /// bytes done and of how many, and may end it.
    pub(super) fn load<M: ModelFamily>(
        model: &M,
        checkpoint: &Checkpoint,
        bytes: u64,
        pages: PagePolicy,
        mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Self, BenchError> {
        let fillings = Fillings::choose(model, checkpoint, bytes);
        let total = fillings.total_bytes();
        let mut done = 0;
        let mut fallbacks = Vec::new();
        let mut fill = |parts: &Parts, pages| -> Result<Cycle, BenchError> {
            let bytes: u64 = parts.iter().map(|(_, _, bytes)| bytes).sum();
            let slot = memory(bytes.next_multiple_of(4096));
            let (arena, report) = HugeArena::reserve(slot, pages)?;
            let lacked = report.fallbacks.into_iter();
            fallbacks.extend(lacked.map(|reason| format!("weights in turn: {reason}")));
            let slots = SlotArena::new(&arena, 0..slot, slot)?;
            let mut target = slots.acquire_any().expect("a fresh slot");
            let mut at = 0;
            for &(shard, offset, bytes) in parts {
                let end = at + memory(bytes);
                checkpoint.read(shard.into(), offset, &mut target[at..end])?;
                at = end;
                done += bytes;
                if progress(done, total).is_break() {
                    return Err(RunError::Cancelled.into());
                }
            }
            let bytes = target.freeze(0..at);
            Ok(Cycle { bytes, next: 0 })
        };
        let mut trunk = Vec::new();
        for (dtype, parts) in &fillings.trunk {
            trunk.push((*dtype, fill(parts, pages)?));
        }
        let has_experts = !fillings.experts.is_empty();
        let experts = has_experts.then(|| fill(&fillings.experts, pages));
        let (experts, rows) = (
            experts.transpose()?,
            fill(&fillings.rows, PagePolicy::Small)?,
        );
        // Both are refused alike.
        fallbacks.dedup();
        let program = model.program();
        let blocks = program.blocks.iter();
        Ok(Self {
            trunk,
            blocks: blocks
                .map(|block| (block.dtype, memory(block.bytes)))
                .collect(),
            experts,
            expert_bytes: memory(model.footprint().expert_bytes),
            rows,
            row_bytes: memory(program.embedding_row_bytes()),
            fallbacks,
            pending: Vec::new(),
        })
    }

    /// What their memory had to do without.
    pub(super) fn fallbacks(&self) -> &[String] {
        &self.fallbacks
    }

    /// The blocks and the experts that take turns.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &[u8]> {
        let trunk = self.trunk.iter().map(|(_, cycle)| &*cycle.bytes);
        trunk.chain(self.experts.iter().map(|cycle| &*cycle.bytes))
    }

    /// Bytes of blocks and experts that take turns.
    pub(super) fn buffer_bytes(&self) -> u64 {
        self.buffers().map(|bytes| bytes.len() as u64).sum()
    }
}

impl WeightSource for CyclingSource {
    type Lease<'a> = &'a [u8];

    fn begin_sweep(&mut self, _sweep: &Sweep) -> Result<(), RunError> {
        // A cancelled sweep may have left experts that nobody took.
        self.pending.clear();
        Ok(())
    }

    fn embedding_row(&mut self, _token: u32) -> Result<&[u8], RunError> {
        Ok(self.rows.take(self.row_bytes))
    }

    fn block(&mut self, index: BlockIndex) -> Result<&[u8], RunError> {
        let (dtype, bytes) = self.blocks[index.index()];
        let of_type = self.trunk.iter_mut().find(|(kind, _)| *kind == dtype);
        let (_, cycle) = of_type.expect("a buffer for every type");
        Ok(cycle.take(bytes))
    }

    fn demand(&mut self, demand: &ExpertDemand) -> Result<(), RunError> {
        assert!(self.pending.is_empty(), "the layer before has been served");
        self.pending.extend(demand.union.iter().rev());
        Ok(())
    }

    fn next_expert(&mut self) -> Result<Option<(ExpertKey, &[u8])>, RunError> {
        let Some(key) = self.pending.pop() else {
            return Ok(None);
        };
        let experts = self.experts.as_mut();
        let experts = experts.expect("only models with experts route");
        Ok(Some((key, experts.take(self.expert_bytes))))
    }
}
