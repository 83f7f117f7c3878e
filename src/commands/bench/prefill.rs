//! `k3 bench prefill`.

use std::fmt::Write as _;
use std::path::PathBuf;

use k3_actors::bench::BenchError;
use k3_actors::bench::prefill::{PrefillBench, PrefillPoint, PrefillRequest};
use k3_runtime::{Cancel, RunError};
use serde::Serialize;

use super::Finished;
use super::size;
use super::streamed::Prepared;
use super::watch::{Stages, Watch};
use crate::cli::bench::PrefillArgs;
use crate::error::{CliError, Positions};
use crate::planning;
use crate::render::wrap::wrap;
use crate::render::{escape, short_bytes, table};
use crate::{exit::Exit, interrupt};

/// Raised when a field changes its meaning or goes.
const REPORT_VERSION: u32 = 1;

/// The result, as data.
#[derive(Debug, Serialize)]
struct PrefillReport {
    report_version: u32,
    #[serde(serialize_with = "k3_config::lossy::path")]
    model: PathBuf,
    identity: String,
    layers: usize,
    isa: String,
    threads: usize,
    rounds: u64,
    budget_bytes: u64,
    planned_bytes: u64,
    pinned_bytes: u64,
    trunk_bytes: u64,
    expert_slots: u64,
    interrupted: bool,
    points: Vec<PrefillPoint>,
    fallbacks: Vec<String>,
    notes: Vec<String>,
}

/// Measures, and tells what came out.
///
/// # Errors
///
/// Whatever ends it without a measurement to keep.
pub(super) fn run(args: &PrefillArgs, watch: &Watch) -> Result<Exit, CliError> {
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let chunk = args
        .chunks
        .iter()
        .copied()
        .max()
        .expect("the parser wants one");
    let prepared = Prepared::new(&args.streamed, [2 * chunk, chunk], Positions::Chunk, &|_| 0)?;
    let file = prepared.opened.output(&args.result, None)?;
    let report = measure(args, &prepared, watch, &cancel)?;
    Finished {
        text: render(&report),
        passed: true,
        interrupted: report.interrupted,
        report: &report,
    }
    .hand_over(&args.result, None, file)
}

fn measure(
    args: &PrefillArgs,
    prepared: &Prepared,
    watch: &Watch,
    cancel: &Cancel,
) -> Result<PrefillReport, CliError> {
    let pool = planning::pool(&prepared.opened.settings, prepared.opened.threads)?;
    let settings = prepared.stream_settings();
    let mut bench = PrefillBench::start(PrefillRequest {
        model: &prepared.opened.model,
        checkpoint: &prepared.opened.checkpoint,
        plan: &prepared.plan,
        settings: &settings,
        pool: &pool,
        cancel,
    })?;
    let mut sizes: Vec<usize> = args.chunks.iter().map(|&chunk| size(chunk)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut stages = Stages::new(watch, args.result.quiet);
    let measured = bench.measure(&sizes, size(args.rounds), &mut |_, done| {
        stages.set("chunks", done);
    });
    drop(stages);
    let fallbacks = bench.supervisor().fallbacks();
    // Whatever has happened, everything is stopped in order.
    let down = bench.shutdown();
    let points = measured.map_err(|error| match error {
        BenchError::Run(RunError::Cancelled) => CliError::MeasuringInterrupted,
        other => other.into(),
    })?;
    if let Some(failure) = down.failures.into_iter().next() {
        return Err(failure.into());
    }
    let plan = &prepared.plan;
    Ok(PrefillReport {
        report_version: REPORT_VERSION,
        model: prepared.opened.checkpoint.path().to_owned(),
        identity: prepared.opened.checkpoint.identity().to_string(),
        layers: prepared.opened.model.layout().layer_count(),
        isa: prepared.opened.model.kernels().isa.to_string(),
        threads: prepared.opened.threads,
        rounds: args.rounds,
        budget_bytes: plan.budget.total.0,
        planned_bytes: plan.planned.0,
        pinned_bytes: plan.pins.bytes,
        trunk_bytes: plan.pins.bytes_total,
        expert_slots: plan.slots.transit_count + plan.slots.cache_count,
        interrupted: points.iter().any(|point| point.rounds < size(args.rounds)),
        points,
        fallbacks,
        notes: prepared.opened.settings.warnings.clone(),
    })
}

fn render(report: &PrefillReport) -> String {
    let mut text = table::facts(&[
        (
            "model",
            format!("{} ({} layers)", report.model.display(), report.layers),
        ),
        (
            "computed",
            format!("with {}, {} threads", report.isa, report.threads),
        ),
        (
            "memory",
            format!(
                "{}; {} of {} trunk pinned, {} expert slots",
                short_bytes(report.planned_bytes),
                short_bytes(report.pinned_bytes),
                short_bytes(report.trunk_bytes),
                report.expert_slots
            ),
        ),
    ]);
    let write = "writing to a string cannot fail";
    writeln!(
        text,
        "\na position of a prompt, by positions in a chunk: median and least..most of {}",
        report.rounds
    )
    .expect(write);
    let header = [
        "chunk",
        "seconds",
        "",
        "core s",
        "read",
        "trunk",
        "experts",
        "of chunk 1",
    ];
    let first = report.points.first();
    let rows = report.points.iter().map(|point| row(point, first));
    text.push_str(&table::numbers(&header, rows));
    if report.interrupted {
        text.push_str("\ninterrupted: not every round was measured\n");
    }
    let notes = report.fallbacks.iter().chain(&report.notes);
    for note in notes {
        text.push_str(&wrap(&format!("note: {}\n", escape::line(note))));
    }
    text
}

fn row(point: &PrefillPoint, first: Option<&PrefillPoint>) -> Vec<String> {
    #[allow(clippy::cast_precision_loss, reason = "at most some thousands")]
    let each = |value: f64| value / point.positions as f64;
    let read = |point: &PrefillPoint| point.trunk_bytes.median + point.expert_bytes.median;
    let wall = &point.wall_seconds;
    let share = first
        .filter(|first| first.positions == 1 && read(first) > 0.0)
        .map(|first| format!("{:.1} %", 100.0 * each(read(point)) / read(first)));
    vec![
        point.positions.to_string(),
        format!("{:.3}", each(wall.median)),
        format!("{:.3}..{:.3}", each(wall.min), each(wall.max)),
        format!("{:.3}", each(point.cpu_seconds.median)),
        bytes(each(read(point))),
        bytes(each(point.trunk_bytes.median)),
        bytes(each(point.expert_bytes.median)),
        share.unwrap_or_default(),
    ]
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a sweep, far below 2^53"
)]
fn bytes(value: f64) -> String {
    short_bytes(value.round() as u64)
}
