//! The source that keeps every weight in memory.
//!
//! The reference for every other source, and the fastest one where a model
//! fits. Trunk and experts are each one allocation, sized before anything is
//! read.

use std::path::Path;

use k3_config::Bytes;
use k3_models::{BlockIndex, ExpertDemand, ExpertKey, ModelFamily, SweepProgram};

use crate::checkpoint::Checkpoint;
use crate::error::RunError;
use crate::source::WeightSource;

/// Every weight of a model, in memory.
#[derive(Debug)]
pub struct ResidentSource {
    embedding: Vec<u8>,
    embedding_row_bytes: usize,
    trunk: Vec<u8>,
    /// Start of every block in `trunk`, and the end of the last.
    block_starts: Vec<usize>,
    experts: Vec<u8>,
    expert_bytes: usize,
    /// First expert of each layer in `experts`, counted in experts.
    layer_starts: Vec<Option<usize>>,
    pending: Vec<ExpertKey>,
}

impl ResidentSource {
    /// Reads everything `model` needs from `checkpoint`. `progress` is told
    /// bytes read and bytes in all.
    ///
    /// # Errors
    ///
    /// [`RunError::DoesNotFit`] before anything is reserved when the weights
    /// exceed the memory available; failed reads.
    pub fn load<M: ModelFamily>(
        model: &M,
        checkpoint: &Checkpoint,
        layer_count: usize,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self, RunError> {
        let program = model.program();
        let footprint = model.footprint();
        let experts = checkpoint.index().experts();
        let expert_total: u64 = (0..layer_count)
            .map(|layer| experts.experts_of_layer(layer) as u64 * footprint.expert_bytes)
            .sum();
        let needed = program.embedding.bytes + footprint.trunk_bytes() + expert_total;
        check_fits(checkpoint.path(), needed)?;
        let mut source = Self::reserve(program, footprint.expert_bytes, expert_total);
        let mut done = 0;
        let mut note = |bytes: usize| {
            done += bytes as u64;
            progress(done, needed);
        };
        checkpoint.read_tensor(&program.embedding, &mut source.embedding)?;
        note(source.embedding.len());
        for (index, block) in program.blocks.iter().enumerate() {
            let range = source.block_starts[index]..source.block_starts[index + 1];
            let target = &mut source.trunk[range];
            checkpoint.read(block.shard, block.offset, target)?;
            note(target.len());
        }
        source.load_experts(checkpoint, layer_count, note)?;
        Ok(source)
    }

    fn reserve(program: &SweepProgram, expert_bytes: u64, expert_total: u64) -> Self {
        let mut block_starts = vec![0];
        let mut total = 0;
        for block in &program.blocks {
            total += size(block.bytes);
            block_starts.push(total);
        }
        Self {
            embedding: vec![0; size(program.embedding.bytes)],
            embedding_row_bytes: size(program.embedding_row_bytes()),
            trunk: vec![0; total],
            block_starts,
            experts: vec![0; size(expert_total)],
            expert_bytes: size(expert_bytes),
            layer_starts: Vec::new(),
            pending: Vec::new(),
        }
    }

    fn load_experts(
        &mut self,
        checkpoint: &Checkpoint,
        layer_count: usize,
        mut note: impl FnMut(usize),
    ) -> Result<(), RunError> {
        let experts = checkpoint.index().experts();
        let mut next = 0;
        for layer in 0..layer_count {
            let count = experts.experts_of_layer(layer);
            self.layer_starts.push((count > 0).then_some(next));
            for expert in 0..count {
                let place = experts.get(layer, expert).expect("the index has no gaps");
                let mut at = next * self.expert_bytes;
                for segment in &*place.segments() {
                    let target = &mut self.experts[at..at + size(segment.bytes)];
                    checkpoint.read(segment.shard, segment.offset, target)?;
                    at += target.len();
                }
                next += 1;
                note(self.expert_bytes);
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

    fn begin_sweep(&mut self, _with_head: bool) -> Result<(), RunError> {
        // A cancelled sweep may have left experts that nobody took.
        self.pending.clear();
        Ok(())
    }

    fn embedding_row(&mut self, token: u32) -> Result<&[u8], RunError> {
        let start = token as usize * self.embedding_row_bytes;
        Ok(&self.embedding[start..start + self.embedding_row_bytes])
    }

    fn block(&mut self, index: BlockIndex) -> Result<&[u8], RunError> {
        let at = index.index();
        Ok(&self.trunk[self.block_starts[at]..self.block_starts[at + 1]])
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

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("checked against the machine's memory")
}

/// Refuses what would be killed later: weights beyond the available memory.
fn check_fits(path: &Path, needed_bytes: u64) -> Result<(), RunError> {
    // A kernel that does not tell is no reason to refuse.
    let Some(available) = available_memory_bytes() else {
        return Ok(());
    };
    if needed_bytes > available {
        return Err(RunError::DoesNotFit {
            path: path.to_owned(),
            needed: Bytes(needed_bytes),
            available: Bytes(available),
        });
    }
    Ok(())
}

/// `MemAvailable` as the kernel estimates it.
fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
