//! What a streamed run read, waited for and reserved.
//!
//! Each figure has one name and one formula, in `docs/metrics.md`.

use k3_config::BudgetPlan;
use serde::{Deserialize, Serialize};

use super::engine::EngineReport;
use super::sweeps::SweepTotals;

/// How weights were streamed. Payload bytes are exact: what the arithmetic
/// consumed, without alignment.
#[derive(Debug, Clone, Serialize)]
pub struct StreamingReport {
    /// Every reservation, and what was predicted.
    pub plan: BudgetPlan,
    /// The memory that was used, against it.
    pub memory: MemoryReport,
    /// How bytes were read.
    pub engine: EngineReport,
    /// Bytes by kind.
    pub bytes: BytesReport,
    /// What experts were found in memory.
    pub cache: CacheReport,
    /// Where the time of the sweeps went.
    pub time: TimeReport,
    /// One row for each sweep that finished; of a long run the first and the
    /// last.
    pub sweeps: Vec<SweepReport>,
    /// Rows that are missing between the two.
    pub sweeps_left_out: u64,
    /// Everything that is less than what was asked for, one sentence each.
    pub fallbacks: Vec<String>,
}

/// Memory, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// What the run was allowed.
    pub budget_bytes: u64,
    /// Sum of the plan's lines.
    pub planned_bytes: u64,
    /// `VmHWM` and the huge pages outside it; `None` where the kernel does not
    /// tell.
    pub peak_bytes: Option<u64>,
    /// Reserved huge pages in use, which `VmHWM` leaves out.
    pub hugetlb_bytes: u64,
    /// Pages the process had to wait for a disk to bring, since the first sweep
    /// began; `None` where the kernel does not tell.
    pub major_faults: Option<u64>,
    /// Memory of the process that is swapped out; `None` where the kernel does
    /// not tell.
    pub swapped_bytes: Option<u64>,
    /// Bytes of the arenas that were touched ahead of the reads.
    pub prefault_bytes: u64,
    /// Time that took, beside the run.
    pub prefault_seconds: f64,
    /// Pages of each arena.
    pub arenas: Vec<ArenaReport>,
}

/// One arena.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArenaReport {
    /// The plan's line.
    pub line: String,
    /// Its size.
    pub bytes: u64,
    /// Pages asked for: `hugetlb`, `transparent` or `small`.
    pub pages_asked: String,
    /// Pages it has.
    pub pages: String,
    /// Memory nodes whose pages it takes in turn; empty where each page comes
    /// from the node of whoever touches it first.
    pub nodes: Vec<u32>,
}

/// Payload by kind, over all finished sweeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BytesReport {
    /// Trunk blocks read.
    pub trunk_read_bytes: u64,
    /// Trunk blocks that were in memory.
    pub trunk_pinned_bytes: u64,
    /// Experts read.
    pub expert_read_bytes: u64,
    /// Embedding rows read.
    pub embedding_bytes: u64,
    /// Pages of sequences that do not stay in memory, read back for sweeps.
    #[serde(default)]
    pub page_read_bytes: u64,
    /// The same, written away.
    #[serde(default)]
    pub page_written_bytes: u64,
    /// Small tensors, read once at the start.
    pub vector_bytes: u64,
    /// Bytes the devices transferred for all this, reads ahead for a sweep
    /// that never came among them.
    pub device_bytes: u64,
}

/// The expert cache, over all finished sweeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Experts resident when their layer's demand arrived.
    pub hits: u64,
    /// Experts that were not.
    pub misses: u64,
    /// `hits / (hits + misses)`; 0 without demands.
    pub hit_rate: f64,
    /// Experts that lost their slot to another.
    pub evictions: u64,
    /// Misses that only passed through.
    pub bypassed: u64,
    /// Misses whose read lookahead had begun.
    pub lookahead_used: u64,
    /// Bytes of experts that lookahead read in vain; no other figure of payload
    /// has them.
    pub lookahead_wasted_bytes: u64,
    /// `pinned trunk / trunk`, in payload bytes.
    pub pinned_share: f64,
}

/// Seconds, over all finished sweeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeReport {
    /// Wall time of the sweeps.
    pub wall_seconds: f64,
    /// Time compute waited for reads.
    pub wait_seconds: f64,
    /// Time it did not: `wall - wait`.
    pub compute_seconds: f64,
    /// `wait / wall`; 0 without sweeps.
    pub io_share: f64,
    /// `wall / max(engine busy, compute)`: 1 is perfect, 2 is one after the
    /// other; 0 without sweeps.
    pub overlap: f64,
}

/// One sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepReport {
    /// Positions it computed.
    pub positions: u64,
    /// Whether it read the prompt; the others have a token each.
    pub is_prompt: bool,
    /// Wall time.
    pub seconds: f64,
    /// Time compute waited for reads.
    pub wait_seconds: f64,
    /// Trunk bytes read.
    pub trunk_read_bytes: u64,
    /// Trunk bytes that were in memory.
    pub trunk_pinned_bytes: u64,
    /// Expert bytes read.
    pub expert_read_bytes: u64,
    /// Bytes of embedding rows.
    pub embedding_bytes: u64,
    /// Bytes of pages that do not stay in memory.
    #[serde(default)]
    pub page_read_bytes: u64,
    /// Experts that were in memory.
    pub hits: u64,
    /// Experts that were not.
    pub misses: u64,
}

impl BytesReport {
    /// The sums of the sweeps, with `vector_bytes`, `page_written_bytes` and
    /// `device_bytes` beside them.
    #[must_use]
    pub fn new(
        totals: &SweepTotals,
        vector_bytes: u64,
        page_written_bytes: u64,
        device_bytes: u64,
    ) -> Self {
        Self {
            trunk_read_bytes: totals.trunk_read_bytes,
            trunk_pinned_bytes: totals.trunk_pinned_bytes,
            expert_read_bytes: totals.expert_read_bytes,
            embedding_bytes: totals.embedding_bytes,
            page_read_bytes: totals.page_read_bytes,
            page_written_bytes,
            vector_bytes,
            device_bytes,
        }
    }
}

impl CacheReport {
    /// The sums of the sweeps, with what the cache counted beside them.
    #[must_use]
    pub fn new(totals: &SweepTotals, evictions: u64, bypassed: u64, pinned_share: f64) -> Self {
        let (hits, misses) = (totals.hits, totals.misses);
        Self {
            hits,
            misses,
            hit_rate: share(hits, hits + misses),
            evictions,
            bypassed,
            pinned_share,
            ..Self::default()
        }
    }

    /// The same with what lookahead did.
    #[must_use]
    pub fn with_lookahead(self, used: u64, wasted_bytes: u64) -> Self {
        Self {
            lookahead_used: used,
            lookahead_wasted_bytes: wasted_bytes,
            ..self
        }
    }
}

impl TimeReport {
    /// The sums of the sweeps, against an engine that was busy for
    /// `engine_busy_seconds`.
    #[must_use]
    pub fn new(totals: &SweepTotals, engine_busy_seconds: f64) -> Self {
        let SweepTotals {
            wall_seconds,
            wait_seconds,
            compute_seconds,
            ..
        } = *totals;
        let longest = engine_busy_seconds.max(compute_seconds);
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        Self {
            wall_seconds,
            wait_seconds,
            compute_seconds,
            io_share: ratio(wait_seconds, wall_seconds),
            overlap: ratio(wall_seconds, longest),
        }
    }
}

/// `part / whole`, 0 of nothing.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a share to a few digits")]
pub fn share(part: u64, whole: u64) -> f64 {
    assert!(part <= whole, "a part is no more than the whole");
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals() -> SweepTotals {
        let sweep = SweepReport {
            positions: 4,
            is_prompt: true,
            seconds: 3.0,
            wait_seconds: 1.0,
            trunk_read_bytes: 100,
            trunk_pinned_bytes: 10,
            expert_read_bytes: 60,
            embedding_bytes: 8,
            page_read_bytes: 30,
            hits: 1,
            misses: 6,
        };
        let token = SweepReport {
            positions: 1,
            is_prompt: false,
            seconds: 1.0,
            wait_seconds: 0.0,
            hits: 1,
            misses: 0,
            ..sweep
        };
        [sweep, token].iter().collect()
    }

    #[test]
    fn sums_shares_and_overlap_follow_their_formulas() {
        let totals = totals();
        let bytes = BytesReport::new(&totals, 5, 44, 999);
        assert_eq!(
            bytes,
            BytesReport {
                trunk_read_bytes: 200,
                trunk_pinned_bytes: 20,
                expert_read_bytes: 120,
                embedding_bytes: 16,
                page_read_bytes: 60,
                page_written_bytes: 44,
                vector_bytes: 5,
                device_bytes: 999,
            }
        );
        let cache = CacheReport::new(&totals, 3, 2, 0.5);
        assert_eq!((cache.hits, cache.misses, cache.hit_rate), (2, 6, 0.25));
        let time = TimeReport::new(&totals, 3.2);
        assert_eq!((time.wall_seconds, time.compute_seconds), (4.0, 3.0));
        assert_eq!((time.io_share, time.overlap), (0.25, 1.25));
        let idle_disk = TimeReport::new(&totals, 0.0);
        assert_eq!(idle_disk.overlap, 4.0 / 3.0);
    }

    #[test]
    fn nothing_is_no_division_by_zero() {
        assert_eq!(
            TimeReport::new(&SweepTotals::default(), 0.0),
            TimeReport::default()
        );
        let nothing = CacheReport::new(&SweepTotals::default(), 0, 0, 0.0);
        assert_eq!(nothing, CacheReport::default());
        assert_eq!(share(0, 0), 0.0);
    }
}
