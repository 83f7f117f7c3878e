//! System calls that the kernel refuses, for tests of whole programs.
//!
//! A filter of system calls holds for the calling thread and whatever it
//! starts afterwards, other programs included. So a test can make the reads of
//! a real binary fail at a place of its choice, without a line of that binary
//! knowing.

use std::ops::Range;

/// Where a filter finds things in `struct seccomp_data` (little-endian).
const NUMBER: u32 = 0;
const OFFSET_LOW: u32 = 16 + 8 * 3;
const OFFSET_HIGH: u32 = OFFSET_LOW + 4;

/// A system call of io_uring. A container may forbid all of them; some filters
/// of system calls name one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UringCall {
    /// `io_uring_setup`.
    Setup,
    /// `io_uring_enter`.
    Enter,
    /// `io_uring_register`.
    Register,
}

impl UringCall {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Setup, Self::Enter, Self::Register];

    fn number(self) -> u32 {
        number(match self {
            Self::Setup => libc::SYS_io_uring_setup,
            Self::Enter => libc::SYS_io_uring_enter,
            Self::Register => libc::SYS_io_uring_register,
        })
    }
}

/// Lets this system call fail with `errno` for this thread and what it starts;
/// whether that could be done.
#[must_use]
pub fn refuse_io_uring(call: UringCall, errno: i32) -> bool {
    install(&mut [
        load(NUMBER),
        jump(libc::BPF_JEQ, call.number(), 0, 1),
        refuse(errno),
        allow(),
    ])
}

/// Lets every `pread` of this thread, and of what it starts, fail with `errno`
/// if it starts at one of `offsets`, whatever the file; whether that could be
/// done.
///
/// # Panics
///
/// If `offsets` ends beyond 4 GiB.
#[must_use]
pub fn refuse_preads(offsets: Range<u64>, errno: i32) -> bool {
    let bound = |offset| u32::try_from(offset).expect("files of tests are small");
    install(&mut [
        load(NUMBER),
        jump(libc::BPF_JEQ, number(libc::SYS_pread64), 0, 6),
        load(OFFSET_HIGH),
        jump(libc::BPF_JEQ, 0, 0, 4),
        load(OFFSET_LOW),
        jump(libc::BPF_JGE, bound(offsets.start), 0, 2),
        jump(libc::BPF_JGE, bound(offsets.end), 1, 0),
        refuse(errno),
        allow(),
    ])
}

/// Lets `sched_setaffinity` fail with `errno` for this thread and what it
/// starts; whether that could be done.
#[must_use]
pub fn refuse_affinity(errno: i32) -> bool {
    install(&mut [
        load(NUMBER),
        jump(libc::BPF_JEQ, number(libc::SYS_sched_setaffinity), 0, 1),
        refuse(errno),
        allow(),
    ])
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("numbers of system calls are small")
}

fn load(place: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, place)
}

/// Goes `yes` or `no` instructions further.
fn jump(condition: u32, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | condition | libc::BPF_K, yes, no, value)
}

fn refuse(errno: i32) -> libc::sock_filter {
    let errno = u32::try_from(errno).expect("an error number");
    let action = libc::SECCOMP_RET_ERRNO | errno;
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, action)
}

fn allow() -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: u16::try_from(code).expect("codes have 16 bits"),
        jt,
        jf,
        k,
    }
}

fn install(program: &mut [libc::sock_filter]) -> bool {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).expect("a few instructions"),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: plain flags, and a filter program that outlives the calls; the
    // kernel copies and checks it.
    cfg!(target_endian = "little")
        && unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                ) == 0
        }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn reads_fail_at_the_named_offsets_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let file = File::open(&path).unwrap();
        let thread = std::thread::spawn(move || {
            if !refuse_preads(100..200, libc::EIO) {
                k3_formats::gates::not_run("filters of system calls are not allowed here");
                return;
            }
            for (offset, refused) in [
                (0, false),
                (99, false),
                (100, true),
                (199, true),
                (200, false),
            ] {
                let result = file.read_at(&mut [0; 500], offset);
                let errno = result.err().and_then(|error| error.raw_os_error());
                assert_eq!(errno, refused.then_some(libc::EIO), "{offset}");
            }
        });
        thread.join().unwrap();
    }
}
