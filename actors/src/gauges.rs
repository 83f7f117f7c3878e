//! What streaming counts, for whoever looks at it while it goes on.

use std::sync::Arc;

use k3_config::LineKind;
use k3_io::{EngineCounters, FileTable, PageReport, ReadEngine};
use parking_lot::Mutex;

use crate::experts::CacheCounters;
use crate::past::SpillCounts;
use crate::prefault::{PrefaultCounts, PrefaultStatus};
use crate::trunk::CheckCounts;

/// Shared views of everything that counts beside compute. Looking takes no lock
/// that is held while bytes are read or multiplied.
///
/// The engine lives as long as a copy of this does.
#[derive(Debug, Clone)]
pub struct StreamGauges {
    pub(crate) engine: Arc<dyn ReadEngine>,
    pub(crate) table: Arc<FileTable>,
    /// `None` where nothing is compared with checksums.
    pub(crate) checks: Option<Arc<CheckCounts>>,
    /// `None` for a model without experts.
    pub(crate) cache: Option<Arc<Mutex<CacheCounters>>>,
    pub(crate) prefault: PrefaultStatus,
    pub(crate) pages: Arc<[(LineKind, PageReport)]>,
    /// `None` where all pages of sequences stay in memory.
    pub(crate) spill: Option<Arc<SpillCounts>>,
}

impl StreamGauges {
    /// What the engine has done so far.
    #[must_use]
    pub fn engine_counters(&self) -> EngineCounters {
        self.engine.counters()
    }

    /// What comparing blocks with their checksums has cost so far; `None` where
    /// there is nothing to compare, or it is not wanted.
    #[must_use]
    pub fn checks(&self) -> Option<&CheckCounts> {
        self.checks.as_deref()
    }

    /// What has been moved of pages that do not stay in memory; `None` if all do.
    #[must_use]
    pub fn spill(&self) -> Option<&SpillCounts> {
        self.spill.as_deref()
    }

    /// What the cache has counted so far.
    #[must_use]
    pub fn cache_counters(&self) -> CacheCounters {
        let cache = self.cache.as_ref();
        cache.map(|counters| *counters.lock()).unwrap_or_default()
    }

    /// How much of the memory has been touched ahead of the reads.
    #[must_use]
    pub fn prefault_counts(&self) -> PrefaultCounts {
        self.prefault.counts()
    }

    /// Arena memory that is registered with the kernel, on all devices.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        let devices = self.engine.caps().devices;
        devices.iter().map(|device| device.fixed_bytes as u64).sum()
    }

    /// The pages each part of the plan got.
    #[must_use]
    pub fn pages(&self) -> &[(LineKind, PageReport)] {
        &self.pages
    }

    /// Everything that is less than what was asked for, one sentence each.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<String> {
        let mut lines = self.engine.caps().fallbacks;
        lines.extend(self.prefault.fallback());
        for line in self.table.fallbacks() {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        for (kind, report) in self.pages.iter() {
            let named = report.fallbacks.iter();
            lines.extend(named.map(|line| format!("{kind}: {line}")));
        }
        lines
    }
}
