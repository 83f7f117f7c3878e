//! The read engine as it starts here, and what the disks give to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use k3_config::StorageDevice;
use k3_io::{
    DiskProfile, EngineConfig, EngineError, EngineKind, EnginePreference, FileTable, FixedBuffers,
    HugeArena, PagePolicy, ProbeBounds, ProbeCell, open_engine,
};
use k3_runtime::Cancel;
use serde::Serialize;

use crate::error::CliError;
use crate::render::progress::Progress;

/// Size of the arena whose registration is tried out.
const REGISTERED_BYTES: usize = 8 << 20;
/// Request sizes and bytes in flight that are tried, the run's own among them.
const REQUEST_BYTES: [usize; 2] = [512 << 10, 1 << 20];
const IN_FLIGHT_BYTES: [usize; 4] = [2 << 20, 4 << 20, 8 << 20, 16 << 20];
/// Longest time for all disks together, in seconds; each gets a share, but at
/// least [`DEVICE_SECONDS_MIN`].
const SECONDS: f64 = 8.0;
const DEVICE_SECONDS_MIN: f64 = 2.0;
/// Share of the best rate that counts as reaching it.
const KNEE_SHARE: f64 = 0.95;

/// How reads are made here.
#[derive(Debug, Serialize)]
pub(super) struct Reader {
    /// `io_uring` or `pread`.
    pub(super) engine: String,
    /// Whether io_uring was asked for.
    pub(super) uring_wanted: bool,
    /// Set-up flags of the ring; empty for pread.
    pub(super) ring_flags: String,
    /// Bytes of buffers that were to be registered with the kernel, and were.
    pub(super) registrable_bytes: u64,
    pub(super) registered_bytes: u64,
    /// The file that the engine was started on.
    #[serde(serialize_with = "k3_config::lossy::path")]
    pub(super) tried_on: PathBuf,
    /// What it does without, one sentence each.
    pub(super) fallbacks: Vec<String>,
}

impl Reader {
    /// Starts the engine on real files, with registered buffers.
    ///
    /// # Errors
    ///
    /// A system on which no engine starts.
    pub(super) fn try_out(
        table: &Arc<FileTable>,
        preference: EnginePreference,
    ) -> Result<Self, CliError> {
        let (arena, report) = HugeArena::reserve(REGISTERED_BYTES, PagePolicy::Transparent)?;
        let config = EngineConfig {
            arenas: vec![Arc::clone(&arena)],
            fixed_buffers: FixedBuffers::AtStart,
            ..EngineConfig::default()
        };
        let engine = open_engine(Arc::clone(table), &config, preference)?;
        let caps = engine.caps();
        let first = caps.devices.first();
        let tried_on = table.files().first().map(|file| file.path().to_owned());
        Ok(Self {
            engine: caps.kind.to_string(),
            uring_wanted: preference == EnginePreference::Uring,
            ring_flags: first.map_or_else(String::new, |device| device.ring_flags.clone()),
            registrable_bytes: report.bytes as u64,
            registered_bytes: first.map_or(0, |device| device.fixed_bytes as u64),
            tried_on: tried_on.unwrap_or_default(),
            fallbacks: caps.fallbacks,
        })
    }

    /// Whether io_uring was asked for and is not to be had.
    pub(super) fn lacks_uring(&self) -> bool {
        self.uring_wanted && self.engine != EngineKind::Uring.to_string()
    }
}

/// One device, measured.
#[derive(Debug, Serialize)]
pub(super) struct Disk {
    pub(super) device: StorageDevice,
    /// Files on it, and their bytes.
    pub(super) file_count: usize,
    pub(super) file_bytes: u64,
    /// One of the files.
    #[serde(serialize_with = "k3_config::lossy::path")]
    pub(super) first_file: PathBuf,
    /// Whether reads bypassed the page cache: otherwise the rates may be the
    /// memory's.
    pub(super) direct: bool,
    /// The fastest cell, the cheapest that comes near it, and the one that a
    /// run is set to.
    pub(super) best: Option<Cell>,
    pub(super) knee: Option<Cell>,
    pub(super) run: Option<Cell>,
    /// Every cell.
    pub(super) cells: Vec<Cell>,
    /// Why nothing was measured.
    pub(super) not_measured: Option<String>,
}

/// Rate of one request size and depth.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cell {
    pub(super) request_bytes: usize,
    pub(super) depth: usize,
    pub(super) bytes_per_second: f64,
    /// Slowest and fastest round.
    pub(super) slowest: f64,
    pub(super) fastest: f64,
    pub(super) cpu_ms_per_gb: f64,
}

impl Cell {
    fn new(cell: &ProbeCell) -> Option<Self> {
        let rates = cell.rates.iter().copied();
        Some(Self {
            request_bytes: cell.request_bytes,
            depth: cell.depth,
            bytes_per_second: cell.bytes_per_second(),
            slowest: rates.clone().min_by(f64::total_cmp)?,
            fastest: rates.max_by(f64::total_cmp)?,
            cpu_ms_per_gb: cell.cpu_ms_per_gb(),
        })
    }
}

/// Measures every device of the table.
///
/// # Errors
///
/// A read that fails, and Ctrl-C.
pub(super) fn measure(
    table: &Arc<FileTable>,
    preference: EnginePreference,
    cancel: &Cancel,
    quiet: bool,
) -> Result<Vec<Disk>, CliError> {
    let devices = table.devices();
    #[allow(clippy::cast_precision_loss, reason = "a handful of devices")]
    let share = (SECONDS / devices.len() as f64).max(DEVICE_SECONDS_MIN);
    let bounds = ProbeBounds {
        request_bytes: REQUEST_BYTES.to_vec(),
        in_flight_bytes: IN_FLIGHT_BYTES.to_vec(),
        total_seconds: share,
        ..ProbeBounds::default()
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "seconds, for a progress bar"
    )]
    let total_seconds = (share * devices.len() as f64).ceil() as u64;
    let progress = Progress::seconds("measuring", total_seconds, quiet);
    let start = Instant::now();
    let mut disks = Vec::new();
    for index in 0..devices.len() {
        let go_on = || {
            progress.set(start.elapsed().as_secs());
            !cancel.is_requested()
        };
        let measured = DiskProfile::measure_while(table, index, preference, &bounds, go_on);
        if cancel.is_requested() {
            return Err(CliError::MeasuringInterrupted);
        }
        disks.push(Disk::new(table, index, measured)?);
    }
    Ok(disks)
}

impl Disk {
    /// What a person knows it by.
    pub(super) fn label(&self) -> String {
        let device = &self.device;
        let name = device.name.as_ref().unwrap_or(&device.number);
        match &device.file_system {
            Some(file_system) => format!("{name} ({file_system})"),
            None => name.clone(),
        }
    }

    fn new(
        table: &FileTable,
        index: usize,
        measured: Result<DiskProfile, EngineError>,
    ) -> Result<Self, CliError> {
        let files = table.files().iter();
        let own = files.filter(|file| file.device() == table.devices()[index]);
        let bytes = own.clone().map(|file| file.len_bytes()).sum();
        let mut disk = Self {
            device: StorageDevice::read(Path::new("/"), table.devices()[index]),
            file_count: own.clone().count(),
            file_bytes: bytes,
            first_file: own
                .clone()
                .next()
                .map_or_else(PathBuf::new, |file| file.path().to_owned()),
            direct: own.clone().all(|file| file.is_direct()),
            best: None,
            knee: None,
            run: None,
            cells: Vec::new(),
            not_measured: None,
        };
        match measured {
            Ok(profile) => {
                let config = EngineConfig::default();
                let of = |cell: Option<&ProbeCell>| cell.and_then(Cell::new);
                let as_run = profile.cells.iter().find(|cell| {
                    cell.request_bytes == config.piece_bytes
                        && cell.in_flight_bytes() == config.in_flight_bytes
                });
                disk.direct = profile.direct;
                disk.best = of(profile.best());
                disk.knee = of(profile.knee(KNEE_SHARE));
                disk.run = of(as_run);
                disk.cells = profile.cells.iter().filter_map(Cell::new).collect();
            }
            // Nothing there that tells something about the disk.
            Err(EngineError::Unavailable { reason, .. }) => disk.not_measured = Some(reason),
            Err(error) => return Err(error.into()),
        }
        Ok(disk)
    }
}

/// Rate at which a run would read from all disks at once, each holding its
/// share of the bytes; `None` unless all were measured.
pub(super) fn joint_rate(disks: &[Disk]) -> Option<f64> {
    let shares: Option<Vec<(u64, f64)>> = disks
        .iter()
        .map(|disk| Some((disk.file_bytes, disk.run.as_ref()?.bytes_per_second)))
        .collect();
    joint(&shares?)
}

/// The disk that is done last decides.
#[allow(clippy::cast_precision_loss, reason = "a rate for people to read")]
fn joint(shares: &[(u64, f64)]) -> Option<f64> {
    let all: u64 = shares.iter().map(|(bytes, _)| bytes).sum();
    let seconds = shares.iter().map(|(bytes, rate)| *bytes as f64 / rate);
    let slowest = seconds.max_by(f64::total_cmp)?;
    (slowest > 0.0 && slowest.is_finite()).then(|| all as f64 / slowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_s_own_setting_is_among_those_measured() {
        let config = EngineConfig::default();
        assert!(REQUEST_BYTES.contains(&config.piece_bytes));
        assert!(IN_FLIGHT_BYTES.contains(&config.in_flight_bytes));
    }

    #[test]
    fn disks_read_side_by_side() {
        assert_eq!(joint(&[]), None);
        assert_eq!(joint(&[(10, 2.0)]), Some(2.0));
        // Equal halves on equal disks: twice as fast.
        assert_eq!(joint(&[(10, 2.0), (10, 2.0)]), Some(4.0));
        // The slow one is done last.
        assert_eq!(joint(&[(10, 2.0), (10, 1.0)]), Some(2.0));
        assert_eq!(joint(&[(10, 0.0)]), None);
    }
}
