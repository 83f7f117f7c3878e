//! Settings in layers: preset, settings file, environment, flags.
//!
//! Each layer overrides those before it, value by value, and every value in
//! force knows where it came from. A preset acts from the layer that names
//! it: `--preset laptop` overrides a `memory` of the settings file, and a
//! `--memory` beside it overrides the preset. All a preset says is how much
//! memory there is; what else depends on it (the chunk) follows that amount.
//!
//! All mistakes of all layers are reported at once.

mod environment;
mod file;
mod keys;
mod render;
mod value;

use std::fmt;
use std::path::PathBuf;

use crate::budget::{Gigabytes, MemoryBudget, MemoryRequest};
use crate::bytes::Bytes;
use crate::choices::{AttentionChoice, CachePolicy, EngineChoice, IsaChoice, Pins, ThreadPins};
use crate::error::ConfigError;
use crate::host::HostMemory;
use crate::origin::{Origin, Sourced};
use crate::preset::{DEFAULT_CONTEXT_POSITIONS, Preset, default_chunk_positions};

pub use keys::{
    DRAFT_MAX, POSITIONS_MAX, SEQUENCES_MAX, SETTING_KEYS, SettingKey, SettingValues, THREADS_MAX,
};
pub use render::SettingRow;
pub use value::{PathList, PositiveCount};

use keys::Layer;

/// Size of a block when nobody says otherwise, for models that are large
/// enough for it.
pub const DEFAULT_BLOCK_BYTES: Bytes = Bytes(4 << 20);

/// A block takes at most one part in this many of the trunk, so that a small
/// model has blocks to stream too.
const BLOCK_TRUNK_PARTS: u64 = 32;

/// The largest block of a trunk of `trunk_bytes` when nobody says otherwise:
/// what a run streams in and what a packer cuts.
#[must_use]
pub fn default_block_bytes(trunk_bytes: u64) -> u64 {
    let most = trunk_bytes / BLOCK_TRUNK_PARTS;
    DEFAULT_BLOCK_BYTES.0.min(most).max(1)
}

/// A value that cannot be used, or a key that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingProblem {
    /// Where it stands.
    pub origin: Origin,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl fmt::Display for SettingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.reason)
    }
}

/// Every setting that cannot be used; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsErrors {
    /// In the order of the layers.
    pub problems: Vec<SettingProblem>,
}

impl std::error::Error for SettingsErrors {}

impl fmt::Display for SettingsErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.problems.as_slice() {
            return only.fmt(f);
        }
        write!(f, "{} settings cannot be used:", self.problems.len())?;
        self.problems
            .iter()
            .try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// A settings file, read by the caller.
#[derive(Debug, Clone, Copy)]
pub struct SettingsFile<'a> {
    /// Its path, for messages; relative paths in it start from its folder.
    pub path: &'a std::path::Path,
    /// Its text.
    pub text: &'a str,
}

/// Every layer above the preset.
#[derive(Debug, Default)]
pub struct SettingSources<'a> {
    /// The settings file, if there is one.
    pub file: Option<SettingsFile<'a>>,
    /// Environment variables; those that do not start with `K3_` are ignored.
    pub environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// Flags of the command line that were given.
    pub flags: SettingValues,
}

/// The settings in force.
///
/// A value without a default is `None` until somebody gives one: what it then
/// is depends on the model or the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How much memory: a size, or the preset in force.
    pub memory: Sourced<MemoryRequest>,
    /// Bytes of pinned trunk.
    pub trunk_gb: Option<Sourced<Gigabytes>>,
    /// Bytes of expert cache.
    pub cache_gb: Option<Sourced<Gigabytes>>,
    /// Positions a sequence may reach.
    pub context: Sourced<PositiveCount>,
    /// Positions that sequences which run together have memory for; each its whole
    /// context, or what it needs, if nobody says so.
    pub context_total: Option<Sourced<PositiveCount>>,
    /// Positions of one sweep; see [`Self::chunk_for`].
    pub chunk: Option<Sourced<PositiveCount>>,
    /// Compute threads.
    pub threads: Option<Sourced<PositiveCount>>,
    /// Whether each compute thread stays on a processor of its own.
    pub pin_threads: Sourced<ThreadPins>,
    /// Instruction set.
    pub isa: Sourced<IsaChoice>,
    /// Read engine.
    pub engine: Sourced<EngineChoice>,
    /// Largest size of a block.
    pub block_bytes: Sourced<Bytes>,
    /// Which blocks are pinned.
    pub pins: Sourced<Pins>,
    /// Which experts stay.
    pub policy: Sourced<CachePolicy>,
    /// Expert slots in all.
    pub slots: Option<Sourced<PositiveCount>>,
    /// Experts of the next layer that are read ahead; 0 is off.
    pub lookahead: Sourced<u32>,
    /// Tokens that are guessed ahead for a sequence; 0 is off.
    pub draft: Sourced<u32>,
    /// Sequences that run at a time.
    pub sequences: Option<Sourced<PositiveCount>>,
    /// Where states that may be wanted again are kept.
    pub prefix_cache: Option<Sourced<PathBuf>>,
    /// How much of them.
    pub prefix_cache_gb: Sourced<Gigabytes>,
    /// Where positions go that do not fit into memory.
    pub spill: Option<Sourced<PathBuf>>,
    /// How much of them.
    pub spill_gb: Option<Sourced<Gigabytes>>,
    /// Attention form.
    pub attention: Sourced<AttentionChoice>,
    /// Further folders that hold shards.
    pub root: Option<Sourced<PathList>>,
    /// Folders that hold a packed trunk.
    pub trunk: Option<Sourced<PathList>>,
    /// Folder or file of the tokenizer.
    pub tokenizer: Option<Sourced<PathBuf>>,
    /// Where metrics are served.
    pub metrics_listen: Option<Sourced<std::net::SocketAddr>>,
    /// What was given and changes nothing: variables that look like a mistyped
    /// setting, and presets beside a size. One sentence each.
    pub warnings: Vec<String>,
}

/// Bytes that the prefix cache takes on disk unless another number is given:
/// some twenty states of Kimi K3.
const DEFAULT_PREFIX_CACHE: Gigabytes = Gigabytes(Bytes(16_000_000_000));

impl Settings {
    /// Settings from their layers.
    ///
    /// # Errors
    ///
    /// [`SettingsErrors`] lists every value that cannot be read and every key
    /// of the settings file that does not exist.
    pub fn resolve(sources: SettingSources<'_>) -> Result<Self, SettingsErrors> {
        let mut problems = Vec::new();
        let file = sources
            .file
            .map(|file| file::read(file, &mut problems))
            .unwrap_or_default();
        let (environment, mut warnings) = environment::read(sources.environment, &mut problems);
        let flags = sources
            .flags
            .into_layer(|key| Origin::Flag { name: key.flag() });
        if !problems.is_empty() {
            return Err(SettingsErrors { problems });
        }
        let layers = [&file, &environment, &flags];
        warnings.extend(layers.into_iter().filter_map(idle_preset));
        let memory = memory_in_force(&layers);
        let layer = file.overridden_by(environment).overridden_by(flags);
        let context = u32::try_from(DEFAULT_CONTEXT_POSITIONS).expect("a small number");
        let context = PositiveCount::new(context).expect("not zero");
        Ok(Self {
            memory,
            trunk_gb: layer.trunk_gb,
            cache_gb: layer.cache_gb,
            context: or_default(layer.context, context),
            context_total: layer.context_total,
            chunk: layer.chunk,
            threads: layer.threads,
            pin_threads: or_default(layer.pin_threads, ThreadPins::Off),
            isa: or_default(layer.isa, IsaChoice::Auto),
            engine: or_default(layer.engine, EngineChoice::Auto),
            block_bytes: or_default(layer.block_bytes, DEFAULT_BLOCK_BYTES),
            pins: or_default(layer.pins, Pins::Spread),
            policy: or_default(layer.policy, CachePolicy::DeepLayers),
            slots: layer.slots,
            lookahead: or_default(layer.lookahead, 0),
            draft: or_default(layer.draft, 0),
            sequences: layer.sequences,
            prefix_cache: layer.prefix_cache,
            prefix_cache_gb: or_default(layer.prefix_cache_gb, DEFAULT_PREFIX_CACHE),
            spill: layer.spill,
            spill_gb: layer.spill_gb,
            attention: or_default(layer.attention, AttentionChoice::Latent),
            root: layer.root,
            trunk: layer.trunk,
            tokenizer: layer.tokenizer,
            metrics_listen: layer.metrics_listen,
            warnings,
        })
    }

    /// The memory budget these settings come to; `host` is called only if the
    /// machine has to be asked.
    ///
    /// # Errors
    ///
    /// Those of [`MemoryBudget::resolve`].
    pub fn budget(&self, host: impl FnOnce() -> HostMemory) -> Result<MemoryBudget, ConfigError> {
        let bytes =
            |gigabytes: &Option<Sourced<Gigabytes>>| gigabytes.as_ref().map(|size| size.value.0);
        let budget = MemoryBudget::resolve(&self.memory, host)?;
        Ok(budget.with_split(bytes(&self.trunk_gb), bytes(&self.cache_gb)))
    }

    /// Positions of one sweep within a budget of `total`: what was asked for,
    /// or what suits the budget.
    #[must_use]
    pub fn chunk_for(&self, total: Bytes) -> Sourced<u64> {
        match &self.chunk {
            Some(chunk) => Sourced::new(u64::from(chunk.value.get()), chunk.origin.clone()),
            None => {
                let origin = match self.memory.value {
                    MemoryRequest::Preset(preset) => Origin::Preset(preset),
                    MemoryRequest::Size(_) => Origin::Default,
                };
                Sourced::new(default_chunk_positions(total), origin)
            }
        }
    }
}

fn or_default<T>(given: Option<Sourced<T>>, default: T) -> Sourced<T> {
    given.unwrap_or_else(|| Sourced::default_value(default))
}

/// A sentence about a preset that stands beside a size in the same layer.
fn idle_preset(layer: &Layer) -> Option<String> {
    let (preset, memory) = (layer.preset.as_ref()?, layer.memory.as_ref()?);
    let (idle, decides) = (
        preset.origin.spelled("preset"),
        memory.origin.spelled("memory"),
    );
    Some(format!(
        "{idle} {} has no effect: {decides} {} decides, and a preset says nothing else",
        preset.value, memory.value
    ))
}

/// The last layer that names a size or a preset decides; within a layer the
/// size does.
fn memory_in_force(layers: &[&Layer]) -> Sourced<MemoryRequest> {
    let from_layer = |layer: &&Layer| {
        let preset = layer.preset.as_ref();
        let preset = preset
            .map(|preset| Sourced::new(MemoryRequest::Preset(preset.value), preset.origin.clone()));
        layer.memory.clone().or(preset)
    };
    let named = layers.iter().rev().find_map(from_layer);
    or_default(named, MemoryRequest::Preset(Preset::Auto))
}
