//! What triples of one number of positions come to.

use k3_runtime::statistics::Spread;
use serde::Serialize;

use super::overlap::{Record, read_bytes};

/// One triple.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Triple {
    /// A streamed sweep.
    pub wall_seconds: f64,
    /// Its requests alone.
    pub io_seconds: f64,
    /// Its arithmetic alone.
    pub compute_seconds: f64,
    /// Of the wall, time compute waited for blocks.
    pub trunk_wait_seconds: f64,
    /// Of the wall, time compute waited for experts.
    pub expert_wait_seconds: f64,
    /// Time the engine had something to read, from the end of the sweep before
    /// to the end of this one.
    pub busy_seconds: f64,
    /// Payload bytes that the streamed sweep took from the disk.
    pub wall_read_bytes: u64,
}

impl Triple {
    /// The longer of the two sides.
    fn longer_seconds(&self) -> f64 {
        self.io_seconds.max(self.compute_seconds)
    }

    /// Wall over the longer side: 1 is perfect.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.wall_seconds / self.longer_seconds()
    }

    /// What the ratio would be, one side after the other.
    #[must_use]
    pub fn serial_ratio(&self) -> f64 {
        (self.io_seconds + self.compute_seconds) / self.longer_seconds()
    }
}

/// The triples over one number of positions, and what they come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverlapPoint {
    /// Positions of a sweep.
    pub positions: usize,
    /// Whether they were searched for, as those whose sides are closest.
    pub is_closest: bool,
    /// Whether the sweeps passed the output head.
    pub has_head: bool,
    /// Requests of a sweep.
    pub requests: usize,
    /// Payload bytes of its blocks.
    pub trunk_bytes: u64,
    /// Payload bytes of its experts.
    pub expert_bytes: u64,
    /// Payload bytes of its embedding rows.
    pub row_bytes: u64,
    /// Seconds of the streamed sweeps.
    pub wall_seconds: Spread,
    /// Seconds of the requests alone.
    pub io_seconds: Spread,
    /// Seconds of the arithmetic alone.
    pub compute_seconds: Spread,
    /// Wall over the longer side, triple by triple.
    pub ratio: Spread,
    /// The same of the medians.
    pub ratio_of_medians: f64,
    /// What the ratio would be, one side after the other.
    pub serial_ratio: f64,
    /// Median rate of the requests alone.
    pub io_bytes_per_second: f64,
    /// Median rate of the streamed sweeps.
    pub wall_bytes_per_second: f64,
    /// Whether every streamed sweep read as much as the recorded one.
    pub reads_are_equal: bool,
    /// The triples, in order.
    pub triples: Vec<Triple>,
}

/// The spread of at least one measurement.
fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let values: Vec<f64> = values.collect();
    Spread::of(&values).expect("a median needs at least one measurement")
}

impl OverlapPoint {
    pub(super) fn new(positions: usize, record: &Record, triples: Vec<Triple>) -> Self {
        let of = |value: fn(&Triple) -> f64| spread(triples.iter().map(value));
        let wall_seconds = of(|triple| triple.wall_seconds);
        let io_seconds = of(|triple| triple.io_seconds);
        let compute_seconds = of(|triple| triple.compute_seconds);
        let bytes = read_bytes(&record.counts);
        #[allow(clippy::cast_precision_loss, reason = "a rate to a few digits")]
        let rate = |seconds: &Spread| bytes as f64 / seconds.median;
        let longer = io_seconds.median.max(compute_seconds.median);
        Self {
            positions,
            is_closest: false,
            has_head: record.has_head,
            requests: record.reads.len(),
            trunk_bytes: record.counts.trunk.read_bytes,
            expert_bytes: record.counts.experts.read_bytes,
            row_bytes: record.counts.row_bytes,
            ratio: of(Triple::ratio),
            ratio_of_medians: wall_seconds.median / longer,
            serial_ratio: of(Triple::serial_ratio).median,
            io_bytes_per_second: rate(&io_seconds),
            wall_bytes_per_second: rate(&wall_seconds),
            wall_seconds,
            io_seconds,
            compute_seconds,
            reads_are_equal: triples.iter().all(|triple| triple.wall_read_bytes == bytes),
            triples,
        }
    }

    /// Payload bytes of a sweep.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.trunk_bytes + self.expert_bytes + self.row_bytes
    }
}
