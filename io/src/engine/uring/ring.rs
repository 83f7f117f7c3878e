//! The thread that owns a ring.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use super::fixed::FixedTable;
use super::op::{Op, Slab, bounce_buffers};
use super::selftest::{self, FixedVerdict, give_up, held_by_kernel, push, wait};
use super::setup;
use super::shared::RingShared;
use crate::direct::{DirectFile, FileTable};
use crate::engine::config::{EngineConfig, FixedBuffers};
use crate::engine::core::finish_piece;
#[cfg(any(test, feature = "testing"))]
use crate::engine::fault::{Fault, FaultHook, ReadCall, scribble};
use crate::engine::pending::Piece;
use crate::engine::queue::Taken;
use crate::engine::transfer::{Transfer, Verdict};
use crate::lease::SlotArena;
use crate::units::{file, memory};

/// User data of the read of the event counter.
const WAKE: u64 = u64::MAX;

/// Most operations in flight: small requests are not worth more.
const OPS_MAX: usize = 64;

/// Pause before a read that failed for want of resources or with an I/O error
/// is tried again. The whole device waits: it is in trouble anyway.
const PAUSE: Duration = Duration::from_millis(1);

/// Bounds of one ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) in_flight_bytes: usize,
    piece_bytes: usize,
    ops: usize,
    bounces: usize,
}

impl Limits {
    pub(super) fn new(config: &EngineConfig, piece_bytes: usize) -> Self {
        let bounces = (config.in_flight_bytes / piece_bytes).clamp(1, OPS_MAX);
        Self {
            in_flight_bytes: config.in_flight_bytes.max(piece_bytes),
            piece_bytes,
            // Pieces at the edges of requests are smaller than the rest.
            ops: (2 * bounces).clamp(8, OPS_MAX),
            bounces,
        }
    }

    pub(super) fn bounce_bytes(&self) -> usize {
        self.bounces * self.piece_bytes
    }
}

/// A ring, its operations, and what they read.
pub(super) struct RingThread {
    // Declared first: closed before the memory it may have registered goes.
    ring: IoUring,
    slab: Slab,
    bounces: SlotArena,
    fixed: FixedTable,
    shared: Arc<RingShared>,
    table: Arc<FileTable>,
    limits: Limits,
    in_flight_bytes: usize,
    /// Entries for pieces in the ring that have not been completed.
    in_ring: usize,
    /// Where the kernel puts the event counter; boxed, so that it stays put.
    event_count: Box<u64>,
    wake_armed: bool,
    /// Completions being handled; reused.
    completions: Vec<(u64, i32)>,
    flags: &'static str,
    #[cfg(any(test, feature = "testing"))]
    faults: Option<Arc<dyn FaultHook>>,
}

impl RingThread {
    /// Makes and tests the ring.
    pub(super) fn new(
        shared: Arc<RingShared>,
        table: Arc<FileTable>,
        device: usize,
        config: &EngineConfig,
        limits: Limits,
    ) -> Result<Self, String> {
        let entries = u32::try_from((limits.ops + 4).next_power_of_two()).expect("at most 128");
        let (ring, flags) = setup::build(entries)?;
        let bounces = bounce_buffers(limits.bounces, limits.piece_bytes)
            .map_err(|error| error.to_string())?;
        let mut thread = Self {
            ring,
            slab: Slab::new(limits.ops),
            bounces,
            fixed: FixedTable::none(),
            shared,
            table,
            limits,
            in_flight_bytes: 0,
            in_ring: 0,
            event_count: Box::new(0),
            wake_armed: false,
            completions: Vec::with_capacity(2 * memory(u64::from(entries))),
            flags,
            #[cfg(any(test, feature = "testing"))]
            faults: config.faults.clone(),
        };
        thread.set_up_fixed(device, config)?;
        thread.test_wake()?;
        Ok(thread)
    }

    pub(super) fn flags(&self) -> &'static str {
        self.flags
    }

    fn set_up_fixed(&mut self, device: usize, config: &EngineConfig) -> Result<(), String> {
        if config.fixed_buffers == FixedBuffers::Off {
            return Ok(());
        }
        let fixed = FixedTable::new(&config.arenas, config.fixed_piece_bytes);
        if fixed.is_empty() {
            return Ok(());
        }
        if let Err(error) = fixed.reserve(&self.ring) {
            self.shared.add_fallback(format!(
                "io_uring cannot register buffers one by one: {error}"
            ));
            return Ok(());
        }
        match selftest::fixed_reads(&mut self.ring, &self.table, device)? {
            FixedVerdict::Good => self.fixed = fixed,
            FixedVerdict::Bad(reason) => self
                .shared
                .add_fallback(format!("io_uring registered buffers are off: {reason}")),
        }
        if config.fixed_buffers == FixedBuffers::AtStart {
            for addresses in self.fixed.everything() {
                self.register(&addresses);
            }
        }
        Ok(())
    }

    /// Checks that writing the event counter ends a wait.
    fn test_wake(&mut self) -> Result<(), String> {
        self.shared.wake();
        self.arm_wake();
        while self.wake_armed {
            wait(&self.ring)
                .map_err(|error| format!("waiting in the ring: {}", setup::reason(&error)))?;
            self.collect();
            for (data, result) in std::mem::take(&mut self.completions) {
                assert_eq!(data, WAKE, "nothing else is in the ring");
                if result != 8 {
                    return Err(format!("reading an event counter returned {result}"));
                }
            }
        }
        Ok(())
    }

    /// Serves the queue until it is closed and nothing is in flight.
    pub(super) fn run(&mut self) {
        loop {
            for addresses in self.shared.take_ready() {
                self.register(&addresses);
            }
            let closed = self.fill();
            if closed && self.slab.len() == 0 {
                return;
            }
            self.arm_wake();
            wait(&self.ring).unwrap_or_else(|error| give_up(&error));
            self.collect();
            let mut completions = std::mem::take(&mut self.completions);
            for (data, result) in completions.drain(..) {
                if data != WAKE {
                    self.completed(memory(data), result);
                }
            }
            self.completions = completions;
        }
    }

    /// Takes what the kernel has completed: from here on it is no longer the
    /// kernel's, whatever happens to this thread.
    fn collect(&mut self) {
        self.completions.clear();
        for completion in self.ring.completion() {
            if completion.user_data() == WAKE {
                self.wake_armed = false;
            } else {
                self.in_ring -= 1;
            }
            self.completions
                .push((completion.user_data(), completion.result()));
        }
    }

    /// Whether the kernel may still write into memory of ours.
    fn is_held_by_kernel(&mut self) -> bool {
        let pushed = self.in_ring + usize::from(self.wake_armed);
        held_by_kernel(&mut self.ring, pushed) > 0
    }

    fn register(&mut self, addresses: &std::ops::Range<u64>) {
        if let Some(refusal) = self.fixed.register(&self.ring, addresses) {
            self.shared.add_fallback(refusal);
        }
        self.shared.set_fixed_bytes(self.fixed.registered_bytes());
    }

    /// Keeps one read of the event counter in the ring: it ends a wait when
    /// somebody writes the counter.
    fn arm_wake(&mut self) {
        if self.wake_armed {
            return;
        }
        let event = self.shared.event.as_fd().as_raw_fd();
        let pointer: *mut u64 = &mut *self.event_count;
        let entry = opcode::Read::new(types::Fd(event), pointer.cast(), 8)
            .build()
            .user_data(WAKE);
        push(&mut self.ring, &entry).unwrap_or_else(|error| give_up(&error));
        self.wake_armed = true;
    }

    /// Starts queued pieces while there is room; whether the queue is closed.
    fn fill(&mut self) -> bool {
        loop {
            let room = |bytes: usize, bounce: bool| {
                self.slab.has_room()
                    && (self.in_flight_bytes == 0
                        || self.in_flight_bytes + bytes <= self.limits.in_flight_bytes)
                    && (!bounce || self.bounces.free_count() > 0)
            };
            let taken = self
                .shared
                .queue
                .try_take(|plan| room(plan.bytes, plan.bounce));
            match taken {
                Taken::Piece(piece) => self.start(piece),
                Taken::Empty | Taken::NoRoom => return false,
                Taken::Closed => return true,
            }
        }
    }

    fn start(&mut self, piece: Piece) {
        let bounce = piece.plan.bounce.then(|| {
            let buffer = self.bounces.acquire_any();
            buffer.expect("room was checked by the only thread that takes them")
        });
        self.in_flight_bytes += piece.plan.bytes;
        let transfer = Transfer::new(&piece.plan);
        let index = self.slab.insert(Op {
            step: transfer.step(),
            transfer,
            piece,
            bounce,
            fixed: false,
            fixed_allowed: true,
            #[cfg(any(test, feature = "testing"))]
            fault: Fault::None,
        });
        self.push_step(index);
    }

    /// Puts the next call of an operation into the ring.
    fn push_step(&mut self, index: usize) {
        let op = self.slab.get_mut(index);
        let step = op.transfer.step();
        op.step = step;
        let opened = self.table.get(op.piece.plan.file);
        #[cfg(any(test, feature = "testing"))]
        {
            op.fault = self.faults.as_deref().map_or(Fault::None, |hook| {
                hook.before(ReadCall {
                    path: opened.path(),
                    offset: step.offset,
                    bytes: step.bytes,
                    buffered: step.buffered,
                })
            });
        }
        // SAFETY: the step lies inside the window, for which the buffer is valid.
        let pointer = unsafe { op.buffer().add(step.at) }.as_ptr();
        let descriptor = types::Fd(opened.descriptor(step.buffered));
        let bytes = u32::try_from(step.bytes).expect("pieces are at most 1 GiB");
        let buffer = if op.fixed_allowed {
            self.fixed.lookup(file(pointer.addr()), step.bytes)
        } else {
            None
        };
        op.fixed = buffer.is_some();
        let entry = match buffer {
            Some(buffer) => opcode::ReadFixed::new(descriptor, pointer, bytes, buffer)
                .offset(step.offset)
                .build(),
            None => opcode::Read::new(descriptor, pointer, bytes)
                .offset(step.offset)
                .build(),
        };
        push(&mut self.ring, &entry.user_data(file(index))).unwrap_or_else(|error| give_up(&error));
        self.in_ring += 1;
    }

    fn completed(&mut self, index: usize, result: i32) {
        let op = self.slab.get_mut(index);
        let opened = self.table.get(op.piece.plan.file);
        let stats = &self.shared.queue.stats;
        if op.step.buffered || !opened.is_direct() {
            opened.drop_cache(op.step.offset, op.step.bytes);
        }
        // The kernel refused the registered buffer, not the read.
        if op.fixed && matches!(-result, libc::EFAULT | libc::EINVAL | libc::EOPNOTSUPP) {
            op.fixed_allowed = false;
            stats.retries.fetch_add(1, Ordering::Relaxed);
            self.fixed.disable();
            self.shared.set_fixed_bytes(0);
            self.shared.add_fallback(format!(
                "io_uring registered buffers were turned off: a read failed with errno {}",
                -result
            ));
            return self.push_step(index);
        }
        let mut answer = usize::try_from(result).map_err(|_| -result);
        #[cfg(any(test, feature = "testing"))]
        {
            answer = apply_fault(op, answer);
        }
        if let Ok(count) = answer.as_mut() {
            // Never more than was asked for, whatever the kernel says.
            *count = (*count).min(op.step.bytes);
            stats
                .device_bytes
                .fetch_add(file(*count), Ordering::Relaxed);
        }
        match op.transfer.advance(answer) {
            Verdict::Continue => {
                stats.short_reads.fetch_add(1, Ordering::Relaxed);
                self.push_step(index);
            }
            Verdict::Retry { pause } => {
                stats.retries.fetch_add(1, Ordering::Relaxed);
                if pause {
                    std::thread::sleep(PAUSE);
                }
                self.push_step(index);
            }
            verdict => self.finish(index, verdict),
        }
    }

    fn finish(&mut self, index: usize, verdict: Verdict) {
        let op = self.slab.remove(index);
        self.in_flight_bytes -= op.piece.plan.bytes;
        if let (Verdict::Done, Some(bounce)) = (verdict, &op.bounce) {
            // SAFETY: the piece was taken from the queue by this thread, belongs
            // to this request's layout, and its read is complete.
            unsafe {
                op.piece
                    .request
                    .landing()
                    .copy_payload(&op.piece.plan, bounce);
            }
        }
        let opened: &DirectFile = self.table.get(op.piece.plan.file);
        let stats = &self.shared.queue.stats;
        finish_piece(op.piece, opened, &op.transfer, verdict, stats);
        self.shared.queue.finished();
    }
}

/// Does to a finished read what the hook decided before it.
#[cfg(any(test, feature = "testing"))]
fn apply_fault(op: &mut Op, answer: Result<usize, i32>) -> Result<usize, i32> {
    let (from, answer) = match op.fault {
        Fault::None => return answer,
        Fault::Delay(delay) => {
            std::thread::sleep(delay);
            return answer;
        }
        Fault::Short(limit) => match answer {
            Ok(count) => (count.min(limit), Ok(count.min(limit))),
            Err(errno) => return Err(errno),
        },
        Fault::Errno(errno) => (0, Err(errno)),
    };
    // SAFETY: the step's part of the buffer, which this operation owns and
    // whose read is complete.
    let part = unsafe {
        std::slice::from_raw_parts_mut(op.buffer().add(op.step.at).as_ptr(), op.step.bytes)
    };
    scribble(&mut part[from..]);
    answer
}

impl Drop for RingThread {
    /// Waits for the kernel: after this, nothing writes into memory of ours.
    /// Nothing is in flight unless the thread is unwinding from a panic; then
    /// the requests are answered with an error as the slab is dropped. What the
    /// kernel never took, as on a system that forbids to enter a ring, it will
    /// not take later: the ring is closed first.
    fn drop(&mut self) {
        self.shared.queue.close();
        while self.is_held_by_kernel() {
            if self.wake_armed {
                self.shared.wake();
            }
            wait(&self.ring).unwrap_or_else(|error| give_up(&error));
            self.collect();
        }
    }
}
