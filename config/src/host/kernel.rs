//! Switches of the kernel, and what this process is trusted with.

use std::path::Path;

use serde::Serialize;

use super::files::{first_number, read_optional};

/// Bit of the capability to lock any amount of memory.
const CAP_IPC_LOCK: u32 = 14;

/// What decides how fast a run may be, beside memory and processors. A value
/// that the kernel does not state is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostKernel {
    /// Release, as in `6.8.0-45-generic`.
    pub release: Option<String>,
    /// Name of the processor.
    pub processor: Option<String>,
    /// `vm.swappiness`: how readily memory is paged out.
    pub swappiness: Option<u64>,
    /// `kernel.io_uring_disabled`: 0 for nobody, 1 for the unprivileged, 2 for
    /// all. Kernels before 6.6 have no such switch.
    pub io_uring_disabled: Option<u64>,
    /// Reserved huge pages, in use or not.
    pub hugepages_total: Option<u64>,
    /// Whether a filter of system calls is on this process, as in a container.
    pub seccomp_filter: Option<bool>,
    /// Whether limits on locked memory bind this process.
    pub may_lock_any: Option<bool>,
}

impl HostKernel {
    /// Reads the machine whose file tree starts at `root`, usually `/`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = |relative: &str| read_optional(&root.join(relative)).ok().flatten();
        let number = |relative: &str| first_number(&text(relative)?);
        let status = text("proc/self/status").unwrap_or_default();
        let field = |name: &str| value_of(&status, name);
        let capabilities = field("CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        Self {
            release: text("proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            processor: text("proc/cpuinfo")
                .and_then(|text| value_of(&text, "model name").map(str::to_owned)),
            swappiness: number("proc/sys/vm/swappiness"),
            io_uring_disabled: number("proc/sys/kernel/io_uring_disabled"),
            hugepages_total: text("proc/meminfo")
                .and_then(|text| first_number(value_of(&text, "HugePages_Total")?)),
            seccomp_filter: field("Seccomp").and_then(|mode| Some(mode.parse::<u64>().ok()? == 2)),
            may_lock_any: capabilities.map(|bits| bits >> CAP_IPC_LOCK & 1 == 1),
        }
    }
}

/// The value of the first `name: value` line.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}
