//! The source that keeps every weight in memory.
//!
//! The reference for every other source, and the fastest one where a model
//! fits. Trunk and experts are each one allocation, sized before anything is
//! read.

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use k3_models::{BlockIndex, ExpertDemand, ExpertKey, ModelFamily, Sweep, SweepProgram};

use crate::checkpoint::Checkpoint;
use crate::error::RunError;
use crate::memory::{MemoryNeed, check_memory};
use crate::report::TrunkReport;
use crate::session::SessionBytes;
use crate::source::WeightSource;

/// Bytes read at once: a fraction of a second on any disk.
const PIECE_BYTES: usize = 16 << 20;

/// Every weight of a model, in memory.
#[derive(Debug)]
pub struct ResidentSource {
    embedding: Vec<u8>,
    embedding_row_bytes: usize,
    trunk: Vec<u8>,
    /// Every block in `trunk`.
    blocks: Vec<Range<usize>>,
    experts: Vec<u8>,
    expert_bytes: usize,
    /// First expert of each layer in `experts`, counted in experts.
    layer_starts: Vec<Option<usize>>,
    pending: Vec<ExpertKey>,
    trunk_report: Option<TrunkReport>,
}

impl ResidentSource {
    /// Reads everything `model` needs from `checkpoint`, on a machine that is
    /// to hold a session of `beside` as well. `progress` is told bytes read and
    /// bytes in all, at the start and after every piece, and may end the load.
    ///
    /// # Errors
    ///
    /// [`RunError::DoesNotFit`] before anything is reserved when weights and
    /// session exceed the memory available; [`RunError::Cancelled`] when
    /// `progress` breaks; failed reads.
    pub fn load<M: ModelFamily>(
        model: &M,
        checkpoint: &Checkpoint,
        layer_count: usize,
        beside: SessionBytes,
        progress: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Self, RunError> {
        let program = model.program();
        let footprint = model.footprint();
        let experts = checkpoint.index().experts();
        let expert_total: u64 = (0..layer_count)
            .map(|layer| experts.experts_of_layer(layer) as u64 * footprint.expert_bytes)
            .sum();
        let read_bytes = program.blocks.iter().map(|block| block.place.read_bytes);
        let weights_bytes = program.embedding.bytes + read_bytes.sum::<u64>() + expert_total;
        let need = MemoryNeed {
            weights_bytes,
            state_bytes: beside.state_bytes,
            workspace_bytes: beside.workspace_bytes,
        };
        check_memory(checkpoint.path(), need)?;
        let mut pieces = Pieces {
            checkpoint,
            progress,
            done: 0,
            total: weights_bytes,
        };
        pieces.note(0)?;
        let mut source = Self::reserve(program, footprint.expert_bytes, expert_total);
        let embedding = &program.embedding;
        let shard = embedding.shard.into();
        pieces.read(shard, embedding.offset, &mut source.embedding)?;
        let checks = checkpoint.trunk().and_then(|trunk| trunk.checks(program));
        let mut report = checkpoint.trunk().map(|trunk| trunk.report(program));
        for (index, block) in program.blocks.iter().enumerate() {
            let (start, place) = (source.blocks[index].start, &block.place);
            let target = &mut source.trunk[start..start + size(place.read_bytes)];
            pieces.read(place.file, place.offset, target)?;
            if let (Some(checks), Some(report)) = (&checks, &mut report) {
                let start = Instant::now();
                checks.check(index, target)?;
                report.add_check(target.len() as u64, start.elapsed());
            }
        }
        source.load_experts(&mut pieces, layer_count)?;
        source.trunk_report = report;
        Ok(source)
    }

    /// The trunk in files of its own that was read; `None` where it was read
    /// from the shards.
    #[must_use]
    pub fn trunk_report(&self) -> Option<&TrunkReport> {
        self.trunk_report.as_ref()
    }

    fn reserve(program: &SweepProgram, expert_bytes: u64, expert_total: u64) -> Self {
        let mut blocks = Vec::with_capacity(program.blocks.len());
        let mut total = 0;
        for block in &program.blocks {
            blocks.push(total..total + size(block.bytes));
            total += size(block.place.read_bytes);
        }
        Self {
            embedding: vec![0; size(program.embedding.bytes)],
            embedding_row_bytes: size(program.embedding_row_bytes()),
            trunk: vec![0; total],
            blocks,
            experts: vec![0; size(expert_total)],
            expert_bytes: size(expert_bytes),
            layer_starts: Vec::new(),
            pending: Vec::new(),
            trunk_report: None,
        }
    }

    fn load_experts<F: FnMut(u64, u64) -> ControlFlow<()>>(
        &mut self,
        pieces: &mut Pieces<'_, F>,
        layer_count: usize,
    ) -> Result<(), RunError> {
        let experts = pieces.checkpoint.index().experts();
        let mut next = 0;
        for layer in 0..layer_count {
            let count = experts.experts_of_layer(layer);
            self.layer_starts.push((count > 0).then_some(next));
            for expert in 0..count {
                let place = experts.get(layer, expert).expect("the index has no gaps");
                let mut at = next * self.expert_bytes;
                for segment in &*place.segments() {
                    let target = &mut self.experts[at..at + size(segment.bytes)];
                    at += target.len();
                    pieces.read(segment.shard.into(), segment.offset, target)?;
                }
                next += 1;
            }
        }
        Ok(())
    }

    fn expert(&self, key: ExpertKey) -> &[u8] {
        let first = self.layer_starts[key.layer.index()].expect("only MoE layers route");
        let start = (first + usize::from(key.expert)) * self.expert_bytes;
        &self.experts[start..start + self.expert_bytes]
    }
}

impl WeightSource for ResidentSource {
    type Lease<'a> = &'a [u8];

    fn begin_sweep(&mut self, _sweep: &Sweep) -> Result<(), RunError> {
        // A cancelled sweep may have left experts that nobody took.
        self.pending.clear();
        Ok(())
    }

    fn embedding_row(&mut self, token: u32) -> Result<&[u8], RunError> {
        let start = token as usize * self.embedding_row_bytes;
        Ok(&self.embedding[start..start + self.embedding_row_bytes])
    }

    fn block(&mut self, index: BlockIndex) -> Result<&[u8], RunError> {
        Ok(&self.trunk[self.blocks[index.index()].clone()])
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
        Ok(Some((key, self.expert(key))))
    }
}

/// Reads in pieces and tells after each, so that a stop takes effect within
/// one, however large the tensor is.
struct Pieces<'c, F> {
    checkpoint: &'c Checkpoint,
    progress: F,
    done: u64,
    total: u64,
}

impl<F: FnMut(u64, u64) -> ControlFlow<()>> Pieces<'_, F> {
    fn read(&mut self, file: u32, offset: u64, target: &mut [u8]) -> Result<(), RunError> {
        let mut at = offset;
        for piece in target.chunks_mut(PIECE_BYTES) {
            self.checkpoint.read(file, at, piece)?;
            at += piece.len() as u64;
            self.note(piece.len())?;
        }
        Ok(())
    }

    fn note(&mut self, bytes: usize) -> Result<(), RunError> {
        self.done += bytes as u64;
        match (self.progress)(self.done, self.total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(RunError::Cancelled),
        }
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("checked against the machine's memory")
}
