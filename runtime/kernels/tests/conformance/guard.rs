//! Bytes that end where nothing may be read any more.

#![allow(
    unsafe_code,
    reason = "pages that fault when they are touched cannot be had without"
)]

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// At least as large as the pages of any target this runs on.
const PAGE_BYTES: usize = 64 << 10;

/// A copy of some bytes whose end is the end of readable memory.
pub(crate) struct Guarded {
    map: NonNull<c_void>,
    map_bytes: usize,
    len: usize,
}

impl Guarded {
    pub(crate) fn new(content: &[u8]) -> Self {
        let map_bytes = content.len().next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping wherever the kernel puts it; its last page
        // is then closed, and the bytes before it are written while nothing else
        // knows them.
        let map = unsafe {
            let map = mmap_anonymous(null_mut(), map_bytes, access, MapFlags::PRIVATE)
                .expect("memory for a test");
            let end = map.cast::<u8>().add(map_bytes - PAGE_BYTES);
            mprotect(end.cast(), PAGE_BYTES, MprotectFlags::empty()).expect("a page of the map");
            let start = end.sub(content.len());
            start.copy_from_nonoverlapping(content.as_ptr(), content.len());
            NonNull::new(map).expect("a mapping is not null")
        };
        Self {
            map,
            map_bytes,
            len: content.len(),
        }
    }

    pub(crate) fn get(&self) -> &[u8] {
        let offset = self.map_bytes - PAGE_BYTES - self.len;
        // SAFETY: these bytes were written in `new` and stay mapped and unchanged
        // while `self` is.
        unsafe {
            let start = self.map.as_ptr().cast::<u8>().add(offset);
            std::slice::from_raw_parts(start, self.len)
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, whole; no borrow of it outlives `self`.
        unsafe { munmap(self.map.as_ptr(), self.map_bytes) }.expect("a mapping of this process");
    }
}
