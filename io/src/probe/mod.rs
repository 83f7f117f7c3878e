//! What a disk gives to a read engine.
//!
//! The same engine, the same kind of memory and the same direct reads as a run,
//! over a sweep of request sizes and depths. Positions are spread over all files
//! of the device and not repeated within a sweep, so neither the page cache nor
//! read-ahead can flatter the result. A virtual disk's host may still do so.

mod places;
mod reader;

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::arena::PagePolicy;
use crate::direct::FileTable;
use crate::engine::{EngineError, EngineKind, EnginePreference};
use crate::units::MIB;

pub use reader::{DiskReader, PassLimits, ReadPass, ReadWay};

/// What to measure and when to stop.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeBounds {
    /// Request sizes in bytes, each a multiple of 4096.
    pub request_bytes: Vec<usize>,
    /// Bytes in flight; combined with each request size that fits.
    pub in_flight_bytes: Vec<usize>,
    /// Passes over the sweep; a cell's rate is its median.
    pub rounds: usize,
    /// Most bytes read for one cell in one round.
    pub cell_bytes: u64,
    /// Longest time for one cell in one round.
    pub cell_seconds: f64,
    /// Longest time for all; what was measured by then counts.
    pub total_seconds: f64,
}

impl Default for ProbeBounds {
    /// About five seconds and at most 6 GB.
    fn default() -> Self {
        Self {
            request_bytes: vec![256 << 10, 512 << 10, MIB, 2 * MIB],
            in_flight_bytes: vec![2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB],
            rounds: 3,
            cell_bytes: 128 << 20,
            cell_seconds: 0.25,
            total_seconds: 8.0,
        }
    }
}

impl ProbeBounds {
    /// One cell: what a run's engine is set to.
    #[must_use]
    pub fn only(request_bytes: usize, in_flight_bytes: usize) -> Self {
        Self {
            request_bytes: vec![request_bytes],
            in_flight_bytes: vec![in_flight_bytes],
            ..Self::default()
        }
    }
}

/// One combination of request size and depth.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeCell {
    /// Size of a request.
    pub request_bytes: usize,
    /// Requests in flight.
    pub depth: usize,
    /// Bytes per second of each round, in order.
    pub rates: Vec<f64>,
    /// Bytes read in all rounds.
    pub read_bytes: u64,
    /// CPU time of the process for them, the kernel's included.
    pub cpu_seconds: f64,
}

impl ProbeCell {
    /// Median rate in bytes per second, 0 when it was not measured.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    }

    /// The cell as an engine's settings.
    fn way(&self, engine: EnginePreference) -> ReadWay {
        ReadWay {
            engine,
            request_bytes: self.request_bytes,
            piece_bytes: self.request_bytes,
            in_flight_bytes: self.in_flight_bytes(),
            threads: self.depth,
        }
    }

    /// Bytes in flight.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.request_bytes * self.depth
    }

    /// CPU milliseconds for 10^9 bytes.
    #[must_use]
    pub fn cpu_ms_per_gb(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a ratio for people to read")]
        let gigabytes = self.read_bytes as f64 / 1e9;
        if gigabytes > 0.0 {
            self.cpu_seconds * 1e3 / gigabytes
        } else {
            0.0
        }
    }
}

/// The measured rates of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskProfile {
    /// Number of the device (`st_dev`).
    pub device: u64,
    /// The engine that read.
    pub kind: EngineKind,
    /// Whether reads bypassed the page cache. If not, the rates may be the
    /// memory's.
    pub direct: bool,
    /// Pages that were read into.
    pub pages: PagePolicy,
    /// What the engine had to do without.
    pub fallbacks: Vec<String>,
    /// The sweep, in the order of the bounds.
    pub cells: Vec<ProbeCell>,
}

impl DiskProfile {
    /// The fastest cell: the ceiling that a run is compared with.
    #[must_use]
    pub fn best(&self) -> Option<&ProbeCell> {
        self.cells
            .iter()
            .filter(|cell| !cell.rates.is_empty())
            .max_by(|a, b| a.bytes_per_second().total_cmp(&b.bytes_per_second()))
    }

    /// The cell with the fewest bytes in flight that reaches `share` (0 to 1)
    /// of the best rate.
    #[must_use]
    pub fn knee(&self, share: f64) -> Option<&ProbeCell> {
        let enough = self.best()?.bytes_per_second() * share;
        self.cells
            .iter()
            .filter(|cell| cell.bytes_per_second() >= enough)
            .min_by_key(|cell| cell.in_flight_bytes())
    }

    /// Measures device number `device` of the table (an index into
    /// [`FileTable::devices`]).
    ///
    /// # Errors
    ///
    /// [`EngineError::Unavailable`] when the device has no file with enough
    /// bytes on disk (holes read at the speed of memory), else the engine's.
    pub fn measure(
        table: &Arc<FileTable>,
        device: usize,
        preference: EnginePreference,
        bounds: &ProbeBounds,
    ) -> Result<Self, EngineError> {
        Self::measure_while(table, device, preference, bounds, || true)
    }

    /// As [`DiskProfile::measure`], as long as `go_on` says so: it is asked
    /// before every read. What was measured by then counts.
    ///
    /// # Errors
    ///
    /// Those of [`DiskProfile::measure`].
    pub fn measure_while(
        table: &Arc<FileTable>,
        device: usize,
        preference: EnginePreference,
        bounds: &ProbeBounds,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Self, EngineError> {
        let mut probe = Probe::new(table, device, preference, bounds)?;
        let start = Instant::now();
        'rounds: for _ in 0..bounds.rounds {
            for cell in 0..probe.profile.cells.len() {
                if start.elapsed().as_secs_f64() > bounds.total_seconds || !go_on() {
                    break 'rounds;
                }
                probe.measure_cell(cell, bounds, &mut go_on)?;
            }
        }
        let mut profile = probe.profile;
        profile.fallbacks = probe.reader.fallbacks().to_vec();
        Ok(profile)
    }
}

/// A sweep under way.
struct Probe {
    reader: DiskReader,
    preference: EnginePreference,
    profile: DiskProfile,
}

impl Probe {
    fn new(
        table: &Arc<FileTable>,
        device: usize,
        preference: EnginePreference,
        bounds: &ProbeBounds,
    ) -> Result<Self, EngineError> {
        let mut cells = Vec::new();
        for &request_bytes in &bounds.request_bytes {
            assert!(request_bytes > 0 && request_bytes.is_multiple_of(4096));
            for &in_flight_bytes in &bounds.in_flight_bytes {
                let depth = in_flight_bytes / request_bytes;
                if depth > 0 {
                    cells.push(ProbeCell {
                        request_bytes,
                        depth,
                        rates: Vec::with_capacity(bounds.rounds),
                        read_bytes: 0,
                        cpu_seconds: 0.0,
                    });
                }
            }
        }
        let ways: Vec<ReadWay> = cells.iter().map(|cell| cell.way(preference)).collect();
        let reader = DiskReader::new(table, device, &ways)?;
        Ok(Self {
            profile: DiskProfile {
                device: table.devices()[device],
                kind: EngineKind::Pread,
                direct: reader.is_direct(),
                pages: reader.pages(),
                fallbacks: Vec::new(),
                cells,
            },
            preference,
            reader,
        })
    }

    fn measure_cell(
        &mut self,
        index: usize,
        bounds: &ProbeBounds,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), EngineError> {
        let cell = &mut self.profile.cells[index];
        let limits = PassLimits {
            seconds: bounds.cell_seconds,
            bytes: bounds.cell_bytes,
        };
        let pass = self
            .reader
            .pass(&cell.way(self.preference), limits, go_on)?;
        cell.cpu_seconds += pass.cpu_seconds;
        cell.read_bytes += pass.read_bytes;
        cell.rates.push(pass.bytes_per_second());
        self.profile.kind = pass.kind;
        Ok(())
    }
}

/// Processor time of the process so far, of all its threads, user and system, in
/// seconds; 0 where the kernel does not tell.
#[must_use]
pub fn process_cpu_seconds() -> f64 {
    let Ok(time) = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID) else {
        return 0.0;
    };
    Duration::from(time).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::DirectPolicy;

    fn cell(request_bytes: usize, depth: usize, rates: &[f64]) -> ProbeCell {
        ProbeCell {
            request_bytes,
            depth,
            rates: rates.to_vec(),
            read_bytes: 2_000_000_000,
            cpu_seconds: 0.05,
        }
    }

    #[test]
    fn best_is_the_best_median_and_the_knee_the_cheapest_that_comes_near() {
        let profile = DiskProfile {
            device: 1,
            kind: EngineKind::Pread,
            direct: true,
            pages: PagePolicy::Small,
            fallbacks: Vec::new(),
            cells: vec![
                cell(MIB, 1, &[1.0e9, 9.0e9, 1.1e9]),
                cell(MIB, 4, &[2.4e9]),
                cell(MIB, 16, &[2.5e9, 2.5e9, 0.1e9]),
                cell(MIB, 2, &[]),
            ],
        };
        assert_eq!(profile.best().unwrap().depth, 16);
        assert_eq!(profile.knee(0.95).unwrap().depth, 4);
        assert_eq!(profile.knee(1.0).unwrap().depth, 16);
        assert_eq!(profile.cells[0].bytes_per_second(), 1.1e9);
        assert!((profile.cells[0].cpu_ms_per_gb() - 25.0).abs() < 1e-9);
    }

    #[test]
    fn a_small_sweep_stays_within_its_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let paths = [40, 3].map(|mebibytes| {
            let path = directory.path().join(format!("{mebibytes}"));
            std::fs::write(&path, vec![1_u8; mebibytes * MIB + 5]).unwrap();
            path
        });
        let table = Arc::new(FileTable::open(&paths, DirectPolicy::Probe).unwrap());
        let bounds = ProbeBounds {
            request_bytes: vec![64 << 10, MIB],
            in_flight_bytes: vec![512 << 10, 4 * MIB],
            rounds: 2,
            cell_bytes: 8 << 20,
            cell_seconds: 5.0,
            total_seconds: 60.0,
        };
        for preference in [EnginePreference::Pread, EnginePreference::Uring] {
            let profile = DiskProfile::measure(&table, 0, preference, &bounds).unwrap();
            assert_eq!(profile.cells.len(), 3, "1 MiB does not fit in 512 KiB");
            for cell in &profile.cells {
                assert_eq!(cell.rates.len(), 2);
                assert_eq!(cell.read_bytes, 16 << 20);
                assert!(cell.bytes_per_second() > 0.0);
            }
        }
    }

    #[test]
    fn a_sweep_that_is_stopped_keeps_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1_u8; 8 * MIB]).unwrap();
        let table = Arc::new(FileTable::open([&path], DirectPolicy::Probe).unwrap());
        let bounds = ProbeBounds {
            rounds: 1_000_000,
            total_seconds: 3600.0,
            ..ProbeBounds::only(64 << 10, 512 << 10)
        };
        let mut asked = 0;
        let profile =
            DiskProfile::measure_while(&table, 0, EnginePreference::Pread, &bounds, || {
                asked += 1;
                asked < 5000
            })
            .unwrap();
        assert!((5000..5100).contains(&asked), "{asked}");
        assert!(profile.best().is_some_and(|cell| cell.read_bytes > 0));
    }

    #[test]
    fn holes_are_not_measured() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(100 << 20)
            .unwrap();
        let table = Arc::new(FileTable::open([&path], DirectPolicy::Probe).unwrap());
        let result = DiskProfile::measure(
            &table,
            0,
            EnginePreference::Pread,
            &ProbeBounds::only(MIB, 4 * MIB),
        );
        let error = result.unwrap_err();
        assert!(error.to_string().contains("(1 with holes"), "{error}");
    }
}
