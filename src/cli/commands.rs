//! The arguments of the subcommands.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use clap_complete::Shell;
use k3_models::kimi_k3::AttentionForm;

use super::args::{DRAFT_MAX, POSITIONS_MAX, SEQUENCES_MAX, SpillArgs, THREADS_MAX, TOTAL_MAX};
use super::batch::{self, BatchArgs};
use super::bench::BenchArgs;
use super::demo::DemoArgs;
use super::integrity::{self, FetchArgs, RepairArgs, VerifyArgs};
use super::ladder::LadderArgs;
use super::memory::MemoryArgs;
use super::{help, values};
use k3_actors::sim::{AccessModel, ReplayPolicy};
use k3_config::{Bytes, CachePolicy, EngineChoice};

/// Everything but generating.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a run would reserve and read
    #[command(long_about = help::PLAN_ABOUT, after_help = help::PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Continue many prompts, as many at a time as pays
    #[command(long_about = batch::BATCH_ABOUT, after_help = batch::BATCH_EXAMPLES)]
    Batch(Box<BatchArgs>),
    /// Run the built-in model in more and more memory
    Demo(DemoArgs),
    /// Examine this machine: what fits, how fast, what is amiss
    #[command(long_about = help::DOCTOR_ABOUT, after_help = help::DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// List the named memory budgets
    Presets(PresetsArgs),
    /// Tell what a checkpoint holds and lacks
    #[command(long_about = help::INSPECT_ABOUT, after_help = help::INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Download a snapshot from the model hub
    #[command(long_about = integrity::FETCH_ABOUT, after_help = integrity::FETCH_EXAMPLES,
        allow_missing_positional = true)]
    Fetch(FetchArgs),
    /// Compare a checkpoint's bytes with what they should be
    #[command(long_about = integrity::VERIFY_ABOUT, after_help = integrity::VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Fetch the bad ranges of a checkpoint again
    #[command(long_about = integrity::REPAIR_ABOUT, after_help = integrity::REPAIR_EXAMPLES)]
    Repair(RepairArgs),
    /// Replay a trace of experts against a cache
    #[command(long_about = help::REPLAY_ABOUT, after_help = help::REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Run at several budgets, each held to it by the kernel
    #[command(long_about = help::LADDER_ABOUT, after_help = help::LADDER_EXAMPLES)]
    Ladder(Box<LadderArgs>),
    /// Measure the disk, or how well reading hides
    #[command(long_about = help::BENCH_ABOUT, after_help = help::BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Turn text into token ids
    #[command(after_help = help::TOKENIZE_EXAMPLES)]
    Tokenize(TokenizeArgs),
    /// Turn token ids back into bytes
    #[command(after_help = help::DETOKENIZE_EXAMPLES)]
    Detokenize(DetokenizeArgs),
    /// Compare two logit dumps
    #[command(long_about = help::COMPARE_ABOUT, after_help = help::COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Print a completion script for a shell
    #[command(after_help = help::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write the manual pages
    #[command(after_help = help::MAN_EXAMPLES)]
    Man(ManArgs),
}

/// Which vocabulary to use.
#[derive(Debug, Clone, Args)]
pub(crate) struct VocabularyArgs {
    /// Checkpoint directory with tiktoken.model [env: K3_MODEL]
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,

    /// Where tiktoken.model is [default: MODEL] [alias: --tok]
    #[arg(long, alias = "tok", value_name = "DIR")]
    pub tokenizer: Option<PathBuf>,
}

/// Text to ids.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("text_input").multiple(false).required(true))]
pub(crate) struct TokenizeArgs {
    /// Which vocabulary.
    #[command(flatten)]
    pub vocabulary: VocabularyArgs,

    /// Text to encode
    #[arg(
        short,
        long,
        value_name = "TEXT",
        group = "text_input",
        allow_hyphen_values = true
    )]
    pub text: Option<String>,

    /// File with the text to encode; `-` reads standard input
    #[arg(short, long, value_name = "FILE", group = "text_input")]
    pub file: Option<PathBuf>,

    /// Print a JSON array instead of ids separated by blanks
    #[arg(long)]
    pub json: bool,

    /// Read the spelling of a control token as that token
    ///
    /// For what a prompt template writes. Without it all text is content: no
    /// input makes a control token.
    #[arg(long)]
    pub structure: bool,
}

/// Ids to bytes.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("ids_input").multiple(false).required(true))]
pub(crate) struct DetokenizeArgs {
    /// Which vocabulary.
    #[command(flatten)]
    pub vocabulary: VocabularyArgs,

    /// Token ids, as in 3,4,5 or "3 4 5"
    #[arg(
        short,
        long,
        value_name = "LIST",
        group = "ids_input",
        allow_hyphen_values = true
    )]
    pub ids: Option<String>,

    /// File with token ids; `-` reads standard input
    #[arg(long, value_name = "FILE", group = "ids_input")]
    pub ids_file: Option<PathBuf>,

    /// Leave control tokens out instead of spelling them
    #[arg(long)]
    pub plain: bool,
}

/// Two logit dumps.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// A logit dump: raw little-endian f32
    #[arg(value_name = "A")]
    pub left: PathBuf,

    /// Another, of the same size
    #[arg(value_name = "B")]
    pub right: PathBuf,

    /// Values per position, when the dumps hold several positions
    #[arg(long, value_name = "N", value_parser = values::count(1, 1 << 24), allow_negative_numbers = true)]
    pub vocab: Option<u64>,

    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
}

/// A completion script.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,

    /// For which program: k3 or k3-pack [default: k3]
    #[arg(long, value_name = "PROGRAM", value_enum, default_value_t = Program::K3,
        hide_default_value = true, hide_possible_values = true)]
    pub program: Program,
}

/// A program of this package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// This one.
    K3,
    /// The packer.
    K3Pack,
}

/// Manual pages.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Existing directory for the pages, as in share/man/man1
    ///
    /// One for k3, one for k3-pack and one for each of their commands, named like
    /// k3-bench-disk.1. Pages of these names are overwritten.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// What a run would reserve.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Checkpoint directory [env: K3_MODEL]
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,

    /// Further directory that holds shards (repeatable)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,

    /// Directory of a packed trunk (repeatable)
    #[arg(long = "trunk", value_name = "DIR")]
    pub trunk: Vec<PathBuf>,

    /// As in a run; a plan reads no block
    #[arg(long)]
    pub no_checksums: bool,

    /// Plan a model whose weights are not here
    ///
    /// Its config.json, or a directory that holds one. With MODEL: use this
    /// configuration instead of the checkpoint's.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where tiktoken.model is [default: MODEL] [alias: --tok]
    #[arg(long, alias = "tok", value_name = "DIR")]
    pub tokenizer: Option<PathBuf>,

    /// How much memory.
    #[command(flatten)]
    pub memory: MemoryArgs,

    /// Most positions, prompt and answer [default: 4096]
    #[arg(long, value_name = "N", value_parser = values::count(1, POSITIONS_MAX), allow_negative_numbers = true)]
    pub context: Option<u64>,

    /// Prompt positions per sweep [default: 64, below 2 GiB 16]
    #[arg(long, value_name = "N", value_parser = values::count(1, POSITIONS_MAX), allow_negative_numbers = true)]
    pub chunk: Option<u64>,

    /// Sequences that run at a time [default: 1]
    #[arg(long, value_name = "N", value_parser = values::count(1, SEQUENCES_MAX), allow_negative_numbers = true)]
    pub sequences: Option<u64>,

    /// Positions that they share [default: a whole context for each]
    #[arg(long, value_name = "N", value_parser = values::count(1, TOTAL_MAX), allow_negative_numbers = true)]
    pub context_total: Option<u64>,

    /// Where positions go that do not fit into memory.
    #[command(flatten)]
    pub spill: SpillArgs,

    /// Tokens to guess ahead, at most [default: 0]
    #[arg(long, value_name = "N", value_parser = values::count(0, DRAFT_MAX), allow_negative_numbers = true)]
    pub draft: Option<u64>,

    /// Compute threads [default: all this process may use]
    #[arg(long, value_name = "N", value_parser = values::count(1, THREADS_MAX), allow_negative_numbers = true)]
    pub threads: Option<u64>,

    /// Attention: latent or expanded [default: latent]
    #[arg(long, value_name = "FORM", value_parser = values::AttentionParser, hide_possible_values = true)]
    pub attention: Option<AttentionForm>,

    /// What the disk reads, in 10^9 bytes per second
    #[arg(long, value_name = "RATE", value_parser = values::gigabytes_per_second, allow_negative_numbers = true)]
    pub disk_gbps: Option<f64>,

    /// Which experts stay in memory [default: deep-layers]
    #[arg(long, value_name = "NAME", value_parser = values::named::<CachePolicy>(CachePolicy::NAMES), hide_possible_values = true)]
    pub policy: Option<CachePolicy>,

    /// Reader: auto, uring or pread [default: auto]
    #[arg(long, value_name = "NAME", value_parser = values::named::<EngineChoice>(EngineChoice::NAMES), hide_possible_values = true)]
    pub engine: Option<EngineChoice>,

    /// As in a run; a plan measures no disk
    #[arg(long)]
    pub no_disk_probe: bool,

    /// Print the plan as JSON
    #[arg(long)]
    pub json: bool,
}

/// An examination of the machine.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Checkpoint, or any directory or file on the disk [env: K3_MODEL]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,

    /// Further directory that holds shards (repeatable)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,

    /// Predict for a model whose weights are not here
    ///
    /// Its config.json, or a directory that holds one; PATH tells where its
    /// weights will lie.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Write a temporary file of this size and measure that
    ///
    /// In PATH, else in the current directory; removed afterwards. Without it
    /// nothing is ever written.
    #[arg(long, value_name = "SIZE", value_parser = values::scratch_bytes, allow_hyphen_values = true)]
    pub scratch: Option<Bytes>,

    /// Most positions, prompt and answer [default: 4096]
    #[arg(long, value_name = "N", value_parser = values::count(1, POSITIONS_MAX), allow_negative_numbers = true)]
    pub context: Option<u64>,

    /// Compute threads [default: all this process may use]
    #[arg(long, value_name = "N", value_parser = values::count(1, THREADS_MAX), allow_negative_numbers = true)]
    pub threads: Option<u64>,

    /// Reader to measure with: auto, uring or pread [default: auto]
    #[arg(long, value_name = "NAME", value_parser = values::named::<EngineChoice>(EngineChoice::NAMES), hide_possible_values = true)]
    pub engine: Option<EngineChoice>,

    /// Settings file [env: K3_SETTINGS]
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,

    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

/// The presets.
#[derive(Debug, Args)]
pub(crate) struct PresetsArgs {
    /// Print the presets as JSON
    #[arg(long)]
    pub json: bool,
}

/// What a checkpoint holds.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Checkpoint directory [env: K3_MODEL]
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,

    /// Further directory that holds shards (repeatable)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,

    /// Use this config.json instead of the checkpoint's
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Directory of a packed trunk to tell of as well (repeatable)
    ///
    /// MODEL may also be such a directory itself: with the others of a striped
    /// trunk named here.
    #[arg(long = "trunk", value_name = "DIR")]
    pub trunk: Vec<PathBuf>,

    /// Print the census as JSON, with every shard
    #[arg(long)]
    pub json: bool,
}

/// A replay.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A trace, as --dump-trace writes it; `-` reads standard input
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Slots in all, as in 512,2048 [default: 512,1024,2048,4096]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',',
        value_parser = values::count(1, POSITIONS_MAX), allow_negative_numbers = true,
        default_values_t = [512, 1024, 2048, 4096], hide_default_value = true)]
    pub slots: Vec<u64>,

    /// Which experts stay [default: deep-layers]
    ///
    /// deep-layers, lru, decayed-frequency, or belady: the best that knowledge of
    /// the future allows.
    #[arg(long, value_name = "NAME", default_value_t, hide_default_value = true)]
    pub policy: ReplayPolicy,

    /// Slots of each that only let experts pass [default: 0]
    #[arg(long, value_name = "N", value_parser = values::count(0, POSITIONS_MAX),
        allow_negative_numbers = true, default_value_t = 0, hide_default_value = true)]
    pub transit: u64,

    /// Experts picked per position and layer [default: 16]
    #[arg(long, value_name = "K", value_parser = values::count(1, 1 << 16),
        allow_negative_numbers = true, default_value_t = 16, hide_default_value = true)]
    pub topk: u64,

    /// Demands: pick or batch [default: batch]
    ///
    /// pick looks up one expert at a time, in (position, layer, pick) order;
    /// batch all distinct ones of a layer at once, as a run does.
    #[arg(long, value_name = "HOW", default_value_t, hide_default_value = true)]
    pub model: AccessModel,

    /// Replay the trace's last sweep only
    ///
    /// As a prompt followed by single positions: for traces whose every sweep
    /// recomputed the whole text.
    #[arg(long)]
    pub last_pass: bool,

    /// Positions of the prompt [default: the first sweep's]
    #[arg(long, value_name = "N", value_parser = values::count(1, POSITIONS_MAX), allow_negative_numbers = true)]
    pub prompt_positions: Option<u64>,

    /// Size of one expert [default: 17547264, Kimi K3's]
    #[arg(long, value_name = "SIZE", value_parser = values::positive_bytes,
        default_value = "17547264", hide_default_value = true)]
    pub expert_bytes: Bytes,

    /// Print the replay as JSON, with every step
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::cli::args::Cli;

    /// A plan is asked for with the options of the run that is to follow.
    #[test]
    fn a_plan_takes_every_option_of_a_run_about_memory_and_reading() {
        let cli = Cli::command();
        let plan = cli.find_subcommand("plan").unwrap();
        let has = |name| {
            let mut names = plan.get_arguments().filter_map(clap::Arg::get_long);
            names.any(|long| long == name)
        };
        let mut seen = 0;
        for argument in cli.get_arguments() {
            let Some(name) = argument.get_long() else {
                continue;
            };
            let is_reading = argument.get_help_heading() == Some("Memory and reading");
            let is_place = ["root", "trunk", "no-checksums", "tokenizer"].contains(&name);
            // With everything in memory there is nothing to plan; the other is a
            // command.
            let is_other = ["resident", "list-presets"].contains(&name);
            if (is_reading || is_place) && !is_other {
                assert!(has(name), "--{name}");
                seen += 1;
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
