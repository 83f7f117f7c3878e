//! `k3 bench disk`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k3_actors::bench::BenchError;
use k3_actors::bench::disk::{DiskCell, DiskPair, DiskPoint, DiskRequest, DiskStage, Way};
use k3_config::{Bytes, DEFAULT_BLOCK_BYTES, EngineChoice};
use k3_io::{CheckpointFiles, DirectPolicy, EngineConfig, EnginePreference, FileTable};
use k3_runtime::statistics::Spread;
use k3_runtime::{Cancel, RunError};
use serde::Serialize;

use super::Finished;
use super::size;
use super::watch::{Stages, Watch};
use crate::cli::bench::DiskArgs;
use crate::commands::generate::guard;
use crate::commands::{named_path, not_measured, roots};
use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupt;
use crate::output_file::OutputFile;
use crate::render::{escape, short_bytes, table};

/// Raised when a field changes its meaning or goes.
const REPORT_VERSION: u32 = 1;
const GIGA: f64 = 1e9;

/// The result, as data.
#[derive(Debug, Serialize)]
struct DiskReport {
    report_version: u32,
    #[serde(serialize_with = "k3_config::lossy::path")]
    path: PathBuf,
    files: usize,
    file_bytes: u64,
    /// Least that the median ratio may be.
    limit: f64,
    /// Whether every device keeps it.
    passed: bool,
    /// Whether it was stopped before all devices were measured.
    interrupted: bool,
    devices: Vec<DiskPoint>,
}

/// Measures every device that holds a part of the files.
///
/// # Errors
///
/// Whatever ends it without a measurement to keep.
pub(super) fn run(args: &DiskArgs, watch: &Watch) -> Result<Exit, CliError> {
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let path = named_path(args.path.as_deref())?;
    let files = files(&path, args)?;
    let file = match &args.result.out {
        Some(out) => {
            guard::check_one("--out", out, &guard::Inputs::of_files(&files))?;
            Some(OutputFile::create(out)?)
        }
        None => None,
    };
    let table = FileTable::open(&files, DirectPolicy::Probe).map_err(BenchError::from)?;
    let report = measure(args, path, &Arc::new(table), watch, &cancel)?;
    Finished {
        report: &report,
        text: render(&report),
        passed: report.passed,
        interrupted: report.interrupted,
    }
    .hand_over(&args.result, Some(args.check), file)
}

/// The shards of a checkpoint, the files of another directory that hold
/// something, or one file.
fn files(path: &Path, args: &DiskArgs) -> Result<Vec<PathBuf>, CliError> {
    if !path.is_dir() {
        return match not_measured(path, args.path.as_deref()) {
            Some(error) => Err(error),
            None => Ok(vec![path.to_owned()]),
        };
    }
    if path.join(k3_io::CONFIG_NAME).exists() {
        let files = CheckpointFiles::open(path, &roots(&args.roots)?)?;
        let shards = files.shards.iter().map(k3_formats::ReadAt::label);
        return Ok(shards.map(ToOwned::to_owned).collect());
    }
    let unreadable = |source| CliError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let (mut files, mut is_nested) = (Vec::new(), false);
    for entry in path.read_dir().map_err(unreadable)? {
        let found = entry.map_err(unreadable)?.path();
        match found.metadata() {
            Ok(metadata) if metadata.is_file() && metadata.len() > 0 => files.push(found),
            Ok(metadata) => is_nested |= metadata.is_dir(),
            // A link to nowhere, or gone since.
            Err(_) => {}
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(CliError::NoFiles {
            path: path.to_owned(),
            is_nested,
        });
    }
    Ok(files)
}

fn measure(
    args: &DiskArgs,
    path: PathBuf,
    table: &Arc<FileTable>,
    watch: &Watch,
    cancel: &Cancel,
) -> Result<DiskReport, CliError> {
    let config = EngineConfig::default();
    let mut report = DiskReport {
        report_version: REPORT_VERSION,
        path,
        files: table.files().len(),
        file_bytes: table.files().iter().map(|file| file.len_bytes()).sum(),
        limit: args.limit,
        passed: true,
        interrupted: false,
        devices: Vec::new(),
    };
    for device in 0..table.devices().len() {
        let request = DiskRequest {
            table,
            device,
            engine: match args.engine {
                Some(EngineChoice::Pread) => EnginePreference::Pread,
                Some(EngineChoice::Auto | EngineChoice::Uring) | None => EnginePreference::Uring,
            },
            config: &config,
            block_bytes: usize::try_from(DEFAULT_BLOCK_BYTES.0).expect("4 MiB"),
            rounds: size(args.rounds),
            cell_seconds: args.seconds,
            pairs: size(args.pairs),
            cancel,
        };
        match measure_device(args, &request, watch) {
            Ok(point) => {
                watch.ratio(format!("device {}", point.device), point.ratio.median);
                report.devices.push(point);
            }
            Err(BenchError::Run(RunError::Cancelled)) if report.devices.is_empty() => {
                return Err(CliError::MeasuringInterrupted);
            }
            Err(BenchError::Run(RunError::Cancelled)) => {
                report.interrupted = true;
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let kept = |point: &DiskPoint| point.ratio.median >= args.limit;
    report.passed = !report.interrupted && report.devices.iter().all(kept);
    Ok(report)
}

fn measure_device(
    args: &DiskArgs,
    request: &DiskRequest<'_>,
    watch: &Watch,
) -> Result<DiskPoint, BenchError> {
    let mut stages = Stages::new(watch, args.result.quiet);
    DiskPoint::measure(request, &mut |stage, done| {
        let name = match stage {
            DiskStage::Sweep => "sweep",
            DiskStage::Pairs => "pairs",
        };
        stages.set(name, done);
    })
}

fn render(report: &DiskReport) -> String {
    let mut text = table::facts(&[(
        "files",
        format!(
            "{} of {} in {}",
            report.files,
            short_bytes(report.file_bytes),
            report.path.display()
        ),
    )]);
    for point in &report.devices {
        push_point(&mut text, point, report.limit);
    }
    if report.interrupted {
        text.push_str("interrupted: not every device was measured\n");
    }
    text
}

fn push_point(text: &mut String, point: &DiskPoint, limit: f64) {
    let write = "writing to a string cannot fail";
    let direct = if point.is_direct {
        "past the page cache"
    } else {
        "through the page cache: rates may be the memory's"
    };
    writeln!(text, "\ndevice {}, {direct}", point.device).expect(write);
    let mut engines: Vec<&str> = Vec::new();
    for cell in &point.cells {
        if !engines.contains(&cell.way.engine) {
            engines.push(cell.way.engine);
        }
    }
    for engine in engines {
        let cells = point.cells.iter();
        let cells: Vec<&DiskCell> = cells.filter(|cell| cell.way.engine == engine).collect();
        writeln!(
            text,
            "\n{engine}, GB/s by size of request and bytes in flight"
        )
        .expect(write);
        push_sweep(text, &cells);
    }
    writeln!(
        text,
        "\nthe best of these and the reader, {} times in turn",
        point.pairs.len()
    )
    .expect(write);
    let header = ["", "GB/s", "quartiles", "least..most", "CPU ms/GB"];
    let cpu = |value: fn(&DiskPair) -> f64| {
        let values: Vec<f64> = point.pairs.iter().map(value).collect();
        k3_runtime::statistics::median(&values).unwrap_or_default()
    };
    let best_cpu = cpu(|pair| pair.best_cpu_seconds_per_gb);
    let reader_cpu = cpu(|pair| pair.reader_cpu_seconds_per_gb);
    let rows = [
        rate_row("best", &point.best_bytes_per_second, best_cpu),
        rate_row("reader", &point.reader_bytes_per_second, reader_cpu),
    ];
    text.push_str(&table::numbers(&header, rows.into_iter()));
    writeln!(text, "\nbest    {}", way(&point.best)).expect(write);
    writeln!(text, "reader  {}", way(&point.reader)).expect(write);
    let Spread { median, q1, q3, .. } = point.ratio;
    let verdict = if median >= limit { "kept" } else { "missed" };
    writeln!(
        text,
        "reader / best, pair by pair: {median:.3} (quartiles {q1:.2}..{q3:.2}); limit {limit}: \
         {verdict}"
    )
    .expect(write);
    for line in &point.fallbacks {
        writeln!(text, "note: {}", escape::line(line)).expect(write);
    }
}

/// A row for each size of request, a column for each depth.
fn push_sweep(text: &mut String, cells: &[&DiskCell]) {
    let mut depths: Vec<usize> = cells.iter().map(|cell| cell.way.in_flight_bytes).collect();
    depths.sort_unstable();
    depths.dedup();
    let mut sizes: Vec<usize> = cells.iter().map(|cell| cell.way.request_bytes).collect();
    sizes.dedup();
    let header = depths.iter().map(|depth| binary(*depth));
    let header: Vec<String> = std::iter::once("request".to_owned())
        .chain(header)
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows = sizes.into_iter().map(|size| {
        let rates = depths.iter().map(|depth| {
            let cell = cells
                .iter()
                .find(|cell| (cell.way.request_bytes, cell.way.in_flight_bytes) == (size, *depth));
            cell.map_or_else(String::new, |cell| {
                format!("{:.2}", cell.bytes_per_second.median / GIGA)
            })
        });
        std::iter::once(binary(size)).chain(rates).collect()
    });
    text.push_str(&table::numbers(&header, rows));
}

fn rate_row(name: &str, rate: &Spread, cpu_seconds: f64) -> Vec<String> {
    let two = |value: f64| format!("{:.2}", value / GIGA);
    vec![
        name.to_owned(),
        two(rate.median),
        format!("{}..{}", two(rate.q1), two(rate.q3)),
        format!("{}..{}", two(rate.min), two(rate.max)),
        format!("{:.0}", cpu_seconds * 1e3),
    ]
}

fn way(way: &Way) -> String {
    let threads = if way.engine == "pread" {
        format!(", {} threads", way.threads)
    } else {
        String::new()
    };
    format!(
        "{}, {} requests in {} pieces, {} in flight{threads}",
        way.engine,
        binary(way.request_bytes),
        binary(way.piece_bytes),
        binary(way.in_flight_bytes)
    )
}

/// Powers of two in binary units.
fn binary(bytes: usize) -> String {
    let bytes = bytes as u64;
    match (bytes >> 20, bytes >> 10) {
        (0, kib) if kib << 10 == bytes => format!("{kib} KiB"),
        (mib, _) if mib << 20 == bytes => format!("{mib} MiB"),
        _ => Bytes(bytes).to_string(),
    }
}
