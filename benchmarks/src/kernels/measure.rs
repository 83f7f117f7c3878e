//! All chosen kernels, in turn.

use std::path::Path;

use k3_config::{Bytes, HostMemory};
use k3_kernels::{Isa, KernelSet};
use k3_models::Workers;
use k3_models::parallel::Inline;
use k3_runtime::{Cancel, ComputePool, RunError};

use super::matrix::read_spec;
use super::report::{KernelReport, ReadRow, Row};
use super::{Group, Spec, specs};
use crate::MeasureError;
use crate::fork_join::ForkJoinTimes;
use crate::rounds::{Compared, Pass, places};
use crate::weights::{WeightKind, Weights};

/// What is taken beside the weights: activations, caches, tables.
const BESIDE_BYTES: u64 = 64 << 20;

/// What to measure, and how long.
#[derive(Debug, Clone, Copy)]
pub struct KernelRequest<'r> {
    /// Kernels.
    pub groups: &'r [Group],
    /// Instruction sets; each must be available.
    pub isas: &'r [Isa],
    /// Numbers of threads. Only what is bound by memory takes more than one.
    pub threads: &'r [usize],
    /// Bytes of weights.
    pub weights_bytes: usize,
    /// Samples of each measure.
    pub rounds: usize,
    /// CPU time of a sample on each thread.
    pub pass_seconds: f64,
    /// Ends it.
    pub cancel: &'r Cancel,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Weights are made.
    Fill,
    /// Passes are given their length.
    Calibrate,
    /// Passes take turns.
    Rounds,
}

/// One kernel of one instruction set on some threads.
struct Case<'w> {
    spec: Spec,
    isa: Isa,
    threads: usize,
    pass: Pass<'w>,
    /// CPU seconds of each round's pass.
    seconds: Vec<f64>,
    /// Bytes per CPU second of the read right before, on the same threads.
    read_rates: Vec<f64>,
    /// What does the same work right before, and its bytes per CPU second.
    beside: Option<(Pass<'w>, Vec<f64>)>,
    compared: Compared,
}

/// Reading memory with the widest loads there are.
struct Bound<'w> {
    threads: usize,
    bytes: f64,
    pass: Pass<'w>,
}

/// Pools of the numbers of threads that are measured.
struct Pools(Vec<(usize, ComputePool)>);

impl Pools {
    fn start(counts: &[usize]) -> Result<Self, RunError> {
        let several = counts.iter().filter(|&&count| count > 1);
        let pools = several.map(|&count| Ok((count, ComputePool::new(count)?)));
        pools.collect::<Result<_, RunError>>().map(Self)
    }

    fn of(&self, threads: usize) -> &dyn Workers {
        let found = self.0.iter().find(|(count, _)| *count == threads);
        found.map_or(&Inline, |(_, pool)| pool)
    }
}

/// Measures. `told` is given the stage and the share of it that is done.
///
/// A stop that is asked for ends it with what is complete.
///
/// # Errors
///
/// Memory or threads that cannot be had, or a stop before the first round's end.
pub fn measure(
    request: &KernelRequest<'_>,
    told: &mut dyn FnMut(Stage, f64),
) -> Result<KernelReport, MeasureError> {
    let pools = Pools::start(request.threads)?;
    let mut report = KernelReport::of_request(request);
    let mut jobs: Vec<ForkJoinTimes> = Vec::new();
    if request.groups.contains(&Group::Pool) {
        jobs.extend(pools.0.iter().map(|_| ForkJoinTimes::default()));
    }
    let chosen = specs(request.groups);
    if chosen.is_empty() && jobs.is_empty() {
        return Err(MeasureError::Nothing);
    }
    let mut reads = Vec::new();
    if !chosen.is_empty() {
        check_room(request)?;
        let mut weights = Weights::reserve(request.weights_bytes)?;
        for kind in [WeightKind::Bf16, WeightKind::Bf16X3, WeightKind::Mxfp4] {
            let is_part = |spec: &&Spec| spec.weights.unwrap_or(WeightKind::Bf16) == kind;
            let specs: Vec<Spec> = chosen.iter().filter(is_part).copied().collect();
            if specs.is_empty() || request.cancel.is_requested() {
                continue;
            }
            told(Stage::Fill, 0.0);
            let fillers = ComputePool::available_threads();
            weights.fill(kind, fillers, request.cancel)?;
            let measured = measure_kind(request, &specs, &weights, &pools, told);
            report.rows.extend(measured.rows);
            reads.extend(measured.reads);
        }
        report.weights_bytes = weights.len_bytes();
        report.huge_bytes = weights.huge_bytes();
    }
    for round in 0..request.rounds * usize::from(!jobs.is_empty()) {
        if request.cancel.is_requested() {
            break;
        }
        told(Stage::Rounds, round as f64 / request.rounds as f64);
        for ((_, pool), times) in pools.0.iter().zip(&mut jobs) {
            times.round(pool);
        }
    }
    let jobs = pools.0.iter().zip(&jobs);
    report.fork_join = jobs
        .filter_map(|((threads, _), times)| times.figures(*threads))
        .collect();
    report.interrupted = request.cancel.is_requested();
    if report.rows.is_empty() && report.fork_join.is_empty() && report.interrupted {
        return Err(RunError::Cancelled.into());
    }
    report.read = read_rows(&reads);
    report.finish();
    Ok(report)
}

/// Refuses weights that this machine cannot hold.
fn check_room(request: &KernelRequest<'_>) -> Result<(), MeasureError> {
    let mut weights_bytes = request.weights_bytes as u64;
    if request.groups.contains(&Group::Bf16X3) {
        let packed = Weights::packed_bytes(request.weights_bytes);
        weights_bytes = weights_bytes.saturating_add(packed as u64);
    }
    let bytes = Bytes(weights_bytes.saturating_add(BESIDE_BYTES));
    match HostMemory::read(Path::new("/")).room() {
        Some(room) if room.bytes < bytes => Err(MeasureError::NoRoom { bytes, room }),
        // A kernel that does not tell is no reason to refuse.
        _ => Ok(()),
    }
}

/// Everything over weights of one kind.
fn measure_kind(
    request: &KernelRequest<'_>,
    specs: &[Spec],
    weights: &Weights,
    pools: &Pools,
    told: &mut dyn FnMut(Stage, f64),
) -> Measured {
    let widest = KernelSet::detect();
    let kind = specs.iter().find_map(|spec| spec.weights);
    let read = read_spec(kind);
    let bounds = request.threads.iter().map(|&threads| Bound {
        threads,
        bytes: read.work.bytes as f64,
        pass: calibrated(&read, widest, weights, threads, request.pass_seconds),
    });
    let bounds: Vec<Bound<'_>> = bounds.collect();
    let mut cases = Vec::new();
    let wanted = wanted(request, specs);
    for (index, &(spec, set, threads)) in wanted.iter().enumerate() {
        if request.cancel.is_requested() {
            return Measured::default();
        }
        told(Stage::Calibrate, index as f64 / wanted.len() as f64);
        let pass = |spec: &Spec| calibrated(spec, set, weights, threads, request.pass_seconds);
        let beside = spec.beside.zip(spec.positions);
        cases.push(Case {
            spec,
            isa: set.isa,
            threads,
            pass: pass(&spec),
            beside: beside.map(|(beside, positions)| (pass(&beside(positions)), Vec::new())),
            seconds: Vec::new(),
            read_rates: Vec::new(),
            compared: Compared::default(),
        });
    }
    for round in 0..request.rounds {
        let count = cases.len();
        for (done, place) in places(round, count).enumerate() {
            if request.cancel.is_requested() {
                return figures(cases, &bounds);
            }
            let share = (round as f64 + done as f64 / count as f64) / request.rounds as f64;
            told(Stage::Rounds, share);
            let case = &mut cases[place];
            let workers = pools.of(case.threads);
            if case.spec.group.is_bound_by_memory() {
                let bound = bounds.iter().find(|bound| bound.threads == case.threads);
                let bound = bound.expect("one for each number of threads");
                let seconds = bound.pass.run(workers);
                let bytes = bound.bytes * bound.pass.calls() as f64;
                case.read_rates.push(bytes / seconds);
            }
            if let Some((pass, rates)) = &mut case.beside {
                let bytes = case.spec.work.bytes as f64 * pass.calls() as f64;
                rates.push(bytes / pass.run(workers));
            }
            case.seconds.push(case.pass.run(workers));
            case.compared.add(case.pass.compare(round));
        }
    }
    figures(cases, &bounds)
}

/// Kernels, sets and threads, in the order of the report. What is not bound by
/// memory takes one thread, whatever was asked for.
fn wanted(request: &KernelRequest<'_>, specs: &[Spec]) -> Vec<(Spec, &'static KernelSet, usize)> {
    let mut wanted = Vec::new();
    for (index, &count) in request.threads.iter().enumerate() {
        let sets = request.isas.iter().copied().filter_map(KernelSet::for_isa);
        for set in sets {
            for &spec in specs {
                if spec.group.is_bound_by_memory() {
                    wanted.push((spec, set, count));
                } else if index == 0 {
                    wanted.push((spec, set, 1));
                }
            }
        }
    }
    wanted
}

fn calibrated<'w>(
    spec: &Spec,
    set: &'static KernelSet,
    weights: &'w Weights,
    threads: usize,
    seconds: f64,
) -> Pass<'w> {
    let kernels = (0..threads).map(|_| spec.instance(set, weights)).collect();
    Pass::calibrated(kernels, seconds)
}

/// What was measured over weights of one kind.
#[derive(Default)]
struct Measured {
    rows: Vec<Row>,
    reads: Vec<(usize, Vec<f64>)>,
}

/// Rows of the cases that have a sample, and what reading did meanwhile.
fn figures(cases: Vec<Case<'_>>, bounds: &[Bound<'_>]) -> Measured {
    let reads = bounds.iter().map(|bound| {
        let of_bound = cases.iter().filter(|case| case.threads == bound.threads);
        let rates = of_bound.flat_map(|case| case.read_rates.iter().copied());
        (bound.threads, rates.collect())
    });
    let reads = reads.collect();
    let measured = cases.into_iter().filter(|case| !case.seconds.is_empty());
    let rows = measured.map(|case| {
        let rate = |work: u64| {
            let work = work as f64 * case.pass.calls() as f64;
            let rates = case.seconds.iter().map(|seconds| work / seconds);
            rates.collect::<Vec<f64>>()
        };
        Row::new(
            &case.spec,
            case.isa,
            case.threads,
            &rate(case.spec.work.bytes),
            rate(case.spec.work.operations),
            &case.read_rates,
            case.compared,
        )
        .beside(case.beside.as_ref().map_or(&[][..], |(_, rates)| rates))
    });
    Measured {
        rows: rows.collect(),
        reads,
    }
}

/// Reading by number of threads, over all samples.
fn read_rows(samples: &[(usize, Vec<f64>)]) -> Vec<ReadRow> {
    let mut rows: Vec<(usize, Vec<f64>)> = Vec::new();
    for (threads, rates) in samples {
        match rows.iter_mut().find(|(known, _)| known == threads) {
            Some((_, all)) => all.extend(rates),
            None => rows.push((*threads, rates.clone())),
        }
    }
    let isa = KernelSet::detect().isa;
    rows.iter()
        .filter_map(|(threads, rates)| ReadRow::new(*threads, isa, rates))
        .collect()
}
