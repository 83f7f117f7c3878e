//! `k3 bench overlap`.

use std::path::PathBuf;

use k3_actors::Supervisor;
use k3_actors::bench::BenchError;
use k3_actors::bench::overlap::{
    OverlapBench, OverlapPoint, OverlapRequest, Stage, reserved_bytes,
};
use k3_io::{EngineKind, PageReport};
use k3_models::kimi_k3::KimiK3;
use k3_runtime::{Cancel, ComputePool, PlacementReport, RunError};
use serde::Serialize;

use super::size;
use super::streamed::Prepared;
use super::watch::{Stages, Watch};
use super::{Finished, overlap_text};
use crate::cli::bench::{OverlapArgs, SweepPositions};
use crate::error::{CliError, Positions};
use crate::planning;
use crate::{exit::Exit, interrupt};

/// Raised when a field changes its meaning or goes.
const REPORT_VERSION: u32 = 1;
/// Largest sweep of a search when the list names none.
const SEARCHED_POSITIONS_MAX: u64 = 64;

/// The result, as data.
#[derive(Debug, Serialize)]
pub(super) struct OverlapReport {
    report_version: u32,
    pub(super) model: Model,
    pub(super) execution: Execution,
    pub(super) memory: Memory,
    /// Most that the median ratio may be.
    pub(super) limit: f64,
    /// Whether it is kept at every number of positions.
    pub(super) passed: bool,
    /// Whether it was stopped before all were measured.
    pub(super) interrupted: bool,
    /// In order of positions.
    pub(super) points: Vec<OverlapPoint>,
    pub(super) fallbacks: Vec<String>,
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Model {
    #[serde(serialize_with = "k3_config::lossy::path")]
    pub(super) path: PathBuf,
    pub(super) identity: String,
    pub(super) layers: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Execution {
    pub(super) isa: String,
    pub(super) threads: usize,
    pub(super) placement: PlacementReport,
    pub(super) engine: String,
    pub(super) in_flight_bytes: usize,
    pub(super) rounds: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) budget_bytes: u64,
    pub(super) budget_origin: String,
    pub(super) planned_bytes: u64,
    pub(super) pinned_bytes: u64,
    pub(super) trunk_bytes: u64,
    pub(super) ring_places: u64,
    pub(super) expert_slots: u64,
    /// What I/O alone reads into, besides the plan.
    pub(super) io_alone_bytes: u64,
    /// What compute alone goes around in, besides the plan.
    pub(super) compute_alone_bytes: u64,
    /// Pages of the plan's arenas.
    pub(super) pages: String,
}

/// Measures, and tells what came out.
///
/// # Errors
///
/// Whatever ends it without a measurement to keep.
pub(super) fn run(args: &OverlapArgs, watch: &Watch) -> Result<Exit, CliError> {
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let positions = largest(&args.positions);
    let beside = |plan: &_| reserved_bytes(plan).saturating_add(args.buffer.0);
    let prepared = Prepared::new(&args.streamed, [positions; 2], Positions::Sweep, &beside)?;
    let file = prepared.opened.output(&args.result, None)?;
    let report = measure(args, &prepared, watch, &cancel)?;
    Finished {
        report: &report,
        text: overlap_text::render(&report),
        passed: report.passed,
        interrupted: report.interrupted,
    }
    .hand_over(&args.result, Some(args.check), file)
}

/// The largest sweep that may be measured.
fn largest(positions: &[SweepPositions]) -> u64 {
    let counts = positions.iter().filter_map(|positions| match positions {
        SweepPositions::Count(count) => Some(*count),
        SweepPositions::Auto => None,
    });
    counts.max().unwrap_or(SEARCHED_POSITIONS_MAX)
}

/// What was measured before the end, and whether that was all of it.
struct Measured {
    points: Vec<OverlapPoint>,
    interrupted: bool,
}

fn measure(
    args: &OverlapArgs,
    prepared: &Prepared,
    watch: &Watch,
    cancel: &Cancel,
) -> Result<OverlapReport, CliError> {
    let pool = planning::pool(&prepared.opened.settings, prepared.opened.threads)?;
    let settings = prepared.stream_settings();
    let request = OverlapRequest {
        model: &prepared.opened.model,
        checkpoint: &prepared.opened.checkpoint,
        plan: &prepared.plan,
        settings: &settings,
        pool: &pool,
        buffer_bytes: args.buffer.0,
        always_head: args.head,
        cancel,
    };
    let mut stages = Stages::new(watch, args.result.quiet);
    let mut told = |stage, done| stages.set(&stage_name(stage), done);
    let mut bench = OverlapBench::start(request, &mut told).map_err(nothing_to_keep)?;
    let measured = measure_all(&mut bench, args, watch, &mut told);
    drop(stages);
    let buffer_bytes = bench.buffer_bytes();
    let mut report = describe(args, prepared, &pool, bench.supervisor(), buffer_bytes);
    report.fallbacks = bench.fallbacks();
    // Whatever has happened, everything is stopped in order.
    let down = bench.shutdown();
    let measured = measured.map_err(nothing_to_keep)?;
    if let Some(failure) = down.failures.into_iter().next() {
        return Err(failure.into());
    }
    report.passed = !measured.interrupted
        && measured
            .points
            .iter()
            .all(|point| Verdict::of(point, args.limit) == Verdict::Kept);
    report.interrupted = measured.interrupted;
    report.points = measured.points;
    Ok(report)
}

/// Ratio below which a streamed sweep was faster than its longer side by more
/// than noise: the two were not measured on the same machine state.
const COMPARABLE_RATIO_MIN: f64 = 0.8;

/// What a point says about the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Within it.
    Kept,
    /// Above it.
    Missed,
    /// Nothing: the sides are not those of the streamed sweep.
    NotComparable,
}

impl Verdict {
    pub(super) fn of(point: &OverlapPoint, limit: f64) -> Self {
        Self::new(point.ratio.median, point.reads_are_equal, limit)
    }

    fn new(ratio: f64, reads_are_equal: bool, limit: f64) -> Self {
        if !reads_are_equal || ratio < COMPARABLE_RATIO_MIN.min(limit) {
            Self::NotComparable
        } else if ratio <= limit {
            Self::Kept
        } else {
            Self::Missed
        }
    }
}

/// Nothing was measured before the stop that was asked for.
fn nothing_to_keep(error: BenchError) -> CliError {
    match error {
        BenchError::Run(RunError::Cancelled) => CliError::MeasuringInterrupted,
        other => other.into(),
    }
}

/// Measures every number of positions, those to be searched for last: what is
/// known by then narrows the search.
fn measure_all(
    bench: &mut OverlapBench<'_, KimiK3>,
    args: &OverlapArgs,
    watch: &Watch,
    told: &mut dyn FnMut(Stage, f64),
) -> Result<Measured, BenchError> {
    let mut points: Vec<OverlapPoint> = Vec::new();
    let mut wanted = args.positions.clone();
    wanted.sort_by_key(|positions| match positions {
        SweepPositions::Count(count) => *count,
        SweepPositions::Auto => u64::MAX,
    });
    wanted.dedup();
    for positions in wanted {
        match measure_one(bench, positions, args, &points, told) {
            Ok(point) => {
                watch.ratio(positions_name(point.positions), point.ratio.median);
                points.retain(|other| other.positions != point.positions);
                points.push(point);
            }
            Err(BenchError::Run(RunError::Cancelled)) if !points.is_empty() => {
                points.sort_by_key(|point| point.positions);
                let interrupted = true;
                return Ok(Measured {
                    points,
                    interrupted,
                });
            }
            Err(error) => return Err(error),
        }
    }
    points.sort_by_key(|point| point.positions);
    Ok(Measured {
        points,
        interrupted: false,
    })
}

fn measure_one(
    bench: &mut OverlapBench<'_, KimiK3>,
    positions: SweepPositions,
    args: &OverlapArgs,
    points: &[OverlapPoint],
    told: &mut dyn FnMut(Stage, f64),
) -> Result<OverlapPoint, BenchError> {
    let rounds = size(args.rounds);
    match positions {
        SweepPositions::Count(count) => bench.measure(size(count), rounds, told),
        SweepPositions::Auto => {
            let closest = bench.closest(points, told)?;
            let known = points.iter().find(|point| point.positions == closest);
            let mut point = match known {
                Some(point) => point.clone(),
                None => bench.measure(closest, rounds, told)?,
            };
            point.is_closest = true;
            Ok(point)
        }
    }
}

/// The report without its measurements.
fn describe(
    args: &OverlapArgs,
    prepared: &Prepared,
    pool: &ComputePool,
    supervisor: &Supervisor,
    buffer_bytes: u64,
) -> OverlapReport {
    let plan = &prepared.plan;
    let caps = supervisor.caps();
    let pages =
        |(line, report): &(k3_config::LineKind, PageReport)| format!("{line} {}", report.got);
    let pages: Vec<String> = supervisor.pages().iter().map(pages).collect();
    OverlapReport {
        report_version: REPORT_VERSION,
        model: Model {
            path: prepared.opened.checkpoint.path().to_owned(),
            identity: prepared.opened.checkpoint.identity().to_string(),
            layers: prepared.opened.model.layout().layer_count(),
        },
        execution: Execution {
            isa: prepared.opened.model.kernels().isa.to_string(),
            threads: prepared.opened.threads,
            placement: pool.placement(),
            engine: match caps.kind {
                EngineKind::Pread => "pread".to_owned(),
                EngineKind::Uring => "io_uring".to_owned(),
            },
            in_flight_bytes: caps
                .devices
                .first()
                .map_or(0, |device| device.in_flight_bytes),
            rounds: args.rounds,
        },
        memory: Memory {
            budget_bytes: plan.budget.total.0,
            budget_origin: prepared.opened.settings.memory.origin.to_string(),
            planned_bytes: plan.planned.0,
            pinned_bytes: plan.pins.bytes,
            trunk_bytes: plan.pins.bytes_total,
            ring_places: plan.ring.place_count,
            expert_slots: plan.slots.transit_count + plan.slots.cache_count,
            io_alone_bytes: reserved_bytes(plan),
            compute_alone_bytes: buffer_bytes,
            pages: pages.join(", "),
        },
        limit: args.limit,
        passed: false,
        interrupted: false,
        points: Vec::new(),
        fallbacks: Vec::new(),
        notes: prepared.opened.settings.warnings.clone(),
    }
}

/// What a person calls a stage.
fn stage_name(stage: Stage) -> String {
    match stage {
        Stage::Fill => "weights".to_owned(),
        Stage::WarmUp => "pins".to_owned(),
        Stage::Search => "search".to_owned(),
        Stage::Measure { positions } => positions_name(positions),
    }
}

fn positions_name(positions: usize) -> String {
    format!("T = {positions}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_same_work_keeps_no_limit() {
        let verdict = |ratio, equal| Verdict::new(ratio, equal, 1.15);
        assert_eq!(verdict(0.22, true), Verdict::NotComparable);
        assert_eq!(verdict(1.0, false), Verdict::NotComparable);
        assert_eq!(verdict(f64::NAN, true), Verdict::Missed);
        for (ratio, want) in [
            (0.8, Verdict::Kept),
            (1.15, Verdict::Kept),
            (1.16, Verdict::Missed),
        ] {
            assert_eq!(verdict(ratio, true), want, "{ratio}");
        }
    }
}
