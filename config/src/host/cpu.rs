//! How many processors the process may use.

use std::path::Path;

use serde::Serialize;

use super::cgroup::{CgroupVersion, group_levels};
use super::files::Report;
use super::{HostProblem, ProblemArea};

/// Processor time a control group may use per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuQuota {
    /// Time per period, in microseconds, over all processors.
    pub quota_us: u64,
    /// Length of a period in microseconds, at least 1.
    pub period_us: u64,
}

impl CpuQuota {
    /// Whole processors' worth of time, at least 1: threads beyond the quota
    /// would be stopped in the middle of a product while others wait for them.
    #[must_use]
    pub fn whole_processors(self) -> u64 {
        (self.quota_us / self.period_us).max(1)
    }

    fn is_tighter_than(self, other: Self) -> bool {
        let left = u128::from(self.quota_us) * u128::from(other.period_us);
        let right = u128::from(other.quota_us) * u128::from(self.period_us);
        left < right
    }
}

/// The limits that control groups put on the use of processors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostCpu {
    /// Processors of the own set, if a control group confines the process.
    pub cpuset_count: Option<u64>,
    /// The tightest quota from the own group upwards.
    pub quota: Option<CpuQuota>,
    /// Memory nodes that have processors; `None` where the kernel does not
    /// tell.
    pub node_count: Option<u64>,
    /// What is unknown, and why.
    pub problems: Vec<HostProblem>,
}

/// A number of processors, and what decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuCount {
    /// At least 1.
    pub count: u64,
    /// `affinity`, `cpuset` or `quota`.
    pub limited_by: &'static str,
}

impl HostCpu {
    /// Reads the machine whose file tree starts at `root`, usually `/`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let mut report = Report::new(root);
        let cpuset_count = read_cpuset(&mut report);
        let quota = read_quota(&mut report);
        Self {
            cpuset_count,
            quota,
            node_count: read_node_count(&mut report),
            problems: report.into_problems(),
        }
    }

    /// Processors to use: the smallest of `affinity_count` (those the process
    /// may be scheduled on), the set of its control group and its quota.
    ///
    /// # Panics
    ///
    /// If `affinity_count` is 0: the caller runs on some processor.
    #[must_use]
    pub fn cpu_count(&self, affinity_count: u64) -> CpuCount {
        assert!(affinity_count > 0, "a running process has a processor");
        let quota = self.quota.map(CpuQuota::whole_processors);
        let limits = [(self.cpuset_count, "cpuset"), (quota, "quota")];
        let mut least = CpuCount {
            count: affinity_count,
            limited_by: "affinity",
        };
        for (count, limited_by) in limits {
            match count {
                Some(count) if count < least.count => least = CpuCount { count, limited_by },
                _ => {}
            }
        }
        assert!(
            least.count > 0,
            "neither an empty set nor an empty quota is kept"
        );
        least
    }
}

/// Size of the effective set of the nearest group that states one.
fn read_cpuset(report: &mut Report<'_>) -> Option<u64> {
    for (version, levels) in group_levels(report, "cpuset", ProblemArea::Processors) {
        let names: &[&str] = match version {
            CgroupVersion::V1 => &["cpuset.effective_cpus", "cpuset.cpus"],
            CgroupVersion::V2 => &["cpuset.cpus.effective"],
        };
        let files = levels
            .iter()
            .flat_map(|level| names.iter().map(move |name| level.join(name)));
        for path in files {
            let Some(text) = report.read_if_present(&path, ProblemArea::Processors) else {
                continue;
            };
            // An empty set means the parent's.
            if text.trim().is_empty() {
                continue;
            }
            match count_list(text.trim()) {
                Some(count) => return Some(count),
                None => {
                    let reason = format!("`{}` is no list of processors", text.trim());
                    report.note(&path, &reason, ProblemArea::Processors);
                }
            }
        }
    }
    None
}

fn read_node_count(report: &mut Report<'_>) -> Option<u64> {
    let path = report.path("sys/devices/system/node/has_cpu");
    let text = report.read_if_present(&path, ProblemArea::Other)?;
    count_list(text.trim())
}

/// Members of a list such as `0-3,5`; `None` if it is not one.
fn count_list(text: &str) -> Option<u64> {
    let mut count = 0u64;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let members = last.checked_sub(first)?.checked_add(1)?;
        count = count.checked_add(members)?;
    }
    (count > 0).then_some(count)
}

fn read_quota(report: &mut Report<'_>) -> Option<CpuQuota> {
    let mut tightest: Option<CpuQuota> = None;
    for (version, levels) in group_levels(report, "cpu", ProblemArea::Processors) {
        for level in &levels {
            let quota = match version {
                CgroupVersion::V1 => read_quota_v1(report, level),
                CgroupVersion::V2 => read_quota_v2(report, level),
            };
            match (quota, tightest) {
                (Some(new), Some(old)) if !new.is_tighter_than(old) => {}
                (Some(new), _) => tightest = Some(new),
                (None, _) => {}
            }
        }
    }
    tightest
}

fn read_quota_v1(report: &mut Report<'_>, level: &Path) -> Option<CpuQuota> {
    let path = level.join("cpu.cfs_quota_us");
    let quota = report.read_if_present(&path, ProblemArea::Processors)?;
    if quota.trim() == "-1" {
        return None;
    }
    let period = report.read(&level.join("cpu.cfs_period_us"), ProblemArea::Processors)?;
    parse_quota(report, &path, quota.trim(), period.trim())
}

fn read_quota_v2(report: &mut Report<'_>, level: &Path) -> Option<CpuQuota> {
    let path = level.join("cpu.max");
    let text = report.read_if_present(&path, ProblemArea::Processors)?;
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if quota == "max" {
        return None;
    }
    parse_quota(report, &path, quota, period)
}

fn parse_quota(
    report: &mut Report<'_>,
    path: &Path,
    quota: &str,
    period: &str,
) -> Option<CpuQuota> {
    match (quota.parse(), period.parse()) {
        (Ok(quota_us), Ok(period_us)) if quota_us > 0 && period_us > 0 => Some(CpuQuota {
            quota_us,
            period_us,
        }),
        _ => {
            let reason = format!("the quota is `{quota}` per `{period}` microseconds");
            report.note(path, &reason, ProblemArea::Processors);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        for (text, want) in [
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-3,5,7-8", Some(7)),
            ("3-0", None),
            ("", None),
            ("a", None),
            ("0-18446744073709551615", None),
        ] {
            assert_eq!(count_list(text), want, "{text}");
        }
    }

    #[test]
    fn half_a_processor_is_one() {
        let quota = |quota_us| CpuQuota {
            quota_us,
            period_us: 100_000,
        };
        assert_eq!(quota(50_000).whole_processors(), 1);
        assert_eq!(quota(250_000).whole_processors(), 2);
        assert!(quota(50_000).is_tighter_than(quota(60_000)));
        assert!(!quota(50_000).is_tighter_than(quota(50_000)));
    }
}
