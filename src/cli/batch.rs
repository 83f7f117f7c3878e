//! Arguments of `k3 batch`.

use std::path::PathBuf;

use clap::Args;

use super::args::{
    ExecutionArgs, ModelArgs, POSITIONS_MAX, PrefixArgs, SEQUENCES_MAX, SamplingArgs, TOTAL_MAX,
};
use super::memory::{MemoryArgs, ReadingArgs};
use super::metrics::MetricsArgs;
use super::sampling::ShapingArgs;
use super::values;

pub(crate) const BATCH_ABOUT: &str = "\
Continue many prompts, as many at a time as pays.

INPUT has one JSON object on each line: {\"prompt\": \"text\"} or {\"ids\": [3, 4]}.
Beside it a line may have \"id\" (any text or number, handed through), and what
comes before the options: \"gen\", \"temperature\", \"top_k\", \"top_p\", \"min_p\",
\"seed\", \"repetition_penalty\", \"frequency_penalty\", \"presence_penalty\",
\"logit_bias\" ({\"42\": -1.5, \"7\": \"-inf\"}), \"stop\" (a text or a list of texts),
\"stop_ids\" ([13]) and \"logprobs\" (3). \"choices\" asks for so many answers, each
a line of its own, from one reading of the prompt. All lines are checked before
the first sweep.

One sweep reads the trunk once for all prompts that run together, and each
expert once for all that picked it. What a line gets is what it would get alone:
OUTPUT is the same bytes in every budget and with any number of sequences.

Nothing is filled in for the built-in model: where neither line nor option says
otherwise, its answers are the likeliest tokens, as those of any MODEL are.

A run that ends early, however that was, leaves what is finished; the same
command goes on from there. Answers that wait for those before them are kept in
OUTPUT.pending until their turn comes.";

pub(crate) const BATCH_EXAMPLES: &str = "\
Examples:
  k3 batch prompts.jsonl answers.jsonl
  k3 batch prompts.jsonl answers.jsonl --stop '\\n' --logprobs 3
  k3 batch prompts.jsonl answers.jsonl /disk1/k3 --memory 32G --gen 200
  k3 batch prompts.jsonl answers.jsonl /disk1/k3 --sequences 8 --as-completed
  k3 plan /disk1/k3 --memory 32G --sequences 8   # what they share, before a run";

/// Many prompts.
#[derive(Debug, Clone, Args)]
pub(crate) struct BatchArgs {
    /// Prompts, one JSON object on each line; `-` reads standard input
    #[arg(value_name = "INPUT")]
    pub input: PathBuf,

    /// Answers, one JSON object on each line
    ///
    /// "line" and "id" of the prompt, "generated_ids", "text", "stop_reason", and
    /// "logprobs" where they were asked for. What is there already is kept and not
    /// computed again.
    #[arg(value_name = "OUTPUT", value_parser = values::output_path())]
    pub output: PathBuf,

    /// Where the checkpoint is.
    #[command(flatten)]
    pub model: ModelArgs,

    /// Tokens to generate for each line [default: 16]
    #[arg(short = 'n', long = "gen", value_name = "N", value_parser = values::count(0, POSITIONS_MAX), allow_negative_numbers = true, help_heading = "Generation")]
    pub gen_count: Option<u64>,

    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingArgs,

    /// What else is drawn, and where it ends.
    #[command(flatten)]
    pub shaping: ShapingArgs,

    /// Go on after a token that ends the message
    #[arg(long, help_heading = "Generation")]
    pub ignore_eos: bool,

    /// Prompts that run at a time [default: what reads least for each token]
    ///
    /// Each has a state of its own in memory, which the trunk and the experts
    /// then lack.
    #[arg(long, value_name = "N", value_parser = values::count(1, SEQUENCES_MAX), allow_negative_numbers = true, help_heading = "Generation")]
    pub sequences: Option<u64>,

    /// Positions that all prompts at a time share [default: what they need]
    ///
    /// Memory for positions comes in pages of 64; each prompt takes those of its
    /// tokens and of --gen when its turn comes, and waits while too few are free.
    /// Fewer of them leave more memory to the trunk and the experts.
    #[arg(long, value_name = "N", value_parser = values::count(1, TOTAL_MAX), allow_negative_numbers = true, help_heading = "Generation")]
    pub context_total: Option<u64>,

    /// Write each answer as soon as it is there
    ///
    /// Without it answers are in the order of their prompts, and wait for those
    /// before them in OUTPUT.pending.
    #[arg(long, help_heading = "Output")]
    pub as_completed: bool,

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

    /// Write the report as JSON
    #[arg(short, long, value_name = "FILE", value_parser = values::output_path(), help_heading = "Output")]
    pub out: Option<PathBuf>,

    /// No report, notes or progress
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,

    /// Where to watch the run.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}
