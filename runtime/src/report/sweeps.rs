//! The sweeps of a run, added up as they finish.

use std::collections::VecDeque;

use super::SweepReport;

/// Rows that a [`SweepTable`] keeps at each end: of a run of any length it
/// takes less than 1 MB.
pub const SWEEP_ROWS_PER_END: usize = 4096;

/// Sums over the sweeps that finished. None of them ever falls.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SweepTotals {
    /// Wall time.
    pub wall_seconds: f64,
    /// Time compute waited for reads.
    pub wait_seconds: f64,
    /// Time it did not.
    pub compute_seconds: f64,
    /// Trunk bytes read.
    pub trunk_read_bytes: u64,
    /// Trunk bytes that were in memory.
    pub trunk_pinned_bytes: u64,
    /// Expert bytes read.
    pub expert_read_bytes: u64,
    /// Bytes of embedding rows.
    pub embedding_bytes: u64,
    /// Bytes of pages that do not stay in memory.
    pub page_read_bytes: u64,
    /// Experts that were in memory.
    pub hits: u64,
    /// Experts that were not.
    pub misses: u64,
}

impl SweepTotals {
    /// With one sweep more.
    pub fn add(&mut self, sweep: &SweepReport) {
        // Two clocks: the waits are within the sweep.
        let waited = sweep.wait_seconds.min(sweep.seconds);
        self.wall_seconds += sweep.seconds;
        self.wait_seconds += waited;
        self.compute_seconds += sweep.seconds - waited;
        self.trunk_read_bytes += sweep.trunk_read_bytes;
        self.trunk_pinned_bytes += sweep.trunk_pinned_bytes;
        self.expert_read_bytes += sweep.expert_read_bytes;
        self.embedding_bytes += sweep.embedding_bytes;
        self.page_read_bytes += sweep.page_read_bytes;
        self.hits += sweep.hits;
        self.misses += sweep.misses;
    }
}

impl<'a> FromIterator<&'a SweepReport> for SweepTotals {
    fn from_iter<I: IntoIterator<Item = &'a SweepReport>>(sweeps: I) -> Self {
        let mut totals = Self::default();
        for sweep in sweeps {
            totals.add(sweep);
        }
        totals
    }
}

/// One row for each sweep, in bounded memory: of a long run the first and the
/// last [`SWEEP_ROWS_PER_END`]. The sums are over all of them.
#[derive(Debug, Clone, Default)]
pub struct SweepTable {
    totals: SweepTotals,
    first: Vec<SweepReport>,
    last: VecDeque<SweepReport>,
    left_out: u64,
}

impl SweepTable {
    /// Adds the sweep that has just finished.
    pub fn push(&mut self, sweep: SweepReport) {
        self.totals.add(&sweep);
        if self.first.len() < SWEEP_ROWS_PER_END {
            self.first.push(sweep);
            return;
        }
        if self.last.len() == SWEEP_ROWS_PER_END {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(sweep);
    }

    /// Sums over all sweeps.
    #[must_use]
    pub fn totals(&self) -> &SweepTotals {
        &self.totals
    }

    /// The sweep that finished last.
    #[must_use]
    pub fn latest(&self) -> Option<&SweepReport> {
        self.last.back().or(self.first.last())
    }

    /// The rows, and how many are missing in the middle.
    #[must_use]
    pub fn into_rows(self) -> (Vec<SweepReport>, u64) {
        let mut rows = self.first;
        rows.extend(self.last);
        (rows, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(hits: u64) -> SweepReport {
        SweepReport {
            hits,
            seconds: 1.0,
            wait_seconds: 0.25,
            ..SweepReport::default()
        }
    }

    #[test]
    fn a_long_run_keeps_both_ends_and_all_sums() {
        let mut table = SweepTable::default();
        assert_eq!(table.latest(), None);
        let count = 2 * SWEEP_ROWS_PER_END as u64 + 100;
        for hits in 0..count {
            table.push(sweep(hits));
            assert_eq!(table.latest().map(|sweep| sweep.hits), Some(hits));
        }
        assert_eq!(table.totals().hits, count * (count - 1) / 2);
        let (rows, left_out) = table.into_rows();
        assert_eq!((rows.len(), left_out), (2 * SWEEP_ROWS_PER_END, 100));
        let hits: Vec<u64> = rows.iter().map(|sweep| sweep.hits).collect();
        assert_eq!(hits[..2], [0, 1]);
        let gap = SWEEP_ROWS_PER_END;
        assert_eq!(hits[gap], hits[gap - 1] + 101);
        assert_eq!(hits.last(), Some(&(count - 1)));
    }

    #[test]
    fn a_short_run_keeps_every_row() {
        let mut table = SweepTable::default();
        for hits in 0..3 {
            table.push(sweep(hits));
        }
        let (rows, left_out) = table.clone().into_rows();
        assert_eq!((rows.len(), left_out), (3, 0));
        assert_eq!(*table.totals(), rows.iter().collect());
    }

    #[test]
    fn no_sum_falls_when_a_wait_is_longer_than_its_sweep() {
        let mut totals = SweepTotals::default();
        totals.add(&sweep(0));
        let before = totals;
        totals.add(&SweepReport {
            wait_seconds: 1.5,
            ..sweep(0)
        });
        assert_eq!(totals.compute_seconds, before.compute_seconds);
        assert_eq!(totals.wait_seconds, before.wait_seconds + 1.0);
    }
}
