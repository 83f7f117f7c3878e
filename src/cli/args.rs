//! The arguments of `k3` itself: generation.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments here are help texts, brackets included"
)]

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser};
use k3_config::{Gigabytes, IsaChoice, ThreadPins};
use k3_models::kimi_k3::AttentionForm;

use super::commands::Command;
use super::memory::{MemoryArgs, ReadingArgs};
use super::metrics::MetricsArgs;
use super::sampling::ShapingArgs;
use super::{help, values};

/// Tokens generated unless `--gen` says otherwise.
pub(crate) const DEFAULT_GEN: usize = 16;
/// Most tokens or positions a command line may ask for.
pub(crate) const POSITIONS_MAX: u64 = k3_config::POSITIONS_MAX as u64;
/// Most positions of all sequences together.
pub(crate) const TOTAL_MAX: u64 = u32::MAX as u64;
/// Tokens that are guessed ahead at most.
pub(crate) const DRAFT_MAX: u64 = k3_config::DRAFT_MAX as u64;
/// Sequences that run at a time at most.
pub(crate) const SEQUENCES_MAX: u64 = k3_config::SEQUENCES_MAX as u64;
/// Answers to one prompt at most.
pub(crate) const CHOICES_MAX: u64 = 64;
/// Compute threads at most, in every layer of settings.
pub(crate) const THREADS_MAX: u64 = k3_config::THREADS_MAX as u64;

/// Runs models larger than memory, from the real weights
#[derive(Debug, Parser)]
#[command(
    name = "k3",
    version,
    max_term_width = 80,
    override_usage = help::USAGE,
    about,
    long_about = help::LONG_ABOUT,
    after_help = help::SHORT_EXAMPLES,
    after_long_help = help::LONG_EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_help_heading = "Commands"
)]
pub(crate) struct Cli {
    /// What else than generating.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to generate.
    #[command(flatten)]
    pub generate: GenerateArgs,
    /// List the named memory budgets and end
    #[arg(long, help_heading = "Memory and reading", display_order = 1000)]
    pub list_presets: bool,
}

/// Everything generation takes.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("input").multiple(false))]
pub(crate) struct GenerateArgs {
    /// Where the checkpoint is.
    #[command(flatten)]
    pub model: ModelArgs,
    /// What to continue.
    #[command(flatten)]
    pub prompt: PromptArgs,
    /// How far and how to continue.
    #[command(flatten)]
    pub generation: GenerationArgs,
    /// How many answers, and what becomes of the conversation.
    #[command(flatten)]
    pub answer: AnswerArgs,
    /// How much memory to use.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// How to read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// How to compute.
    #[command(flatten)]
    pub execution: ExecutionArgs,
    /// What to keep for later runs.
    #[command(flatten)]
    pub prefix: PrefixArgs,
    /// What to write where.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Where to watch the run.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// Where the checkpoint is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Checkpoint directory as downloaded [env: K3_MODEL]
    ///
    /// It holds config.json, the *.safetensors shards and, for text,
    /// tiktoken.model. A directory that has the name of a command is reachable
    /// as ./tokenize. An empty K3_MODEL counts as unset.
    #[arg(value_name = "MODEL", help_heading = None)]
    pub model: Option<PathBuf>,

    /// Further directory that holds shards (repeatable)
    ///
    /// Searched, in the order given, for shards that are not in MODEL: a
    /// checkpoint may lie on several drives.
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,

    /// Directory of a packed trunk (repeatable)
    ///
    /// What k3-pack trunk wrote: every directory it was striped over. Also a
    /// directory with trunk.bin and trunk.json of other tools. Only the trunk is
    /// read there, everything else in MODEL; the results are the same bytes.
    #[arg(long = "trunk", value_name = "DIR")]
    pub trunk: Vec<PathBuf>,

    /// Do not compare the packed trunk with its checksums
    ///
    /// Every block that is read is compared otherwise; the report says what that
    /// takes.
    #[arg(long)]
    pub no_checksums: bool,

    /// Use this config.json instead of the checkpoint's
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where tiktoken.model is [default: MODEL] [alias: --tok]
    ///
    /// A directory with tiktoken.model (and tokenizer_config.json, which names
    /// the control tokens; without it the released names are used), or the
    /// tiktoken.model itself.
    #[arg(long, alias = "tok", value_name = "DIR")]
    pub tokenizer: Option<PathBuf>,

    /// Run only the first N layers
    ///
    /// For tests of a part of a model: the output head follows the last layer
    /// that is run, so the text means little.
    #[arg(long, value_name = "N", value_parser = values::count(1, 1 << 12), allow_negative_numbers = true)]
    pub layers: Option<u64>,
}

/// What to continue; exactly one is needed, or none beside a saved conversation.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Prompt (exactly one)")]
pub(crate) struct PromptArgs {
    /// Text to continue
    ///
    /// Encoded as content: the spelling of a control token in it is ordinary
    /// text. Nothing is added before or after it.
    #[arg(
        short,
        long,
        value_name = "TEXT",
        group = "input",
        allow_hyphen_values = true
    )]
    pub prompt: Option<String>,

    /// File with the text; `-` reads standard input
    #[arg(long, value_name = "FILE", group = "input")]
    pub prompt_file: Option<PathBuf>,

    /// Token ids to continue, as in 3,4,5 or "3 4 5"
    #[arg(long, value_name = "LIST", group = "input", allow_hyphen_values = true)]
    pub ids: Option<String>,

    /// File with token ids; `-` reads standard input
    ///
    /// Ids separated by blanks, line ends or commas, or one JSON array as
    /// `k3 tokenize --json` writes it.
    #[arg(long, value_name = "FILE", group = "input")]
    pub ids_file: Option<PathBuf>,
}

impl PromptArgs {
    /// Names `ids` instead of what was given.
    pub(crate) fn take_ids(&mut self, ids: &[u32]) {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        *self = Self {
            prompt: None,
            prompt_file: None,
            ids: Some(ids.join(",")),
            ids_file: None,
        };
    }
}

/// How far and how to continue.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Generation")]
pub(crate) struct GenerationArgs {
    /// Tokens to generate [default: 16; 0 with --tf-check]
    ///
    /// 0 reads the prompt only, for --dump-logits, --dump-trace and
    /// --tf-check.
    #[arg(short = 'n', long = "gen", value_name = "N", value_parser = values::count(0, POSITIONS_MAX), allow_negative_numbers = true)]
    pub gen_count: Option<u64>,

    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingArgs,

    /// What else is drawn, and where it ends.
    #[command(flatten)]
    pub shaping: ShapingArgs,

    /// Go on after a token that ends the message
    ///
    /// Generation stops at the ids that config.json names as eos_token_id and
    /// at the vocabulary's [EOS] and <|end_of_msg|>.
    #[arg(long)]
    pub ignore_eos: bool,

    /// Check how often the next given token is the likeliest
    ///
    /// Reads the prompt once and compares, at each of its positions, the
    /// likeliest token with the one that follows. Prints count, share and the
    /// first disagreements on standard output.
    #[arg(long, conflicts_with = "recompute")]
    pub tf_check: bool,

    /// Run the whole text again for every token
    ///
    /// Slow, and the same tokens: a check of the carried state.
    #[arg(long)]
    pub recompute: bool,

    /// The default; accepted for users of other engines
    #[arg(long, conflicts_with = "recompute")]
    pub incremental: bool,
}

/// How many answers, and what becomes of the conversation.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AnswerArgs {
    /// Answers to the same prompt [default: 1]
    ///
    /// They differ where tokens are drawn at random (--temperature). The prompt is
    /// read once and one sweep serves all; each answer has a state of its own in
    /// memory. The first one is shown as it comes, the others when all are
    /// complete, each below `--- 2 of 3 ---`; the report has them in a list.
    #[arg(long, value_name = "N", value_parser = values::count(1, CHOICES_MAX), allow_negative_numbers = true,
        help_heading = "Generation", conflicts_with_all = ["recompute", "tf_check"])]
    pub choices: Option<u64>,

    /// Go on with the conversation in FILE
    ///
    /// Its tokens come before those of the prompt, which says how it goes on and
    /// may be left out. Nothing that was computed before is computed again, and
    /// the result is that of one long run. A file of another checkpoint, number of
    /// layers or form of attention is refused.
    #[arg(long, value_name = "FILE", help_heading = "Conversation",
        conflicts_with_all = ["recompute", "tf_check", "all_positions"])]
    pub load_state: Option<PathBuf>,

    /// Save the conversation in FILE when the run ends
    ///
    /// Prompt and answer, and the state after them: --load-state goes on there.
    /// FILE may be the one that was loaded; it is the former or the new one,
    /// whatever happens, and nothing but a saved conversation is overwritten.
    /// Ctrl-C ends after the sweep at hand and saves; a second one ends at once
    /// and does not.
    #[arg(long, value_name = "FILE", value_parser = values::output_path(), help_heading = "Conversation",
        conflicts_with_all = ["recompute", "choices"])]
    pub save_state: Option<PathBuf>,
}

/// How tokens are chosen.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Generation")]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 takes the likeliest token [default: 0]
    #[arg(long, value_name = "T", value_parser = values::decimal::<f32>, allow_negative_numbers = true)]
    pub temperature: Option<f32>,

    /// Sample among the K likeliest; 0 for all [default: 0]
    #[arg(long, value_name = "K", value_parser = values::count(0, POSITIONS_MAX), allow_negative_numbers = true)]
    pub top_k: Option<u64>,

    /// Sample among the likeliest with this share [default: 1]
    #[arg(long, value_name = "P", value_parser = values::decimal::<f64>, allow_negative_numbers = true)]
    pub top_p: Option<f64>,

    /// Drop what is below P times the likeliest [default: 0]
    #[arg(long, value_name = "P", value_parser = values::decimal::<f32>, allow_negative_numbers = true)]
    pub min_p: Option<f32>,

    /// Key of the random numbers [default: 0]
    ///
    /// The same checkpoint, prompt, settings and seed give the same tokens on
    /// every machine.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<u64>,
}

/// How to compute. Only `attention` can change a bit of the result.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct ExecutionArgs {
    /// Compute threads [default: all this process may use]
    #[arg(long, value_name = "N", value_parser = values::count(1, THREADS_MAX), allow_negative_numbers = true)]
    pub threads: Option<u64>,

    /// Which processors they run on.
    #[command(flatten)]
    pub placement: PlacementArgs,

    /// auto, scalar, avx2 or avx512 [default: auto]
    ///
    /// Instruction set of the kernels; `auto` is the best here. The results are the
    /// same bits with each.
    #[arg(long, value_name = "ISA", value_parser = values::IsaChoiceParser, hide_possible_values = true)]
    pub isa: Option<IsaChoice>,

    /// Attention: latent or expanded [default: latent]
    ///
    /// Both evaluate the same formula and differ in rounding, some 1e-6 of the
    /// largest logit. `expanded` keeps keys and values of every head and takes
    /// far more memory per position.
    #[arg(long, value_name = "FORM", value_parser = values::AttentionParser,
        hide_possible_values = true)]
    pub attention: Option<AttentionForm>,

    /// Prompt positions per sweep [default: 64, below 2 GiB 16]
    #[arg(long, value_name = "N", value_parser = values::count(1, POSITIONS_MAX), allow_negative_numbers = true)]
    pub chunk: Option<u64>,

    /// Tokens to guess ahead, at most [default: 0]
    ///
    /// Where the text repeats itself, what followed before is guessed, and one
    /// sweep checks all guesses: the same tokens from fewer sweeps. How many are
    /// worth their bytes is decided from what sweeps have read; what wrong ones
    /// cost stays below 2 %. Memory to take guesses back is part of the plan.
    #[arg(long, value_name = "N", value_parser = values::count(0, DRAFT_MAX), allow_negative_numbers = true)]
    pub draft: Option<u64>,

    /// Most positions, prompt and answer [default: 4096]
    ///
    /// Memory is reserved for the prompt and the tokens asked for, never for
    /// more than this.
    #[arg(long, value_name = "N", value_parser = values::count(1, POSITIONS_MAX), allow_negative_numbers = true)]
    pub context: Option<u64>,

    /// Where positions go that do not fit into memory.
    #[command(flatten)]
    pub spill: SpillArgs,
}

/// What is kept of one run for the next.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct PrefixArgs {
    /// Keep states of prompts here, for later runs
    ///
    /// What a prompt shares with an earlier one is read from here instead of
    /// computed: of a conversation's second turn only what is new is. Kept are
    /// the ends of answers and certain lengths of prompts (64, 128, 256, 512 and
    /// so on by 512). Any number of programs may share a directory.
    #[arg(long, value_name = "DIR")]
    pub prefix_cache: Option<PathBuf>,

    /// Most that it takes on disk, in 10^9 bytes [default: 16]
    ///
    /// What was used longest ago goes first.
    #[arg(long, value_name = "GB", allow_hyphen_values = true)]
    pub prefix_cache_gb: Option<Gigabytes>,

    /// Neither take states from there nor keep any
    #[arg(long, conflicts_with_all = ["prefix_cache", "prefix_cache_gb"])]
    pub no_prefix_cache: bool,
}

/// Where positions go that do not fit into memory.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct SpillArgs {
    /// Put positions here that do not fit into memory
    ///
    /// For contexts that memory does not hold: as many pages of 64 positions as
    /// fit stay, the oldest lie in a file without a name, which takes all its room
    /// at the start and is gone with the process. Every sweep reads them back.
    /// The results are the same bytes. Nothing is written if everything fits.
    #[arg(long, value_name = "DIR")]
    pub spill: Option<PathBuf>,

    /// Most that they take there, in 10^9 bytes [default: what they need]
    #[arg(long, value_name = "GB", allow_hyphen_values = true)]
    pub spill_gb: Option<Gigabytes>,
}

/// Which processors compute threads run on.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct PlacementArgs {
    /// Keep threads in place: on or off [default: off]
    ///
    /// Each compute thread stays on a processor of its own, one per core before
    /// any core gets a second: some per cent faster on a machine that does
    /// nothing else, slower where others compute beside. Where there are too few
    /// processors, or a control group grants less time than they have, threads
    /// run anywhere and the report says why.
    #[arg(long, value_name = "HOW", conflicts_with = "no_pin_threads")]
    pub pin_threads: Option<ThreadPins>,

    /// The same as --pin-threads off
    #[arg(long)]
    pub no_pin_threads: bool,
}

impl PlacementArgs {
    /// What was asked for.
    pub(crate) fn pins(&self) -> Option<ThreadPins> {
        let off = self.no_pin_threads.then_some(ThreadPins::Off);
        off.or(self.pin_threads)
    }
}

/// What to write where.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Write the report, ids included, as JSON
    #[arg(short, long, value_name = "FILE", value_parser = values::output_path())]
    pub out: Option<PathBuf>,

    /// Print the report as JSON instead of the text
    #[arg(long)]
    pub json: bool,

    /// Write the logits behind the first token
    ///
    /// Raw little-endian f32, one value per vocabulary entry: what `k3
    /// compare` reads.
    #[arg(long, value_name = "FILE", value_parser = values::output_path())]
    pub dump_logits: Option<PathBuf>,

    /// With --dump-logits: those of every prompt position
    #[arg(long, requires = "dump_logits")]
    pub all_positions: bool,

    /// Write which experts ran [alias: --dump-cache-trace]
    ///
    /// Little-endian i32 pairs (layer, expert): per sweep, per layer, per
    /// position, in pick order. A new sweep starts where the layer falls.
    #[arg(long, alias = "dump-cache-trace", value_name = "FILE",
        value_parser = values::output_path())]
    pub dump_trace: Option<PathBuf>,

    /// A row for every sweep after the report: one a token, but for the prompt
    ///
    /// What it read, how long it took and waited, what it found in memory. The
    /// same rows are in --out and --json.
    #[arg(long, conflicts_with_all = ["quiet", "resident"])]
    pub per_token: bool,

    /// No report, notes or progress
    #[arg(short, long)]
    pub quiet: bool,
}
