//! The requests of a sweep, read again with nothing to compute.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use k3_config::BudgetPlan;
use k3_io::{
    AlignedWindow, EngineError, FileTable, HugeArena, PagePolicy, ReadDone, ReadEngine,
    ReadRequest, SlotArena, WriteLease, open_engine,
};
use k3_runtime::{Cancel, Checkpoint, RunError};

use super::error::BenchError;
use super::record::RecordedRead;
use crate::supervisor::StreamSettings;
use crate::units::memory;

/// Bytes read, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Replayed {
    pub(super) seconds: f64,
    pub(super) payload_bytes: u64,
}

/// An engine like a run's, and memory like a run's, by party: a ring, slots,
/// and rows. No more requests are made at once than places allow.
pub(super) struct Replay {
    engine: Arc<dyn ReadEngine>,
    free: [Vec<WriteLease>; 3],
    done: (Sender<ReadDone>, Receiver<ReadDone>),
    in_flight: usize,
}

/// Places of one party: how many, and of how many bytes.
struct Places {
    count: u64,
    bytes: u64,
    pages: PagePolicy,
}

impl Replay {
    /// Opens the files of `checkpoint` and reserves what `plan` gives to what
    /// passes through, without pins.
    pub(super) fn open(
        checkpoint: &Checkpoint,
        embedding_row_bytes: u64,
        plan: &BudgetPlan,
        settings: &StreamSettings,
    ) -> Result<Self, BenchError> {
        let paths: Vec<PathBuf> = checkpoint.shard_paths().map(ToOwned::to_owned).collect();
        let table = Arc::new(FileTable::open(&paths, settings.direct)?);
        let row = AlignedWindow::capacity_for(embedding_row_bytes, table.alignment_bytes());
        let kinds = [
            Places {
                count: plan.ring.place_count,
                bytes: plan.ring.place_bytes,
                pages: settings.pages,
            },
            Places {
                count: plan.slots.transit_count + plan.slots.cache_count,
                bytes: plan.slots.slot_bytes,
                pages: settings.pages,
            },
            Places {
                count: plan.sweep_positions,
                bytes: row.expect("a row fits memory"),
                pages: PagePolicy::Small,
            },
        ];
        let mut config = settings.engine_config.clone();
        let mut reserved = Vec::new();
        for places in &kinds {
            reserved.push(places.reserve()?);
        }
        let arenas = reserved.iter().flatten();
        config.arenas = arenas.clone().map(|(arena, _)| Arc::clone(arena)).collect();
        let engine = open_engine(table, &config, settings.engine)?;
        for (arena, _) in arenas {
            let ready = |bytes| {
                engine.memory_ready(arena, 0..bytes);
                true
            };
            arena.prefault(0..arena.len_bytes(), ready)?;
        }
        let mut free = <[Vec<WriteLease>; 3]>::default();
        for (free, reserved) in free.iter_mut().zip(reserved) {
            *free = reserved.map_or_else(Vec::new, |(_, leases)| leases);
        }
        let place_count = free.iter().map(Vec::len).sum();
        Ok(Self {
            engine,
            free,
            done: bounded(place_count),
            in_flight: 0,
        })
    }

    /// Reads everything in `reads`, in order, as fast as places become free.
    pub(super) fn run(
        &mut self,
        reads: &[RecordedRead],
        cancel: &Cancel,
        mut progress: impl FnMut(usize),
    ) -> Result<Replayed, BenchError> {
        let start = Instant::now();
        let mut replayed = Replayed {
            seconds: 0.0,
            payload_bytes: 0,
        };
        let mut outcome = Ok(());
        for (index, read) in reads.iter().enumerate() {
            if cancel.is_requested() {
                outcome = Err(RunError::Cancelled.into());
            }
            if outcome.is_ok() {
                outcome = self.submit(read, &mut replayed).map_err(BenchError::from);
            }
            if outcome.is_err() {
                break;
            }
            progress(index);
        }
        while self.in_flight > 0 {
            outcome = outcome.and(self.receive(&mut replayed).map_err(BenchError::from));
        }
        replayed.seconds = start.elapsed().as_secs_f64();
        outcome.map(|()| replayed)
    }

    fn submit(&mut self, read: &RecordedRead, replayed: &mut Replayed) -> Result<(), EngineError> {
        let target = loop {
            if let Some(target) = self.free[read.party as usize].pop() {
                break target;
            }
            self.receive(replayed)?;
        };
        self.in_flight += 1;
        self.engine.submit(ReadRequest {
            segments: read.segments.clone(),
            target,
            class: read.class,
            // Nobody withdraws or hurries these: the tag only says whose place
            // comes back.
            tag: read.party as u64,
            reply: self.done.0.clone(),
        });
        Ok(())
    }

    fn receive(&mut self, replayed: &mut Replayed) -> Result<(), EngineError> {
        let done = self.done.1.recv().expect("this replay holds a sender");
        self.in_flight -= 1;
        self.free[memory(done.tag)].push(done.target);
        done.result?;
        replayed.payload_bytes += done.payload.len() as u64;
        Ok(())
    }
}

type Reserved = (Arc<HugeArena>, Vec<WriteLease>);

impl Places {
    fn reserve(&self) -> Result<Option<Reserved>, EngineError> {
        if self.count == 0 {
            return Ok(None);
        }
        let place = memory(self.bytes.next_multiple_of(4096));
        let bytes = memory(self.count) * place;
        let (arena, _) = HugeArena::reserve(bytes, self.pages)?;
        let slots = SlotArena::new(&arena, 0..bytes, place)?;
        let leases = (0..slots.slot_count()).filter_map(|slot| slots.acquire(slot));
        let leases = leases.collect();
        Ok(Some((arena, leases)))
    }
}

/// Bytes that a replay of `plan` reserves.
#[must_use]
pub fn reserved_bytes(plan: &BudgetPlan) -> u64 {
    let slots = plan.slots.transit_count + plan.slots.cache_count;
    plan.ring.place_count * plan.ring.place_bytes.next_multiple_of(4096)
        + slots * plan.slots.slot_bytes.next_multiple_of(4096)
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}
