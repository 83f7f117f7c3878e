//! What can go wrong on the command line, with exit code and way out.

mod code;
mod outputs;
mod refused;
mod text;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use k3_actors::ActorError;
use k3_actors::bench::BenchError;
use k3_actors::sim::ReplayError;
use k3_benchmarks::MeasureError;
use k3_config::{Bytes, ConfigError, GroupError, Headroom, Origin, PlanRefusal, Shortfall};
use k3_formats::FormatError;
use k3_integrity::IntegrityError;
use k3_io::{EngineError, IoError};
use k3_kernels::Isa;
use k3_runtime::prefix::PrefixError;
use k3_runtime::{RunError, SampleError};
use k3_tokenizer::TokenizerError;

use crate::cli::values::available_isas;
use crate::commands::batch::BatchError;
use crate::commands::generate::StateError;
use crate::inputs::IdsError;
use refused::too_small;
pub(crate) use text::chain;
use text::{also, another_address, by, list};

pub(crate) use refused::{Asked, Positions};

/// What MODEL names.
const CHECKPOINT: &str = "give the directory that holds config.json and the *.safetensors shards";

/// Where the vocabulary of a Kimi K3 checkpoint comes from.
const VOCABULARY_SOURCE: &str = "tiktoken.model is part of the released snapshot \
                                 (moonshotai/Kimi-K3 on Hugging Face)";

/// What a disk is measured with.
const MEASURED: &str = "give a checkpoint, a file that is not empty, or a directory of such files";

/// Why a command ends without having done what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Neither MODEL nor K3_MODEL.
    #[error("no model: neither the MODEL argument nor K3_MODEL names a checkpoint directory")]
    NoModel,
    /// The built-in model cannot be unpacked or packed.
    #[error(transparent)]
    BuiltIn(#[from] crate::demo::BuiltInError),
    /// MODEL is no directory.
    #[error("{path}: no such checkpoint directory{}", by(*named))]
    NotADirectory {
        /// What was given.
        path: PathBuf,
        /// The variable that named it, if it was one.
        named: Option<&'static str>,
        /// A command whose name is nearly the same.
        similar_command: Option<&'static str>,
    },
    /// MODEL is a file.
    #[error("{path}: is a file, not a checkpoint directory{}", by(*named))]
    IsAFile {
        /// What was given.
        path: PathBuf,
        /// The variable that named it, if it was one.
        named: Option<&'static str>,
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
        "{prompt} prompt tokens and {generated} to generate need {} positions, but the limit is \
         {context} ({named})", .prompt + .generated
    )]
    ContextTooSmall {
        /// Prompt tokens.
        prompt: usize,
        /// Tokens to generate.
        generated: usize,
        /// The limit in force.
        context: usize,
        /// What set it.
        named: String,
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
        need: String,
        /// What to do instead, if anything.
        instead: &'static str,
    },
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
    #[error("{path}: cannot be written{}", by(*named))]
    NotWritable {
        /// The file, or "standard output".
        path: PathBuf,
        /// The option that names it.
        named: Option<&'static str>,
        /// The system's reason.
        source: io::Error,
    },
    /// Several things went wrong, each by itself.
    #[error("{}{}", chain(.first), also(.others))]
    Several {
        /// The one that decides about the exit code.
        first: Box<CliError>,
        /// All others.
        others: Vec<CliError>,
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
    #[error("isa {isa} ({}): this processor cannot run it", .origin.spelled("isa"))]
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
    /// Steps of the target that no measured layer has.
    #[error(
        "{path}: the model has parts that none of the measured layers has: {parts}",
        path = .path.display(),
        parts = .parts.join(", ")
    )]
    PartsNotMeasured {
        /// Its configuration.
        path: PathBuf,
        /// The parts.
        parts: Vec<&'static str>,
    },
    /// A budget below the smallest plan.
    #[error("{}", too_small(.shortfall, .asked))]
    TooSmall {
        /// By how much, and the least plan.
        shortfall: Box<Shortfall>,
        /// What the user changes to need fewer positions.
        positions: Positions,
        /// What the user asked for, and where.
        asked: Box<Asked>,
    },
    /// Fewer slots than experts can pass through.
    #[error("{named}: {given} slots are too few: experts pass through at least {least}")]
    TooFewSlots {
        /// How the number was given.
        named: String,
        /// The number.
        given: u64,
        /// The fewest that work.
        least: u64,
    },
    /// Two ways to ask for cache slots at once.
    #[error("{slots} and {cache} both decide the number of cache slots")]
    SlotsAndCache {
        /// How a number of slots was given.
        slots: String,
        /// How a size was given.
        cache: String,
    },
    /// A file or directory that the settings name and that is not there.
    #[error("{path}: {reason} ({named})")]
    BadPath {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
        /// What named it.
        named: String,
    },
    /// Blocks of another size than the packed trunk has.
    #[error("{named} asks for blocks of {asked}, but the packed trunk was cut into {packed}")]
    TrunkBlockBytes {
        /// What was asked for.
        asked: Bytes,
        /// What named it.
        named: String,
        /// What the trunk has.
        packed: Bytes,
    },
    /// Keys and values of every head, where latents are written away.
    #[error("{named} writes latents away, but {attention} asks for keys and values of every head")]
    SpillExpanded {
        /// What named the directory.
        named: String,
        /// What named the form.
        attention: String,
    },
    /// A plan that contradicts itself.
    #[error(transparent)]
    Plan(PlanRefusal),
    /// A plan beyond what the machine has.
    #[error(
        "the plan reserves {planned} of the budget from {budget}, but this machine has {} to give \
         ({headroom}): the run would be killed half-way",
        .headroom.bytes
    )]
    OverPlan {
        /// Sum of the plan.
        planned: Bytes,
        /// What decided the budget.
        budget: String,
        /// What there is, and what says so.
        headroom: Headroom,
    },
    /// What a measurement reserves beside the plan, beyond what the machine has.
    #[error(
        "{beside} for the measurement itself ({named}) and {planned} of a plan are more than this \
         machine has to give: {} ({headroom})",
        .headroom.bytes
    )]
    MeasureTooLarge {
        /// For the measurement.
        beside: Bytes,
        /// What decides it.
        named: &'static str,
        /// For what is measured.
        planned: Bytes,
        /// What there is, and what says so.
        headroom: Headroom,
    },
    /// A measurement of kernels that could not be made.
    #[error(transparent)]
    Measure(#[from] MeasureError),
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
    #[error("{path}: holds no files to read{}", if *.is_nested { ", only directories" } else { "" })]
    NoFiles {
        /// The directory.
        path: PathBuf,
        /// Whether it holds directories, which are not searched.
        is_nested: bool,
    },
    /// What no disk is measured with.
    #[error("{path}: is {kind}, and reading it measures no disk{}", by(*named))]
    NotMeasured {
        /// What was given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
        /// The variable that named it, if it was one.
        named: Option<&'static str>,
    },
    /// A measurement that could not be made.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// Stopped by the user while measuring.
    #[error("interrupted while measuring; nothing was kept")]
    MeasuringInterrupted,
    /// An address that metrics cannot be served on.
    #[error("cannot serve metrics on {address} ({})", .origin.spelled("metrics_listen"))]
    MetricsAddress {
        /// What was asked for.
        address: SocketAddr,
        /// Where.
        origin: Origin,
        /// The system's reason.
        source: io::Error,
    },
    /// A download, a check or a repair.
    #[error(transparent)]
    Integrity(#[from] IntegrityError),
    /// A variable that holds what it cannot.
    #[error("{name}: {reason}")]
    BadVariable {
        /// The variable.
        name: &'static str,
        /// What is wrong; never what it holds.
        reason: &'static str,
    },
    /// What looks like a repository stands where a directory is wanted.
    #[error("{given} looks like a repository, but one argument alone is the directory to fetch to")]
    RepositoryAlone {
        /// What was given.
        given: PathBuf,
    },
    /// The prefix cache cannot be used.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// A batch that cannot be run as it is.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A conversation that can be neither gone on with nor saved.
    #[error(transparent)]
    State(#[from] StateError),
    /// Stopped by the user; what there is stays.
    #[error("interrupted: {0}")]
    KeptInterrupted(String),
    /// Stopped by the user before there was anything to keep.
    #[error("interrupted before the first token; nothing was kept")]
    Interrupted,
}

impl CliError {
    /// All of `errors` as one, the first of them deciding; `None` of none.
    pub(crate) fn together(errors: Vec<Self>) -> Option<Self> {
        let mut errors = errors.into_iter();
        let first = errors.next()?;
        let others: Vec<Self> = errors.collect();
        if others.is_empty() {
            return Some(first);
        }
        let first = Box::new(first);
        Some(Self::Several { first, others })
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

    /// What the user can do, where the message does not say so itself.
    pub(crate) fn way_out(&self) -> Option<String> {
        let text = match self {
            Self::NoModel => "give a checkpoint directory as MODEL, or set K3_MODEL".to_owned(),
            Self::NotADirectory {
                path,
                similar_command: Some(command),
                ..
            } => {
                let name = path.display();
                format!("did you mean the command `{command}`? A directory is ./{name}")
            }
            Self::NotADirectory { .. } | Self::IsAFile { .. } => CHECKPOINT.to_owned(),
            Self::Several { first, .. } => first.way_out()?,
            Self::NotMeasured { .. } | Self::NoFiles { .. } => self.measured(),
            Self::NoPrompt => "for example --prompt 'Once upon a time' or --ids 3,4,5".to_owned(),
            Self::EmptyPrompt => "give at least one character or id".to_owned(),
            Self::NothingToCheck => "give at least two ids".to_owned(),
            Self::ContextTooSmall {
                prompt,
                generated,
                named,
                ..
            } => format!("raise {named} to {} or lower --gen", prompt + generated),
            Self::NoVocabulary { instead, .. } => {
                format!("name its directory with --tokenizer{instead}; {VOCABULARY_SOURCE}")
            }
            Self::BuiltIn(error) => error.way_out()?.to_owned(),
            Self::InputTooLarge { .. } => "check that this is the file that was meant".to_owned(),
            Self::NotUtf8 { .. } => "convert the file to UTF-8".to_owned(),
            Self::DumpsDiffer { .. } => "compare dumps of the same model, both with or both \
                                         without --all-positions"
                .to_owned(),
            Self::PartsNotMeasured { .. } => "measure more layers, or leave out --target".into(),
            Self::MeasureTooLarge { named, .. } => format!("lower {named}"),
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
            Self::RepositoryAlone { given } => {
                let given = given.display();
                format!("k3 fetch {given} DIR, or k3 fetch ./{given} if that is the directory")
            }
            Self::Batch(error) => error.way_out().to_owned(),
            Self::State(error) => error.way_out().to_owned(),
            Self::BadPath { .. } => "name what is there, or leave it out".to_owned(),
            Self::SpillExpanded { .. } => "leave one of them out".to_owned(),
            Self::TrunkBlockBytes { .. } => {
                "leave it out, or pack the trunk with that --block-bytes".into()
            }
            Self::Format(FormatError::Config { .. })
            | Self::Run(RunError::Format(FormatError::Config { .. })) => {
                "use the config.json that came with the shards, or name it with --config".to_owned()
            }
            _ => return self.output_way_out().or_else(|| self.plan_way_out()),
        };
        Some(text)
    }

    /// What a disk is measured with.
    fn measured(&self) -> String {
        match self {
            Self::NoFiles {
                is_nested: true, ..
            } => format!("name one of those; {MEASURED}"),
            _ => MEASURED.to_owned(),
        }
    }
}
