//! Which processor each compute thread runs on.
//!
//! A thread that stays where it is finds its caches warm and its memory near.
//! It also cannot step aside when something else runs there, so threads are
//! only pinned where each has a processor of its own.

use std::marker::PhantomData;
use std::path::Path;

use k3_config::{CpuTopology, HostCpu, ThreadPins};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;

/// The calling thread, as the system calls want it.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// Where threads run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Each on a processor of its own: thread `i` on the `i`-th.
    Pinned {
        /// Their numbers, one for each thread.
        cpus: Vec<u32>,
    },
    /// Anywhere.
    Floating {
        /// Why.
        reason: String,
    },
}

/// Why a thread could not be put on a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sched_setaffinity for processor {cpu}: {}", .errno.desc())]
pub struct PinError {
    /// The processor.
    pub cpu: u32,
    /// What the kernel says.
    pub errno: Errno,
}

/// Where the threads of a pool run, as reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlacementReport {
    /// Whether each stays on a processor of its own; the first, which is the
    /// program's own, during sweeps.
    pub pinned: bool,
    /// Processors by thread; empty if they are not pinned.
    pub cpus: Vec<u32>,
    /// Why they are not.
    pub not_pinned_reason: Option<String>,
}

impl Placement {
    /// Threads that run anywhere, for `reason`.
    #[must_use]
    pub fn floating(reason: &str) -> Self {
        Self::Floating {
            reason: reason.to_owned(),
        }
    }

    /// Where `count` threads of this process belong on this machine.
    #[must_use]
    pub fn of_this_process(choice: ThreadPins, count: usize) -> Self {
        if choice == ThreadPins::Off {
            return Self::floating("it is off (--pin-threads on)");
        }
        match allowed_cpus() {
            Ok(allowed) => {
                let root = Path::new("/");
                let topology = CpuTopology::read(root, &allowed);
                Self::decide(count, &topology, &HostCpu::read(root)).over_nodes(&allowed)
            }
            Err(errno) => Self::floating(&format!("sched_getaffinity: {}", errno.desc())),
        }
    }

    /// Where `count` threads belong on the processors of `topology`.
    #[must_use]
    pub fn decide(count: usize, topology: &CpuTopology, host: &HostCpu) -> Self {
        let order = topology.by_core();
        let cpu_count = order.len();
        if count == 1 {
            // Nobody is in its way, and it should step aside for readers.
            return Self::floating("one thread computes");
        }
        if count > cpu_count {
            return Self::floating(&format!("{count} threads share {cpu_count} processors"));
        }
        let quota = host.quota.map(|quota| quota.whole_processors());
        match quota {
            // The group's time is spent by whoever runs: a thread that waits
            // for its turn should run wherever there is room.
            Some(quota) if quota < cpu_count as u64 => Self::floating(&format!(
                "the control group's quota is {quota} of {cpu_count} processors"
            )),
            _ => Self::Pinned {
                cpus: order[..count].to_vec(),
            },
        }
    }

    /// The same number of processors, chosen by hwloc's tree: spread over
    /// memory nodes. Without the feature `numa` the same processors.
    fn over_nodes(self, allowed: &[u32]) -> Self {
        #[cfg(feature = "numa")]
        if let Some(machine) = k3_io::numa::Machine::this()
            && let Self::Pinned { cpus } = &self
            && let Ok(cpus) = machine.spread(cpus.len(), allowed)
        {
            return Self::Pinned { cpus };
        }
        let _ = allowed;
        self
    }

    /// Processors by thread; empty if threads float.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        match self {
            Self::Pinned { cpus } => cpus,
            Self::Floating { .. } => &[],
        }
    }

    /// The same for a reader, after `refused` if a thread could not be pinned.
    pub(crate) fn report(&self, refused: Option<PinError>) -> PlacementReport {
        let reason = match self {
            Self::Floating { reason } => Some(reason.clone()),
            Self::Pinned { .. } => refused.map(|error| error.to_string()),
        };
        PlacementReport {
            pinned: reason.is_none(),
            cpus: if reason.is_none() {
                self.cpus().to_vec()
            } else {
                Vec::new()
            },
            not_pinned_reason: reason,
        }
    }
}

/// Processors the calling thread may run on, upwards.
///
/// # Errors
///
/// What the kernel says, such as `EINVAL` on a machine with more processors
/// than a set holds.
pub fn allowed_cpus() -> Result<Vec<u32>, Errno> {
    let set = sched_getaffinity(THIS_THREAD)?;
    let cpus = 0..u32::try_from(CpuSet::count()).expect("a set is small");
    Ok(cpus
        .filter(|&cpu| set.is_set(cpu as usize) == Ok(true))
        .collect())
}

/// Lets the calling thread run on `cpu` alone.
///
/// # Errors
///
/// What the kernel says.
pub(crate) fn pin_this_thread(cpu: u32) -> Result<(), PinError> {
    let mut set = CpuSet::new();
    set.set(cpu as usize)
        .and_then(|()| sched_setaffinity(THIS_THREAD, &set))
        .map_err(|errno| PinError { cpu, errno })
}

/// The calling thread is where it belongs; dropping this lets it go where it
/// was allowed to be before. Stays on its thread.
#[derive(Debug)]
pub struct Entered {
    before: Option<CpuSet>,
    /// Affinity is a thread's own.
    not_send: PhantomData<*const ()>,
}

impl Entered {
    /// Puts the calling thread on `cpu`, if there is one and the system lets
    /// it.
    pub(crate) fn new(cpu: Option<u32>) -> Self {
        let before = cpu.and_then(|cpu| {
            let before = sched_getaffinity(THIS_THREAD).ok()?;
            pin_this_thread(cpu).ok()?;
            Some(before)
        });
        Self {
            before,
            not_send: PhantomData,
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // Refused only if all those processors have gone meanwhile: then
            // the kernel has chosen others.
            let _ = sched_setaffinity(THIS_THREAD, before);
        }
    }
}
