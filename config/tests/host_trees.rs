//! Machines as their kernels describe them, and machines that talk nonsense.

use std::fs;
use std::path::Path;

use k3_config::{
    Bytes, CgroupVersion, ConfigError, HostCpu, HostMemory, MemlockLimit, MemoryBudget,
    MemoryRequest, Origin, Preset, ProblemArea, Sourced, TransparentHugepages,
};
use tempfile::TempDir;

const MEMINFO: &str = "MemTotal:       16000000 kB
MemFree:         1000000 kB
MemAvailable:   12000000 kB
SwapTotal:       2000000 kB
SwapFree:        1500000 kB
HugePages_Total:      10
HugePages_Free:        7
Hugepagesize:       2048 kB
";

const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max locked memory         65536                8388608              bytes
";

const V2_MOUNT: &str =
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const V1_MEMORY: &str =
    "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";
const V1_CPU: &str = "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
const V1_CPUSET: &str = "37 31 0:34 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
const V1_UNLIMITED: &str = "9223372036854771712\n";

/// A file tree with the files that every machine has, and `files` over them.
fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let common = [
        ("proc/meminfo", MEMINFO),
        ("proc/self/limits", LIMITS),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never\n",
        ),
    ];
    for (path, text) in common.iter().chain(files) {
        write(root.path(), path, text);
    }
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The limits found, as paths below the root and bytes, in order; and the
/// problems, as text below the root.
fn limits(root: &TempDir) -> (Vec<(String, u64)>, Vec<String>) {
    let memory = HostMemory::read(root.path());
    let below = |text: String| text.replace(&format!("{}/", root.path().display()), "");
    let limits = memory
        .limits
        .iter()
        .map(|limit| (below(limit.path.display().to_string()), limit.bytes.0))
        .collect();
    (
        limits,
        memory
            .problems
            .iter()
            .map(|problem| below(problem.to_string()))
            .collect(),
    )
}

fn check_limits(files: &[(&str, &str)], want: &[(&str, u64)]) {
    let (found, problems) = limits(&machine(files));
    let want: Vec<_> = want
        .iter()
        .map(|(path, bytes)| ((*path).to_owned(), *bytes))
        .collect();
    assert_eq!(found, want);
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn a_machine_without_limits() {
    let root = machine(&[]);
    let memory = HostMemory::read(root.path());
    assert_eq!(memory.total, Some(Bytes(16_000_000 * 1024)));
    assert_eq!(memory.available, Some(Bytes(12_000_000 * 1024)));
    assert_eq!(memory.swap_total, Some(Bytes(2_000_000 * 1024)));
    assert_eq!(memory.swap_free, Some(Bytes(1_500_000 * 1024)));
    assert_eq!(memory.hugepages_free, Some(7));
    assert_eq!(memory.hugepage, Some(Bytes(2 << 20)));
    assert_eq!(memory.memlock, MemlockLimit::AtMost(Bytes(65_536)));
    assert_eq!(memory.transparent_hugepages, TransparentHugepages::Madvise);
    assert_eq!((memory.limits.len(), memory.problems.len()), (0, 0));
    let auto = memory.auto_budget().unwrap();
    assert_eq!(auto.limit, "MemAvailable");
    // 8 % of 12.288 GB are more than 512 MiB.
    assert_eq!(auto.reserve, Bytes(983_040_000));
    assert_eq!(auto.total, Bytes(12_288_000_000 - 983_040_000));
}

#[test]
fn version_2_with_a_limit_on_the_own_group() {
    check_limits(
        &[
            ("proc/self/cgroup", "0::/user.slice/run\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/memory.high", "max\n"),
            ("sys/fs/cgroup/user.slice/run/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/user.slice/run/memory.high", "max\n"),
        ],
        &[("sys/fs/cgroup/user.slice/run/memory.max", 2 << 30)],
    );
}

/// Fails for whoever reads the own group only: it says `max`.
#[test]
fn version_2_with_a_limit_on_the_parent() {
    let root = machine(&[
        ("proc/self/cgroup", "0::/pod/container\n"),
        ("proc/self/mountinfo", V2_MOUNT),
        ("sys/fs/cgroup/pod/container/memory.max", "max\n"),
        ("sys/fs/cgroup/pod/memory.max", "4294967296\n"),
        ("sys/fs/cgroup/pod/memory.high", "3221225472\n"),
    ]);
    let memory = HostMemory::read(root.path());
    let found: Vec<u64> = memory.limits.iter().map(|limit| limit.bytes.0).collect();
    assert_eq!(found, [4 << 30, 3 << 30]);
    let auto = memory.auto_budget().unwrap();
    assert!(auto.limit.ends_with("/pod/memory.high"), "{}", auto.limit);
    // 8 % of 3 GiB are less than 512 MiB.
    assert_eq!(
        (auto.available, auto.reserve),
        (Bytes(3 << 30), Bytes(512 << 20))
    );
    assert_eq!(auto.total, Bytes((3 << 30) - (512 << 20)));
}

/// In a namespace of its own the group is the root, which then has limits.
#[test]
fn version_2_in_a_private_namespace() {
    check_limits(
        &[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ],
        &[("sys/fs/cgroup/memory.max", 1 << 30)],
    );
}

/// The path is the host's, while the mount shows the container's branch only.
#[test]
fn version_1_in_the_namespace_of_the_host() {
    check_limits(
        &[
            (
                "proc/self/cgroup",
                "5:memory:/docker/abc/worker\n3:cpuset:/docker/abc\n",
            ),
            (
                "proc/self/mountinfo",
                "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1610612736\n"),
            (
                "sys/fs/cgroup/memory/worker/memory.limit_in_bytes",
                V1_UNLIMITED,
            ),
        ],
        &[("sys/fs/cgroup/memory/memory.limit_in_bytes", 3 << 29)],
    );
}

#[test]
fn version_1_without_any_limit() {
    check_limits(
        &[
            ("proc/self/cgroup", "5:memory:/a\n"),
            ("proc/self/mountinfo", V1_MEMORY),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", V1_UNLIMITED),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", V1_UNLIMITED),
            // The same with pages of 64 KiB.
            (
                "sys/fs/cgroup/memory/a/memory.stat",
                "cache 1\nhierarchical_memory_limit 9223372036854710272\n",
            ),
        ],
        &[],
    );
}

/// A limit above everything that is mounted shows in the kernel's minimum.
#[test]
fn version_1_with_a_limit_out_of_sight() {
    check_limits(
        &[
            ("proc/self/cgroup", "5:memory:/\n"),
            ("proc/self/mountinfo", V1_MEMORY),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", V1_UNLIMITED),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000000\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "cache 5\nhierarchical_memory_limit 2000000000\nrss 7\n",
            ),
        ],
        &[("sys/fs/cgroup/memory/memory.stat", 2_000_000_000)],
    );
}

#[test]
fn both_versions_side_by_side() {
    check_limits(
        &[
            ("proc/self/cgroup", "4:memory:/a/b\n0::/elsewhere\n"),
            (
                "proc/self/mountinfo",
                &format!(
                    "{V1_MEMORY}41 31 0:38 /../.. /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                ),
            ),
            (
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "3000000000\n",
            ),
            (
                "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "4000000000\n",
            ),
            // Files that no kernel has: version 2 does not carry the memory here.
            ("sys/fs/cgroup/unified/memory.max", "5\n"),
        ],
        &[
            (
                "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                4_000_000_000,
            ),
            (
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                3_000_000_000,
            ),
        ],
    );
}

#[test]
fn the_mount_point_may_have_blanks() {
    check_limits(
        &[
            ("proc/self/cgroup", "0::/a b\n"),
            (
                "proc/self/mountinfo",
                "30 24 0:26 / /mnt/my\\040groups rw - cgroup2 none rw\n",
            ),
            ("mnt/my groups/a b/memory.max", "4096\n"),
        ],
        &[("mnt/my groups/a b/memory.max", 4096)],
    );
}

/// Nobody knows what such a limit means, so nobody may plan by it.
#[test]
fn nonsense_is_a_problem_and_no_limit() {
    for text in ["", "-1", "2G", "99999999999999999999", "maximum", "0x1000"] {
        let root = machine(&[
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/a/memory.max", text),
        ]);
        let (found, problems) = limits(&root);
        assert_eq!(found, [], "{text}");
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert!(
            problems[0].starts_with("sys/fs/cgroup/a/memory.max: "),
            "{problems:?}"
        );
        let error = HostMemory::read(root.path()).auto_budget().unwrap_err();
        assert!(matches!(&error, ConfigError::HostMemoryUnknown(_)));
        assert!(
            error.to_string().contains("give --memory a size"),
            "{error}"
        );
    }
    // Version 1 knows no `max`.
    let root = machine(&[
        ("proc/self/cgroup", "5:memory:/\n"),
        ("proc/self/mountinfo", V1_MEMORY),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "max\n"),
    ]);
    assert_eq!(limits(&root).1.len(), 1);
}

#[test]
fn a_group_that_no_mount_shows_is_a_problem() {
    let outside = "36 31 0:32 /other /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    // `/othera` only begins like `/other`.
    for (group, mounts) in [
        ("/a", outside),
        ("/othera", outside),
        ("/a", ""),
        ("/../a", V1_MEMORY),
    ] {
        let membership = format!("5:memory:{group}\n");
        let root = machine(&[
            ("proc/self/cgroup", &membership),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", V1_UNLIMITED),
        ]);
        let (found, problems) = limits(&root);
        assert_eq!(found, []);
        assert_eq!(
            problems,
            [format!(
                "proc/self/cgroup: no mount shows the limits of the memory group `{group}`"
            )]
        );
    }
    // The root group has no limits, mounted or not.
    check_limits(
        &[("proc/self/cgroup", "0::/\n"), ("proc/self/mountinfo", "")],
        &[],
    );
}

#[test]
fn missing_and_unreadable_files() {
    let root = tempfile::tempdir().unwrap();
    let memory = HostMemory::read(root.path());
    assert_eq!((memory.total, memory.available), (None, None));
    assert_eq!(memory.memlock, MemlockLimit::Unknown);
    assert_eq!(memory.transparent_hugepages, TransparentHugepages::Unknown);
    assert!(
        matches!(memory.auto_budget(), Err(ConfigError::HostMemoryUnknown(problem))
        if problem.path.ends_with("proc/meminfo"))
    );
    for (text, key) in [
        ("MemTotal: 5 kB\n", "MemAvailable"),
        ("MemTotal: 5 kB\nMemAvailable: lots kB\n", "MemAvailable"),
        (
            "MemTotal: 5 kB\nMemAvailable: 18446744073709551615 kB\n",
            "MemAvailable",
        ),
        ("MemTotal: -5 kB\nMemAvailable: 5 kB\n", "MemTotal"),
    ] {
        let root = machine(&[("proc/meminfo", text)]);
        let memory = HostMemory::read(root.path());
        let problem = &memory.problems[0];
        assert_eq!(
            (problem.area, memory.problems.len()),
            (ProblemArea::Memory, 1)
        );
        assert!(problem.reason.contains(key), "{problem}");
        assert!(memory.auto_budget().is_err());
    }
    // A folder where a file should be cannot be read.
    let root = machine(&[
        ("proc/self/cgroup", "0::/a\n"),
        ("proc/self/mountinfo", V2_MOUNT),
    ]);
    fs::create_dir_all(root.path().join("sys/fs/cgroup/a/memory.max")).unwrap();
    assert_eq!(limits(&root).1.len(), 1);
}

#[test]
fn what_only_costs_speed_does_not_stop_auto() {
    let root = machine(&[
        ("proc/self/limits", "Max locked memory lots lots bytes\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "sometimes\n"),
    ]);
    let memory = HostMemory::read(root.path());
    assert_eq!(memory.memlock, MemlockLimit::Unknown);
    assert_eq!(memory.transparent_hugepages, TransparentHugepages::Unknown);
    let areas: Vec<ProblemArea> = memory.problems.iter().map(|problem| problem.area).collect();
    assert_eq!(areas, [ProblemArea::Other; 2]);
    memory.auto_budget().unwrap();
    let root = machine(&[(
        "proc/self/limits",
        "Max locked memory unlimited unlimited bytes\n",
    )]);
    assert_eq!(
        HostMemory::read(root.path()).memlock,
        MemlockLimit::Unlimited
    );
}

#[test]
fn auto_leaves_nothing_where_there_is_nothing() {
    let check = |kilobytes: u64| {
        let text = format!("MemTotal: 9999999 kB\nMemAvailable: {kilobytes} kB\n");
        let root = machine(&[("proc/meminfo", &text)]);
        let request = MemoryRequest::Preset(Preset::Auto);
        let request = Sourced::new(request, Origin::Default);
        MemoryBudget::resolve(&request, || HostMemory::read(root.path()))
    };
    assert_eq!(check(512 * 1024 + 1).unwrap().total, Bytes(1024));
    let error = check(512 * 1024).unwrap_err();
    assert!(matches!(error, ConfigError::NothingLeft { .. }));
    assert!(error.to_string().contains("MemAvailable"), "{error}");
    let origin = check(1_000_000).unwrap().origin.to_string();
    assert!(
        origin.starts_with("auto, default: MemAvailable is the least with 1.02 GB"),
        "{origin}"
    );
}

/// A fixed budget asks the machine nothing.
#[test]
fn presets_do_not_read_the_machine() {
    let flag = Origin::Flag {
        name: "--preset".to_owned(),
    };
    let request = Sourced::new(MemoryRequest::Preset(Preset::Laptop), flag);
    let budget = MemoryBudget::resolve(&request, || unreachable!("nobody asked")).unwrap();
    assert_eq!(budget.total, Bytes(8_000_000_000));
    assert_eq!(budget.origin.to_string(), "preset laptop, --preset");
}

fn check_cpu(files: &[(&str, &str)], affinity: u64, want: (u64, &str)) {
    let root = machine(files);
    let cpu = HostCpu::read(root.path());
    assert_eq!(cpu.problems, []);
    let count = cpu.cpu_count(affinity);
    assert_eq!((count.count, count.limited_by), want);
}

#[test]
fn processors_of_version_2() {
    let base = [
        ("proc/self/cgroup", "0::/pod/a\n"),
        ("proc/self/mountinfo", V2_MOUNT),
    ];
    let with = |more: &[(&'static str, &'static str)], affinity, want| {
        check_cpu(&[&base, more].concat(), affinity, want);
    };
    with(&[], 16, (16, "affinity"));
    with(
        &[("sys/fs/cgroup/pod/a/cpu.max", "max 100000\n")],
        16,
        (16, "affinity"),
    );
    with(
        &[("sys/fs/cgroup/pod/a/cpu.max", "50000 100000\n")],
        16,
        (1, "quota"),
    );
    with(
        &[("sys/fs/cgroup/pod/a/cpu.max", "250000 100000\n")],
        16,
        (2, "quota"),
    );
    // The parent's quota binds, in whatever period it is stated.
    with(
        &[
            ("sys/fs/cgroup/pod/a/cpu.max", "800000 100000\n"),
            ("sys/fs/cgroup/pod/cpu.max", "30000 10000\n"),
        ],
        16,
        (3, "quota"),
    );
    // Without a set of its own the group has its parent's.
    with(
        &[("sys/fs/cgroup/pod/cpuset.cpus.effective", "0-3,8\n")],
        16,
        (5, "cpuset"),
    );
    with(
        &[
            ("sys/fs/cgroup/pod/cpuset.cpus.effective", "0-3\n"),
            ("sys/fs/cgroup/pod/a/cpuset.cpus.effective", "2\n"),
        ],
        16,
        (1, "cpuset"),
    );
    with(
        &[("sys/fs/cgroup/pod/a/cpuset.cpus.effective", "0-63\n")],
        2,
        (2, "affinity"),
    );
}

#[test]
fn processors_of_version_1() {
    let mounts = format!("{V1_CPU}{V1_CPUSET}");
    let base = [
        ("proc/self/cgroup", "2:cpu,cpuacct:/a/b\n3:cpuset:/a\n"),
        ("proc/self/mountinfo", mounts.as_str()),
        ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
        (
            "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us",
            "100000\n",
        ),
        ("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n"),
    ];
    let with = |more: &[(&'static str, &'static str)], want| {
        check_cpu(&[&base[..], more].concat(), 8, want);
    };
    with(&[], (8, "affinity"));
    with(
        &[("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000\n")],
        (4, "quota"),
    );
    with(
        &[("sys/fs/cgroup/cpuset/a/cpuset.cpus", "0,1,2\n")],
        (3, "cpuset"),
    );
    with(
        &[
            ("sys/fs/cgroup/cpuset/a/cpuset.cpus", "0,1,2\n"),
            ("sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "0,1\n"),
        ],
        (2, "cpuset"),
    );
    with(
        &[
            ("sys/fs/cgroup/cpuset/a/cpuset.cpus", "\n"),
            ("sys/fs/cgroup/cpuset/cpuset.cpus", "0-6\n"),
        ],
        (7, "cpuset"),
    );
}

#[test]
fn memory_nodes_with_processors_are_counted() {
    for (list, want) in [("0\n", Some(1)), ("0-1,3\n", Some(3)), ("\n", None)] {
        let root = machine(&[("sys/devices/system/node/has_cpu", list)]);
        assert_eq!(HostCpu::read(root.path()).node_count, want, "{list}");
    }
    let root = machine(&[]);
    assert_eq!(HostCpu::read(root.path()).node_count, None);
}

#[test]
fn nonsense_about_processors_is_reported_and_not_used() {
    for (file, text) in [
        ("cpu.max", "0 100000\n"),
        ("cpu.max", "100000 0\n"),
        ("cpu.max", "100000\n"),
        ("cpu.max", "\n"),
        ("cpu.max", "fast\n"),
        ("cpuset.cpus.effective", "0-x\n"),
        ("cpuset.cpus.effective", "5-2\n"),
    ] {
        let path = format!("sys/fs/cgroup/{file}");
        let root = machine(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            (&path, text),
        ]);
        let cpu = HostCpu::read(root.path());
        assert_eq!((cpu.quota, cpu.cpuset_count), (None, None), "{text}");
        assert_eq!(cpu.problems.len(), 1, "{text}");
        assert_eq!(cpu.problems[0].area, ProblemArea::Processors);
        assert_eq!(cpu.cpu_count(8).count, 8);
    }
}

/// The machine the tests run on is a machine.
#[test]
fn this_machine_can_be_read() {
    let memory = HostMemory::read(Path::new("/"));
    let (total, available) = (memory.total.unwrap(), memory.available.unwrap());
    assert!(available <= total && total > Bytes(64 << 20), "{memory:?}");
    for limit in &memory.limits {
        assert!(limit.path.exists(), "{limit:?}");
        assert!(matches!(
            limit.version,
            CgroupVersion::V1 | CgroupVersion::V2
        ));
    }
    let count = HostCpu::read(Path::new("/")).cpu_count(4096);
    assert!((1..=4096).contains(&count.count));
}
