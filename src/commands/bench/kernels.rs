//! `k3 bench kernels`.

use std::path::PathBuf;

use k3_benchmarks::MeasureError;
use k3_benchmarks::kernels::Group;
use k3_benchmarks::kernels::measure::{KernelRequest, Stage, measure};
use k3_benchmarks::kernels::report::KernelReport;
use k3_kernels::Isa;
use k3_runtime::{Cancel, ComputePool, RunError};

use super::watch::{Stages, Watch};
use super::{Finished, kernels_text};
use crate::cli::bench::{KernelsArgs, ThreadCount};
use crate::cli::values::available_isas;
use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupt;
use crate::output_file::OutputFile;

/// Measures the chosen kernels.
///
/// # Errors
///
/// Whatever ends it without a measurement to keep.
pub(super) fn run(args: &KernelsArgs, watch: &Watch) -> Result<Exit, CliError> {
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let groups = chosen(&args.kernels, &Group::ALL);
    let outputs = Outputs::create(args)?;
    let report = measured(args, &groups, watch, &cancel)?;
    for limit in &report.limits {
        watch.ratio(limit.what.clone(), limit.found);
    }
    let finished = Finished {
        report: &report,
        text: kernels_text::render(&report, args.weights),
        passed: report.passed,
        interrupted: report.interrupted,
    };
    let shown = finished.hand_over(&args.result, Some(args.check), outputs.json);
    if let Some(mut tsv) = outputs.tsv {
        tsv.write(report.to_tsv().as_bytes())?;
        tsv.commit()?;
    }
    let exit = shown?;
    // Another bit is a bug, not a slow machine.
    Ok(if report.mismatches > 0 {
        Exit::Failed
    } else {
        exit
    })
}

/// The files that were asked for.
struct Outputs {
    json: Option<OutputFile>,
    tsv: Option<OutputFile>,
}

impl Outputs {
    fn create(args: &KernelsArgs) -> Result<Self, CliError> {
        if let (Some(out), Some(tsv)) = (&args.result.out, &args.tsv)
            && out == tsv
        {
            return Err(CliError::SameOutput {
                first: "--out",
                second: "--tsv",
                path: out.clone(),
            });
        }
        let create = |path: Option<&PathBuf>| path.map(|path| OutputFile::create(path)).transpose();
        Ok(Self {
            json: create(args.result.out.as_ref())?,
            tsv: create(args.tsv.as_ref())?,
        })
    }
}

/// The named ones in the order of `all`, each once; all when none is named.
fn chosen<T: Copy + PartialEq>(named: &[T], all: &[T]) -> Vec<T> {
    let is_chosen = |one: &&T| named.is_empty() || named.contains(one);
    all.iter().filter(is_chosen).copied().collect()
}

/// Numbers of threads, ascending.
fn threads(named: &[ThreadCount]) -> Vec<usize> {
    let counts = named.iter().map(|count| match count {
        ThreadCount::Count(count) => usize::try_from(*count).expect("bounded by the parser"),
        ThreadCount::All => ComputePool::available_threads(),
    });
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn measured(
    args: &KernelsArgs,
    groups: &[Group],
    watch: &Watch,
    cancel: &Cancel,
) -> Result<KernelReport, CliError> {
    let available: Vec<Isa> = available_isas().collect();
    let request = KernelRequest {
        groups,
        isas: &chosen(&args.isas, &available),
        threads: &threads(&args.threads),
        weights_bytes: usize::try_from(args.weights.0).unwrap_or(usize::MAX),
        rounds: usize::try_from(args.rounds).expect("bounded by the parser"),
        pass_seconds: args.seconds,
        cancel,
    };
    let mut stages = Stages::new(watch, args.result.quiet);
    let told = &mut |stage, share| {
        let name = match stage {
            Stage::Fill => "weights",
            Stage::Calibrate => "calibration",
            Stage::Rounds => "rounds",
        };
        stages.set(name, share);
    };
    measure(&request, told).map_err(|error| match error {
        MeasureError::Run(RunError::Cancelled) => CliError::MeasuringInterrupted,
        other => other.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_in_order_and_single() {
        assert_eq!(chosen(&[], &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(chosen(&[3, 1, 3], &[1, 2, 3]), [1, 3]);
        let named = [
            ThreadCount::Count(3),
            ThreadCount::Count(1),
            ThreadCount::Count(3),
        ];
        assert_eq!(threads(&named), [1, 3]);
        let all = threads(&[ThreadCount::All, ThreadCount::Count(1)]);
        assert_eq!(all.first(), Some(&1));
        assert_eq!(all.last(), Some(&ComputePool::available_threads()));
    }
}
