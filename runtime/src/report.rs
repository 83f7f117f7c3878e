//! What a run tells about itself: one versioned schema for files and screens.

mod engine;
mod streaming;
mod sweeps;
mod trunk;

use serde::{Deserialize, Serialize};

pub use engine::{DeviceReport, EngineReport, ReadCeiling};
pub use streaming::{
    ArenaReport, BytesReport, CacheReport, MemoryReport, StreamingReport, SweepReport, TimeReport,
    share,
};
pub use sweeps::{SWEEP_ROWS_PER_END, SweepTable, SweepTotals};
pub use trunk::{ChecksumUse, CodecReport, TrunkFormat, TrunkReport};

use crate::placement::PlacementReport;
use crate::prefix::PrefixStore;
use crate::sampler::{SamplingSettings, TokenLogprobs};
use crate::session::SessionCounts;

/// Version of the schema; raised when a field changes its meaning or goes.
pub const REPORT_VERSION: u32 = 2;

/// One generation, from prompt to last token.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// Version of the program.
    pub k3_version: String,
    /// What was run.
    pub model: ModelReport,
    /// What the bits of the result depend on besides model and prompt.
    pub numerics: NumericsReport,
    /// How it was run; nothing here can change a bit.
    pub execution: ExecutionReport,
    /// How tokens were chosen.
    pub sampling: SamplingSettings,
    /// Ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Ids drawn, in order: also the stop id, and all whose text reaches into
    /// a stop string.
    pub generated_ids: Vec<u32>,
    /// Their text, where there is a vocabulary; only what stands before a stop
    /// string.
    pub generated_text: Option<String>,
    /// How likely each of them was, where it was asked for.
    pub logprobs: Option<Vec<TokenLogprobs>>,
    /// All answers, the first of which is above, where several were asked for.
    pub choices: Option<Vec<ChoiceReport>>,
    /// Why generation ended.
    pub stop_reason: StopReason,
    /// What ended it, if it failed.
    pub error: Option<String>,
    /// What the sweeps consumed.
    pub counts: CountsReport,
    /// Where the time went.
    pub timing: TimingReport,
    /// The trunk in files of its own; `None` where it is read from the shards.
    pub trunk: Option<TrunkReport>,
    /// What was read and when, unless every weight was in memory.
    pub streaming: Option<StreamingReport>,
    /// The prefix cache, where there is one.
    pub prefix_cache: Option<PrefixReport>,
    /// The saved conversation that the prompt goes on with.
    pub loaded_state: Option<StateReport>,
    /// The conversation that was saved at the end.
    pub saved_state: Option<StateReport>,
    /// Teacher-forced agreement, when it was asked for.
    pub teacher_forced: Option<TeacherForcedReport>,
    /// Fallbacks in force and other things worth knowing, one line each.
    pub notes: Vec<String>,
}

/// One of several answers to a prompt.
#[derive(Debug, Clone, Serialize)]
pub struct ChoiceReport {
    /// Its number, from 0.
    pub choice: usize,
    /// Ids drawn, in order.
    pub generated_ids: Vec<u32>,
    /// Their text, where there is a vocabulary.
    pub generated_text: Option<String>,
    /// How likely each of them was, where it was asked for.
    pub logprobs: Option<Vec<TokenLogprobs>>,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// What ended it, if it failed.
    pub error: Option<String>,
}

/// A conversation in a file.
#[derive(Debug, Clone, Serialize)]
pub struct StateReport {
    /// The file.
    pub path: String,
    /// Its ids.
    pub ids: usize,
    /// How many of them the state has consumed.
    pub position: usize,
    /// Length of the file.
    pub file_bytes: u64,
}

/// The checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct ModelReport {
    /// Directory.
    pub path: String,
    /// BLAKE3 identity, in hex.
    pub identity: String,
    /// Layers run.
    pub layers: usize,
    /// Layers of the model.
    pub layers_total: usize,
}

/// What the bits depend on.
#[derive(Debug, Clone, Serialize)]
pub struct NumericsReport {
    /// Version of `docs/numerics.md`.
    pub version: u32,
    /// `latent` or `expanded`.
    pub attention: String,
}

/// How the run was carried out.
#[derive(Debug, Clone, Serialize)]
pub struct ExecutionReport {
    /// Instruction set of the kernels.
    pub isa: String,
    /// Compute threads.
    pub threads: usize,
    /// Which processors they run on.
    pub placement: PlacementReport,
    /// Memory nodes of the machine that have processors; `None` where the
    /// kernel does not tell.
    pub memory_nodes: Option<u64>,
    /// Positions per sweep while the prompt is read.
    pub chunk_positions: usize,
    /// Positions the sequence had memory for.
    pub context_positions: usize,
    /// Whether each step ran the whole prefix again.
    pub recompute: bool,
    /// Where weights came from: `streaming`, or `resident` with all of them in
    /// memory.
    pub source: String,
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// As many tokens as were asked for.
    Length,
    /// A stop id was drawn.
    Stop,
    /// The text came to a stop string.
    StopString,
    /// The user asked to stop.
    Interrupted,
    /// An error; what came before it is right.
    Failed,
    /// Nothing was to be generated.
    Nothing,
}

/// Exact counts, in bytes of payload as consumed by the arithmetic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CountsReport {
    /// Walks through the layers.
    pub sweeps: u64,
    /// Positions computed.
    pub positions: u64,
    /// Trunk blocks consumed.
    pub trunk_blocks: u64,
    /// Their bytes.
    pub trunk_bytes: u64,
    /// Experts consumed (the union of each sweep).
    pub experts: u64,
    /// Their bytes.
    pub expert_bytes: u64,
    /// Bytes of embedding rows consumed.
    pub embedding_bytes: u64,
    /// Weight groups skipped because their scale byte is NaN (255).
    pub nan_scale_groups: u64,
    /// Positions whose states came from the prefix cache instead.
    pub reused_positions: u64,
    /// Tokens guessed ahead.
    pub guessed_tokens: u64,
    /// Guesses that were right.
    pub accepted_tokens: u64,
}

impl From<&SessionCounts> for CountsReport {
    fn from(counts: &SessionCounts) -> Self {
        let totals = &counts.totals;
        Self {
            sweeps: counts.sweeps,
            positions: counts.positions,
            trunk_blocks: totals.blocks,
            trunk_bytes: totals.trunk_bytes,
            experts: totals.experts,
            expert_bytes: totals.expert_bytes,
            embedding_bytes: totals.embedding_bytes,
            nan_scale_groups: totals.nan_scale_groups,
            reused_positions: counts.reused_positions,
            guessed_tokens: counts.guessed,
            accepted_tokens: counts.accepted,
        }
    }
}

/// What the prefix cache did.
#[derive(Debug, Clone, Serialize)]
pub struct PrefixReport {
    /// Its directory.
    pub directory: String,
    /// Most that it takes on disk.
    pub limit_bytes: u64,
    /// Prompts that began with something stored.
    pub hits: u64,
    /// Prompts that did not.
    pub misses: u64,
    /// Bytes of files that were read.
    pub read_bytes: u64,
    /// Bytes of files that were written.
    pub written_bytes: u64,
    /// States removed to make room.
    pub evictions: u64,
    /// States taken away because they were damaged.
    pub damaged: u64,
}

impl PrefixReport {
    /// What `store` did since it was opened.
    #[must_use]
    pub fn new(store: &PrefixStore) -> Self {
        let statistics = store.statistics();
        Self {
            directory: store.directory().display().to_string(),
            limit_bytes: store.limit_bytes(),
            hits: statistics.hits,
            misses: statistics.misses,
            read_bytes: statistics.read_bytes,
            written_bytes: statistics.written_bytes,
            evictions: statistics.evictions,
            damaged: statistics.damaged,
        }
    }
}

/// Wall seconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TimingReport {
    /// From start to the first sweep.
    pub load_seconds: f64,
    /// The prompt, up to its last logits.
    pub prefill_seconds: f64,
    /// Each generated token: the sweep behind it and the draw. The first one
    /// has nothing here, its sweep being part of the prefill. Tokens of one sweep
    /// have equal shares of it.
    pub token_seconds: Vec<f64>,
}

/// How often the model's first choice was the next given id.
#[derive(Debug, Clone, Serialize)]
pub struct TeacherForcedReport {
    /// Positions compared: all but the last.
    pub compared: usize,
    /// Positions where the argmax is the next id.
    pub agreed: usize,
    /// The first disagreements: (position, given next id, argmax).
    pub first_disagreements: Vec<(usize, u32, u32)>,
}
