//! Processor topologies read from file trees.

use std::fs;

use k3_config::CpuTopology;

/// A machine: `(cpu, package, siblings)` for each processor.
fn machine(cpus: &[(u32, &str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (cpu, package, siblings) in cpus {
        let folder = root
            .path()
            .join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("physical_package_id"), package).unwrap();
        fs::write(folder.join("core_cpus_list"), siblings).unwrap();
    }
    root
}

/// Two sockets of two cores with two threads each, numbered as Linux numbers
/// them: all cores first.
fn two_sockets() -> tempfile::TempDir {
    machine(&[
        (0, "0\n", "0,4\n"),
        (1, "0\n", "1,5\n"),
        (2, "1\n", "2,6\n"),
        (3, "1\n", "3,7\n"),
        (4, "0\n", "0,4\n"),
        (5, "0\n", "1,5\n"),
        (6, "1\n", "2,6\n"),
        (7, "1\n", "3,7\n"),
    ])
}

#[test]
fn cores_come_before_siblings() {
    let root = two_sockets();
    let topology = CpuTopology::read(root.path(), &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(topology.problems, []);
    assert_eq!(topology.core_count(), 4);
    assert_eq!(topology.by_core(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn siblings_that_are_neighbours_come_last_all_the_same() {
    let root = machine(&[
        (0, "0", "0-1"),
        (1, "0", "0-1"),
        (2, "0", "2-3"),
        (3, "0", "2-3"),
    ]);
    let topology = CpuTopology::read(root.path(), &[0, 1, 2, 3]);
    assert_eq!(topology.by_core(), [0, 2, 1, 3]);
}

#[test]
fn only_allowed_processors_are_used() {
    let root = two_sockets();
    // Of core 1 only the sibling, of socket 1 one whole core.
    let topology = CpuTopology::read(root.path(), &[7, 5, 3]);
    assert_eq!(topology.by_core(), [5, 3, 7]);
    assert_eq!(topology.core_count(), 2);
    let sibling = topology.cpus.iter().find(|place| place.cpu == 5).unwrap();
    assert_eq!((sibling.core, sibling.package), (1, 0));
}

#[test]
fn sockets_are_filled_one_after_the_other() {
    // Numbers alternate between the sockets.
    let root = machine(&[(0, "0", "0"), (1, "1", "1"), (2, "0", "2"), (3, "1", "3")]);
    let topology = CpuTopology::read(root.path(), &[0, 1, 2, 3]);
    assert_eq!(topology.by_core(), [0, 2, 1, 3]);
}

#[test]
fn older_names_are_read_and_what_is_missing_is_a_core_of_its_own() {
    let root = machine(&[(0, "-1", "0,1"), (2, "0", "nonsense")]);
    let folder = root.path().join("sys/devices/system/cpu/cpu1/topology");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("thread_siblings_list"), "0,1\n").unwrap();
    let topology = CpuTopology::read(root.path(), &[0, 1, 2, 3]);
    assert_eq!(topology.by_core(), [0, 2, 3, 1]);
    let reasons: Vec<String> = topology
        .problems
        .iter()
        .map(|problem| problem.to_string())
        .collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons[0].contains("`nonsense` is no list of processors"));
    assert!(reasons[1].contains("cpu3/topology: the siblings are missing"));
}

/// The machine the tests run on has each processor once.
#[test]
fn this_machine_can_be_read() {
    let count = std::thread::available_parallelism().unwrap().get();
    let allowed: Vec<u32> = (0..u32::try_from(count).unwrap()).collect();
    let topology = CpuTopology::read(std::path::Path::new("/"), &allowed);
    let mut order = topology.by_core();
    order.sort_unstable();
    assert_eq!(order, allowed);
    assert!((1..=count).contains(&topology.core_count()));
}
