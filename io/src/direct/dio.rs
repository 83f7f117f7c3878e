//! The system calls about direct reads that no wrapper offers.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use crate::window::DioAlignment;

/// `STATX_DIOALIGN` (Linux 6.1).
const STATX_DIOALIGN: libc::c_uint = 0x2000;

/// What the kernel says about direct reads of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DioSupport {
    /// It says nothing (an old kernel, or a file system without the answer).
    Unknown,
    /// There are none for this file.
    Refused,
    /// There are, with this alignment, not yet raised to the floor.
    Aligned(DioAlignment),
}

/// Asks `statx` for the alignment of direct reads.
pub(super) fn support(file: &File) -> io::Result<DioSupport> {
    let empty = CString::default();
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is a C string, empty as AT_EMPTY_PATH wants it; the
    // answer is as large as the structure the kernel fills.
    let code = unsafe {
        libc::statx(
            file.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_DIOALIGN,
            answer.as_mut_ptr(),
        )
    };
    if code != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EINVAL) => Ok(DioSupport::Unknown),
            _ => Err(error),
        };
    }
    // SAFETY: integers only, zeroed above and filled by the kernel.
    let answer = unsafe { answer.assume_init() };
    if answer.stx_mask & STATX_DIOALIGN == 0 {
        return Ok(DioSupport::Unknown);
    }
    let (memory, offset) = (answer.stx_dio_mem_align, answer.stx_dio_offset_align);
    if memory == 0 || offset == 0 {
        return Ok(DioSupport::Refused);
    }
    Ok(DioSupport::Aligned(DioAlignment {
        memory_bytes: u64::from(memory),
        offset_bytes: u64::from(offset),
    }))
}
