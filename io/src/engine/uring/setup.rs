//! Making a ring, with the best flags the kernel takes.

use std::io;

use io_uring::{IoUring, Probe, opcode};

/// Makes a ring of `entries` entries; the flags it got, or why there is none.
///
/// SQPOLL would burn a core, and IOPOLL sets up on devices that then refuse
/// every read: neither is tried.
pub(super) fn build(entries: u32) -> Result<(IoUring, &'static str), String> {
    let best = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .dontfork()
        .build(entries);
    let (ring, flags) = match best {
        Ok(ring) => (ring, "SINGLE_ISSUER DEFER_TASKRUN"),
        Err(error) if unknown_flag(&error) => {
            let simple = IoUring::builder()
                .setup_coop_taskrun()
                .dontfork()
                .build(entries);
            match simple {
                Ok(ring) => (ring, "COOP_TASKRUN"),
                Err(error) if unknown_flag(&error) => {
                    (IoUring::new(entries).map_err(|error| reason(&error))?, "")
                }
                Err(error) => return Err(reason(&error)),
            }
        }
        Err(error) => return Err(reason(&error)),
    };
    check_opcodes(&ring)?;
    Ok((ring, flags))
}

fn unknown_flag(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has none".into(),
        Some(libc::EPERM | libc::EACCES) => {
            "it is forbidden here (seccomp, a container, or kernel.io_uring_disabled)".into()
        }
        Some(libc::ENOMEM) => {
            "no memory for a ring (on old kernels RLIMIT_MEMLOCK limits it)".into()
        }
        _ => error.to_string(),
    }
}

fn check_opcodes(ring: &IoUring) -> Result<(), String> {
    let mut probe = Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|error| format!("the kernel does not list its operations: {error}"))?;
    if probe.is_supported(opcode::Read::CODE) {
        Ok(())
    } else {
        Err("the kernel's io_uring has no read operation".into())
    }
}
