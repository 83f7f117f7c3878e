//! What is amiss, and the way out of each.

use k3_config::{Bytes, HostKernel, MemlockLimit, TransparentHugepages};
use serde::Serialize;

use super::Report;
use super::disk::Disk;
use super::machine::limit_name;

/// Share of the memory in swap from which a machine counts as short of it, in
/// percent.
const SWAP_PERCENT: u64 = 1;
/// Share of the best rate that the engine's setting should reach.
const RUN_SHARE: f64 = 0.85;
/// A disk below this keeps even fast processors waiting for most of the time.
const SLOW_BYTES_PER_SECOND: f64 = 1e9;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// No run is possible.
    Impossible,
    /// Runs are slower than they could be, or a figure is in doubt.
    LessThanIdeal,
}

/// Something to know, with the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) what: String,
    pub(super) way_out: String,
}

impl Finding {
    pub(super) fn impossible(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self {
            severity: Severity::Impossible,
            what: what.into(),
            way_out: way_out.into(),
        }
    }

    pub(super) fn less_than_ideal(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self {
            severity: Severity::LessThanIdeal,
            what: what.into(),
            way_out: way_out.into(),
        }
    }
}

/// Everything amiss in `report`.
pub(super) fn of(report: &Report) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(no_budget(report));
    processors(report, &mut found);
    memory(report, &mut found);
    pages(report, &mut found);
    reader(report, &mut found);
    for disk in &report.disks {
        found.extend(of_disk(disk));
    }
    if report.disks.is_empty() {
        found.push(Finding::less_than_ideal(
            "no disk was measured: nothing names the files that a run would read",
            "give the checkpoint, a directory with large files, or --scratch 2G to write one",
        ));
    }
    found
}

/// Whether any preset at all would run.
fn no_budget(report: &Report) -> Option<Finding> {
    if report.choices.iter().any(|choice| choice.fits) {
        return None;
    }
    let smallest = report.choices.first()?;
    let why = smallest.obstacle.clone().unwrap_or_default();
    Some(Finding::impossible(
        format!(
            "no preset fits; {}, the smallest: {why}",
            smallest.preset.name()
        ),
        "free some memory or raise the control group's limit; `k3 plan` shows what a smaller \
         --context or --chunk saves",
    ))
}

fn processors(report: &Report, found: &mut Vec<Finding>) {
    let processors = &report.processors;
    for problem in processors.problems.iter().chain(&report.memory.problems) {
        found.push(Finding::less_than_ideal(
            format!("a figure of the kernel's is unknown: {problem}"),
            "give --memory and --threads by hand where it matters",
        ));
    }
    if processors.isas_available.last() == Some(&"scalar") {
        found.push(Finding::less_than_ideal(
            "this processor has no AVX2: the scalar kernels are several times slower",
            "none on this machine; in a virtual one, pass the host's processor through",
        ));
    }
    if processors.limited_by == "quota" {
        found.push(Finding::less_than_ideal(
            format!(
                "the control group's quota leaves {} of {} processors",
                processors.threads, processors.affinity_count
            ),
            "raise the quota (cpu.max, cpu.cfs_quota_us, docker --cpus)",
        ));
    }
}

fn memory(report: &Report, found: &mut Vec<Finding>) {
    let memory = &report.memory;
    if let Some(problem) = &memory.auto_problem {
        found.push(Finding::less_than_ideal(
            format!("`--memory auto`, the default, has no answer: {problem}"),
            "give --memory by hand",
        ));
    }
    if let (Some(auto), Some(total)) = (&memory.auto, memory.total)
        && auto.limit != "MemAvailable"
        && auto.available.0 < total.0 / 2
    {
        found.push(Finding::less_than_ideal(
            format!(
                "a control group leaves {} of {total}: {}",
                auto.available,
                limit_name(auto.limit.as_ref())
            ),
            "raise its limit if the machine may give more",
        ));
    }
    let used = memory.swap_used().unwrap_or(0);
    if let Some(total) = memory.total
        && used > total.0 / 100 * SWAP_PERCENT
    {
        found.push(Finding::less_than_ideal(
            format!(
                "{} are swapped out: the machine is short of memory, and paging costs more than \
                 any cache saves",
                Bytes(used)
            ),
            "end other programs, lower --memory, or turn swap off (swapoff -a)",
        ));
    }
}

fn pages(report: &Report, found: &mut Vec<Finding>) {
    let pages = &report.pages;
    if pages.mostly_huge() {
        return;
    }
    let why = match pages.transparent {
        TransparentHugepages::Never => "transparent huge pages are set to never",
        TransparentHugepages::Unknown => "this kernel has no transparent huge pages",
        TransparentHugepages::Always | TransparentHugepages::Madvise => {
            "the kernel found no free ones: memory may be fragmented"
        }
    };
    found.push(Finding::less_than_ideal(
        format!(
            "buffers get 4 KiB pages, and reads into them reach as little as half the rate; {why}"
        ),
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, or reserve pages of 2 MiB \
         (sysctl vm.nr_hugepages=N) before the memory is fragmented",
    ));
}

fn reader(report: &Report, found: &mut Vec<Finding>) {
    let (reader, kernel) = (&report.reader, &report.kernel);
    if reader.lacks_uring() {
        let reason = reader
            .fallbacks
            .iter()
            .find(|line| line.contains("io_uring"))
            .cloned()
            .unwrap_or_else(|| "io_uring is not available".to_owned());
        found.push(Finding::less_than_ideal(
            format!("{reason}; pread threads take its place, at more processor time a byte"),
            uring_remedy(kernel),
        ));
        return;
    }
    let needed = largest_arena(report);
    match report.memory.memlock {
        MemlockLimit::AtMost(limit)
            if kernel.may_lock_any == Some(false) && limit.0 < needed && reader.uring_wanted =>
        {
            found.push(Finding::less_than_ideal(
                format!(
                    "{limit} may be locked, less than the buffers of a run: reads into the rest \
                     cost about twice the processor time"
                ),
                "ulimit -l unlimited (or memlock in /etc/security/limits.conf, LimitMEMLOCK= in a \
                 unit, --ulimit memlock=-1 for docker)",
            ));
        }
        // Without direct reads there is nothing to register for, which is said
        // of the disk.
        _ if reader.uring_wanted
            && reader.registered_bytes < reader.registrable_bytes
            && report.disks.iter().all(|disk| disk.direct) =>
        {
            let reason = reader
                .fallbacks
                .iter()
                .find(|line| line.contains("regist") || line.contains("buffers"))
                .cloned()
                .unwrap_or_else(|| "the kernel registers no buffers".to_owned());
            found.push(Finding::less_than_ideal(
                reason,
                "raise the limit on locked memory (ulimit -l unlimited), or put the files where \
                 direct reads work",
            ));
        }
        _ => {}
    }
}

/// What forbids io_uring, and how to allow it.
fn uring_remedy(kernel: &HostKernel) -> String {
    match (kernel.io_uring_disabled, kernel.seccomp_filter) {
        (Some(2), _) => "sysctl kernel.io_uring_disabled=0 (it is 2: forbidden to all)".to_owned(),
        (Some(1), _) => "sysctl kernel.io_uring_disabled=0 (it is 1: forbidden without \
                         CAP_SYS_ADMIN or the group in kernel.io_uring_group)"
            .to_owned(),
        (_, Some(true)) => "this process runs under a seccomp filter, as containers set: allow \
                            io_uring_setup, io_uring_enter and io_uring_register there (docker \
                            --security-opt seccomp=PROFILE)"
            .to_owned(),
        _ => "ulimit -l unlimited if locked memory is short; otherwise a kernel from 5.11 on that \
              has io_uring"
            .to_owned(),
    }
}

/// Bytes of buffers that the recommended run would like to register.
fn largest_arena(report: &Report) -> u64 {
    let planned = report.recommended.as_ref().and_then(|best| {
        let mut choices = report.choices.iter();
        let choice = choices.find(|choice| choice.preset.name() == best.preset)?;
        choice.planned.or(choice.memory)
    });
    planned.map_or(0, |bytes| bytes.0)
}

fn of_disk(disk: &Disk) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = disk.label();
    if let Some(reason) = &disk.not_measured {
        found.push(Finding::less_than_ideal(
            format!("{name} was not measured: {reason}"),
            "give a path with large files, or --scratch 2G to write one",
        ));
        return found;
    }
    if !disk.direct {
        found.push(Finding::less_than_ideal(
            format!(
                "{name} has no direct reads: its rate went through the page cache and may be the \
                 memory's, and runs read through it too"
            ),
            "put the shards on a file system with O_DIRECT (ext4, xfs, btrfs)",
        ));
    }
    let (Some(best), Some(run)) = (&disk.best, &disk.run) else {
        return found;
    };
    // Rounds that overlap may be the machine's mood.
    if run.bytes_per_second < best.bytes_per_second * RUN_SHARE && run.fastest < best.slowest {
        found.push(Finding::less_than_ideal(
            format!(
                "{name} gives {:.2} GB/s to the engine's requests and {:.2} GB/s to the best ones",
                run.bytes_per_second / 1e9,
                best.bytes_per_second / 1e9
            ),
            "repeat it on a quiet machine; `k3 bench disk` compares them side by side",
        ));
    }
    if best.bytes_per_second < SLOW_BYTES_PER_SECOND {
        found.push(Finding::less_than_ideal(
            format!(
                "{name} reads {:.2} GB/s at best: a token of a large model waits for it",
                best.bytes_per_second / 1e9
            ),
            "move the shards to an NVMe drive, or spread them over several with --root",
        ));
    }
    found
}
