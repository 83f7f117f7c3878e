//! A run whose weights are read as they are needed.

use std::path::Path;
use std::sync::Arc;

use k3_actors::{ShutdownReport, StreamSettings, StreamingSource, Supervisor, SweepReads};
use k3_config::{BudgetPlan, EngineChoice, HostMemory};
use k3_io::{DirectPolicy, EngineCounters, EnginePreference, PagePolicy};
use k3_models::ModelFamily;
use k3_models::kimi_k3::KimiK3;
use k3_runtime::report::{
    ArenaReport, BytesReport, CacheReport, DeviceReport, EngineReport, MemoryReport,
    StreamingReport, SweepReport, TimeReport, share,
};
use k3_runtime::{ResidentSource, SessionSettings, WeightSource};

use super::request::Request;
use crate::error::{CliError, Positions};
use crate::planning::{self, Reading, Subject};
use crate::process::ProcessMemory;

/// A source that may tell what a sweep has read.
pub(super) trait Reads: WeightSource {
    /// What the last sweep read; `None` if nothing is read after the start.
    fn reads(&self) -> Option<SweepReads>;
}

impl Reads for ResidentSource {
    fn reads(&self) -> Option<SweepReads> {
        None
    }
}

impl Reads for StreamingSource {
    fn reads(&self) -> Option<SweepReads> {
        Some(self.sweep_reads())
    }
}

/// One sweep's row of the report.
pub(super) fn sweep_report(
    reads: &SweepReads,
    positions: usize,
    is_prompt: bool,
    seconds: f64,
) -> SweepReport {
    SweepReport {
        positions: positions as u64,
        is_prompt,
        seconds,
        wait_seconds: reads.wait_seconds(),
        trunk_read_bytes: reads.trunk.read_bytes,
        trunk_pinned_bytes: reads.trunk.pinned_bytes,
        expert_read_bytes: reads.experts.read_bytes,
        embedding_bytes: reads.row_bytes,
        hits: reads.experts.hits,
        misses: reads.experts.misses,
    }
}

/// The actors of a run, and the plan they keep to.
pub(super) struct Streaming {
    plan: BudgetPlan,
    vector_bytes: u64,
    supervisor: Supervisor,
}

/// Everything has stopped.
pub(super) struct Stopped {
    plan: BudgetPlan,
    vector_bytes: u64,
    memory: MemoryReport,
    engine: &'static str,
    registered_bytes: u64,
    /// The engine's busy time when the last token was there.
    busy_seconds: f64,
    counters: EngineCounters,
    down: ShutdownReport,
    fallbacks: Vec<String>,
}

impl Streaming {
    /// Plans the run and starts what it needs.
    ///
    /// # Errors
    ///
    /// A plan that does not fit the budget or the machine, and what
    /// [`Supervisor::start`] reports.
    pub(super) fn start(
        request: &Request,
        model: &KimiK3,
        session: SessionSettings,
    ) -> Result<Self, CliError> {
        let footprint = model.footprint();
        let reading = Reading::for_trunk(footprint.trunk_bytes());
        let budget = request
            .budget
            .as_ref()
            .expect("a streamed run has a budget");
        let subject = Subject {
            footprint: &footprint,
            workspace: &|size| model.workspace_bytes(size),
            reading: &reading,
            context_positions: session.context_positions,
            chunk_positions: session.chunk_positions,
            all_logits: session.all_logits,
            threads: request.threads,
            vocabulary_bytes: planning::vocabulary_bytes(request.tokenizer.as_ref()),
            index_bytes: planning::index_bytes(request.checkpoint.index()),
        };
        let plan = planning::plan(&subject, budget, &request.settings)
            .map_err(|refusal| CliError::refused_plan(refusal, Positions::Generation))?;
        check_headroom(&plan, reading.pages)?;
        let settings = StreamSettings {
            engine: match request.settings.engine.value {
                EngineChoice::Auto | EngineChoice::Uring => EnginePreference::Uring,
                EngineChoice::Pread => EnginePreference::Pread,
            },
            engine_config: reading.engine,
            direct: DirectPolicy::Probe,
            pages: reading.pages,
            policy: request.settings.policy.value,
        };
        let checkpoint = Arc::clone(&request.checkpoint);
        Ok(Self {
            supervisor: Supervisor::start(model, &checkpoint, &plan, &settings, None)?,
            vector_bytes: footprint.vector_bytes,
            plan,
        })
    }

    /// What feeds the forward loop.
    pub(super) fn source(&mut self) -> &mut StreamingSource {
        self.supervisor.source()
    }

    /// Measures, then stops everything in order.
    pub(super) fn stop(self) -> Stopped {
        // While the arenas are mapped: huge pages have no high-water mark.
        let process = ProcessMemory::read();
        let arena = |(line, pages): &(k3_config::LineKind, k3_io::PageReport)| ArenaReport {
            line: line.to_string(),
            bytes: pages.bytes as u64,
            pages_asked: page_name(pages.asked).to_owned(),
            pages: page_name(pages.got).to_owned(),
        };
        let prefault = self.supervisor.prefault_counts();
        let memory = MemoryReport {
            budget_bytes: self.plan.budget.total.0,
            planned_bytes: self.plan.planned.0,
            peak_bytes: process.peak_bytes(),
            hugetlb_bytes: process.hugetlb_bytes,
            prefault_bytes: prefault.touched_bytes,
            prefault_seconds: prefault.seconds,
            arenas: self.supervisor.pages().iter().map(arena).collect(),
        };
        let counters = self.supervisor.counters();
        let caps = self.supervisor.caps();
        let registered = caps.devices.iter().map(|device| device.fixed_bytes as u64);
        let engine = match caps.kind {
            k3_io::EngineKind::Pread => "pread",
            k3_io::EngineKind::Uring => "io_uring",
        };
        let fallbacks = self.supervisor.fallbacks();
        Stopped {
            plan: self.plan,
            vector_bytes: self.vector_bytes,
            memory,
            engine,
            registered_bytes: registered.sum(),
            busy_seconds: counters.busy_seconds,
            fallbacks,
            down: self.supervisor.shutdown(),
            counters,
        }
    }
}

impl Stopped {
    /// What died instead of stopping, one sentence each.
    pub(super) fn failures(&self) -> Vec<String> {
        self.down.failures.iter().map(ToString::to_string).collect()
    }

    /// The report of a run that has made `sweeps`.
    pub(super) fn report(self, sweeps: Vec<SweepReport>) -> StreamingReport {
        let pins = &self.plan.pins;
        let pinned_share = share(pins.bytes, pins.bytes_total);
        let device_bytes = self.counters.device_bytes();
        let cache = &self.down.cache;
        StreamingReport {
            memory: self.memory,
            engine: EngineReport {
                registered_bytes: self.registered_bytes,
                ..engine_report(self.engine, &self.counters, self.busy_seconds)
            },
            bytes: BytesReport::new(&sweeps, self.vector_bytes, device_bytes),
            cache: CacheReport::new(&sweeps, cache.evictions, cache.bypassed, pinned_share),
            time: TimeReport::new(&sweeps, self.busy_seconds),
            sweeps,
            fallbacks: self.fallbacks,
            plan: self.plan,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate to a few digits")]
fn engine_report(kind: &str, counters: &EngineCounters, busy_seconds: f64) -> EngineReport {
    let devices = counters.devices.iter().map(|device| DeviceReport {
        device: device.device,
        device_bytes: device.device_bytes,
        payload_bytes: device.payload_bytes.iter().sum(),
        requests: device.requests,
        retries: device.retries,
        short_reads: device.short_reads,
        busy_seconds: device.busy_seconds,
    });
    let bytes_per_second = if busy_seconds > 0.0 {
        counters.device_bytes() as f64 / busy_seconds
    } else {
        0.0
    };
    EngineReport {
        kind: kind.to_owned(),
        devices: devices.collect(),
        busy_seconds,
        bytes_per_second,
        ..EngineReport::default()
    }
}

fn page_name(pages: PagePolicy) -> &'static str {
    match pages {
        PagePolicy::Hugetlb => "hugetlb",
        PagePolicy::Transparent => "transparent",
        PagePolicy::Small => "small",
    }
}

/// Refuses a plan that this machine would end half-way.
fn check_headroom(plan: &BudgetPlan, pages: PagePolicy) -> Result<(), CliError> {
    match planning::headroom(&HostMemory::read(Path::new("/")), pages) {
        Some((available, limit)) if plan.planned > available => Err(CliError::OverPlan {
            planned: plan.planned,
            available,
            limit,
        }),
        // A kernel that does not tell is no reason to refuse.
        _ => Ok(()),
    }
}
