//! The figures of a run as Prometheus families, named like the report's fields.
//!
//! A name is `k3_`, the field's path below `streaming` and `_total` for what
//! never falls. The section `bytes` adds nothing: its fields say it themselves.
//! Labels are fields too. `docs/metrics.md` has the same table.

use k3_runtime::report::{DeviceReport, TrunkReport};
use prometheus::core::Collector;

use super::figures::{Figures, StreamFacts};
use super::live::{Live, Snapshot};
use crate::metrics::family::{Families, Family, Kind, Number, Samples};

/// Collects what `live` has come to when somebody asks.
pub(crate) fn collector(live: Live) -> impl Collector {
    Families::new(FAMILIES, move || live.snapshot())
}

fn facts(run: &Snapshot) -> Option<&StreamFacts> {
    run.streaming.as_ref().map(|(facts, _)| &**facts)
}

fn figures(run: &Snapshot) -> Option<&Figures> {
    run.streaming.as_ref().map(|(_, figures)| figures)
}

fn trunk(run: &Snapshot) -> Option<&TrunkReport> {
    run.trunk.as_ref()
}

fn each_device<N: Number>(
    run: &Snapshot,
    samples: &mut Samples,
    value: fn(&DeviceReport) -> Option<N>,
) {
    let figures = figures(run).into_iter();
    for device in figures.flat_map(|all| &all.engine.devices) {
        if let Some(value) = value(device) {
            samples.labelled(&[("device", &device.device.to_string())], value);
        }
    }
}

/// Every family of a generating run.
const FAMILIES: &[Family<Snapshot>] = &[
    Family {
        name: "k3_run_info",
        help: "What runs, and how",
        kind: Kind::Gauge,
        read: |run, samples| {
            let facts = run.facts();
            let labels = [
                ("k3_version", env!("CARGO_PKG_VERSION")),
                ("identity", &facts.identity),
                ("isa", &facts.isa),
                ("attention", &facts.attention),
                ("threads", &facts.threads.to_string()),
                ("source", facts.source),
            ];
            samples.labelled(&labels, 1_u64);
        },
    },
    Family {
        name: "k3_prompt_tokens",
        help: "Ids of the prompt",
        kind: Kind::Gauge,
        read: |run, samples| samples.one(run.facts().prompt_tokens),
    },
    Family {
        name: "k3_generated_tokens_total",
        help: "Tokens generated",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.generated_tokens),
    },
    Family {
        name: "k3_sweep_steps_done",
        help: "Steps of the sweep at hand that have run",
        kind: Kind::Gauge,
        read: |run, samples| samples.one(run.steps.0),
    },
    Family {
        name: "k3_sweep_steps",
        help: "Steps of a sweep",
        kind: Kind::Gauge,
        read: |run, samples| samples.one(run.steps.1),
    },
    Family {
        name: "k3_counts_sweeps_total",
        help: "Walks through the layers",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.sweeps),
    },
    Family {
        name: "k3_counts_positions_total",
        help: "Positions computed",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.positions),
    },
    Family {
        name: "k3_counts_trunk_blocks_total",
        help: "Trunk blocks consumed",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.trunk_blocks),
    },
    Family {
        name: "k3_counts_trunk_bytes_total",
        help: "Bytes of trunk blocks consumed",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.trunk_bytes),
    },
    Family {
        name: "k3_counts_experts_total",
        help: "Experts consumed",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.experts),
    },
    Family {
        name: "k3_counts_expert_bytes_total",
        help: "Bytes of experts consumed",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.expert_bytes),
    },
    Family {
        name: "k3_counts_embedding_bytes_total",
        help: "Bytes of embedding rows consumed",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.embedding_bytes),
    },
    Family {
        name: "k3_counts_nan_scale_groups_total",
        help: "Weight groups skipped because their scale is NaN",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.nan_scale_groups),
    },
    Family {
        name: "k3_counts_reused_positions_total",
        help: "Positions whose states came from the prefix cache",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.reused_positions),
    },
    Family {
        name: "k3_counts_guessed_tokens_total",
        help: "Tokens that sweeps carried as guesses",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.guessed_tokens),
    },
    Family {
        name: "k3_counts_accepted_tokens_total",
        help: "Guesses that were right",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.counts.accepted_tokens),
    },
    Family {
        name: "k3_timing_load_seconds",
        help: "Time from start to the first sweep",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.load_seconds),
    },
    Family {
        name: "k3_timing_prefill_seconds",
        help: "Time for the prompt",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.prefill_seconds),
    },
    Family {
        name: "k3_timing_token_seconds_total",
        help: "Time for the generated tokens",
        kind: Kind::Counter,
        read: |run, samples| samples.one(run.token_seconds),
    },
    Family {
        name: "k3_plan_lines_bytes",
        help: "What each line of the plan reserves",
        kind: Kind::Gauge,
        read: |run, samples| {
            for (kind, bytes) in facts(run).map(|facts| &facts.lines).into_iter().flatten() {
                samples.labelled(&[("kind", kind)], *bytes);
            }
        },
    },
    Family {
        name: "k3_memory_budget_bytes",
        help: "Most memory the run may use",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).map(|all| all.memory.budget_bytes)),
    },
    Family {
        name: "k3_memory_planned_bytes",
        help: "Sum of the plan's lines",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).map(|all| all.memory.planned_bytes)),
    },
    Family {
        name: "k3_memory_peak_bytes",
        help: "Most memory that was resident, huge pages included",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).and_then(|all| all.memory.peak_bytes)),
    },
    Family {
        name: "k3_memory_hugetlb_bytes",
        help: "Reserved huge pages in use",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).map(|all| all.memory.hugetlb_bytes)),
    },
    Family {
        name: "k3_memory_major_faults_total",
        help: "Major page faults since the first sweep began",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).and_then(|all| all.memory.major_faults)),
    },
    Family {
        name: "k3_memory_swapped_bytes",
        help: "Memory of the process that is swapped out",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).and_then(|all| all.memory.swapped_bytes)),
    },
    Family {
        name: "k3_memory_prefault_bytes_total",
        help: "Arena memory touched ahead of the reads",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.memory.prefault_bytes)),
    },
    Family {
        name: "k3_memory_prefault_seconds_total",
        help: "Time until the last of it was touched",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.memory.prefault_seconds)),
    },
    Family {
        name: "k3_memory_arenas_bytes",
        help: "Size of each arena, and its pages",
        kind: Kind::Gauge,
        read: |run, samples| {
            for arena in figures(run)
                .map(|all| &all.memory.arenas)
                .into_iter()
                .flatten()
            {
                let labels = [
                    ("line", arena.line.as_str()),
                    ("pages_asked", &arena.pages_asked),
                    ("pages", &arena.pages),
                ];
                samples.labelled(&labels, arena.bytes);
            }
        },
    },
    Family {
        name: "k3_trunk_read_bytes_total",
        help: "Payload of trunk blocks that were read",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.bytes.trunk_read_bytes)),
    },
    Family {
        name: "k3_trunk_pinned_bytes_total",
        help: "Payload of trunk blocks that were in memory",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.bytes.trunk_pinned_bytes)),
    },
    Family {
        name: "k3_expert_read_bytes_total",
        help: "Payload of experts that were read",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.bytes.expert_read_bytes)),
    },
    Family {
        name: "k3_embedding_bytes_total",
        help: "Payload of embedding rows",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.bytes.embedding_bytes)),
    },
    Family {
        name: "k3_page_read_bytes_total",
        help: "Payload of pages of sequences that were read back",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.bytes.page_read_bytes)),
    },
    Family {
        name: "k3_page_written_bytes_total",
        help: "Payload of pages of sequences that were written away",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.bytes.page_written_bytes)),
    },
    Family {
        name: "k3_vector_bytes_total",
        help: "Small tensors, read once at the start",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.bytes.vector_bytes)),
    },
    Family {
        name: "k3_device_bytes_total",
        help: "Bytes the devices transferred",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.bytes.device_bytes)),
    },
    Family {
        name: "k3_trunk_checksums",
        help: "What is done with the checksums of a packed trunk",
        kind: Kind::Gauge,
        read: |run, samples| {
            if let Some(trunk) = trunk(run) {
                let labels = [("checksums", trunk.checksums.name())];
                samples.labelled(&labels, 1_u64);
            }
        },
    },
    Family {
        name: "k3_trunk_raw_bytes",
        help: "Bytes of a packed trunk's blocks as they are in the checkpoint",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(trunk(run).map(|trunk| trunk.raw_bytes)),
    },
    Family {
        name: "k3_trunk_stored_bytes",
        help: "Bytes of a packed trunk's blocks as they are stored",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(trunk(run).map(|trunk| trunk.stored_bytes)),
    },
    Family {
        name: "k3_trunk_extent_bytes",
        help: "The same, with what pads each to whole pages: as they are read",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(trunk(run).map(|trunk| trunk.extent_bytes)),
    },
    Family {
        name: "k3_trunk_manifest_matrices",
        help: "Matrices packed from the bytes that the manifest has a hash of",
        kind: Kind::Gauge,
        read: |run, samples| {
            samples.known(trunk(run).and_then(|trunk| trunk.manifest_matrices));
        },
    },
    Family {
        name: "k3_trunk_checked_bytes_total",
        help: "Bytes of a packed trunk compared with checksums",
        kind: Kind::Counter,
        read: |run, samples| samples.known(trunk(run).map(|trunk| trunk.checked_bytes)),
    },
    Family {
        name: "k3_trunk_check_seconds_total",
        help: "Time to compare them",
        kind: Kind::Counter,
        read: |run, samples| samples.known(trunk(run).map(|trunk| trunk.check_seconds)),
    },
    Family {
        name: "k3_cache_hits_total",
        help: "Experts resident when their layer's demand arrived",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.cache.hits)),
    },
    Family {
        name: "k3_cache_misses_total",
        help: "Experts not resident when their layer's demand arrived",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.cache.misses)),
    },
    Family {
        name: "k3_cache_hit_rate",
        help: "Share of the demanded experts that were hits",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).map(|all| all.cache.hit_rate)),
    },
    Family {
        name: "k3_cache_evictions_total",
        help: "Experts that lost their slot to another",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.cache.evictions)),
    },
    Family {
        name: "k3_cache_bypassed_total",
        help: "Misses that only passed through a slot",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.cache.bypassed)),
    },
    Family {
        name: "k3_cache_lookahead_used_total",
        help: "Misses whose read lookahead had begun before the demand",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.cache.lookahead_used)),
    },
    Family {
        name: "k3_cache_lookahead_wasted_bytes_total",
        help: "Bytes of experts that lookahead read in vain",
        kind: Kind::Counter,
        read: |run, samples| {
            samples.known(figures(run).map(|all| all.cache.lookahead_wasted_bytes));
        },
    },
    Family {
        name: "k3_cache_pinned_share",
        help: "Share of the trunk that is pinned",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).map(|all| all.cache.pinned_share)),
    },
    Family {
        name: "k3_time_wall_seconds_total",
        help: "Wall time of the sweeps",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.time.wall_seconds)),
    },
    Family {
        name: "k3_time_wait_seconds_total",
        help: "Time compute waited for reads in the sweeps",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.time.wait_seconds)),
    },
    Family {
        name: "k3_time_compute_seconds_total",
        help: "Time compute did not wait in the sweeps",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.time.compute_seconds)),
    },
    Family {
        name: "k3_time_io_share",
        help: "Share of the wall time that compute waited",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).map(|all| all.time.io_share)),
    },
    Family {
        name: "k3_time_overlap",
        help: "Wall time over the longer of reading and computing; 1 is perfect",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).map(|all| all.time.overlap)),
    },
    Family {
        name: "k3_engine_info",
        help: "How weights are read",
        kind: Kind::Gauge,
        read: |run, samples| {
            if let Some(all) = figures(run) {
                samples.labelled(&[("kind", &all.engine.kind)], 1_u64);
            }
        },
    },
    Family {
        name: "k3_engine_registered_bytes",
        help: "Arena memory registered with the kernel",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).map(|all| all.engine.registered_bytes)),
    },
    Family {
        name: "k3_engine_busy_seconds_total",
        help: "Time with a request under way on any device",
        kind: Kind::Counter,
        read: |run, samples| samples.known(figures(run).map(|all| all.engine.busy_seconds)),
    },
    Family {
        name: "k3_engine_bytes_per_second",
        help: "Bytes the devices transferred per second of the busy time",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).map(|all| all.engine.bytes_per_second)),
    },
    Family {
        name: "k3_engine_ceiling_bytes_per_second",
        help: "What the devices give together",
        kind: Kind::Gauge,
        read: |run, samples| {
            let engine = figures(run).map(|all| &all.engine);
            let known = engine
                .and_then(|engine| engine.ceiling_source.zip(engine.ceiling_bytes_per_second));
            if let Some((source, rate)) = known {
                samples.labelled(&[("ceiling_source", source)], rate);
            }
        },
    },
    Family {
        name: "k3_engine_ceiling_share",
        help: "Share of what the devices give that was reached",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(figures(run).and_then(|all| all.engine.ceiling_share)),
    },
    Family {
        name: "k3_engine_devices_device_bytes_total",
        help: "Bytes each device transferred",
        kind: Kind::Counter,
        read: |run, samples| each_device(run, samples, |device| Some(device.device_bytes)),
    },
    Family {
        name: "k3_engine_devices_payload_bytes_total",
        help: "Bytes each device transferred that were wanted",
        kind: Kind::Counter,
        read: |run, samples| each_device(run, samples, |device| Some(device.payload_bytes)),
    },
    Family {
        name: "k3_engine_devices_requests_total",
        help: "Requests to each device",
        kind: Kind::Counter,
        read: |run, samples| each_device(run, samples, |device| Some(device.requests)),
    },
    Family {
        name: "k3_engine_devices_retries_total",
        help: "Reads repeated because they failed in a way that can pass",
        kind: Kind::Counter,
        read: |run, samples| each_device(run, samples, |device| Some(device.retries)),
    },
    Family {
        name: "k3_engine_devices_short_reads_total",
        help: "Reads that brought less than asked",
        kind: Kind::Counter,
        read: |run, samples| each_device(run, samples, |device| Some(device.short_reads)),
    },
    Family {
        name: "k3_engine_devices_busy_seconds_total",
        help: "Time with a request under way on each device",
        kind: Kind::Counter,
        read: |run, samples| each_device(run, samples, |device| Some(device.busy_seconds)),
    },
    Family {
        name: "k3_engine_devices_ceiling_bytes_per_second",
        help: "What a probe of the device gave",
        kind: Kind::Gauge,
        read: |run, samples| each_device(run, samples, |device| device.ceiling_bytes_per_second),
    },
    Family {
        name: "k3_sweeps_positions",
        help: "Positions of the last sweep",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.positions)),
    },
    Family {
        name: "k3_sweeps_is_prompt",
        help: "Whether the last sweep read the prompt",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.is_prompt)),
    },
    Family {
        name: "k3_sweeps_seconds",
        help: "Wall time of the last sweep",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.seconds)),
    },
    Family {
        name: "k3_sweeps_wait_seconds",
        help: "Time compute waited for reads in the last sweep",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.wait_seconds)),
    },
    Family {
        name: "k3_sweeps_trunk_read_bytes",
        help: "Trunk bytes the last sweep read",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.trunk_read_bytes)),
    },
    Family {
        name: "k3_sweeps_trunk_pinned_bytes",
        help: "Trunk bytes the last sweep found in memory",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.trunk_pinned_bytes)),
    },
    Family {
        name: "k3_sweeps_expert_read_bytes",
        help: "Expert bytes the last sweep read",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.expert_read_bytes)),
    },
    Family {
        name: "k3_sweeps_embedding_bytes",
        help: "Bytes of embedding rows the last sweep read",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.embedding_bytes)),
    },
    Family {
        name: "k3_sweeps_page_read_bytes",
        help: "Bytes of pages of sequences the last sweep read back",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.page_read_bytes)),
    },
    Family {
        name: "k3_sweeps_hits",
        help: "Experts the last sweep found in memory",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.hits)),
    },
    Family {
        name: "k3_sweeps_misses",
        help: "Experts the last sweep did not find in memory",
        kind: Kind::Gauge,
        read: |run, samples| samples.known(run.latest.map(|sweep| sweep.misses)),
    },
    Family {
        name: "k3_fallbacks",
        help: "Fallbacks in force",
        kind: Kind::Gauge,
        read: |run, samples| {
            samples.known(figures(run).map(|all| all.fallbacks.len()));
        },
    },
    Family {
        name: "k3_fallbacks_info",
        help: "Each fallback in force, as a sentence",
        kind: Kind::Gauge,
        read: |run, samples| {
            for line in figures(run).map(|all| &all.fallbacks).into_iter().flatten() {
                samples.labelled(&[("fallback", line)], 1_u64);
            }
        },
    },
];
