//! Starts everything in order, and stops it in reverse.
//!
//! Up: files, memory, the read engine, the helper that touches memory, the
//! streamer and the cache. Down: the streamer and the cache drop what is queued
//! and wait for what is in flight, then the helper and the engine end, then
//! memory is unmapped; a lease that still lives keeps its memory for as long as
//! it does.

use std::path::PathBuf;
use std::sync::Arc;

use arrayvec::ArrayVec;
use crossbeam_channel::{Receiver, bounded};
use k3_config::{BudgetPlan, CachePolicy, LineKind};
use k3_io::{
    DirectPolicy, EngineCaps, EngineConfig, EngineCounters, EnginePreference, FileId, FileTable,
    HugeArena, PagePolicy, PageReport, ReadEngine, RingArena, Segment, SlotArena, open_engine,
};
use k3_models::{ExpertKey, LayerIndex, ModelFamily, PageStore, SweepProgram};
use k3_runtime::{Cancel, Checkpoint};

use crate::cache::{CacheSettings, ExpertHandle, ExpertPlaces};
use crate::error::ActorError;
use crate::experts::{CacheCounters, CacheShape, eviction_policy};
use crate::gauges::StreamGauges;
use crate::lookahead::Lookahead;
use crate::past::PageFile;
use crate::prefault::{Prefault, PrefaultCounts};
use crate::rows::RowReader;
use crate::source::StreamingSource;
use crate::spill::{PastSlots, Spilled};
use crate::trunk::{Checks, TrunkBlock, TrunkHandle, TrunkSettings};
use crate::units::memory;

/// How to stream, besides what the plan says.
#[derive(Debug, Clone)]
pub struct StreamSettings {
    /// Which engine reads.
    pub engine: EnginePreference,
    /// The engine's settings; arenas are filled in.
    pub engine_config: EngineConfig,
    /// Whether files are read past the page cache.
    pub direct: DirectPolicy,
    /// Page size of the arenas.
    pub pages: PagePolicy,
    /// What the expert cache keeps.
    pub policy: CachePolicy,
    /// The directory of pages that do not stay in memory, where the plan has any.
    pub spill: Option<PathBuf>,
}

/// A wrapper around the engine, for tests that inject faults.
pub type WrapEngine = dyn Fn(Arc<dyn ReadEngine>, Arc<FileTable>) -> Arc<dyn ReadEngine>;

/// Everything that runs beside compute.
#[derive(Debug)]
pub struct Supervisor {
    source: StreamingSource,
    prefault: Prefault,
    engine: Arc<dyn ReadEngine>,
    gauges: StreamGauges,
    pages: Option<Arc<PageFile>>,
}

/// What is left to say once everything has stopped.
#[derive(Debug)]
pub struct ShutdownReport {
    /// The engine's counts, final.
    pub counters: EngineCounters,
    /// The cache's counts, final.
    pub cache: CacheCounters,
    /// Actors that died instead of stopping.
    pub failures: Vec<ActorError>,
}

impl Supervisor {
    /// Opens the files of `checkpoint`, reserves what `plan` says and starts
    /// the actors.
    ///
    /// # Errors
    ///
    /// Files that cannot be opened, memory or threads the system refuses.
    pub fn start<M: ModelFamily>(
        model: &M,
        checkpoint: &Arc<Checkpoint>,
        plan: &BudgetPlan,
        settings: &StreamSettings,
        wrap: Option<&WrapEngine>,
    ) -> Result<Self, ActorError> {
        let mut table = FileTable::reopen(checkpoint.files(), settings.direct)?;
        let spilled = Spilled::create(plan, settings, &mut table)?;
        let table = Arc::new(table);
        let alignment_bytes = table.alignment_bytes();
        let mut memory = Memory::reserve(model.program(), plan, settings.pages, alignment_bytes)?;
        let mut config = settings.engine_config.clone();
        config.arenas = memory.arenas.clone();
        let mut engine = open_engine(Arc::clone(&table), &config, settings.engine)?;
        if let Some(wrap) = wrap {
            engine = wrap(engine, Arc::clone(&table));
        }
        // Small ones first: the ring is in use at once, a cache takes a while.
        memory.arenas.sort_by_key(|arena| arena.len_bytes());
        let prefault = Prefault::spawn(memory.arenas, Arc::clone(&engine))?;
        let checks = trunk_checks(checkpoint, model.program());
        let check_counts = checks.as_ref().map(|checks| Arc::clone(&checks.counts));
        let trunk = TrunkSettings {
            blocks: trunk_blocks(model.program()),
            checks,
            pinned: plan.pinned.clone(),
            ring: memory.ring.take(),
            pins: memory.pins.take(),
            alignment_bytes,
        };
        let trunk = TrunkHandle::spawn(trunk, Arc::clone(&engine), memory.ring_released)?;
        let rows = RowReader::new(Arc::clone(&engine), memory.rows, model.program().embedding);
        let start = |(file, slots): (Spilled, _)| file.start(slots, &plan.pages, &engine);
        let (pages, past) = spilled.zip(memory.past).map(start).unzip();
        let experts = memory.slots.take().map(|slots| {
            let shape = cache_shape(model, plan);
            let settings = CacheSettings {
                policy: eviction_policy(settings.policy, &shape),
                shape,
                slots,
                places: expert_places(checkpoint),
            };
            ExpertHandle::spawn(settings, Arc::clone(&engine))
        });
        let experts = experts.transpose()?;
        let gauges = StreamGauges {
            engine: Arc::clone(&engine),
            table,
            checks: check_counts,
            cache: experts.as_ref().map(ExpertHandle::shared_counters),
            prefault: prefault.status(),
            pages: memory.reports.into(),
            spill: pages.as_ref().map(|pages| pages.shared_counts()),
        };
        Ok(Self {
            source: StreamingSource {
                lookahead: Lookahead::new(model.program(), plan),
                rows,
                trunk,
                experts,
                memory: prefault.status(),
                past,
            },
            prefault,
            engine,
            gauges,
            pages,
        })
    }

    /// What feeds the forward loop.
    pub fn source(&mut self) -> &mut StreamingSource {
        &mut self.source
    }

    /// What feeds the forward loop, to look at.
    #[must_use]
    pub fn source_ref(&self) -> &StreamingSource {
        &self.source
    }

    /// Where pages lie that do not stay in memory; `None` if all do.
    #[must_use]
    pub fn page_store(&self) -> Option<Arc<dyn PageStore>> {
        let pages = self.pages.as_ref()?;
        Some(Arc::<PageFile>::clone(pages))
    }

    /// What the engine is.
    #[must_use]
    pub fn caps(&self) -> EngineCaps {
        self.engine.caps()
    }

    /// What is counted, to look at from another thread.
    #[must_use]
    pub fn gauges(&self) -> &StreamGauges {
        &self.gauges
    }

    /// What the engine has done so far.
    #[must_use]
    pub fn counters(&self) -> EngineCounters {
        self.gauges.engine_counters()
    }

    /// What the cache has counted so far.
    #[must_use]
    pub fn cache_counters(&self) -> CacheCounters {
        self.gauges.cache_counters()
    }

    /// How much of the memory has been touched ahead of the reads.
    #[must_use]
    pub fn prefault_counts(&self) -> PrefaultCounts {
        self.gauges.prefault_counts()
    }

    /// The pages each part of the plan got.
    #[must_use]
    pub fn pages(&self) -> &[(LineKind, PageReport)] {
        self.gauges.pages()
    }

    /// Everything that is less than what was asked for, one sentence each.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<String> {
        self.gauges.fallbacks()
    }

    /// Touches no more memory ahead once `cancel` is requested.
    pub fn heed(&self, cancel: &Cancel) {
        self.prefault.heed(cancel);
    }

    /// Stops everything in order.
    #[must_use]
    pub fn shutdown(mut self) -> ShutdownReport {
        let mut failures = Vec::new();
        failures.extend(self.source.trunk.stop().err());
        if let Some(experts) = &mut self.source.experts {
            failures.extend(experts.stop().err());
        }
        // Reads that lookahead began in vain may have ended with the cache.
        let cache = self.cache_counters();
        self.source.lookahead.forget();
        self.source.rows.drain();
        if let Some(past) = &mut self.source.past {
            past.drain();
        }
        failures.extend(self.prefault.stop().err());
        self.engine.shutdown();
        ShutdownReport {
            counters: self.engine.counters(),
            cache,
            failures,
        }
    }
}

/// The arenas of a plan and who leases from them.
struct Memory {
    arenas: Vec<Arc<HugeArena>>,
    reports: Vec<(LineKind, PageReport)>,
    ring: Option<SlotArena>,
    ring_released: Receiver<()>,
    pins: Option<RingArena>,
    slots: Option<SlotArena>,
    rows: SlotArena,
    past: Option<PastSlots>,
}

impl Memory {
    fn reserve(
        program: &SweepProgram,
        plan: &BudgetPlan,
        pages: PagePolicy,
        alignment_bytes: u64,
    ) -> Result<Self, ActorError> {
        let mut arenas = Vec::new();
        let mut reports = Vec::new();
        let mut arena = |kind, bytes: u64, pages| -> Result<Arc<HugeArena>, ActorError> {
            let (arena, report) = HugeArena::reserve(memory(bytes), pages)?;
            arenas.push(Arc::clone(&arena));
            reports.push((kind, report));
            Ok(arena)
        };
        let window = |bytes| window_bytes(bytes, alignment_bytes);
        let (release, ring_released) = bounded(1);
        let ring_bytes = plan.ring.place_count * plan.ring.place_bytes.next_multiple_of(4096);
        let ring = if plan.ring.place_count == 0 {
            None
        } else {
            let arena = arena(LineKind::Ring, ring_bytes, pages)?;
            let place = memory(plan.ring.place_bytes.next_multiple_of(4096));
            let range = 0..memory(ring_bytes);
            Some(SlotArena::with_signal(&arena, range, place, Some(release))?)
        };
        let pinned = plan.pinned.pinned();
        let pinned_bytes: u64 = pinned
            .map(|index| window(program.blocks[index].bytes))
            .sum();
        let pins = if pinned_bytes == 0 {
            None
        } else {
            let arena = arena(LineKind::PinnedTrunk, pinned_bytes, pages)?;
            let count = plan.pinned.pinned_count();
            let range = 0..memory(pinned_bytes);
            Some(RingArena::new(&arena, range, count, None)?)
        };
        let slot_count = plan.slots.transit_count + plan.slots.cache_count;
        let slots = if slot_count == 0 {
            None
        } else {
            let slot = plan.slots.slot_bytes.next_multiple_of(4096);
            let arena = arena(LineKind::TransitSlots, slot_count * slot, pages)?;
            let range = 0..memory(slot_count * slot);
            Some(SlotArena::new(&arena, range, memory(slot))?)
        };
        let row = window(program.embedding_row_bytes());
        // Small and short-lived: no huge pages.
        let row_bytes = row * plan.sweep_positions;
        let rows = arena(LineKind::Activations, row_bytes, PagePolicy::Small)?;
        let past = if plan.pages.file_page_count == 0 {
            None
        } else {
            let arena = arena(LineKind::Past, plan.pages.staged_bytes(), pages)?;
            Some(PastSlots::new(&arena, &plan.pages)?)
        };
        Ok(Self {
            past,
            rows: SlotArena::new(&rows, 0..memory(row_bytes), memory(row))?,
            arenas,
            reports,
            ring,
            ring_released,
            pins,
            slots,
        })
    }
}

/// Room for a read of `bytes` anywhere in a file, in whole pages.
fn window_bytes(bytes: u64, alignment_bytes: u64) -> u64 {
    k3_io::AlignedWindow::capacity_for(bytes, alignment_bytes)
        .expect("planned sizes fit an address space")
        .next_multiple_of(4096)
}

fn trunk_blocks(program: &SweepProgram) -> Vec<TrunkBlock> {
    let blocks = program.blocks.iter();
    blocks
        .map(|block| TrunkBlock {
            place: Segment {
                file: FileId(block.place.file),
                offset: block.place.offset,
                bytes: block.place.read_bytes,
            },
            bytes: block.bytes,
            is_head: block.kind == k3_config::BlockKind::Head,
        })
        .collect()
}

/// The checksums of the program's blocks, where there are any to compare with.
fn trunk_checks(checkpoint: &Checkpoint, program: &SweepProgram) -> Option<Checks> {
    Some(Checks {
        checksums: checkpoint.trunk()?.checks(program)?,
        counts: Arc::default(),
    })
}

fn cache_shape<M: ModelFamily>(model: &M, plan: &BudgetPlan) -> CacheShape {
    let footprint = model.footprint();
    let layers = model.program().steps.iter().filter_map(|step| match step {
        k3_models::Step::Route(layer) => Some(*layer),
        _ => None,
    });
    let count = |value: u32| usize::try_from(value).expect("32 bits fit");
    CacheShape {
        slot_count: memory(plan.slots.transit_count + plan.slots.cache_count),
        transit_count: memory(plan.slots.transit_count),
        top_k: count(footprint.experts_per_token),
        moe_layers: layers.collect::<Vec<LayerIndex>>(),
        experts_per_layer: count(footprint.experts_per_layer),
        expert_bytes: footprint.expert_bytes,
        lookahead_count_max: memory(plan.lookahead.slot_count),
    }
}

fn expert_places(checkpoint: &Arc<Checkpoint>) -> ExpertPlaces {
    let checkpoint = Arc::clone(checkpoint);
    Box::new(move |key: ExpertKey| {
        let experts = checkpoint.index().experts();
        let place = experts.get(key.layer.index(), usize::from(key.expert));
        let place = place.expect("the index holds every expert of the model");
        let segments = place.segments();
        segments
            .iter()
            .map(|segment| Segment {
                file: FileId(u32::from(segment.shard)),
                offset: segment.offset,
                bytes: segment.bytes,
            })
            .collect::<ArrayVec<_, { k3_io::SEGMENTS_MAX }>>()
    })
}
