//! Groups that hold memory already: what their limits leave to a plan.

use std::fs;

use k3_config::{Bytes, HostMemory};
use tempfile::TempDir;

const V2_MOUNT: &str = "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
const V1_MEMORY: &str =
    "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";
const V1_UNLIMITED: &str = "9223372036854771712\n";

/// A file tree of a machine with plenty of memory, and `files` over it.
fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let meminfo = "MemTotal: 16000000 kB\nMemAvailable: 12000000 kB\n";
    for (path, text) in [
        ("proc/meminfo", meminfo),
        ("proc/self/limits", "Max locked memory unlimited\n"),
    ]
    .iter()
    .chain(files)
    {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// What the group of a limit holds, page cache left out, and the process's own.
#[test]
fn version_2_with_neighbours_in_the_group() {
    let root = machine(&[
        ("proc/self/cgroup", "0::/pod/container\n"),
        ("proc/self/mountinfo", V2_MOUNT),
        (
            "proc/self/status",
            "Name:\tk3\nVmRSS:\t   77000 kB\nRssAnon:\t    9000 kB\nRssFile:\t   67000 kB\n\
             RssShmem:\t    1000 kB\n",
        ),
        ("sys/fs/cgroup/pod/container/memory.max", "2000000000\n"),
        ("sys/fs/cgroup/pod/container/memory.high", "1900000000\n"),
        ("sys/fs/cgroup/pod/container/memory.current", "700000000\n"),
        (
            "sys/fs/cgroup/pod/container/memory.stat",
            "anon 500000000\nfile 200000000\nshmem 50000000\ninactive_file 100000000\n\
             active_file 50000000\nworkingset_restore_file 9\n",
        ),
        ("sys/fs/cgroup/pod/memory.max", "3000000000\n"),
        ("sys/fs/cgroup/pod/memory.high", "max\n"),
        ("sys/fs/cgroup/pod/memory.current", "2800000000\n"),
        (
            "sys/fs/cgroup/pod/memory.stat",
            "anon 1\ninactive_file 1000000000\nactive_file 0\n",
        ),
    ]);
    let memory = HostMemory::read(root.path());
    assert_eq!(memory.problems, []);
    let held: Vec<_> = memory.limits.iter().map(|limit| limit.held).collect();
    let own = Some(Bytes(550_000_000));
    assert_eq!(held, [own, own, Some(Bytes(1_800_000_000))]);
    let left: Vec<_> = memory.limits.iter().map(|limit| limit.left().0).collect();
    assert_eq!(left, [1_450_000_000, 1_350_000_000, 1_200_000_000]);
    // The parent's limit is the widest, and its neighbours make it the tightest.
    let headroom = memory.headroom(Bytes(0)).unwrap();
    let own_bytes = 10_000 * 1024;
    assert_eq!(headroom.bytes, Bytes(1_200_000_000 + own_bytes));
    let said = headroom.to_string();
    for word in ["pod/memory.max allows 3.00 GB", "1.79 GB", "in use"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let auto = memory.auto_budget().unwrap();
    assert!(auto.limit.ends_with("/pod/memory.max"), "{}", auto.limit);
    assert_eq!(auto.total.0, headroom.bytes.0 - (512 << 20));
    // On top of what the process holds, its own does not count as free.
    assert_eq!(memory.room().unwrap().bytes, Bytes(1_200_000_000));
}

#[test]
fn version_1_with_neighbours_in_the_group() {
    let root = machine(&[
        ("proc/self/cgroup", "5:memory:/a\n"),
        ("proc/self/mountinfo", V1_MEMORY),
        ("proc/self/status", "VmRSS: 9000 kB\nRssAnon: 1000 kB\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", V1_UNLIMITED),
        (
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "1500000000\n",
        ),
        (
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes",
            "900000000\n",
        ),
        (
            "sys/fs/cgroup/memory/a/memory.stat",
            "inactive_file 7\nhierarchical_memory_limit 1500000000\n\
             total_inactive_file 200000000\ntotal_active_file 100000000\n",
        ),
    ]);
    let memory = HostMemory::read(root.path());
    assert_eq!(memory.problems, []);
    let held: Vec<_> = memory.limits.iter().map(|limit| limit.held).collect();
    assert_eq!(held, [Some(Bytes(600_000_000)); 2]);
    let headroom = memory.headroom(Bytes(0)).unwrap();
    assert_eq!(headroom.bytes, Bytes(900_000_000 + 1000 * 1024));
    assert!(headroom.name().ends_with("memory/a/memory.limit_in_bytes"));
}

/// A group whose neighbours hold all of it has nothing to give, and says so.
#[test]
fn auto_says_what_a_full_group_holds() {
    let root = machine(&[
        ("proc/self/cgroup", "0::/a\n"),
        ("proc/self/mountinfo", V2_MOUNT),
        ("sys/fs/cgroup/a/memory.max", "2000000000\n"),
        ("sys/fs/cgroup/a/memory.current", "1900000000\n"),
        ("sys/fs/cgroup/a/memory.stat", "inactive_file 0\n"),
    ]);
    let error = HostMemory::read(root.path()).auto_budget().unwrap_err();
    let said = error.to_string();
    for word in ["100.00 MB", "a/memory.max allows 2.00 GB", "1.90 GB"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn a_use_that_makes_no_sense_is_a_problem() {
    let root = machine(&[
        ("proc/self/cgroup", "0::/a\n"),
        ("proc/self/mountinfo", V2_MOUNT),
        ("sys/fs/cgroup/a/memory.max", "2000000000\n"),
        ("sys/fs/cgroup/a/memory.current", "much\n"),
    ]);
    let memory = HostMemory::read(root.path());
    assert_eq!((memory.limits[0].held, memory.problems.len()), (None, 1));
    let error = memory.auto_budget().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("a/memory.current: the use is `much`"),
        "{error}"
    );
}
