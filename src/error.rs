//! What can go wrong on the command line, with exit code and way out.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use k3_actors::ActorError;
use k3_actors::bench::BenchError;
use k3_actors::sim::ReplayError;
use k3_config::{Bytes, ConfigError, GroupError, Headroom, Origin, PlanRefusal, Shortfall};
use k3_formats::FormatError;
use k3_io::{EngineError, IoError};
use k3_kernels::Isa;
use k3_models::ModelError;
use k3_runtime::{RunError, SampleError};
use k3_tokenizer::TokenizerError;

use crate::cli::values::available_isas;
use crate::exit::Exit;
use crate::inputs::IdsError;

/// Where the vocabulary of a Kimi K3 checkpoint comes from.
const VOCABULARY_SOURCE: &str = "tiktoken.model is part of the released snapshot \
                                 (moonshotai/Kimi-K3 on Hugging Face)";

/// Why a command ends without having done what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Neither MODEL nor K3_MODEL.
    #[error("no model: neither the MODEL argument nor K3_MODEL names a checkpoint directory")]
    NoModel,
    /// MODEL is no directory.
    #[error("{path}: no such checkpoint directory")]
    NotADirectory {
        /// What was given.
        path: PathBuf,
        /// A command whose name is nearly the same.
        similar_command: Option<&'static str>,
    },
    /// MODEL is a file.
    #[error("{path}: is a file, not a checkpoint directory")]
    IsAFile {
        /// What was given.
        path: PathBuf,
    },
    /// None of the four prompt options.
    #[error("no prompt: give one of --prompt, --prompt-file, --ids and --ids-file")]
    NoPrompt,
    /// A prompt without a token.
    #[error("the prompt is empty, but generation continues at least one token")]
    EmptyPrompt,
    /// Teacher forcing over one id.
    #[error("--tf-check compares each token with the next one, but the prompt has only one")]
    NothingToCheck,
    /// Ids that are no ids.
    #[error(transparent)]
    Ids(#[from] IdsError),
    /// More positions than allowed.
    #[error(
        "{prompt} prompt tokens and {generated} to generate need {} positions, but --context is \
         {context}", .prompt + .generated
    )]
    ContextTooSmall {
        /// Prompt tokens.
        prompt: usize,
        /// Tokens to generate.
        generated: usize,
        /// The limit in force.
        context: usize,
    },
    /// A sampling setting or a draw that cannot be made.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// Text without a vocabulary.
    #[error("{path}: no vocabulary (tiktoken.model) here, which {need}")]
    NoVocabulary {
        /// Where it was looked for.
        path: PathBuf,
        /// What needs it.
        need: &'static str,
        /// What to do instead, if anything.
        instead: &'static str,
    },
    /// A vocabulary for nothing named.
    #[error("no vocabulary: give MODEL, K3_MODEL or --tokenizer DIR")]
    NoVocabularyNamed,
    /// The vocabulary's files contradict each other or the model.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A file the user named that cannot be read.
    #[error("{path}: cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that is larger than anything of its kind, or has no end.
    #[error("{path}: more than {limit}, the most that is read of {what}")]
    InputTooLarge {
        /// The file.
        path: PathBuf,
        /// What it was read as.
        what: &'static str,
        /// The most that is read.
        limit: Bytes,
    },
    /// Text that is not UTF-8.
    #[error("{path}: not UTF-8 at byte {offset}")]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// First byte that is not part of a character.
        offset: usize,
    },
    /// Two outputs into one file.
    #[error("{first} and {second} name the same file, {path}")]
    SameOutput {
        /// One option.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// An output onto something the run reads.
    #[error("{option} {path} would overwrite {what} that the run reads, {input}")]
    OutputIsInput {
        /// The option.
        option: &'static str,
        /// The output.
        path: PathBuf,
        /// What the input is.
        what: &'static str,
        /// Its path.
        input: PathBuf,
    },
    /// An output that would pass for a part of the checkpoint.
    #[error("{option} {path} would become a part of the checkpoint in {directory}")]
    OutputInCheckpoint {
        /// The option.
        option: &'static str,
        /// The output.
        path: PathBuf,
        /// Where the checkpoint is.
        directory: PathBuf,
    },
    /// An output that cannot be written.
    #[error("{path}: cannot be written")]
    NotWritable {
        /// The file, or "standard output".
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Whoever reads standard output has gone: there is nobody to work for.
    #[error("standard output was closed")]
    OutputClosed,
    /// A logit dump of an impossible length.
    #[error("{path}: {bytes} bytes are not {expected}")]
    DumpLength {
        /// The dump.
        path: PathBuf,
        /// Its length in bytes.
        bytes: u64,
        /// What they should be.
        expected: String,
    },
    /// Two dumps that cannot be compared.
    #[error("{left} has {left_count} values and {right} has {right_count}")]
    DumpsDiffer {
        /// One dump.
        left: PathBuf,
        /// Values in it.
        left_count: u64,
        /// The other dump.
        right: PathBuf,
        /// Values in it.
        right_count: u64,
    },
    /// Ctrl-C cannot be caught.
    #[error("the handler for Ctrl-C could not be installed")]
    Signal(#[source] io::Error),
    /// A file that cannot be used.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The configuration or a file of the checkpoint.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A setting, or a budget that the machine does not offer.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An instruction set that this processor does not have.
    #[error("isa {isa} ({origin}): this processor cannot run it")]
    IsaUnavailable {
        /// What was asked for.
        isa: Isa,
        /// Where.
        origin: Origin,
    },
    /// A model whose steps take other times than those of the measured one.
    #[error("{path}: other widths than the measured checkpoint's", path = .path.display())]
    OtherWidths {
        /// Its configuration.
        path: PathBuf,
    },
    /// A budget below the smallest plan.
    #[error("{}", too_small(.shortfall))]
    TooSmall {
        /// By how much, and the least plan.
        shortfall: Box<Shortfall>,
        /// What the user changes to need fewer positions.
        positions: Positions,
    },
    /// A plan that contradicts itself.
    #[error(transparent)]
    Plan(PlanRefusal),
    /// A plan beyond what the machine has.
    #[error(
        "the plan reserves {planned}, but this machine has {} to give ({headroom}): the run \
         would be killed half-way",
        .headroom.bytes
    )]
    OverPlan {
        /// Sum of the plan.
        planned: Bytes,
        /// What there is, and what says so.
        headroom: Headroom,
    },
    /// Nothing that could hold a run to its budget.
    #[error("nothing here can hold a run to its budget:{}", list(.reasons))]
    NoLimits {
        /// What stood in the way of each.
        reasons: Vec<String>,
    },
    /// A control group of a ladder.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// A group that a process may not enter.
    #[error("{group}: the control group cannot be entered")]
    NotEntered {
        /// Its directory.
        group: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A program that cannot be run.
    #[error("{program}: cannot be started")]
    NotStarted {
        /// Which.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A process that cannot be watched.
    #[error("the run cannot be watched")]
    Watch(#[source] io::Error),
    /// A trace that cannot be replayed as asked.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A file to measure that cannot be read, or memory that is not there.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Streaming could not start.
    #[error(transparent)]
    Stream(#[from] ActorError),
    /// A directory with nothing to measure.
    #[error("{path}: holds no files to read")]
    NoFiles {
        /// The directory.
        path: PathBuf,
    },
    /// A measurement that could not be made.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// Stopped by the user while measuring.
    #[error("interrupted while measuring; nothing was kept")]
    MeasuringInterrupted,
    /// An address that metrics cannot be served on.
    #[error("cannot serve metrics on {address} ({origin})")]
    MetricsAddress {
        /// What was asked for.
        address: SocketAddr,
        /// Where.
        origin: Origin,
        /// The system's reason.
        source: io::Error,
    },
    /// Stopped by the user before there was anything to keep.
    #[error("interrupted before the first token; nothing was kept")]
    Interrupted,
}

/// How a command's positions are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Positions {
    /// By --context.
    Context,
    /// By the prompt and --gen.
    Generation,
    /// By the sweep that is measured.
    Sweep,
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text += &format!(": {source}");
        cause = source.source();
    }
    text
}

/// Entries below a message, one a line.
fn list(entries: &[String]) -> String {
    let lines = entries.iter().map(|entry| format!("\n  - {entry}"));
    lines.collect()
}

fn too_small(shortfall: &Shortfall) -> String {
    let budget = shortfall.budget;
    match (shortfall.smallest_budget, shortfall.shortfall) {
        (Some(smallest), Some(missing)) => {
            format!("a budget of {budget} is {missing} short: the smallest plan needs {smallest}")
        }
        _ => format!("a budget of {budget} is too small: the smallest plan exceeds 2^64 bytes"),
    }
}

/// The ways out of a budget that is too small, one a line.
fn remedies(shortfall: &Shortfall, positions: Positions) -> String {
    let memory = match shortfall.smallest_budget {
        Some(smallest) => format!("raise --memory to {} or more", smallest.0),
        None => "no --memory is enough".to_owned(),
    };
    let (context, fits) = (shortfall.context_positions, shortfall.context_that_fits);
    let context = match (positions, fits) {
        (Positions::Context, Some(fits)) => format!("lower --context from {context} to {fits}"),
        (Positions::Context, None) => format!("no --context below {context} is enough by itself"),
        (Positions::Generation, Some(fits)) => {
            format!("shorten prompt and --gen from {context} to {fits} positions together")
        }
        (Positions::Sweep, Some(fits)) => {
            format!("measure sweeps of {fits} instead of {context} positions (--positions)")
        }
        (Positions::Sweep, None) => "no sweep of fewer --positions is enough by itself".to_owned(),
        (Positions::Generation, None) => {
            format!("fewer positions of prompt and --gen than {context} are not enough")
        }
    };
    let (chunk, fits) = (shortfall.chunk_positions, shortfall.chunk_that_fits);
    let chunk = match fits {
        Some(fits) => format!("lower --chunk from {chunk} to {fits}"),
        None => format!("no --chunk below {chunk} is enough by itself"),
    };
    let lookahead = match shortfall.fits_without_lookahead {
        Some(true) => "\n    leave out --lookahead",
        Some(false) => "\n    leaving out --lookahead is not enough by itself",
        None => "",
    };
    // A sweep is the whole sequence: one way out less.
    let chunk = match positions {
        Positions::Sweep => String::new(),
        Positions::Context | Positions::Generation => format!("\n    {chunk}"),
    };
    format!("one of\n    {memory}\n    {context}{chunk}{lookahead}")
}

impl CliError {
    /// A refusal of a plan whose positions are set by `positions`.
    pub(crate) fn refused_plan(refusal: PlanRefusal, positions: Positions) -> Self {
        match refusal {
            PlanRefusal::TooSmall(shortfall) => Self::TooSmall {
                shortfall,
                positions,
            },
            other => Self::Plan(other),
        }
    }

    /// The smallest budget that would do, if one would.
    pub(crate) fn smallest_budget(&self) -> Option<Bytes> {
        match self {
            Self::TooSmall { shortfall, .. } => shortfall.smallest_budget,
            _ => None,
        }
    }

    /// What belongs below the message, as a table.
    pub(crate) fn table(&self) -> Option<String> {
        match self {
            Self::TooSmall { shortfall, .. } => Some(shortfall.table()),
            _ => None,
        }
    }

    /// The exit code that goes with the error.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Io(error) => io_exit(error),
            Self::Format(error) => format_exit(error),
            Self::NotWritable { .. } => Exit::NotWritable,
            Self::OutputClosed => Exit::Done,
            Self::Interrupted | Self::MeasuringInterrupted => Exit::Interrupted,
            Self::Bench(BenchError::NothingStreams) => Exit::Refused,
            Self::Bench(BenchError::Run(error)) => run_exit(error),
            Self::Bench(_) => Exit::Failed,
            Self::Signal(_) | Self::Sample(SampleError::NotFinite { .. }) => Exit::Failed,
            Self::Run(error) => run_exit(error),
            Self::Stream(_)
            | Self::Engine(_)
            | Self::Group(_)
            | Self::NotEntered { .. }
            | Self::NotStarted { .. }
            | Self::Watch(_) => Exit::Failed,
            _ => Exit::Refused,
        }
    }

    /// What the user can do, where the message does not say so itself.
    pub(crate) fn way_out(&self) -> Option<String> {
        let text = match self {
            Self::NoModel => "give a checkpoint directory, as in `k3 fixtures/tiny --prompt \
                              hello` (fixtures/tiny comes with the source), or set K3_MODEL"
                .to_owned(),
            Self::NotADirectory {
                path,
                similar_command: Some(command),
            } => {
                let name = path.display();
                format!("did you mean the command `{command}`? A directory is ./{name}")
            }
            Self::NotADirectory { .. } | Self::IsAFile { .. } => {
                "give the directory that holds config.json and the \
                                           *.safetensors shards"
                    .to_owned()
            }
            Self::NoPrompt => "for example --prompt 'Once upon a time' or --ids 3,4,5".to_owned(),
            Self::EmptyPrompt => "give at least one character or id".to_owned(),
            Self::NothingToCheck => "give at least two ids".to_owned(),
            Self::ContextTooSmall {
                prompt, generated, ..
            } => format!("raise --context to {} or lower --gen", prompt + generated),
            Self::NoVocabulary { instead, .. } => {
                format!("name its directory with --tokenizer{instead}; {VOCABULARY_SOURCE}")
            }
            Self::NoVocabularyNamed => VOCABULARY_SOURCE.to_owned(),
            Self::InputTooLarge { .. } => "check that this is the file that was meant".to_owned(),
            Self::NotUtf8 { .. } => "convert the file to UTF-8".to_owned(),
            Self::OutputIsInput { .. } => "name another file".to_owned(),
            Self::OutputInCheckpoint { .. } => {
                "name a file that is called otherwise or lies elsewhere".to_owned()
            }
            Self::SameOutput { .. } => "name two files".to_owned(),
            Self::NotWritable { .. } => {
                "check that the directory exists, may be written and has room".to_owned()
            }
            Self::DumpsDiffer { .. } => "compare dumps of the same model, both with or both \
                                         without --all-positions"
                .to_owned(),
            Self::OtherWidths { .. } => {
                "name the configuration of a model that differs in its numbers of layers and \
                 experts alone"
                    .to_owned()
            }
            Self::IsaUnavailable { .. } => {
                let names: Vec<_> = available_isas().map(Isa::name).collect();
                format!("use one of {}, or auto", names.join(", "))
            }
            Self::MetricsAddress { source, .. } => another_address(source.kind())?.to_owned(),
            Self::NoLimits { .. } => {
                "run it as root, or where your user may make control groups, or give \
                 --limits none to measure without limits"
                    .to_owned()
            }
            Self::TooSmall {
                shortfall,
                positions,
            } => remedies(shortfall, *positions),
            Self::OverPlan { headroom, .. } => over_plan_remedies(headroom).to_owned(),
            Self::Format(FormatError::Config { .. })
            | Self::Run(RunError::Format(FormatError::Config { .. })) => {
                "use the config.json that came with the shards, or name it with --config".to_owned()
            }
            _ => return None,
        };
        Some(text)
    }
}

/// The ways out of a plan beyond what there is.
fn over_plan_remedies(headroom: &Headroom) -> &'static str {
    match &headroom.group {
        Some(group) if group.in_use > Bytes(0) => {
            "lower --memory, use --memory auto, end what else runs in that control group, or \
             raise its limit"
        }
        Some(_) => "lower --memory, use --memory auto, or raise the control group's limit",
        None => "lower --memory, use --memory auto, or free some memory",
    }
}

/// What to do about an address that cannot be listened on.
fn another_address(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::AddrInUse => {
            Some("another program listens there: take another port, or port 0 for any free one")
        }
        io::ErrorKind::AddrNotAvailable => {
            Some("take an address of this machine, as in 127.0.0.1:9464")
        }
        io::ErrorKind::PermissionDenied => Some("take a port from 1024 on"),
        _ => None,
    }
}

/// Refusals come before anything has run; the rest are failures.
fn run_exit(error: &RunError) -> Exit {
    match error {
        RunError::DoesNotFit { .. }
        | RunError::ContextPositions { .. }
        | RunError::ThreadCount { .. } => Exit::Refused,
        RunError::Io(error) => io_exit(error),
        RunError::Format(error) => format_exit(error),
        RunError::Model(model) => match model {
            ModelError::Poisoned { .. }
            | ModelError::NonFinite { .. }
            | ModelError::NonFiniteLogit { .. } => Exit::Failed,
            _ => Exit::Refused,
        },
        RunError::Cancelled => Exit::Interrupted,
        _ => Exit::Failed,
    }
}

/// A configuration is refused; a damaged file is a failure.
fn format_exit(error: &FormatError) -> Exit {
    match error {
        FormatError::Config { .. } => Exit::Refused,
        _ => Exit::Failed,
    }
}

/// What is not there was named wrongly; what is there and cannot be read is a
/// failure.
fn io_exit(error: &IoError) -> Exit {
    match error {
        IoError::System { source, .. } if source.kind() == io::ErrorKind::NotFound => Exit::Refused,
        IoError::NotAFile { .. }
        | IoError::NoDirectory { .. }
        | IoError::NotADirectory { .. }
        | IoError::NoSuchFile { .. }
        | IoError::NoShards { .. }
        | IoError::MissingShards { .. }
        | IoError::TooLarge { .. } => Exit::Refused,
        IoError::Format(error) => format_exit(error),
        _ => Exit::Failed,
    }
}
