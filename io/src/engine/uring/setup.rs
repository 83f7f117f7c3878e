//! Making a ring, with the best flags the kernel takes.

use std::io;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode};

/// Tries to make a ring while the memory limit refuses it, and the pause
/// between them. The kernel takes rings apart in the background: the memory of
/// one just closed may count for some milliseconds more.
const MEMORY_TRIES_MAX: u32 = 40;
const MEMORY_PAUSE: Duration = Duration::from_millis(5);

/// Makes a ring of `entries` entries; the flags it got, or why there is none.
pub(super) fn build(entries: u32) -> Result<(IoUring, &'static str), String> {
    let mut tries = 1;
    loop {
        match build_best(entries) {
            Ok((ring, flags)) => {
                check_opcodes(&ring)?;
                return Ok((ring, flags));
            }
            Err(error)
                if error.raw_os_error() == Some(libc::ENOMEM) && tries < MEMORY_TRIES_MAX =>
            {
                tries += 1;
                std::thread::sleep(MEMORY_PAUSE);
            }
            Err(error) => return Err(reason(&error)),
        }
    }
}

/// Tries the best flags first. SQPOLL would burn a core, and IOPOLL sets up on
/// devices that then refuse every read: neither is among them.
fn build_best(entries: u32) -> io::Result<(IoUring, &'static str)> {
    let best = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .dontfork()
        .build(entries);
    match best {
        Ok(ring) => return Ok((ring, "SINGLE_ISSUER DEFER_TASKRUN")),
        Err(error) if unknown_flag(&error) => {}
        Err(error) => return Err(error),
    }
    let simple = IoUring::builder()
        .setup_coop_taskrun()
        .dontfork()
        .build(entries);
    match simple {
        Ok(ring) => return Ok((ring, "COOP_TASKRUN")),
        Err(error) if unknown_flag(&error) => {}
        Err(error) => return Err(error),
    }
    IoUring::new(entries).map(|ring| (ring, ""))
}

fn unknown_flag(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// Why the kernel refuses, with what usually makes it.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has none (ENOSYS)".into(),
        Some(libc::EPERM) => {
            "it is forbidden here (EPERM: seccomp, a container, or kernel.io_uring_disabled)".into()
        }
        Some(libc::EACCES) => "it is forbidden here (EACCES: a security module)".into(),
        Some(libc::ENOMEM) => {
            "no memory for a ring (ENOMEM: RLIMIT_MEMLOCK limits it on most kernels)".into()
        }
        _ => error.to_string(),
    }
}

fn check_opcodes(ring: &IoUring) -> Result<(), String> {
    let mut probe = Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|error| {
            format!(
                "the kernel does not list its operations: {}",
                reason(&error)
            )
        })?;
    if probe.is_supported(opcode::Read::CODE) {
        Ok(())
    } else {
        Err("the kernel's io_uring has no read operation".into())
    }
}
