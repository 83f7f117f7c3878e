//! The exit code of each error.

use std::io;

use k3_actors::ActorError;
use k3_actors::bench::BenchError;
use k3_benchmarks::MeasureError;
use k3_formats::FormatError;
use k3_formats::trunk::TrunkFault;
use k3_integrity::IntegrityError;
use k3_io::IoError;
use k3_models::ModelError;
use k3_runtime::{RunError, SampleError};

use super::CliError;
use crate::exit::Exit;

impl CliError {
    /// The exit code that goes with the error.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Several { first, .. } => first.exit(),
            Self::Io(error) => io_exit(error),
            Self::Format(error) => format_exit(error),
            Self::NotWritable { .. } => Exit::NotWritable,
            Self::BuiltIn(error) => error.exit(),
            Self::OutputClosed => Exit::Done,
            Self::Interrupted | Self::MeasuringInterrupted => Exit::Interrupted,
            Self::KeptInterrupted(_) => Exit::InterruptedKept,
            Self::Integrity(error) => integrity_exit(error),
            Self::Bench(BenchError::NothingStreams) => Exit::Refused,
            Self::Bench(BenchError::Run(error)) => run_exit(error),
            Self::Bench(_) => Exit::Failed,
            Self::Measure(MeasureError::Run(error)) => run_exit(error),
            Self::Measure(MeasureError::Memory(_)) => Exit::Failed,
            Self::Signal(_)
            | Self::Sample(
                SampleError::RawNotFinite
                | SampleError::NotFinite { .. }
                | SampleError::AdjustedNotFinite { .. },
            ) => Exit::Failed,
            Self::Run(error) => run_exit(error),
            Self::Stream(ActorError::Spill(_)) => Exit::Refused,
            Self::Stream(_)
            | Self::Engine(_)
            | Self::Group(_)
            | Self::NotEntered { .. }
            | Self::NotStarted { .. }
            | Self::Watch(_) => Exit::Failed,
            _ => Exit::Refused,
        }
    }
}

/// Refusals come before anything has run; the rest are failures.
fn run_exit(error: &RunError) -> Exit {
    match error {
        RunError::DoesNotFit { .. }
        | RunError::TrunkBlocks { .. }
        | RunError::ForeignTrunk { .. }
        | RunError::ContextPositions { .. }
        | RunError::ContextTotal { .. }
        | RunError::ThreadCount { .. } => Exit::Refused,
        RunError::Io(error) => io_exit(error),
        RunError::Format(error) => format_exit(error),
        RunError::Model(model) => match model {
            ModelError::Poisoned { .. }
            | ModelError::NonFinite { .. }
            | ModelError::NonFiniteLogit { .. }
            | ModelError::Packed { .. } => Exit::Failed,
            _ => Exit::Refused,
        },
        RunError::Cancelled => Exit::Interrupted,
        _ => Exit::Failed,
    }
}

/// What was asked for wrongly or cannot be is refused; what broke on the way is
/// a failure.
fn integrity_exit(error: &IntegrityError) -> Exit {
    match error {
        IntegrityError::Io(error) => io_exit(error),
        IntegrityError::Format(error) => format_exit(error),
        IntegrityError::NotWritable { .. } => Exit::NotWritable,
        IntegrityError::Interrupted => Exit::InterruptedKept,
        IntegrityError::Engine(_)
        | IntegrityError::Http(_)
        | IntegrityError::Hub { .. }
        | IntegrityError::Incomplete { .. } => Exit::Failed,
        _ => Exit::Refused,
    }
}

/// What does not belong together is refused; a damaged file is a failure.
fn format_exit(error: &FormatError) -> Exit {
    match error {
        FormatError::Config { .. } => Exit::Refused,
        FormatError::Trunk { fault, .. } => match **fault {
            TrunkFault::Identity { .. }
            | TrunkFault::OtherSet { .. }
            | TrunkFault::DuplicateStripe { .. }
            | TrunkFault::OtherWeights { .. }
            | TrunkFault::MissingStripes { .. } => Exit::Refused,
            _ => Exit::Failed,
        },
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
        | IoError::NoTrunk { .. }
        | IoError::UnfinishedStripe { .. }
        | IoError::OtherManifest { .. }
        | IoError::SeveralTrunks { .. }
        | IoError::MissingShards { .. }
        | IoError::TooLarge { .. } => Exit::Refused,
        IoError::Format(error) => format_exit(error),
        _ => Exit::Failed,
    }
}
