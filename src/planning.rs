//! From settings and a model to a plan: what `k3 plan` shows and generation
//! reserves.

use std::path::Path;

use k3_actors::planning::{PlanInputs, plan_run};
use k3_config::{
    ArenaLayout, BudgetPlan, Bytes, Headroom, HostCpu, HostMemory, MemoryBudget, MemoryRequest,
    ModelFootprint, Origin, PlanRefusal, PositiveCount, Settings, Sourced, SpillRequest,
    default_block_bytes, plan_by_budget,
};
use k3_formats::KimiK3Config;
use k3_io::{EngineConfig, PagePolicy};
use k3_models::kimi_k3::{AttentionForm, PlannedModel};
use k3_models::parallel::WORKERS_MAX;
use k3_models::{PAGE_POSITIONS, WorkspaceSize};
use k3_runtime::{Checkpoint, ComputePool, Placement, RunError, Trunk};
use k3_tokenizer::Tokenizer;

use crate::error::CliError;

/// Trunks from here on are worth 2 MiB pages and a whole engine's requests.
pub(crate) const LARGE_TRUNK_BYTES: u64 = 128 << 20;
/// Least bytes that a small model keeps in flight.
const IN_FLIGHT_BYTES_MIN: u64 = 64 << 10;
/// Requests that the bytes in flight are made of.
const REQUESTS_IN_FLIGHT: usize = 8;

/// Bytes the index takes for one tensor of an expert.
const EXPERT_TENSOR_BYTES: u64 = 24;
/// Tensors of an expert.
const EXPERT_TENSORS: u64 = 6;
/// Bytes the index takes for any other tensor, besides its name.
const NAMED_TENSOR_BYTES: u64 = 64;
/// Length of a name, and tensors of a layer that are not an expert's, where no
/// index is at hand: more than the released model has.
const PLANNED_NAME_BYTES: u64 = 96;
const PLANNED_TENSORS_PER_LAYER: u64 = 40;
/// Bytes of vocabulary per id where no vocabulary is at hand: a token's bytes,
/// its end and its places in a table that is half empty, rounded up.
const PLANNED_TOKEN_BYTES: u64 = 64;

/// Bytes of the trunk's blocks in the first `layer_count` layers of `config`.
pub(crate) fn trunk_bytes(config: &KimiK3Config, layer_count: usize) -> u64 {
    let mut config = config.clone();
    config.num_hidden_layers = layer_count;
    let model = PlannedModel::new(&config, AttentionForm::Latent, LARGE_TRUNK_BYTES);
    model.footprint().trunk_bytes()
}

/// The largest block for a trunk of `trunk_bytes`: what was asked for, or what
/// suits the model.
pub(crate) fn block_bytes(settings: &Settings, trunk_bytes: u64) -> u64 {
    let Sourced { value, origin } = &settings.block_bytes;
    match origin {
        Origin::Default => default_block_bytes(trunk_bytes),
        _ => value.0,
    }
}

/// The largest block of `checkpoint`'s first `layer_count` layers: that of its
/// packed trunk, else as [`block_bytes`] says.
///
/// # Errors
///
/// Another size was asked for than the packed trunk was cut with.
pub(crate) fn block_bytes_of(
    settings: &Settings,
    checkpoint: &Checkpoint,
    layer_count: usize,
) -> Result<u64, CliError> {
    let Some(packed) = checkpoint.trunk().and_then(Trunk::block_bytes) else {
        let trunk_bytes = trunk_bytes(checkpoint.config(), layer_count);
        return Ok(block_bytes(settings, trunk_bytes));
    };
    let Sourced { value, origin } = &settings.block_bytes;
    if !matches!(origin, Origin::Default) && value.0 != packed {
        return Err(CliError::TrunkBlockBytes {
            asked: *value,
            named: origin.spelled("block_bytes"),
            packed: Bytes(packed),
        });
    }
    Ok(packed)
}

/// Compute threads: what was asked for, or the processors that affinity, the
/// control group's set and its quota leave to this process.
pub(crate) fn threads(settings: &Settings) -> usize {
    let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    match &settings.threads {
        Some(threads) => count(threads.value.get().into()),
        None => {
            let affinity = ComputePool::available_threads() as u64;
            let limited = HostCpu::read(Path::new("/")).cpu_count(affinity);
            count(limited.count).min(WORKERS_MAX)
        }
    }
}

/// The threads that compute, where the settings want them.
///
/// # Errors
///
/// Threads that the system does not start.
pub(crate) fn pool(settings: &Settings, threads: usize) -> Result<ComputePool, RunError> {
    let placement = Placement::of_this_process(settings.pin_threads.value, threads);
    ComputePool::placed(threads, placement)
}

/// The budget in force; the machine is asked only for `auto`.
///
/// # Errors
///
/// A machine that does not tell what `auto` needs to know, or has nothing left.
pub(crate) fn budget(settings: &Settings) -> Result<MemoryBudget, CliError> {
    Ok(settings.budget(|| HostMemory::read(Path::new("/")))?)
}

/// What a run may reserve before the machine ends it, and what says so. `None`
/// where the kernel does not tell.
pub(crate) fn headroom(host: &HostMemory, pages: PagePolicy) -> Option<Headroom> {
    // Reserved huge pages are not among the memory available.
    let reserved = match (pages, host.hugepages_free, host.hugepage) {
        (PagePolicy::Hugetlb, Some(count), Some(page)) => count.saturating_mul(page.0),
        _ => 0,
    };
    host.headroom(Bytes(reserved))
}

/// What the shard index holds in memory: 24 bytes for each tensor of an expert,
/// 64 and the name for every other.
pub(crate) fn index_bytes(checkpoint: &Checkpoint) -> u64 {
    let index = checkpoint.index();
    let trunk = checkpoint.trunk().map_or(0, Trunk::table_bytes);
    let named = index.names();
    let named: u64 = named
        .map(|name| NAMED_TENSOR_BYTES + name.len() as u64)
        .sum();
    trunk + named + index.experts().expert_count() as u64 * EXPERT_TENSORS * EXPERT_TENSOR_BYTES
}

/// The same for a checkpoint that is not there.
pub(crate) fn planned_index_bytes(config: &KimiK3Config) -> u64 {
    let layers = config.num_hidden_layers as u64;
    let moe_layers = layers.saturating_sub(config.first_k_dense_replace as u64);
    let experts = moe_layers * config.num_experts as u64;
    experts * EXPERT_TENSORS * EXPERT_TENSOR_BYTES
        + layers * PLANNED_TENSORS_PER_LAYER * (NAMED_TENSOR_BYTES + PLANNED_NAME_BYTES)
}

/// What the vocabulary holds in memory; 0 without one.
pub(crate) fn vocabulary_bytes(tokenizer: Option<&Tokenizer>) -> u64 {
    tokenizer.map_or(0, |tokenizer| tokenizer.ranks().heap_bytes() as u64)
}

/// The same for a vocabulary that is not there.
pub(crate) fn planned_vocabulary_bytes(config: &KimiK3Config) -> u64 {
    config.vocab_size as u64 * PLANNED_TOKEN_BYTES
}

/// How weights are read, as far as the plan depends on it.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// Sizes of the engine's requests.
    pub engine: EngineConfig,
    /// Pages of the arenas.
    pub pages: PagePolicy,
    /// The same, as the plan counts them.
    pub layout: ArenaLayout,
}

impl Reading {
    /// For a trunk of `trunk_bytes`: 2 MiB pages and the engine's own sizes for
    /// a large one; 4 KiB pages and less in flight for one that would fit into
    /// a few such pages.
    pub(crate) fn for_trunk(trunk_bytes: u64) -> Self {
        let mut engine = EngineConfig::default();
        if trunk_bytes >= LARGE_TRUNK_BYTES {
            let host = HostMemory::read(Path::new("/"));
            let reserved = host.hugepages_free.is_some_and(|count| count > 0);
            let pages = if reserved {
                PagePolicy::Hugetlb
            } else {
                PagePolicy::Transparent
            };
            return Self {
                engine,
                pages,
                layout: ArenaLayout::PAGES_2M,
            };
        }
        let in_flight = (trunk_bytes / 16).max(IN_FLIGHT_BYTES_MIN);
        let in_flight = usize::try_from(in_flight).expect("less than a large trunk");
        engine.in_flight_bytes = in_flight.min(engine.in_flight_bytes);
        engine.piece_bytes = engine.in_flight_bytes / REQUESTS_IN_FLIGHT;
        Self {
            engine,
            pages: PagePolicy::Small,
            layout: ArenaLayout::PAGES_4K,
        }
    }
}

/// What is planned: sizes of a model and everything beside it.
pub(crate) struct Subject<'a> {
    /// Sizes of the model.
    pub footprint: &'a ModelFootprint,
    /// Bytes of its buffers.
    pub workspace: &'a dyn Fn(&WorkspaceSize) -> u64,
    /// How it is read.
    pub reading: &'a Reading,
    /// Positions a sequence may reach.
    pub context_positions: usize,
    /// Positions that all sequences have memory for together.
    pub context_total: Option<usize>,
    /// Where pages go that do not fit into memory, if they may.
    pub spill: Option<SpillRequest>,
    /// Prompt positions of a sweep.
    pub chunk_positions: usize,
    /// Sequences that run at a time.
    pub sequences: usize,
    /// Guesses per sequence and sweep.
    pub guesses: usize,
    /// Whether every position of a sweep may want logits.
    pub all_logits: bool,
    /// Compute threads.
    pub threads: usize,
    /// Bytes of the vocabulary.
    pub vocabulary_bytes: u64,
    /// Bytes of the shard index.
    pub index_bytes: u64,
}

/// Plans a run of `subject` within `budget`.
///
/// # Errors
///
/// [`PlanRefusal`]: nothing is shrunk below what was asked for.
pub(crate) fn plan(
    subject: &Subject<'_>,
    budget: &MemoryBudget,
    settings: &Settings,
) -> Result<BudgetPlan, PlanRefusal> {
    plan_chunk(subject, budget, settings, subject.chunk_positions as u64)
}

/// The same with the chunk of `settings`, else the one that suits the budget;
/// that of `subject` does not count.
///
/// # Errors
///
/// As [`plan`]; more memory brings another chunk, and is counted with it.
pub(crate) fn plan_with_settings(
    subject: &Subject<'_>,
    budget: &MemoryBudget,
    settings: &Settings,
) -> Result<BudgetPlan, PlanRefusal> {
    let with = |chunk| plan_chunk(subject, budget, settings, chunk);
    match &settings.chunk {
        Some(chunk) => with(chunk.value.get().into()),
        None => plan_by_budget(budget.total, with),
    }
}

fn plan_chunk(
    subject: &Subject<'_>,
    budget: &MemoryBudget,
    settings: &Settings,
    chunk_positions: u64,
) -> Result<BudgetPlan, PlanRefusal> {
    let chunk_positions = chunk_positions.min(subject.context_positions as u64);
    let inputs = PlanInputs {
        context_positions: subject.context_positions as u64,
        context_total: subject.context_total.map(|total| total as u64),
        spill: subject.spill,
        chunk_positions,
        sequences: subject.sequences as u64,
        guesses: subject.guesses as u64,
        logit_rows: if subject.all_logits {
            u64::MAX
        } else {
            ((1 + subject.guesses).min(subject.context_positions) * subject.sequences) as u64
        },
        workers: subject.threads as u64,
        vocabulary_bytes: subject.vocabulary_bytes,
        index_bytes: subject.index_bytes,
        in_flight_bytes: subject.reading.engine.in_flight_bytes as u64,
        layout: subject.reading.layout,
        slots: settings
            .slots
            .as_ref()
            .map(|slots| slots.value.get().into()),
        pins: settings.pins.value,
        lookahead: settings.lookahead.value.into(),
    };
    plan_run(subject.footprint, subject.workspace, budget, &inputs)
}

/// The file for pages that do not fit into memory, if the settings name a
/// directory: `sequences` share what they have in memory evenly.
pub(crate) fn spill(settings: &Settings, sequences: usize) -> Option<SpillRequest> {
    settings.spill.as_ref()?;
    let total = settings.context_total.as_ref();
    Some(SpillRequest {
        bytes_max: settings.spill_gb.as_ref().map(|most| most.value.0.0),
        memory_pages: total
            .map(|total| u64::from(total.value.get()) / PAGE_POSITIONS as u64 / sequences as u64),
    })
}

/// Guesses per sequence and sweep: none where a run cannot take them back.
pub(crate) fn guesses(settings: &Settings) -> usize {
    usize::try_from(settings.draft.value).unwrap_or(usize::MAX)
}

/// `settings` with everything filled in that model and machine decide.
pub(crate) fn effective(
    settings: &Settings,
    budget: &MemoryBudget,
    threads: usize,
    block_bytes: Sourced<Bytes>,
) -> Settings {
    let mut settings = settings.clone();
    let count = |value: u64| u32::try_from(value).ok().and_then(PositiveCount::new);
    let chunk = settings.chunk_for(budget.total);
    settings.chunk = count(chunk.value).map(|value| Sourced::new(value, chunk.origin));
    if settings.threads.is_none() {
        settings.threads = count(threads as u64).map(Sourced::default_value);
    }
    settings.block_bytes = block_bytes;
    settings
}

/// A sentence about a chunk that was asked for and that no sequence can fill.
pub(crate) fn idle_chunk(settings: &Settings) -> Option<String> {
    let (chunk, context) = (settings.chunk.as_ref()?, &settings.context);
    let is_asked = !matches!(chunk.origin, Origin::Default | Origin::Preset(_));
    (is_asked && chunk.value > context.value).then(|| {
        format!(
            "{} asks for sweeps of {} positions, and a context has {}",
            chunk.origin.spelled("chunk"),
            chunk.value,
            context.value
        )
    })
}

/// A sentence about what `settings` say of memory and reading, beside which
/// every weight is kept in memory; `None` if they say nothing.
pub(crate) fn idle_beside_resident(settings: &Settings) -> Option<String> {
    fn of<T>(value: Option<&Sourced<T>>) -> Option<&Origin> {
        value.map(|value| &value.origin)
    }
    let memory = match settings.memory.value {
        MemoryRequest::Size(_) => "memory",
        MemoryRequest::Preset(_) => "preset",
    };
    let origins = [
        (memory, Some(&settings.memory.origin)),
        ("trunk_gb", of(settings.trunk_gb.as_ref())),
        ("cache_gb", of(settings.cache_gb.as_ref())),
        ("slots", of(settings.slots.as_ref())),
        ("lookahead", Some(&settings.lookahead.origin)),
        ("pins", Some(&settings.pins.origin)),
        ("policy", Some(&settings.policy.origin)),
        ("engine", Some(&settings.engine.origin)),
        ("spill", of(settings.spill.as_ref())),
        ("spill_gb", of(settings.spill_gb.as_ref())),
    ];
    let idle: Vec<String> = origins
        .into_iter()
        .filter_map(|(key, origin)| Some((key, origin?)))
        .filter(|(_, origin)| !matches!(origin, Origin::Default))
        .map(|(key, origin)| origin.spelled(key))
        .collect();
    (!idle.is_empty()).then(|| {
        format!(
            "{}: no effect beside --resident, which keeps every weight in memory",
            idle.join(", ")
        )
    })
}
