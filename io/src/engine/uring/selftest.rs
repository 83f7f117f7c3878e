//! What a new ring must show before it is trusted.
//!
//! Some kernels read wrongly into registered buffers when several reads are
//! submitted together and the first starts past the first page of a file; some
//! sandboxes accept a ring and then never complete. Both are found here, on a real file.

use std::io;
use std::os::unix::fs::FileExt;

use io_uring::{IoUring, opcode, squeue, types};

use super::fixed;
use super::setup;
use crate::arena::{HugeArena, PagePolicy};
use crate::direct::{DirectFile, FileTable};
use crate::lease::{SlotArena, WriteLease};
use crate::units::file;

const PAGE: usize = 4096;
/// Odd page offsets, read together.
const OFFSETS: [u64; 3] = [4096, 12_288, 20_480];

/// The outcome of the test of registered buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FixedVerdict {
    Good,
    /// Do not use them, for this reason.
    Bad(String),
}

/// Reads through registered buffers and compares. Nothing else may be in the
/// ring.
pub(super) fn fixed_reads(
    ring: &mut IoUring,
    table: &FileTable,
    device: usize,
) -> Result<FixedVerdict, String> {
    let Some(opened) = candidate(table, device) else {
        return Ok(FixedVerdict::Bad(
            "no direct file is large enough to test them".into(),
        ));
    };
    let (arena, _) =
        HugeArena::reserve(2 * 3 * PAGE, PagePolicy::Small).map_err(|error| error.to_string())?;
    let slots =
        SlotArena::new(&arena, 0..2 * 3 * PAGE, 3 * PAGE).map_err(|error| error.to_string())?;
    let (Some(target), Some(mut expected)) = (slots.acquire_any(), slots.acquire_any()) else {
        return Err("no memory for the self-test".into());
    };
    for (index, offset) in OFFSETS.into_iter().enumerate() {
        let part = &mut expected[index * PAGE..(index + 1) * PAGE];
        if let Err(error) = opened.handle(true).read_exact_at(part, offset) {
            return Ok(FixedVerdict::Bad(format!("a test read failed: {error}")));
        }
        opened.drop_cache(offset, PAGE);
    }
    let address = file(target.pointer().as_ptr().addr());
    if let Err(error) = fixed::update(ring, 0, address, 3 * PAGE) {
        return Ok(FixedVerdict::Bad(format!("registering 12 KiB: {error}")));
    }
    let (target, results) = read_fixed(ring, opened, target)?;
    if results.iter().any(|&result| result != 4096) {
        return Ok(FixedVerdict::Bad(format!(
            "test reads returned {results:?}"
        )));
    }
    if target[..] != expected[..] {
        return Ok(FixedVerdict::Bad(
            "test reads brought other bytes than pread (a kernel bug)".into(),
        ));
    }
    Ok(FixedVerdict::Good)
}

fn candidate(table: &FileTable, device: usize) -> Option<&DirectFile> {
    let device = table.devices()[device];
    let end = OFFSETS[2] + file(PAGE);
    table
        .files()
        .iter()
        .find(|file| file.device() == device && file.is_direct() && file.len_bytes() >= end)
}

/// Submits the three reads at once and waits for all of them.
fn read_fixed(
    ring: &mut IoUring,
    opened: &DirectFile,
    target: WriteLease,
) -> Result<(WriteLease, [i32; 3]), String> {
    for (index, offset) in OFFSETS.into_iter().enumerate() {
        // SAFETY: inside the lease, which has three pages.
        let pointer = unsafe { target.pointer().add(index * PAGE) };
        let entry = opcode::ReadFixed::new(
            types::Fd(opened.descriptor(false)),
            pointer.as_ptr(),
            4096,
            0,
        )
        .offset(offset)
        .build()
        .user_data(file(index));
        push(ring, &entry).map_err(|error| refused(ring, index, &error))?;
    }
    let mut results = [0; 3];
    let mut count = 0;
    while count < 3 {
        wait(ring).map_err(|error| refused(ring, 3 - count, &error))?;
        for completion in ring.completion() {
            results[crate::units::memory(completion.user_data())] = completion.result();
            count += 1;
        }
    }
    Ok((target, results))
}

/// Why the self-test failed: the kernel refused to work on `pushed` entries
/// that have no completion yet. Ends the process if it has taken some of them.
fn refused(ring: &mut IoUring, pushed: usize, error: &io::Error) -> String {
    if held_by_kernel(ring, pushed) > 0 {
        give_up(error);
    }
    format!("reading through the ring: {}", setup::reason(error))
}

/// How many of `pushed` entries without a completion the kernel has taken. The
/// memory that the others name is still ours alone.
pub(super) fn held_by_kernel(ring: &mut IoUring, pushed: usize) -> usize {
    // More may be waiting after a self-test that failed: then nothing else was
    // pushed, and the ring is about to be closed.
    pushed.saturating_sub(ring.submission().len())
}

/// Puts an entry into the submission queue, making room if there is none.
pub(super) fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    loop {
        // SAFETY: the memory that the entry names is owned by an operation
        // that is kept until its completion has been seen: the slab's, the
        // self-test's lease, or the ring thread's event counter.
        if unsafe { ring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        submit(ring)?;
    }
}

/// Waits for one completion at least; transient refusals are waited out.
pub(super) fn wait(ring: &IoUring) -> io::Result<()> {
    retry(|| ring.submit_and_wait(1))
}

fn submit(ring: &IoUring) -> io::Result<()> {
    retry(|| ring.submit())
}

/// Tries before a ring that keeps refusing counts as broken: about ten seconds.
const ENTER_TRIES_MAX: u32 = 10_000;

fn retry(mut enter: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
    let mut tries = 0;
    loop {
        let Err(error) = enter() else {
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => return Ok(()),
            // Out of memory for requests, or completions to be collected first.
            Some(libc::EAGAIN | libc::ENOMEM) if tries < ENTER_TRIES_MAX => {
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Some(libc::EBUSY) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// Ends the process: the kernel may still write into memory of ours, and the
/// ring that could tell when it has stopped does not answer. Going on could
/// turn weights into garbage unnoticed.
pub(super) fn give_up(error: &io::Error) -> ! {
    use std::io::Write;
    let _ = writeln!(
        std::io::stderr(),
        "k3: io_uring stopped working with reads in flight: {error}; use --engine pread"
    );
    std::process::abort()
}
