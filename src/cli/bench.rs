//! The arguments of `k3 bench`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::StyledStr;
use clap::{Arg, Args, Subcommand};
use k3_benchmarks::kernels::Group;
use k3_config::{Bytes, CachePolicy, EngineChoice, IsaChoice};
use k3_kernels::Isa;

use super::args::{POSITIONS_MAX, PlacementArgs, THREADS_MAX};
use super::memory::MemoryArgs;
use super::metrics::MetricsArgs;
use super::{help, values};

/// Most positions of a measured sweep.
const SWEEP_POSITIONS_MAX: u64 = 4096;
/// Most repetitions of a measure.
const ROUNDS_MAX: u64 = 999;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What.
    #[command(subcommand)]
    pub what: BenchCommand,
}

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// The arithmetic of one token, every share of it by name
    #[command(long_about = help::BENCH_DECODE_ABOUT, after_help = help::BENCH_DECODE_EXAMPLES)]
    Decode(DecodeArgs),
    /// Reading at k3's settings against the best of the disk
    #[command(long_about = help::BENCH_DISK_ABOUT, after_help = help::BENCH_DISK_EXAMPLES)]
    Disk(DiskArgs),
    /// What coding the experts without loss would save and cost
    #[command(long_about = help::BENCH_EXPERTS_ABOUT, after_help = help::BENCH_EXPERTS_EXAMPLES)]
    Experts(ExpertsArgs),
    /// Streamed sweeps against their reads and arithmetic alone
    #[command(long_about = help::BENCH_OVERLAP_ABOUT, after_help = help::BENCH_OVERLAP_EXAMPLES)]
    Overlap(OverlapArgs),
    /// What a position of a prompt costs, by the size of a chunk
    #[command(long_about = help::BENCH_PREFILL_ABOUT, after_help = help::BENCH_PREFILL_EXAMPLES)]
    Prefill(PrefillArgs),
    /// Kernels against reading the memory their weights lie in
    #[command(long_about = help::BENCH_KERNELS_ABOUT, after_help = help::BENCH_KERNELS_EXAMPLES)]
    Kernels(KernelsArgs),
}

/// What a limit that is missed comes to.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct CheckArgs {
    /// Exit with 1 when a limit is missed
    #[arg(long, help_heading = "Output")]
    pub check: bool,
}

/// Where a result goes.
#[derive(Debug, Clone, Args)]
pub(crate) struct ResultArgs {
    /// Write the result as JSON
    #[arg(short, long, value_name = "FILE", value_parser = values::output_path(),
        help_heading = "Output")]
    pub out: Option<PathBuf>,

    /// Print the result as JSON instead of tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// No progress
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,

    /// Where to watch the measurement.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// A model that is measured, and who computes.
#[derive(Debug, Args)]
pub(crate) struct MeasuredArgs {
    /// Checkpoint directory [env: K3_MODEL]
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,

    /// Further directory that holds shards (repeatable)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,

    /// Use this config.json instead of the checkpoint's
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Measure only the first N layers
    #[arg(long, value_name = "N", value_parser = values::count(1, 1 << 12), allow_negative_numbers = true)]
    pub layers: Option<u64>,

    /// Compute threads [default: all this process may use]
    #[arg(long, value_name = "N", value_parser = values::count(1, THREADS_MAX), allow_negative_numbers = true)]
    pub threads: Option<u64>,

    /// auto, scalar, avx2 or avx512 [default: auto]
    #[arg(long, value_name = "ISA", value_parser = values::IsaChoiceParser, hide_possible_values = true)]
    pub isa: Option<IsaChoice>,

    /// Which processors they run on.
    #[command(flatten)]
    pub placement: PlacementArgs,
}

/// A model whose sweeps are streamed.
#[derive(Debug, Args)]
pub(crate) struct StreamedArgs {
    /// The model, and who computes.
    #[command(flatten)]
    pub measured: MeasuredArgs,

    /// How much memory a streamed sweep takes.
    #[command(flatten)]
    pub memory: MemoryArgs,

    /// Which experts stay in memory [default: deep-layers]
    #[arg(long, value_name = "NAME", value_parser = values::named::<CachePolicy>(CachePolicy::NAMES), hide_possible_values = true, help_heading = "Memory and reading")]
    pub policy: Option<CachePolicy>,

    /// Reader: auto, uring or pread [default: auto]
    #[arg(long, value_name = "NAME", value_parser = values::named::<EngineChoice>(EngineChoice::NAMES), hide_possible_values = true, help_heading = "Memory and reading")]
    pub engine: Option<EngineChoice>,
}

/// With all that the machine can spare little would be streamed.
fn by_default_the_floor(memory: Arg) -> Arg {
    let of_floor = |help: &StyledStr| {
        let help = help.to_string();
        help.replace("[default: auto]", "[default: floor]")
    };
    let short = memory.get_help().map(of_floor);
    let long = memory.get_long_help().map(of_floor);
    memory
        .help(short.unwrap_or_default())
        .long_help(long.unwrap_or_default())
}

/// A measurement of overlap.
#[derive(Debug, Args)]
#[command(mut_arg("memory", by_default_the_floor))]
pub(crate) struct OverlapArgs {
    /// The model, and how it is streamed.
    #[command(flatten)]
    pub streamed: StreamedArgs,

    /// Positions of a sweep, as in 1,16 [default: 1,auto,64]
    ///
    /// `auto` is the number, up to the largest of the list (64 if it stands
    /// alone), at which reading and arithmetic take equally long. Only there can
    /// a perfect overlap halve the time.
    #[arg(
        long,
        value_name = "N,N,…",
        value_delimiter = ',',
        default_value = "1,auto,64",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub positions: Vec<SweepPositions>,

    /// Pass the output head in sweeps of several positions too
    ///
    /// Without it they are what a prompt's chunks are: only the last of those
    /// reads and multiplies the head. A sweep of one position always passes it.
    #[arg(long)]
    pub head: bool,

    /// Triples of each [default: 7]
    #[arg(long, value_name = "N", value_parser = values::count(1, ROUNDS_MAX),
        default_value_t = 7, hide_default_value = true, allow_negative_numbers = true)]
    pub rounds: u64,

    /// Most that wall / the longer side may be [default: 1.15]
    #[arg(long, value_name = "RATIO", value_parser = values::ratio,
        default_value_t = 1.15, hide_default_value = true, allow_negative_numbers = true)]
    pub limit: f64,

    /// Weights for compute alone [default: 1.25G]
    ///
    /// Blocks and experts of the checkpoint that take turns, so many that no
    /// cache of the processor holds them. They and the memory of I/O alone come
    /// on top of the budget.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_bytes,
        default_value = "1.25G", hide_default_value = true, allow_hyphen_values = true)]
    pub buffer: Bytes,

    /// What a missed limit comes to.
    #[command(flatten)]
    pub check: CheckArgs,

    /// Where the result goes.
    #[command(flatten)]
    pub result: ResultArgs,
}

/// A measurement of prompts.
#[derive(Debug, Args)]
#[command(mut_arg("memory", by_default_the_floor))]
pub(crate) struct PrefillArgs {
    /// The model, and how it is streamed.
    #[command(flatten)]
    pub streamed: StreamedArgs,

    /// Positions of a chunk, as in 1,16 [default: 1,4,16,64]
    #[arg(
        long,
        value_name = "N,N,…",
        value_delimiter = ',',
        value_parser = values::count(1, SWEEP_POSITIONS_MAX),
        default_value = "1,4,16,64",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub chunks: Vec<u64>,

    /// Rounds over all of them [default: 3]
    #[arg(long, value_name = "N", value_parser = values::count(1, ROUNDS_MAX),
        default_value_t = 3, hide_default_value = true, allow_negative_numbers = true)]
    pub rounds: u64,

    /// Where the result goes.
    #[command(flatten)]
    pub result: ResultArgs,
}

/// A measurement of a token's arithmetic.
#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// The model, and who computes.
    #[command(flatten)]
    pub measured: MeasuredArgs,

    /// Tell a token's time for the model of this config.json
    ///
    /// It may have other numbers of layers and experts than the checkpoint, not
    /// other widths. [default: the released model if the widths are its, else the
    /// checkpoint itself]
    #[arg(long, value_name = "FILE")]
    pub target: Option<PathBuf>,

    /// Tokens that are measured [default: 7]
    #[arg(long, value_name = "N", value_parser = values::count(1, ROUNDS_MAX),
        default_value_t = 7, hide_default_value = true, allow_negative_numbers = true)]
    pub rounds: u64,

    /// Positions before them [default: 0]
    #[arg(long, value_name = "N", value_parser = values::count(0, POSITIONS_MAX),
        default_value_t = 0, hide_default_value = true, allow_negative_numbers = true)]
    pub context: u64,

    /// Most core-seconds of a token [default: 16]
    #[arg(long, value_name = "SECONDS", value_parser = values::core_seconds,
        default_value_t = 16.0, hide_default_value = true, allow_negative_numbers = true)]
    pub limit: f64,

    /// Weights that take turns [default: 1.25G]
    ///
    /// Blocks and experts of the checkpoint, so many that no cache of the processor
    /// holds them.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_bytes,
        default_value = "1.25G", hide_default_value = true, allow_hyphen_values = true)]
    pub buffer: Bytes,

    /// Settings file (TOML) [env: K3_SETTINGS]
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,

    /// What a missed limit comes to.
    #[command(flatten)]
    pub check: CheckArgs,

    /// Where the result goes.
    #[command(flatten)]
    pub result: ResultArgs,
}

/// A measurement of what coding experts would save.
#[derive(Debug, Args)]
pub(crate) struct ExpertsArgs {
    /// Checkpoint directory [env: K3_MODEL]
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,

    /// Further directory that holds shards (repeatable)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,

    /// Use this config.json instead of the checkpoint's
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Experts that are looked at, spread over all [default: 24]
    ///
    /// They and what they are coded to lie in memory meanwhile: about twice
    /// their bytes.
    #[arg(long, value_name = "N", value_parser = values::count(1, 1 << 16),
        default_value_t = 24, hide_default_value = true, allow_negative_numbers = true)]
    pub sample: u64,

    /// Samples of each rate [default: 7]
    #[arg(long, value_name = "N", value_parser = values::count(1, ROUNDS_MAX),
        default_value_t = 7, hide_default_value = true, allow_negative_numbers = true)]
    pub rounds: u64,

    /// CPU seconds of each sample [default: 0.25]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds,
        default_value_t = 0.25, hide_default_value = true, allow_negative_numbers = true)]
    pub seconds: f64,

    /// auto, scalar, avx2 or avx512: whose product is timed [default: auto]
    #[arg(long, value_name = "ISA", value_parser = values::IsaChoiceParser, hide_possible_values = true)]
    pub isa: Option<IsaChoice>,

    /// Where the result goes.
    #[command(flatten)]
    pub result: ResultArgs,
}

/// A measurement of reading.
#[derive(Debug, Args)]
pub(crate) struct DiskArgs {
    /// A checkpoint, a file or a directory of files [env: K3_MODEL]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,

    /// Further directory that holds shards (repeatable)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,

    /// Reader: auto, uring or pread [default: auto]
    ///
    /// The reader that is compared with the best. The sweep measures both kinds.
    #[arg(long, value_name = "NAME", value_parser = values::named::<EngineChoice>(EngineChoice::NAMES), hide_possible_values = true)]
    pub engine: Option<EngineChoice>,

    /// Pairs of the best and the reader [default: 9]
    #[arg(long, value_name = "N", value_parser = values::count(1, ROUNDS_MAX),
        default_value_t = 9, hide_default_value = true, allow_negative_numbers = true)]
    pub pairs: u64,

    /// Rounds of the sweep [default: 3]
    #[arg(long, value_name = "N", value_parser = values::count(1, ROUNDS_MAX),
        default_value_t = 3, hide_default_value = true, allow_negative_numbers = true)]
    pub rounds: u64,

    /// Seconds for each cell and round, four times that in a pair [default: 0.25]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds,
        default_value_t = 0.25, hide_default_value = true, allow_negative_numbers = true)]
    pub seconds: f64,

    /// Least that reader / best may be [default: 0.95]
    #[arg(long, value_name = "RATIO", value_parser = values::ratio,
        default_value_t = 0.95, hide_default_value = true, allow_negative_numbers = true)]
    pub limit: f64,

    /// What a missed limit comes to.
    #[command(flatten)]
    pub check: CheckArgs,

    /// Where the result goes.
    #[command(flatten)]
    pub result: ResultArgs,
}

/// A measurement of kernels.
#[derive(Debug, Args)]
pub(crate) struct KernelsArgs {
    /// Measure only these, as in bf16,mxfp4 [default: all]
    ///
    /// read, bf16, bf16-x3, mxfp4, router, kda, attention, elementwise, norm or pool.
    #[arg(
        long = "kernel",
        value_name = "NAME,…",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub kernels: Vec<Group>,

    /// Only these instruction sets [default: all of this machine]
    #[arg(long = "isa", value_name = "NAME,…", value_delimiter = ',',
        value_parser = values::IsaParser, hide_possible_values = true)]
    pub isas: Vec<Isa>,

    /// Numbers of threads, as in 1,4 or 1,all [default: 1,all]
    ///
    /// Products and reading take as many; other kernels run on one.
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,all",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub threads: Vec<ThreadCount>,

    /// Weights that take turns [default: 1.25G]
    ///
    /// Reserved in 2 MiB pages. With less than 1.2G a cache of the processor
    /// may hold some, and rates say little.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_bytes,
        default_value = "1.25G", hide_default_value = true, allow_hyphen_values = true)]
    pub weights: Bytes,

    /// Samples of each measure [default: 7]
    #[arg(long, value_name = "N", value_parser = values::count(1, ROUNDS_MAX),
        default_value_t = 7, hide_default_value = true, allow_negative_numbers = true)]
    pub rounds: u64,

    /// CPU seconds of each sample and thread [default: 0.05]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds,
        default_value_t = 0.05, hide_default_value = true, allow_negative_numbers = true)]
    pub seconds: f64,

    /// Write the rows, separated by tabs
    #[arg(long, value_name = "FILE", value_parser = values::output_path(),
        help_heading = "Output")]
    pub tsv: Option<PathBuf>,

    /// What a missed limit comes to.
    #[command(flatten)]
    pub check: CheckArgs,

    /// Where the result goes.
    #[command(flatten)]
    pub result: ResultArgs,
}

/// A number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadCount {
    /// This many.
    Count(u64),
    /// As many as this process may use.
    All,
}

impl FromStr for ThreadCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        match text.parse() {
            Ok(count) if (1..=THREADS_MAX).contains(&count) => Ok(Self::Count(count)),
            _ => Err(format!(
                "neither a number from 1 to {THREADS_MAX} nor `all`"
            )),
        }
    }
}

/// Positions of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SweepPositions {
    /// This many.
    Count(u64),
    /// As many as make both sides equally long.
    Auto,
}

impl FromStr for SweepPositions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(count) if (1..=SWEEP_POSITIONS_MAX).contains(&count) => Ok(Self::Count(count)),
            _ => Err(format!(
                "neither a number from 1 to {SWEEP_POSITIONS_MAX} nor `auto`"
            )),
        }
    }
}

impl fmt::Display for SweepPositions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}
