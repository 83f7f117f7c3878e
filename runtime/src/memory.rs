//! Whether a run fits the machine, asked before anything is reserved.
//!
//! A reservation that is too large does not fail where it is made: the process
//! aborts, or the kernel ends it later, in the middle of a run.

use std::path::Path;

use k3_config::{Bytes, CgroupLimit, HostMemory};

use crate::error::RunError;

/// What a run with every weight in memory reserves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Embedding, trunk and experts.
    pub weights_bytes: u64,
    /// What the sequence carries from sweep to sweep.
    pub state_bytes: u64,
    /// Activations and logits of one sweep.
    pub workspace_bytes: u64,
}

impl MemoryNeed {
    /// All of it; more than a u64 counts as the largest one.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.weights_bytes
            .saturating_add(self.state_bytes)
            .saturating_add(self.workspace_bytes)
    }
}

/// Refuses a run of the checkpoint at `path` that this machine has no room for.
///
/// # Errors
///
/// [`RunError::DoesNotFit`] when `need` exceeds the memory available or what a
/// limit on the process leaves.
pub fn check_memory(path: &Path, need: MemoryNeed) -> Result<(), RunError> {
    check_against(path, need, &HostMemory::read(Path::new("/")))
}

fn check_against(path: &Path, need: MemoryNeed, host: &HostMemory) -> Result<(), RunError> {
    let limits = host.limits.iter().map(CgroupLimit::left);
    // A kernel that does not tell is no reason to refuse, but no allocator
    // gives more than this, whatever the machine.
    let addressable = Bytes(isize::MAX.unsigned_abs() as u64);
    let available = limits
        .chain(host.available)
        .fold(addressable, |least, limit| least.min(limit));
    if need.total_bytes() > available.0 {
        return Err(RunError::DoesNotFit {
            path: path.to_owned(),
            need,
            available,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> HostMemory {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        HostMemory::read(root.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 4 kB\n");

    fn refused(need: MemoryNeed, host: &HostMemory) -> Option<u64> {
        match check_against(Path::new("model"), need, host) {
            Ok(()) => None,
            Err(RunError::DoesNotFit { available, .. }) => Some(available.0),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_part_counts_up_to_the_last_byte() {
        let host = host(&[MEMINFO]);
        let full = MemoryNeed {
            weights_bytes: 4000,
            state_bytes: 90,
            workspace_bytes: 6,
        };
        assert_eq!(refused(full, &host), None);
        for part in 0..3 {
            let mut need = full;
            let parts = [
                &mut need.weights_bytes,
                &mut need.state_bytes,
                &mut need.workspace_bytes,
            ];
            *parts.into_iter().nth(part).unwrap() += 1;
            assert_eq!(refused(need, &host), Some(4096), "part {part}");
        }
    }

    #[test]
    fn a_limit_on_the_process_counts() {
        let host = host(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/job\n"),
            (
                "proc/self/mountinfo",
                "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/job/memory.max", "1000\n"),
            ("sys/fs/cgroup/job/memory.current", "300\n"),
            ("sys/fs/cgroup/job/memory.stat", "inactive_file 100\n"),
        ]);
        let need = MemoryNeed {
            weights_bytes: 801,
            ..MemoryNeed::default()
        };
        assert_eq!(refused(need, &host), Some(800));
    }

    #[test]
    fn a_silent_kernel_is_no_reason_to_refuse_what_can_be_addressed() {
        let silent = host(&[]);
        let mut need = MemoryNeed {
            weights_bytes: 1 << 50,
            ..MemoryNeed::default()
        };
        assert_eq!(refused(need, &silent), None);
        need.state_bytes = u64::MAX;
        need.workspace_bytes = u64::MAX;
        assert!(refused(need, &silent).is_some());
    }

    #[test]
    fn the_refusal_names_every_part_and_the_way_out() {
        let need = MemoryNeed {
            weights_bytes: 5_000_000_000,
            state_bytes: 7_000_000_000,
            workspace_bytes: 11_000_000_000,
        };
        let error = check_against(Path::new("a/model"), need, &host(&[MEMINFO])).unwrap_err();
        let said = error.to_string();
        for word in ["a/model", "--layers", "--gen", "--chunk"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        for bytes in [5, 7, 11, 23].map(|giga| Bytes(giga * 1_000_000_000)) {
            assert!(said.contains(&bytes.to_string()), "{bytes}: {said}");
        }
    }
}
