//! What the machine offers, as its kernel reports it.
//!
//! Every reader takes the root of the file tree, so that tests bring their
//! own. A value that is missing or makes no sense is *unknown* and listed
//! among the problems: nothing here is ever guessed.

pub(crate) mod cgroup;
mod cpu;
pub(crate) mod files;
mod headroom;
mod kernel;
mod storage;
mod topology;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bytes::Bytes;
use crate::error::ConfigError;
use files::{Report, first_number, read_optional};

pub use cgroup::{CgroupLimit, CgroupVersion};
pub use cpu::{CpuCount, CpuQuota, HostCpu};
pub use headroom::{GroupUse, Headroom};
pub use kernel::HostKernel;
pub use storage::StorageDevice;
pub use topology::{CpuPlace, CpuTopology};

/// The least memory `auto` keeps free for everything else on the machine.
pub const AUTO_RESERVE_MIN: Bytes = Bytes(512 << 20);
/// The share of the smallest limit that `auto` keeps free, in percent.
pub const AUTO_RESERVE_PERCENT: u64 = 8;

/// What a problem stands in the way of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemArea {
    /// The size of the memory or a limit on it.
    Memory,
    /// The number of processors or a limit on it.
    Processors,
    /// Something that only costs speed.
    Other,
}

/// A file of the kernel that is missing or says something unexpected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostProblem {
    /// The file.
    #[serde(serialize_with = "crate::lossy::path")]
    pub path: PathBuf,
    /// What was expected and found.
    pub reason: String,
    /// What it stands in the way of.
    pub area: ProblemArea,
}

impl fmt::Display for HostProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

/// How much memory a process may lock, and so register with the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemlockLimit {
    /// As much as it likes.
    Unlimited,
    /// At most this much.
    AtMost(Bytes),
    /// The kernel did not say.
    Unknown,
}

/// When the kernel backs memory with huge pages by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransparentHugepages {
    /// Wherever it can.
    Always,
    /// Where it is asked to.
    Madvise,
    /// Nowhere.
    Never,
    /// The kernel did not say, or has none.
    Unknown,
}

/// The memory of the machine and the limits on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostMemory {
    /// Physical memory.
    pub total: Option<Bytes>,
    /// What the kernel could give without paging.
    pub available: Option<Bytes>,
    /// Swap space.
    pub swap_total: Option<Bytes>,
    /// Swap space that is not in use.
    pub swap_free: Option<Bytes>,
    /// What of this process is resident and no file's page: part of what its
    /// groups hold.
    pub own_resident: Option<Bytes>,
    /// Size of a reserved huge page.
    pub hugepage: Option<Bytes>,
    /// Reserved huge pages that nobody uses.
    pub hugepages_free: Option<u64>,
    /// Every finite limit of a control group, from the own group upwards.
    pub limits: Vec<CgroupLimit>,
    /// How much may be locked.
    pub memlock: MemlockLimit,
    /// When huge pages come by themselves.
    pub transparent_hugepages: TransparentHugepages,
    /// What is unknown, and why.
    pub problems: Vec<HostProblem>,
}

/// The budget `auto` comes to, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AutoBudget {
    /// The budget: `available` less `reserve`.
    pub total: Bytes,
    /// The smallest of the memory available and what every limit leaves.
    pub available: Bytes,
    /// Which one that was: `MemAvailable`, or the path of the limit.
    pub limit: String,
    /// What is kept free for everything else.
    pub reserve: Bytes,
}

impl HostMemory {
    /// Reads the machine whose file tree starts at `root`, usually `/`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let mut report = Report::new(root);
        let meminfo = read_meminfo(&mut report);
        let limits = cgroup::memory_limits(&mut report);
        let memlock = read_memlock(&mut report);
        let transparent_hugepages = read_transparent_hugepages(&mut report);
        let bytes = |key: &str| meminfo.kibibytes(key);
        Self {
            total: bytes("MemTotal"),
            available: bytes("MemAvailable"),
            swap_total: bytes("SwapTotal"),
            swap_free: bytes("SwapFree"),
            own_resident: read_own_resident(root),
            hugepage: bytes("Hugepagesize"),
            hugepages_free: meminfo.count("HugePages_Free"),
            limits,
            memlock,
            transparent_hugepages,
            problems: report.into_problems(),
        }
    }

    /// The [`headroom`](Self::headroom), less [`AUTO_RESERVE_PERCENT`] of it
    /// and at least [`AUTO_RESERVE_MIN`].
    ///
    /// # Errors
    ///
    /// [`ConfigError::HostMemoryUnknown`] if the memory available or a limit
    /// cannot be read; [`ConfigError::NothingLeft`] if the reserve is all
    /// there is.
    pub fn auto_budget(&self) -> Result<AutoBudget, ConfigError> {
        let in_the_way = self
            .problems
            .iter()
            .find(|problem| problem.area == ProblemArea::Memory);
        if let Some(problem) = in_the_way {
            return Err(ConfigError::HostMemoryUnknown(problem.clone()));
        }
        let headroom = self
            .headroom(Bytes(0))
            .expect("a missing MemAvailable is a memory problem");
        let available = headroom.bytes;
        let share = u128::from(available.0) * u128::from(AUTO_RESERVE_PERCENT) / 100;
        let share = Bytes(u64::try_from(share).expect("a share is less than the whole"));
        let reserve = share.max(AUTO_RESERVE_MIN);
        if available <= reserve {
            return Err(ConfigError::NothingLeft {
                available,
                limit: headroom.to_string(),
                reserve,
            });
        }
        Ok(AutoBudget {
            total: Bytes(available.0 - reserve.0),
            available,
            limit: headroom.name(),
            reserve,
        })
    }
}

/// `key: value` lines of `/proc/meminfo`.
struct Meminfo(Vec<(String, u64)>);

impl Meminfo {
    fn count(&self, key: &str) -> Option<u64> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| *value)
    }

    fn kibibytes(&self, key: &str) -> Option<Bytes> {
        self.count(key)?.checked_mul(1024).map(Bytes)
    }
}

/// The lines in use, and whether a plan cannot do without them.
const MEMINFO_KEYS: [(&str, ProblemArea); 6] = [
    ("MemTotal", ProblemArea::Memory),
    ("MemAvailable", ProblemArea::Memory),
    ("SwapTotal", ProblemArea::Other),
    ("SwapFree", ProblemArea::Other),
    ("Hugepagesize", ProblemArea::Other),
    ("HugePages_Free", ProblemArea::Other),
];

fn read_meminfo(report: &mut Report<'_>) -> Meminfo {
    let path = report.path("proc/meminfo");
    let text = match read_optional(&path) {
        Ok(Some(text)) => text,
        Ok(None) => {
            report.note(&path, "the file is missing", ProblemArea::Memory);
            return Meminfo(Vec::new());
        }
        Err(error) => {
            report.note(&path, &error.to_string(), ProblemArea::Memory);
            return Meminfo(Vec::new());
        }
    };
    let mut values = Vec::new();
    for (key, area) in MEMINFO_KEYS {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        match line.map(|line| (line, first_number(line))) {
            // Sizes beyond 2^64 bytes are as unbelievable as words.
            Some((_, Some(value))) if value <= u64::MAX / 1024 => {
                values.push((key.to_owned(), value))
            }
            Some((line, _)) => report.note(&path, &format!("{key} is `{}`", line.trim()), area),
            // Kernels without huge pages or swap leave their lines out.
            None if area == ProblemArea::Memory => {
                report.note(&path, &format!("there is no line {key}"), area);
            }
            None => {}
        }
    }
    Meminfo(values)
}

/// Pages of files, those of the program among them, are left out: they are page
/// cache, which no group's use has here. Without the figure the own share of a
/// group's use counts as somebody else's, which errs on the safe side.
fn read_own_resident(root: &Path) -> Option<Bytes> {
    let text = read_optional(&root.join("proc/self/status")).ok()??;
    let kib = |key| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(first_number)
    };
    let shared = kib("RssShmem:").unwrap_or(0);
    let own = kib("RssAnon:")?.checked_add(shared)?;
    own.checked_mul(1024).map(Bytes)
}

fn read_memlock(report: &mut Report<'_>) -> MemlockLimit {
    let path = report.path("proc/self/limits");
    let Some(text) = report.read(&path, ProblemArea::Other) else {
        return MemlockLimit::Unknown;
    };
    let soft = text
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))
        .and_then(|rest| rest.split_whitespace().next());
    match soft {
        Some("unlimited") => MemlockLimit::Unlimited,
        Some(number) => number.parse().map_or_else(
            |_| {
                report.note(
                    &path,
                    &format!("Max locked memory is `{number}`"),
                    ProblemArea::Other,
                );
                MemlockLimit::Unknown
            },
            |bytes| MemlockLimit::AtMost(Bytes(bytes)),
        ),
        None => {
            report.note(
                &path,
                "there is no line Max locked memory",
                ProblemArea::Other,
            );
            MemlockLimit::Unknown
        }
    }
}

fn read_transparent_hugepages(report: &mut Report<'_>) -> TransparentHugepages {
    let path = report.path("sys/kernel/mm/transparent_hugepage/enabled");
    // A kernel built without them has no such file: nothing is wrong then.
    let Ok(Some(text)) = read_optional(&path) else {
        return TransparentHugepages::Unknown;
    };
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match chosen.map(|(chosen, _)| chosen) {
        Some("always") => TransparentHugepages::Always,
        Some("madvise") => TransparentHugepages::Madvise,
        Some("never") => TransparentHugepages::Never,
        _ => {
            report.note(
                &path,
                &format!("it says `{}`", text.trim()),
                ProblemArea::Other,
            );
            TransparentHugepages::Unknown
        }
    }
}
