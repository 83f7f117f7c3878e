//! The reader against the best that the disk gives.
//!
//! First a sweep over engines, sizes of requests and bytes in flight, some
//! rounds of it, and the best of its cells by the median. The best of many
//! noisy cells was also lucky, and the disk may be another one a minute later;
//! so that cell is then measured again in pairs with the reader as a run sets it
//! up, the two in turn.

use std::sync::Arc;

use k3_io::{
    DiskReader, EngineConfig, EngineKind, EnginePreference, FileTable, PassLimits, ReadPass,
    ReadWay,
};
use k3_runtime::statistics::Spread;
use k3_runtime::{Cancel, RunError};
use serde::Serialize;

use super::error::BenchError;

const MIB: usize = 1 << 20;
/// Sizes of requests in the sweep.
const REQUEST_BYTES: [usize; 5] = [MIB / 4, MIB / 2, MIB, 2 * MIB, 4 * MIB];
/// Bytes in flight in the sweep.
const IN_FLIGHT_BYTES: [usize; 6] = [MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB];
/// A side of a pair takes this many times as long as a cell.
const PAIR_CELLS: f64 = 4.0;

/// What to measure.
#[derive(Debug)]
pub struct DiskRequest<'a> {
    /// The files to read.
    pub table: &'a Arc<FileTable>,
    /// Index of their device in [`FileTable::devices`].
    pub device: usize,
    /// The engine of the reader that is compared with the best.
    pub engine: EnginePreference,
    /// The same reader's settings.
    pub config: &'a EngineConfig,
    /// Size of its requests: a block's.
    pub block_bytes: usize,
    /// Rounds of the sweep.
    pub rounds: usize,
    /// Seconds of a cell in a round.
    pub cell_seconds: f64,
    /// Pairs of the best cell and the reader.
    pub pairs: usize,
    /// A request to stop.
    pub cancel: &'a Cancel,
}

/// A way of reading, as data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Way {
    /// `io_uring` or `pread`.
    pub engine: &'static str,
    /// Size of a request.
    pub request_bytes: usize,
    /// Largest single read.
    pub piece_bytes: usize,
    /// Bytes in flight.
    pub in_flight_bytes: usize,
    /// Threads, if it is pread.
    pub threads: usize,
}

/// One cell of the sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskCell {
    /// How it read.
    pub way: Way,
    /// Bytes per second, round by round.
    pub bytes_per_second: Spread,
    /// CPU time of the process, the kernel's included, for 10^9 bytes.
    pub cpu_seconds_per_gb: f64,
}

/// The best cell and the reader, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DiskPair {
    /// Rate of the best cell.
    pub best_bytes_per_second: f64,
    /// Rate of the reader.
    pub reader_bytes_per_second: f64,
    /// CPU time of the best cell, for 10^9 bytes.
    pub best_cpu_seconds_per_gb: f64,
    /// CPU time of the reader, for 10^9 bytes.
    pub reader_cpu_seconds_per_gb: f64,
}

impl DiskPair {
    /// Reader over best: 1 is as good as it gets.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.reader_bytes_per_second / self.best_bytes_per_second
    }
}

/// What one device gives, and what the reader makes of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskPoint {
    /// Number of the device (`st_dev`).
    pub device: u64,
    /// Whether reads bypassed the page cache.
    pub is_direct: bool,
    /// The sweep.
    pub cells: Vec<DiskCell>,
    /// Its best cell.
    pub best: Way,
    /// The reader.
    pub reader: Way,
    /// Rates of the best cell in the pairs.
    pub best_bytes_per_second: Spread,
    /// Rates of the reader in the pairs.
    pub reader_bytes_per_second: Spread,
    /// Reader over best, pair by pair.
    pub ratio: Spread,
    /// The pairs, in order.
    pub pairs: Vec<DiskPair>,
    /// Everything that was less than asked for.
    pub fallbacks: Vec<String>,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskStage {
    /// The sweep over cells.
    Sweep,
    /// The pairs.
    Pairs,
}

/// The cells of the sweep, without rates.
fn ways() -> Vec<ReadWay> {
    let mut ways = Vec::new();
    for engine in [EnginePreference::Uring, EnginePreference::Pread] {
        for request_bytes in REQUEST_BYTES {
            for in_flight_bytes in IN_FLIGHT_BYTES {
                if in_flight_bytes >= request_bytes {
                    ways.push(ReadWay {
                        engine,
                        request_bytes,
                        piece_bytes: request_bytes,
                        in_flight_bytes,
                        threads: in_flight_bytes / request_bytes,
                    });
                }
            }
        }
    }
    ways
}

impl DiskPoint {
    /// Measures one device; `watch` is told how far each stage has come, from 0
    /// to 1.
    ///
    /// # Errors
    ///
    /// A device without suitable files, a read that fails, a stop that was
    /// asked for.
    pub fn measure(
        request: &DiskRequest<'_>,
        watch: &mut dyn FnMut(DiskStage, f64),
    ) -> Result<Self, BenchError> {
        let reader_way = ReadWay {
            engine: request.engine,
            request_bytes: request.block_bytes.next_multiple_of(4096),
            piece_bytes: request.config.piece_bytes,
            in_flight_bytes: request.config.in_flight_bytes,
            threads: request.config.threads,
        };
        let ways = ways();
        let all = [&ways[..], &[reader_way]].concat();
        let mut measure = Measure {
            reader: DiskReader::new(request.table, request.device, &all)?,
            cancel: request.cancel,
        };
        let (best_way, cells) = measure.sweep(request, &ways, watch)?;
        let (kinds, pairs) = measure.pairs(request, [&best_way, &reader_way], watch)?;
        let of = |value: fn(&DiskPair) -> f64| spread(pairs.iter().map(value));
        Ok(Self {
            device: request.table.devices()[request.device],
            is_direct: measure.reader.is_direct(),
            cells,
            best: Way::new(&best_way, kinds[0]),
            reader: Way::new(&reader_way, kinds[1]),
            best_bytes_per_second: of(|pair| pair.best_bytes_per_second),
            reader_bytes_per_second: of(|pair| pair.reader_bytes_per_second),
            ratio: of(DiskPair::ratio),
            pairs,
            fallbacks: measure.reader.fallbacks().to_vec(),
        })
    }
}

/// A reader that can be stopped.
struct Measure<'a> {
    reader: DiskReader,
    cancel: &'a Cancel,
}

impl Measure<'_> {
    fn pass(&mut self, way: &ReadWay, seconds: f64) -> Result<ReadPass, BenchError> {
        let bytes = u64::MAX;
        let mut go_on = || !self.cancel.is_requested();
        let pass = self
            .reader
            .pass(way, PassLimits { seconds, bytes }, &mut go_on)?;
        if self.cancel.is_requested() {
            return Err(RunError::Cancelled.into());
        }
        Ok(pass)
    }

    /// All of `ways`, round by round, and the best of them.
    fn sweep(
        &mut self,
        request: &DiskRequest<'_>,
        ways: &[ReadWay],
        watch: &mut dyn FnMut(DiskStage, f64),
    ) -> Result<(ReadWay, Vec<DiskCell>), BenchError> {
        let mut passes: Vec<Vec<ReadPass>> = vec![Vec::new(); ways.len()];
        let total = ways.len() * request.rounds;
        let mut done = 0;
        for _ in 0..request.rounds {
            for (way, passes) in ways.iter().zip(&mut passes) {
                watch(DiskStage::Sweep, share(done, total));
                passes.push(self.pass(way, request.cell_seconds)?);
                done += 1;
            }
        }
        let cells: Vec<DiskCell> = ways
            .iter()
            .zip(&passes)
            .map(|(way, passes)| DiskCell::new(way, passes))
            .collect();
        let rate = |cell: &DiskCell| cell.bytes_per_second.median;
        let best = (0..cells.len()).max_by(|&a, &b| rate(&cells[a]).total_cmp(&rate(&cells[b])));
        Ok((ways[best.expect("the sweep has cells")], cells))
    }

    /// Both of `sides` in turn; which comes first changes from pair to pair.
    fn pairs(
        &mut self,
        request: &DiskRequest<'_>,
        sides: [&ReadWay; 2],
        watch: &mut dyn FnMut(DiskStage, f64),
    ) -> Result<([EngineKind; 2], Vec<DiskPair>), BenchError> {
        // Where io_uring is forbidden, pread takes its place.
        let mut kinds = [EngineKind::Pread; 2];
        let seconds = request.cell_seconds * PAIR_CELLS;
        let mut pairs = Vec::with_capacity(request.pairs);
        for pair in 0..request.pairs {
            watch(DiskStage::Pairs, share(pair, request.pairs));
            let first = pair % 2;
            let earlier = self.pass(sides[first], seconds)?;
            let later = self.pass(sides[1 - first], seconds)?;
            let [best, reader] = if first == 0 {
                [earlier, later]
            } else {
                [later, earlier]
            };
            kinds = [best.kind, reader.kind];
            pairs.push(DiskPair {
                best_bytes_per_second: best.bytes_per_second(),
                reader_bytes_per_second: reader.bytes_per_second(),
                best_cpu_seconds_per_gb: cpu(&[best]),
                reader_cpu_seconds_per_gb: cpu(&[reader]),
            });
        }
        Ok((kinds, pairs))
    }
}

#[allow(clippy::cast_precision_loss, reason = "for a progress bar")]
fn share(done: usize, total: usize) -> f64 {
    done as f64 / total.max(1) as f64
}

/// The spread of at least one measurement.
fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let values: Vec<f64> = values.collect();
    Spread::of(&values).expect("a median needs at least one measurement")
}

/// CPU time for 10^9 bytes.
fn cpu(passes: &[ReadPass]) -> f64 {
    let bytes: u64 = passes.iter().map(|pass| pass.read_bytes).sum();
    let seconds: f64 = passes.iter().map(|pass| pass.cpu_seconds).sum();
    #[allow(clippy::cast_precision_loss, reason = "a rate to a few digits")]
    let gigabytes = bytes as f64 / 1e9;
    seconds / gigabytes.max(1e-9)
}

impl Way {
    fn new(way: &ReadWay, kind: EngineKind) -> Self {
        Self {
            engine: match kind {
                EngineKind::Pread => "pread",
                EngineKind::Uring => "io_uring",
            },
            request_bytes: way.request_bytes,
            piece_bytes: way.piece_bytes,
            in_flight_bytes: way.in_flight_bytes,
            threads: match kind {
                EngineKind::Pread => way.threads,
                EngineKind::Uring => 1,
            },
        }
    }
}

impl DiskCell {
    fn new(way: &ReadWay, passes: &[ReadPass]) -> Self {
        let kind = passes.first().expect("at least one round").kind;
        Self {
            way: Way::new(way, kind),
            bytes_per_second: spread(passes.iter().map(ReadPass::bytes_per_second)),
            cpu_seconds_per_gb: cpu(passes),
        }
    }
}
