//! What the kernel says about the machine, and what an arena really gets.

use std::path::Path;

use k3_config::{
    AutoBudget, Bytes, CgroupLimit, CpuQuota, HostCpu, HostKernel, HostMemory, HostProblem,
    MemlockLimit, TransparentHugepages,
};
use k3_io::{HugeArena, PagePolicy};
use k3_kernels::KernelSet;
use k3_models::Workers as _;
use k3_runtime::{ComputePool, PlacementReport};
use serde::Serialize;

use crate::cli::values::available_isas;
use crate::error::CliError;
use crate::planning;

/// Size of the arena that is tried out.
const TRIAL_BYTES: usize = 16 << 20;

/// Processors as a run uses them.
#[derive(Debug, Serialize)]
pub(super) struct Processors {
    /// Name of the processor.
    pub(super) name: Option<String>,
    /// The instruction set of the kernels.
    pub(super) isa: &'static str,
    /// Those that would run, slowest first.
    pub(super) isas_available: Vec<&'static str>,
    /// Processors the process may be scheduled on.
    pub(super) affinity_count: u64,
    /// Processors in the set of its control group.
    pub(super) cpuset_count: Option<u64>,
    /// Time its control group grants.
    pub(super) quota: Option<CpuQuota>,
    /// Compute threads of a run.
    pub(super) threads: usize,
    /// Which processors they run on.
    pub(super) placement: PlacementReport,
    /// Memory nodes that have processors.
    pub(super) memory_nodes: Option<u64>,
    /// What decides their number: `settings`, `affinity`, `cpuset` or `quota`.
    pub(super) limited_by: &'static str,
    pub(super) problems: Vec<HostProblem>,
}

impl Processors {
    pub(super) fn new(host: &HostCpu, kernel: &HostKernel, pool: &ComputePool) -> Self {
        let threads = pool.count();
        let affinity_count = ComputePool::available_threads() as u64;
        let limited = host.cpu_count(affinity_count);
        Self {
            name: kernel.processor.clone(),
            isa: KernelSet::detect().isa.name(),
            isas_available: available_isas().map(|isa| isa.name()).collect(),
            affinity_count,
            cpuset_count: host.cpuset_count,
            quota: host.quota,
            threads,
            placement: pool.placement(),
            memory_nodes: host.node_count,
            limited_by: if limited.count == threads as u64 {
                limited.limited_by
            } else {
                "settings"
            },
            problems: host.problems.clone(),
        }
    }
}

/// Memory, and what of it a run may take.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) total: Option<Bytes>,
    pub(super) available: Option<Bytes>,
    pub(super) swap_total: Option<Bytes>,
    pub(super) swap_free: Option<Bytes>,
    /// Limits of control groups, from the own group upwards.
    pub(super) limits: Vec<CgroupLimit>,
    /// The most a plan may reserve here.
    pub(super) headroom: Option<Bytes>,
    /// What `auto` comes to.
    pub(super) auto: Option<AutoBudget>,
    /// Why it comes to nothing.
    pub(super) auto_problem: Option<String>,
    pub(super) memlock: MemlockLimit,
    pub(super) problems: Vec<HostProblem>,
}

impl Memory {
    pub(super) fn new(host: &HostMemory, pages: PagePolicy) -> Self {
        let (auto, auto_problem) = match host.auto_budget() {
            Ok(auto) => (Some(auto), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            total: host.total,
            available: host.available,
            swap_total: host.swap_total,
            swap_free: host.swap_free,
            limits: host.limits.clone(),
            headroom: planning::headroom(host, pages).map(|room| room.bytes),
            auto,
            auto_problem,
            memlock: host.memlock,
            problems: host.problems.clone(),
        }
    }

    /// Swap space in use.
    pub(super) fn swap_used(&self) -> Option<u64> {
        Some(self.swap_total?.0.saturating_sub(self.swap_free?.0))
    }
}

/// Pages of 2 MiB: what is set up, and what an arena gets.
#[derive(Debug, Serialize)]
pub(super) struct Pages {
    /// Size of a reserved huge page.
    pub(super) hugepage: Option<Bytes>,
    /// Reserved huge pages.
    pub(super) reserved_count: Option<u64>,
    /// Those that nobody uses.
    pub(super) free_count: Option<u64>,
    /// When huge pages come by themselves.
    pub(super) transparent: TransparentHugepages,
    /// Bytes of the arena that was tried out, all of them touched.
    pub(super) trial_bytes: u64,
    /// The pages it stands on.
    pub(super) got: String,
    /// Bytes that the kernel really backed with huge pages; unknown where it
    /// does not tell.
    pub(super) huge_bytes: Option<u64>,
    /// Why better pages were refused.
    pub(super) fallbacks: Vec<String>,
}

impl Pages {
    /// Reserves an arena as a run would, and touches it.
    ///
    /// # Errors
    ///
    /// A machine that cannot give a few megabytes.
    pub(super) fn try_out(
        host: &HostMemory,
        kernel: &HostKernel,
        policy: PagePolicy,
    ) -> Result<Self, CliError> {
        let (arena, report) = HugeArena::reserve(TRIAL_BYTES, policy)?;
        arena.prefault(0..arena.len_bytes(), |_| true)?;
        let resident = arena.resident().ok();
        Ok(Self {
            hugepage: host.hugepage,
            reserved_count: kernel.hugepages_total,
            free_count: host.hugepages_free,
            transparent: host.transparent_hugepages,
            trial_bytes: arena.len_bytes() as u64,
            got: report.got.to_string(),
            huge_bytes: resident.map(|pages| pages.huge_bytes),
            fallbacks: report.fallbacks,
        })
    }

    /// Whether most of the arena got huge pages.
    pub(super) fn mostly_huge(&self) -> bool {
        self.huge_bytes
            .is_none_or(|bytes| bytes >= self.trial_bytes / 2)
    }
}

/// A path without the part that every path has.
pub(super) fn limit_name(path: &Path) -> String {
    let text = path.display().to_string();
    let short = text.strip_prefix("/sys/fs/cgroup/").map(str::to_owned);
    short.unwrap_or(text)
}
