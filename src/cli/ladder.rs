//! The arguments of `k3 ladder`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgGroup, Args, Parser, ValueEnum};
use k3_config::{Bytes, MemoryRequest};

use super::args::{
    AnswerArgs, ExecutionArgs, GenerateArgs, GenerationArgs, ModelArgs, OutputArgs, PrefixArgs,
    PromptArgs,
};
use super::memory::{MemoryArgs, ReadingArgs};
use super::metrics::{Listen, MetricsArgs};
use super::values;

/// Most runs of a rung.
const REPEATS_MAX: u64 = 1000;

/// A ladder: generation at several budgets.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("input").multiple(false),
    mut_arg("memory", set_by_rungs),
    mut_arg("preset", set_by_rungs),
    mut_arg("resident", set_by_rungs),
    mut_arg("disk_gbps", set_by_rungs),
    mut_arg("no_disk_probe", set_by_rungs),
    mut_arg("tf_check", set_by_rungs)
)]
pub(crate) struct LadderArgs {
    /// Budgets to run at, as in 1.5Gi,2Gi,4Gi
    ///
    /// Each is the memory that the run plans with and the limit that the kernel
    /// holds it to. G is 10^9 bytes, GiB is 2^30.
    #[arg(long, value_name = "SIZE,SIZE,…", value_delimiter = ',', required = true,
        value_parser = values::positive_bytes, allow_hyphen_values = true)]
    pub rungs: Vec<Bytes>,

    /// Runs of each rung [default: 3]
    #[arg(long, value_name = "N", value_parser = values::count(1, REPEATS_MAX),
        default_value_t = 3, hide_default_value = true, allow_negative_numbers = true)]
    pub repeats: u64,

    /// What limits runs: auto, group, scope, none [default: auto]
    ///
    /// A control group below the own one; else a scope that systemd makes. With
    /// none nothing holds a run to its budget, and the output says so.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = LimitKind::Auto,
        hide_default_value = true, hide_possible_values = true)]
    pub limits: LimitKind,

    /// Write one row for each rung, separated by tabs
    #[arg(short, long, value_name = "FILE", value_parser = values::output_path())]
    pub out: Option<PathBuf>,

    /// Print the ladder as JSON, with every run
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,

    /// Where the checkpoint is.
    #[command(flatten)]
    pub model: ModelArgs,
    /// What to continue.
    #[command(flatten)]
    pub prompt: PromptArgs,
    /// How far and how to continue.
    #[command(flatten)]
    pub generation: GenerationArgs,
    /// How memory is split.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// How to read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// How to compute.
    #[command(flatten)]
    pub execution: ExecutionArgs,
    /// Where to watch the ladder.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// An option of generation that makes no sense beside several budgets.
fn set_by_rungs(arg: Arg) -> Arg {
    arg.hide(true).conflicts_with("rungs")
}

/// What holds a run to its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LimitKind {
    /// The first of the others that works; never none.
    Auto,
    /// A control group below the own one.
    Group,
    /// A scope of systemd.
    Scope,
    /// Nothing.
    None,
}

impl LadderArgs {
    /// The generation that is one run at `budget`.
    pub(crate) fn run(&self, budget: Bytes) -> GenerateArgs {
        GenerateArgs {
            prefix: PrefixArgs::default(),
            answer: AnswerArgs::default(),
            model: self.model.clone(),
            prompt: self.prompt.clone(),
            generation: self.generation.clone(),
            memory: MemoryArgs {
                memory: Some(MemoryRequest::Size(budget)),
                ..self.memory.clone()
            },
            reading: ReadingArgs {
                // Each run would measure the disk anew, between those that count.
                no_disk_probe: true,
                ..self.reading.clone()
            },
            execution: self.execution.clone(),
            metrics: MetricsArgs {
                // The port is the ladder's, in whatever settings it stands.
                metrics_listen: Some(Listen::Off),
            },
            output: OutputArgs {
                out: self.out.clone(),
                json: true,
                dump_logits: None,
                all_positions: false,
                dump_trace: None,
                per_token: false,
                quiet: true,
            },
        }
    }
}

/// The first argument of a child of `k3 ladder` that is not a run yet.
pub(crate) const ENTER_GROUP: &str = "enter-group";

/// A command to become. Not a part of the command line that people see, nor of
/// its completions.
#[derive(Debug, Parser)]
#[command(name = ENTER_GROUP)]
pub(crate) struct EnterGroupArgs {
    /// The process that started this one, and with which it ends
    #[arg(long, value_name = "PID")]
    pub parent: u32,

    /// Directory of the control group to enter first
    #[arg(long, value_name = "DIR")]
    pub group: Option<PathBuf>,

    /// What to become
    #[arg(
        value_name = "COMMAND",
        required = true,
        last = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}
