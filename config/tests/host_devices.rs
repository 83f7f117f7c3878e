//! Drives and switches as their kernel describes them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use k3_config::{HostKernel, StorageDevice};

fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn link(root: &Path, from: &str, to: &str) {
    let from = root.join(from);
    fs::create_dir_all(from.parent().unwrap()).unwrap();
    symlink(to, from).unwrap();
}

const MOUNTS: &str = "\
28 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
35 28 0:44 / /data rw,relatime master:3 shared:9 - btrfs /dev/sdb1 rw,ssd
36 28 0:45 / /mnt/a\\040b rw - nfs4 server:/weights rw
37 28 0:46 / /var/lib/x rw - overlay overlay rw,lowerdir=/a
";

#[test]
fn a_partition_has_its_drive_s_name_and_kind() {
    let root = machine(&[
        ("proc/self/mountinfo", MOUNTS),
        ("sys/devices/pci0/nvme0n1/queue/rotational", "0\n"),
        ("sys/devices/pci0/nvme0n1/nvme0n1p1/partition", "1\n"),
    ]);
    link(
        root.path(),
        "sys/dev/block/259:1",
        "../../devices/pci0/nvme0n1/nvme0n1p1",
    );
    // 259:1 as stat(2) tells it.
    let device = StorageDevice::read(root.path(), 0x10301);
    assert_eq!(device.number, "259:1");
    assert_eq!(device.name.as_deref(), Some("nvme0n1p1"));
    assert_eq!(device.file_system.as_deref(), Some("ext4"));
    assert_eq!(device.rotational, Some(false));
}

#[test]
fn a_file_system_with_a_number_of_its_own_is_found_by_its_source() {
    let root = machine(&[
        ("proc/self/mountinfo", MOUNTS),
        ("sys/devices/ata1/sdb/queue/rotational", "1\n"),
        ("sys/devices/ata1/sdb/sdb1/partition", "1\n"),
    ]);
    link(
        root.path(),
        "sys/class/block/sdb1",
        "../../devices/ata1/sdb/sdb1",
    );
    let device = StorageDevice::read(root.path(), 44);
    assert_eq!(device.name.as_deref(), Some("sdb1"));
    assert_eq!(device.file_system.as_deref(), Some("btrfs"));
    assert_eq!(device.rotational, Some(true));
}

#[test]
fn what_has_no_block_device_is_said_to_have_none() {
    let root = machine(&[("proc/self/mountinfo", MOUNTS)]);
    for (number, file_system) in [(45, Some("nfs4")), (46, Some("overlay")), (47, None)] {
        let device = StorageDevice::read(root.path(), number);
        assert_eq!(device.file_system.as_deref(), file_system);
        assert_eq!((device.name, device.rotational), (None, None));
    }
    let bare = machine(&[]);
    let device = StorageDevice::read(bare.path(), 0x10301);
    assert_eq!(device.number, "259:1");
    assert_eq!(device.file_system, None);
}

#[test]
fn switches_and_capabilities_are_read() {
    let root = machine(&[
        ("proc/sys/kernel/osrelease", "6.8.0-45-generic\n"),
        (
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: A Processor\nprocessor\t: 1\n",
        ),
        ("proc/sys/vm/swappiness", "60\n"),
        ("proc/sys/kernel/io_uring_disabled", "2\n"),
        (
            "proc/meminfo",
            "MemTotal: 1 kB\nHugePages_Total:      12\nHugePages_Free: 3\n",
        ),
        (
            "proc/self/status",
            "Name:\tk3\nCapEff:\t0000000000004000\nSeccomp:\t2\nSeccomp_filters:\t1\n",
        ),
    ]);
    assert_eq!(
        HostKernel::read(root.path()),
        HostKernel {
            release: Some("6.8.0-45-generic".to_owned()),
            processor: Some("A Processor".to_owned()),
            swappiness: Some(60),
            io_uring_disabled: Some(2),
            hugepages_total: Some(12),
            seccomp_filter: Some(true),
            may_lock_any: Some(true),
        }
    );
}

#[test]
fn what_is_not_said_is_unknown() {
    let nonsense = [
        ("proc/sys/vm/swappiness", "very\n"),
        ("proc/self/status", "CapEff:\txyz\nSeccomp:\n"),
        ("proc/meminfo", ""),
    ];
    for files in [&nonsense[..], &[]] {
        let kernel = HostKernel::read(machine(files).path());
        let unknown = HostKernel {
            release: None,
            processor: None,
            swappiness: None,
            io_uring_disabled: None,
            hugepages_total: None,
            seccomp_filter: None,
            may_lock_any: None,
        };
        assert_eq!(kernel, unknown);
    }
}

#[test]
fn this_machine_has_a_kernel() {
    let kernel = HostKernel::read(Path::new("/"));
    assert!(kernel.release.is_some_and(|release| release.contains('.')));
    assert!(kernel.may_lock_any.is_some());
}
