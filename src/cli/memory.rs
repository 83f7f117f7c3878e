//! The arguments that say how much memory a run takes and how it reads.

use std::path::PathBuf;

use clap::Args;
use k3_config::{
    Bytes, CachePolicy, EngineChoice, Gigabytes, MemoryRequest, Pins, PositiveCount, Preset,
    SettingValues,
};

use super::values;

/// How much memory, and how it is split.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Memory and reading")]
pub(crate) struct MemoryArgs {
    /// Most memory to use: 8G, 1.5GiB or a preset [default: auto]
    ///
    /// G is 10^9 bytes, GiB is 2^30. Less memory reads more, and the results are
    /// the same bytes. `auto` takes what this machine and its control groups can
    /// spare. A budget that is too small is refused with the figure that would do.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<MemoryRequest>,

    /// A named budget; see `k3 presets`
    ///
    /// A preset is an amount of memory and nothing else; what is chosen by that
    /// amount (--chunk) follows. Beside --memory it has no effect, and a note
    /// says so. Either as an option overrides both as variables, and those as
    /// variables override both in the settings file.
    #[arg(long, value_name = "NAME", value_parser = values::named::<Preset>(Preset::NAMES), hide_possible_values = true)]
    pub preset: Option<Preset>,

    /// Pinned trunk, in 10^9 bytes [default: what fits]
    ///
    /// Weights that every token uses and that stay in memory. Exactly this much
    /// is reserved, instead of all that the rest of the plan leaves.
    #[arg(long, value_name = "GB", allow_hyphen_values = true)]
    pub trunk_gb: Option<Gigabytes>,

    /// Expert cache, in 10^9 bytes [default: what is left]
    #[arg(
        long,
        value_name = "GB",
        conflicts_with = "slots",
        allow_hyphen_values = true
    )]
    pub cache_gb: Option<Gigabytes>,

    /// Expert slots in all, at least 4 [default: what fits]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub slots: Option<PositiveCount>,

    /// Experts to read a layer early [default: 0]
    ///
    /// The next layer's router runs on what this layer leaves, and for every
    /// position its best N guesses are read before they are asked for. The
    /// results are the same bytes; wrong guesses are read in vain and counted.
    /// Helps where the disk waits for the processor, with few guesses: no layer
    /// needs more than it picks. Keeps all routers in memory. Sweeps of more
    /// than 4 positions do not guess.
    #[arg(long, value_name = "N")]
    pub lookahead: Option<u32>,

    /// Where pins lie: spread or prefix [default: spread]
    ///
    /// Which part of the trunk stays in memory when not all of it fits: blocks
    /// spread evenly over the layers, or the first ones.
    #[arg(long, value_name = "HOW", value_parser = values::named::<Pins>(Pins::NAMES), hide_possible_values = true)]
    pub pins: Option<Pins>,

    /// Largest piece of a matrix [default: 4 MiB]
    ///
    /// The unit that is read, kept and multiplied. A small model takes at most
    /// 1/32 of its trunk, and no block is shorter than a row.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_bytes, allow_hyphen_values = true)]
    pub block_bytes: Option<Bytes>,

    /// Settings file [env: K3_SETTINGS]
    ///
    /// TOML with keys named like the options (`memory = "8G"`). Without either,
    /// k3/settings.toml in the user's configuration directory, if there is one.
    /// An option comes before its variable (K3_MEMORY), a variable before the
    /// file. `k3 plan` shows what is in force and where it was said.
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
}

impl MemoryArgs {
    /// The values given, as a layer of settings.
    pub(crate) fn values(&self) -> SettingValues {
        SettingValues {
            memory: self.memory,
            preset: self.preset,
            trunk_gb: self.trunk_gb,
            cache_gb: self.cache_gb,
            slots: self.slots,
            lookahead: self.lookahead,
            pins: self.pins,
            block_bytes: self.block_bytes,
            ..SettingValues::default()
        }
    }
}

/// How a run reads.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Memory and reading")]
pub(crate) struct ReadingArgs {
    /// Which experts stay in memory [default: deep-layers]
    ///
    /// deep-layers, lru or decayed-frequency. `k3 replay` compares them on a
    /// trace.
    #[arg(long, value_name = "NAME", value_parser = values::named::<CachePolicy>(CachePolicy::NAMES), hide_possible_values = true)]
    pub policy: Option<CachePolicy>,

    /// Reader: auto, uring or pread [default: auto]
    ///
    /// Where io_uring is forbidden, pread threads take its place and the report
    /// says so.
    #[arg(long, value_name = "NAME", value_parser = values::named::<EngineChoice>(EngineChoice::NAMES), hide_possible_values = true)]
    pub engine: Option<EngineChoice>,

    /// What the disk reads, in 10^9 bytes per second
    ///
    /// What the report compares the run's reading with: `k3 doctor` measures it.
    /// Without it a large model's disks are measured for at most a second before
    /// the run.
    #[arg(long, value_name = "RATE", value_parser = values::gigabytes_per_second,
        allow_negative_numbers = true)]
    pub disk_gbps: Option<f64>,

    /// Do not measure the disk before the run
    #[arg(long)]
    pub no_disk_probe: bool,

    /// Keep every weight in memory and read nothing later
    ///
    /// For models smaller than memory, and as the reference that streaming is
    /// compared with.
    #[arg(long, conflicts_with_all = [
        "memory", "preset", "trunk_gb", "cache_gb", "slots", "lookahead", "pins", "policy",
        "engine", "disk_gbps", "no_disk_probe",
    ])]
    pub resident: bool,
}

/// A count the parser has bounded, as a setting.
pub(crate) fn positive(count: u64) -> PositiveCount {
    let count = u32::try_from(count).ok().and_then(PositiveCount::new);
    count.expect("bounded by the parser")
}
