//! Memory groups on file trees that look like the kernel's. What a kernel does
//! by itself, making a new group's files, is done here by hand.

use std::fs;
use std::path::Path;

use k3_config::{Bytes, CgroupVersion, GroupError, GroupParent, GroupReader};
use tempfile::TempDir;

const V2_MOUNT: &str = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
const V1_MOUNT: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
const GIB: u64 = 1 << 30;

fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(root.path(), path, text);
    }
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn version_2(subtree: &str) -> TempDir {
    tree(&[
        ("proc/self/cgroup", "0::/user/run\n"),
        ("proc/self/mountinfo", V2_MOUNT),
        ("sys/fs/cgroup/user/run/cgroup.subtree_control", subtree),
    ])
}

fn version_1() -> TempDir {
    tree(&[
        ("proc/self/cgroup", "4:memory:/job\n0::/\n"),
        ("proc/self/mountinfo", V1_MOUNT),
        ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1\n"),
    ])
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// What the kernel does when a directory of the tree is removed.
fn empty(group: &Path) {
    for entry in fs::read_dir(group).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

#[test]
fn version_2_below_the_own_group() {
    let root = version_2("cpu memory pids\n");
    let parent = GroupParent::own(root.path()).unwrap();
    assert_eq!(parent.version(), CgroupVersion::V2);
    assert!(parent.path().ends_with("user/run"));
    let group = parent.create(77, 1, Bytes(GIB)).unwrap();
    assert!(group.path().ends_with("user/run/k3-ladder-77-1"));
    assert_eq!(text(&group.path().join("memory.max")), GIB.to_string());
    // No such file: a kernel that does not account for swap.
    assert!(!group.reader().swap_is_off());
    fs::write(group.path().join("memory.swap.max"), "0\n").unwrap();
    assert!(group.reader().swap_is_off());
    assert_eq!(group.reader().limit(), Some(Bytes(GIB)));
    let path = group.path().to_owned();
    empty(&path);
    drop(group);
    assert!(!path.exists());
}

#[test]
fn version_2_that_hands_no_memory_down_is_refused_with_the_way_out() {
    for subtree in ["", "cpu pids\n", "memory_recursive\n"] {
        let root = version_2(subtree);
        let error = GroupParent::own(root.path()).unwrap_err();
        assert!(
            matches!(&error, GroupError::ControllerOff { found, .. } if found == subtree.trim()),
            "{error}"
        );
        assert!(error.to_string().contains("echo +memory > "), "{error}");
    }
}

#[test]
fn version_1_below_the_own_group() {
    let root = version_1();
    let parent = GroupParent::own(root.path()).unwrap();
    assert_eq!(parent.version(), CgroupVersion::V1);
    // Not whole pages: the limit leaves room for all of it.
    let group = parent.create(77, 2, Bytes(GIB - 5)).unwrap();
    let file = |name: &str| group.path().join(name);
    assert_eq!(text(&file("memory.limit_in_bytes")), GIB.to_string());
    assert!(!file("memory.memsw.limit_in_bytes").exists());
    assert!(!group.reader().swap_is_off());
    fs::write(file("memory.memsw.limit_in_bytes"), GIB.to_string()).unwrap();
    assert!(group.reader().swap_is_off());
    fs::write(file("memory.memsw.limit_in_bytes"), (2 * GIB).to_string()).unwrap();
    assert!(!group.reader().swap_is_off());
    empty(group.path());
}

#[test]
fn a_machine_without_memory_groups() {
    for files in [
        &[][..],
        &[
            ("proc/self/cgroup", "3:cpu:/\n"),
            ("proc/self/mountinfo", ""),
        ],
    ] {
        let error = GroupParent::own(tree(files).path()).unwrap_err();
        assert!(matches!(error, GroupError::NotFound { .. }), "{error}");
    }
}

#[test]
fn a_group_that_cannot_be_made_names_it() {
    let root = version_1();
    let parent = GroupParent::own(root.path()).unwrap();
    let taken = parent.path().join("k3-ladder-5-0");
    fs::create_dir(&taken).unwrap();
    let error = parent.create(5, 0, Bytes(GIB)).unwrap_err().to_string();
    assert!(error.contains("k3-ladder-5-0"), "{error}");
    assert!(taken.exists(), "somebody else's group is left alone");
}

#[test]
fn groups_of_the_dead_are_removed_and_no_others() {
    let root = version_1();
    let parent = GroupParent::own(root.path()).unwrap();
    for name in ["k3-ladder-100-0", "k3-ladder-101-7", "k3-ladder-x", "other"] {
        fs::create_dir(parent.path().join(name)).unwrap();
    }
    fs::create_dir_all(root.path().join("proc/101")).unwrap();
    let removed = parent.remove_leftovers(root.path());
    assert_eq!(removed, [parent.path().join("k3-ladder-100-0")]);
    for name in ["k3-ladder-101-7", "k3-ladder-x", "other"] {
        assert!(parent.path().join(name).exists(), "{name}");
    }
}

#[test]
fn readings_of_version_1() {
    let root = version_1();
    write(root.path(), "proc/9/cgroup", "4:memory:/job\n");
    let group = "sys/fs/cgroup/memory/job";
    for (file, text) in [
        (
            "memory.stat",
            "cache 5\nrss 7\nswap 1\ntotal_rss 4096\ntotal_rss_huge 9\ntotal_swap 8\n",
        ),
        ("memory.kmem.usage_in_bytes", "512\n"),
        ("memory.max_usage_in_bytes", "8192\n"),
        (
            "memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        ),
        ("memory.failcnt", "11\n"),
    ] {
        write(root.path(), &format!("{group}/{file}"), text);
    }
    let reading = GroupReader::of_process(root.path(), 9).unwrap().read();
    assert_eq!(
        (reading.anon, reading.kernel),
        (Some(Bytes(4096)), Some(Bytes(512)))
    );
    assert_eq!(
        (reading.swap, reading.peak),
        (Some(Bytes(8)), Some(Bytes(8192)))
    );
    assert_eq!((reading.oom_kills, reading.limit_hits), (Some(3), Some(11)));
}

#[test]
fn readings_of_version_2() {
    let root = version_2("memory\n");
    write(root.path(), "proc/9/cgroup", "0::/user/run\n");
    let group = "sys/fs/cgroup/user/run";
    for (file, text) in [
        (
            "memory.stat",
            "anon 4096\nfile 77\nkernel 512\nkernel_stack 100\n",
        ),
        ("memory.peak", "8192\n"),
        ("memory.swap.current", "0\n"),
        (
            "memory.events",
            "low 0\nhigh 0\nmax 11\noom 4\noom_kill 3\noom_group_kill 0\n",
        ),
    ] {
        write(root.path(), &format!("{group}/{file}"), text);
    }
    let reading = GroupReader::of_process(root.path(), 9).unwrap().read();
    assert_eq!(
        (reading.anon, reading.kernel),
        (Some(Bytes(4096)), Some(Bytes(512)))
    );
    assert_eq!(
        (reading.swap, reading.peak),
        (Some(Bytes(0)), Some(Bytes(8192)))
    );
    assert_eq!((reading.oom_kills, reading.limit_hits), (Some(3), Some(11)));
    assert!(GroupReader::of_process(root.path(), 10).is_err());
}
