//! The memory dial: from a size to a plan, and what settings say on the way.
//!
//! A run has one budget. [`Settings`] says how large it is and where that was
//! said, [`HostMemory`] what the machine offers if nobody did,
//! [`ModelFootprint`] what the model costs, and [`plan()`] divides the budget
//! into reservations before anything is reserved, or refuses with the exact
//! figure that would do.
//!
//! Invariants
//!
//! - The crate reserves no memory for a model and opens no file of one. Only
//!   the readers of [`HostMemory`], [`HostCpu`], [`HostKernel`] and
//!   [`StorageDevice`], and [`GroupParent`], open files at all: those in which
//!   the kernel describes the machine and its groups.
//! - [`ModelFootprint`] is the one place where a model family states its
//!   sizes; whoever plans memory or predicts bytes per token reads them here.
//! - Sizes are bytes. What is not known about the machine is said to be
//!   unknown; no figure is guessed.
//!
//! Map: [`bytes`](Bytes) · [`preset`](Preset) · [`budget`](MemoryBudget) ·
//! [`footprint`](ModelFootprint) · [`plan`](BudgetPlan) ·
//! [`host`](HostMemory) · [`memory_group`](GroupParent) · [`settings`](Settings) · [`origin`](Origin) ·
//! [`choices`](Pins) · [`lossy`] · [`error`](ConfigError).
#![forbid(unsafe_code)]

mod budget;
mod bytes;
mod choices;
mod error;
mod footprint;
mod host;
pub mod lossy;
mod memory_group;
mod names;
mod origin;
mod plan;
mod preset;
mod settings;

pub use budget::{BudgetOrigin, Gigabytes, MemoryBudget, MemoryRequest, ParseMemoryError};
pub use bytes::{Bytes, ParseBytesError};
pub use choices::{AttentionChoice, CachePolicy, EngineChoice, IsaChoice, Pins, ThreadPins};
pub use error::ConfigError;
pub use footprint::{BlockFootprint, BlockKind, ModelFootprint, pool_page_count, touched_pages};
pub use host::{
    AUTO_RESERVE_MIN, AUTO_RESERVE_PERCENT, AutoBudget, CgroupLimit, CgroupVersion, CpuCount,
    CpuPlace, CpuQuota, CpuTopology, GroupUse, Headroom, HostCpu, HostKernel, HostMemory,
    HostProblem, MemlockLimit, ProblemArea, StorageDevice, TransparentHugepages,
};
pub use memory_group::{
    GROUP_PROCS, GroupError, GroupParent, GroupPeaks, GroupReader, GroupReading, MemoryGroup,
    remove_group,
};
pub use names::UnknownName;
pub use origin::{Origin, Sourced};
pub use plan::{
    ArenaLayout, BudgetPlan, DiskForecast, ForcedSplit, LOOKAHEAD_POSITIONS_MAX, LineKind,
    LookaheadPlan, PagePlan, PinMap, PinSummary, PlanLine, PlanRefusal, PlanRequest, Prediction,
    RefusedBetween, RingPlan, Shortfall, SlotPlan, SpillRequest, SplitKind, WorkspaceShape,
    pinned_blocks, plan, plan_by_budget,
};
pub use preset::{
    DEFAULT_CHUNK_POSITIONS, DEFAULT_CONTEXT_POSITIONS, Preset, SMALL_BUDGET,
    SMALL_CHUNK_POSITIONS, default_chunk_positions,
};
pub use settings::{
    DEFAULT_BLOCK_BYTES, DRAFT_MAX, POSITIONS_MAX, PathList, PositiveCount, SEQUENCES_MAX,
    SETTING_KEYS, SettingKey, SettingProblem, SettingRow, SettingSources, SettingValues, Settings,
    SettingsErrors, SettingsFile, THREADS_MAX, default_block_bytes,
};
