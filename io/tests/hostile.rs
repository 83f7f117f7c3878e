//! Systems that forbid, limit or lack what the engines would like to use.
//!
//! Some of the tests need another process (another user, another mount): they
//! run this test binary again, with only [`in_a_child`] selected.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{note, open_pread, open_uring};
use k3_io::conformance::{self, Promises};
use k3_io::{
    DirectPolicy, EngineConfig, EngineError, EngineKind, EnginePreference, FileId, FileTable,
    FixedBuffers, HugeArena, PagePolicy, ReadClass, ReadRequest, Segment, SlotArena, UringCall,
    UringEngine, open_engine,
};

const STRICT: Promises = Promises {
    exact_counters: true,
    ordered: true,
};

/// Names the directory a child works in.
const CHILD_DIRECTORY: &str = "K3_IO_TEST_DIRECTORY";
/// Says what a child must find there.
const CHILD_EXPECTS: &str = "K3_IO_TEST_EXPECTS";

/// Does nothing unless another test has started it in a child process.
#[test]
fn in_a_child() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else {
        return;
    };
    let directory = Path::new(&directory);
    let path = directory.join("probe");
    std::fs::write(&path, vec![5_u8; 100_000]).unwrap();
    let table = Arc::new(FileTable::open([&path], DirectPolicy::Probe).unwrap());
    let (arena, report) = HugeArena::reserve(4 << 20, PagePolicy::Transparent).unwrap();
    let config = EngineConfig {
        arenas: vec![Arc::clone(&arena)],
        ..EngineConfig::default()
    };
    let engine = open_engine(Arc::clone(&table), &config, EnginePreference::Uring).unwrap();
    engine.memory_ready(&arena, 0..report.bytes);
    conformance::run(&open_pread, directory, STRICT);
    if common::uring_here() {
        conformance::run(&open_uring, directory, STRICT);
    }
    // By now the ring's thread has tried to register the memory.
    let caps = engine.caps();
    let fallbacks = caps.fallbacks.join("\n");
    match std::env::var(CHILD_EXPECTS).as_deref() {
        Ok("buffered") => {
            assert!(!table.get(FileId(0)).is_direct());
            assert!(
                fallbacks.contains("buffered reads for 1 file(s)"),
                "{fallbacks}"
            );
        }
        Ok("memlock") if caps.kind == EngineKind::Uring => {
            assert_eq!(caps.devices[0].fixed_bytes, 0);
            assert!(fallbacks.contains("registered"), "{fallbacks}");
        }
        Ok("memlock") => assert!(
            fallbacks.contains("io_uring is not available"),
            "{fallbacks}"
        ),
        other => panic!("{other:?}"),
    }
    note(&format!("child done: {caps:?}"));
}

/// Runs [`in_a_child`] through a shell that prepares its surroundings and ends
/// in `exec "$@"`. Whether the surroundings could be had.
fn run_child(shell: &str, directory: &Path, expects: &str) -> bool {
    let binary = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", shell, "sh"])
        .arg(binary)
        .args(["--exact", "in_a_child", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIRECTORY, directory)
        .env(CHILD_EXPECTS, expects)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    // Codes from the shell and its helpers, before the test began.
    if matches!(output.status.code(), Some(90 | 126 | 127)) {
        note(&format!("not run: {}", text.trim()));
        return false;
    }
    assert!(output.status.success(), "{text}");
    assert!(text.contains("child done"), "{text}");
    true
}

#[test]
fn a_file_system_without_direct_reads() {
    let directory = tempfile::tempdir().unwrap();
    let mount = "unshare --mount true 2>/dev/null || exit 90; \
                 exec unshare --mount sh -c 'mount -t ramfs none \"$K3_IO_TEST_DIRECTORY\" \
                 || exit 90; exec \"$@\"' sh \"$@\"";
    run_child(mount, directory.path(), "buffered");
}

#[test]
fn an_unprivileged_user_with_little_lockable_memory() {
    let directory = tempfile::tempdir().unwrap();
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    let user = "--reuid=65534 --regid=65534 --clear-groups";
    let shell = format!(
        "ulimit -l 64 || exit 90; setpriv {user} test -x \"$1\" || exit 90; \
         exec setpriv {user} \"$@\""
    );
    run_child(&shell, directory.path(), "memlock");
}

/// One call of io_uring that is forbidden, or fails, is enough to do without:
/// as an error of the engine, and as a fallback of the choice.
#[test]
fn io_uring_without_one_of_its_calls() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![9_u8; 100_000]).unwrap();
    for call in UringCall::ALL {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EIO] {
            for fixed_buffers in [FixedBuffers::Off, FixedBuffers::AtStart] {
                let path = path.clone();
                let test = move || without_call(&path, call, errno, fixed_buffers);
                std::thread::spawn(test).join().unwrap();
            }
        }
    }
}

fn without_call(path: &Path, call: UringCall, errno: i32, fixed_buffers: FixedBuffers) {
    if !k3_io::refuse_io_uring(call, errno) {
        return note("not run: seccomp filters are not allowed here");
    }
    let table = Arc::new(FileTable::open([path], DirectPolicy::Probe).unwrap());
    let (arena, report) = HugeArena::reserve(4 << 20, PagePolicy::Transparent).unwrap();
    let config = EngineConfig {
        arenas: vec![Arc::clone(&arena)],
        fixed_buffers,
        ..EngineConfig::default()
    };
    let error = UringEngine::open(Arc::clone(&table), &config).unwrap_err();
    let EngineError::Unavailable { reason, .. } = &error else {
        panic!("{call:?} {errno}: {error:?}");
    };
    let said = match errno {
        libc::EPERM => "EPERM",
        libc::ENOSYS => "ENOSYS",
        _ => "os error 5",
    };
    assert!(reason.contains(said), "{call:?}: {reason}");
    let engine = open_engine(table, &config, EnginePreference::Uring).unwrap();
    let caps = engine.caps();
    assert_eq!(caps.kind, EngineKind::Pread);
    assert!(caps.fallbacks[0].contains(reason), "{caps:?}");
    let slots = SlotArena::new(&arena, 0..report.bytes, report.bytes).unwrap();
    let (reply, answers) = crossbeam_channel::bounded(1);
    let place = Segment {
        file: FileId(0),
        offset: 5000,
        bytes: 80_000,
    };
    let target = slots.acquire_any().unwrap();
    engine.submit(ReadRequest::single(
        place,
        target,
        ReadClass::Expert,
        0,
        reply,
    ));
    let done = answers.recv().unwrap();
    done.result.unwrap();
    let found = done.target.freeze(done.payload);
    assert_eq!(found[..], vec![9_u8; 80_000][..]);
}

/// One request for more than 2 GiB, the most a single system call reads.
#[test]
fn a_request_beyond_two_gib() {
    if !k3_formats::gates::slow_only() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sparse");
    let bytes = (2_u64 << 30) + 12_345;
    let offset = (3_u64 << 30) + 77;
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(offset + bytes).unwrap();
    let mark = b"the last bytes of a large tensor";
    std::os::unix::fs::FileExt::write_all_at(&file, mark, offset + bytes - mark.len() as u64)
        .unwrap();
    for open in [open_pread, open_uring] {
        let table = Arc::new(FileTable::open([&path], DirectPolicy::Probe).unwrap());
        let Ok(engine) = open(table, &EngineConfig::default()) else {
            continue;
        };
        let size = (2 << 30) + (2 << 20);
        let (arena, report) = HugeArena::reserve(size, PagePolicy::Transparent).unwrap();
        let slots = SlotArena::new(&arena, 0..report.bytes, report.bytes).unwrap();
        let (reply, answers) = crossbeam_channel::bounded(1);
        engine.submit(ReadRequest::single(
            Segment {
                file: FileId(0),
                offset,
                bytes,
            },
            slots.acquire_any().unwrap(),
            ReadClass::Expert,
            0,
            reply,
        ));
        let done = answers.recv().unwrap();
        done.result.unwrap();
        let found = done.target.freeze(done.payload);
        assert_eq!(found.len() as u64, bytes);
        assert!(found.ends_with(mark));
        assert_eq!(engine.counters().payload_bytes(), bytes);
    }
}
