//! From what was counted to the sections of the report: the same functions for
//! a run that goes on and for one that has ended.

use k3_actors::experts::CacheCounters;
use k3_actors::{PrefaultCounts, SpillCounts, StreamGauges};
use k3_io::{EngineCounters, PagePolicy, PageReport};
use k3_runtime::report::{
    ArenaReport, BytesReport, CacheReport, DeviceReport, EngineReport, MemoryReport, ReadCeiling,
    SweepTotals, TimeReport, TrunkReport,
};

use crate::process::ProcessMemory;
use crate::render::short_rate;

/// Share of what the disk gives below which a run says so.
const CEILING_SHARE_LOW: f64 = 0.5;
/// Share of the time that a run waits from which on that matters: one that
/// computes reads no faster than it consumes.
const IO_SHARE_NOTED: f64 = 0.25;
/// Major faults from which on a run says so. A program that reads its own code
/// for the first time has some too.
const MAJOR_FAULTS_NOTED: u64 = 256;

/// What a streamed run knows once it has started.
#[derive(Debug)]
pub(crate) struct StreamFacts {
    /// The budget in force.
    pub budget_bytes: u64,
    /// Sum of the plan's lines.
    pub planned_bytes: u64,
    /// The lines.
    pub lines: Vec<(String, u64)>,
    /// Pages of each arena.
    pub arenas: Vec<ArenaReport>,
    /// Name of the read engine.
    pub engine: &'static str,
    /// Small tensors, read at the start.
    pub vector_bytes: u64,
    /// Pinned trunk / trunk.
    pub pinned_share: f64,
    /// The trunk in files of its own, before anything of it was compared.
    pub trunk: Option<TrunkReport>,
    /// What the disks give, where it is known.
    pub ceiling: Option<ReadCeiling>,
    /// Major faults before the first sweep.
    pub major_faults_before: Option<u64>,
}

/// What was counted up to one moment.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    engine: EngineCounters,
    cache: CacheCounters,
    prefault: PrefaultCounts,
    registered_bytes: u64,
    /// Bytes of pages written away.
    page_written_bytes: u64,
    /// Bytes compared with checksums and the time that took.
    checked: (u64, f64),
    fallbacks: Vec<String>,
    process: ProcessMemory,
}

impl Observation {
    /// As of now, in a process that takes this memory.
    pub(crate) fn of(gauges: &StreamGauges, process: ProcessMemory) -> Self {
        Self {
            engine: gauges.engine_counters(),
            cache: gauges.cache_counters(),
            prefault: gauges.prefault_counts(),
            registered_bytes: gauges.registered_bytes(),
            page_written_bytes: gauges.spill().map_or(0, SpillCounts::written_bytes),
            checked: gauges
                .checks()
                .map_or((0, 0.0), |checks| (checks.bytes(), checks.seconds())),
            fallbacks: gauges.fallbacks(),
            process,
        }
    }
}

/// The sections of the report that change while a run goes on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figures {
    pub memory: MemoryReport,
    pub engine: EngineReport,
    pub bytes: BytesReport,
    pub trunk: Option<TrunkReport>,
    pub cache: CacheReport,
    pub time: TimeReport,
    pub fallbacks: Vec<String>,
}

impl Figures {
    /// Of sweeps that come to `totals`.
    pub(crate) fn new(facts: &StreamFacts, seen: Observation, totals: &SweepTotals) -> Self {
        let process = seen.process;
        let faults = process.major_faults.zip(facts.major_faults_before);
        let (evictions, bypassed) = (seen.cache.evictions, seen.cache.bypassed);
        let busy_seconds = seen.engine.busy_seconds;
        Self {
            memory: MemoryReport {
                budget_bytes: facts.budget_bytes,
                planned_bytes: facts.planned_bytes,
                peak_bytes: process.peak_bytes(),
                hugetlb_bytes: process.hugetlb_bytes,
                major_faults: faults.map(|(now, before)| now.saturating_sub(before)),
                swapped_bytes: process.swapped_bytes,
                prefault_bytes: seen.prefault.touched_bytes,
                prefault_seconds: seen.prefault.seconds,
                arenas: facts.arenas.clone(),
            },
            engine: EngineReport::new(
                facts.engine,
                devices(&seen.engine),
                seen.registered_bytes,
                busy_seconds,
                facts.ceiling.as_ref(),
            ),
            bytes: BytesReport::new(
                totals,
                facts.vector_bytes,
                seen.page_written_bytes,
                seen.engine.device_bytes(),
            ),
            trunk: facts.trunk.clone().map(|trunk| TrunkReport {
                checked_bytes: seen.checked.0,
                check_seconds: seen.checked.1,
                ..trunk
            }),
            cache: CacheReport::new(totals, evictions, bypassed, facts.pinned_share)
                .with_lookahead(seen.cache.lookahead_used, seen.cache.lookahead_wasted_bytes),
            time: TimeReport::new(totals, busy_seconds),
            fallbacks: seen.fallbacks,
        }
    }

    /// What a person should know about them, one sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let (engine, memory) = (&self.engine, &self.memory);
        let slow = engine
            .ceiling_bytes_per_second
            .zip(engine.ceiling_share)
            .filter(|(_, share)| *share < CEILING_SHARE_LOW)
            .filter(|_| self.time.io_share >= IO_SHARE_NOTED)
            .map(|(ceiling, share)| {
                format!(
                    "reading reached {:.0} % of the {} that the disk gives: other work on the \
                     disk, or blocks too small for it (--block-bytes)",
                    100.0 * share,
                    short_rate(ceiling)
                )
            });
        let faults = memory.major_faults.unwrap_or(0);
        let swapped = memory.swapped_bytes.unwrap_or(0);
        let paged = (faults >= MAJOR_FAULTS_NOTED || swapped > 0).then(|| {
            "the machine was short of memory and paged during the run: a lower --memory would \
             be faster"
                .to_owned()
        });
        slow.into_iter().chain(paged).collect()
    }
}

fn devices(counters: &EngineCounters) -> Vec<DeviceReport> {
    let devices = counters.devices.iter();
    devices
        .map(|device| DeviceReport {
            device: device.device,
            device_bytes: device.device_bytes,
            payload_bytes: device.payload_bytes.iter().sum(),
            requests: device.requests,
            retries: device.retries,
            short_reads: device.short_reads,
            busy_seconds: device.busy_seconds,
            ceiling_bytes_per_second: None,
        })
        .collect()
}

/// The pages of the arena behind a line of the plan.
pub(crate) fn arena((line, pages): &(k3_config::LineKind, PageReport)) -> ArenaReport {
    ArenaReport {
        line: line.to_string(),
        bytes: pages.bytes as u64,
        pages_asked: page_name(pages.asked).to_owned(),
        pages: page_name(pages.got).to_owned(),
        nodes: pages.nodes.clone(),
    }
}

fn page_name(pages: PagePolicy) -> &'static str {
    match pages {
        PagePolicy::Hugetlb => "hugetlb",
        PagePolicy::Transparent => "transparent",
        PagePolicy::Small => "small",
    }
}

#[cfg(test)]
mod tests {
    use k3_io::DeviceCounters;

    use super::*;

    fn facts(ceiling: Option<ReadCeiling>) -> StreamFacts {
        StreamFacts {
            budget_bytes: 100,
            planned_bytes: 90,
            lines: Vec::new(),
            arenas: Vec::new(),
            engine: "pread",
            vector_bytes: 5,
            pinned_share: 0.25,
            trunk: None,
            ceiling,
            major_faults_before: Some(10),
        }
    }

    fn seen(major_faults: u64, swapped_bytes: u64) -> Observation {
        Observation {
            engine: EngineCounters {
                devices: vec![DeviceCounters {
                    device_bytes: 400,
                    ..DeviceCounters::default()
                }],
                busy_seconds: 4.0,
            },
            cache: CacheCounters::default(),
            prefault: PrefaultCounts::default(),
            registered_bytes: 0,
            page_written_bytes: 0,
            checked: (0, 0.0),
            fallbacks: Vec::new(),
            process: ProcessMemory {
                major_faults: Some(major_faults),
                swapped_bytes: Some(swapped_bytes),
                ..ProcessMemory::default()
            },
        }
    }

    fn notes(ceiling: Option<ReadCeiling>, seen: Observation) -> Vec<String> {
        Figures::new(&facts(ceiling), seen, &waiting(0.25)).notes()
    }

    /// A run that waits `share` of its time.
    fn waiting(share: f64) -> SweepTotals {
        SweepTotals {
            wall_seconds: 8.0,
            wait_seconds: 8.0 * share,
            ..SweepTotals::default()
        }
    }

    #[test]
    fn half_of_what_the_disk_gives_is_worth_a_note() {
        assert!(notes(None, seen(10, 0)).is_empty());
        assert!(notes(Some(ReadCeiling::Given(200.0)), seen(10, 0)).is_empty());
        let slow = notes(Some(ReadCeiling::Given(250.0)), seen(10, 0));
        assert!(slow[0].contains("40 % of the 250 B/s"), "{slow:?}");
        let facts = facts(Some(ReadCeiling::Given(250.0)));
        let computing = Figures::new(&facts, seen(10, 0), &waiting(0.24));
        assert!(computing.notes().is_empty(), "{:?}", computing.notes());
    }

    #[test]
    fn paging_is_counted_from_the_first_sweep_and_worth_a_note() {
        let figures = Figures::new(&facts(None), seen(17, 0), &SweepTotals::default());
        assert_eq!(figures.memory.major_faults, Some(7));
        assert!(notes(None, seen(10 + MAJOR_FAULTS_NOTED - 1, 0)).is_empty());
        for seen in [seen(10 + MAJOR_FAULTS_NOTED, 0), seen(10, 4096)] {
            assert!(notes(None, seen)[0].contains("--memory"));
        }
    }
}
