//! Threads that call `pread`: the reference, and the engine for systems that
//! forbid io_uring.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ReadEngine;
use super::config::{DeviceCaps, EngineCaps, EngineConfig, EngineKind};
use super::core::{EngineCore, finish_piece};
use super::counters::{DeviceStats, EngineCounters};
use super::error::EngineError;
use super::pending::Piece;
use super::queue::DeviceQueue;
use super::request::{ReadClass, ReadRequest};
use super::transfer::{Step, Transfer, Verdict};
use crate::arena::{HugeArena, PagePolicy};
use crate::direct::{DirectFile, FileTable};
use crate::lease::{SlotArena, WriteLease};

/// Pause before a read that failed for want of resources or with an I/O error
/// is tried again.
const PAUSE: Duration = Duration::from_millis(1);

/// A read engine of blocking threads, some on each device.
///
/// In flight on a device: at most one piece for each of its threads.
#[derive(Debug)]
pub struct PreadEngine {
    core: EngineCore,
    caps: EngineCaps,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl PreadEngine {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// [`EngineError::Unavailable`] when threads cannot be started,
    /// [`EngineError::Reserve`] when there is no memory for bounce buffers.
    pub fn open(table: Arc<FileTable>, config: &EngineConfig) -> Result<Self, EngineError> {
        let core = EngineCore::new(table, config);
        let mut engine = Self {
            caps: EngineCaps {
                kind: EngineKind::Pread,
                devices: Vec::new(),
                fallbacks: core.table().fallbacks(),
            },
            threads: Mutex::default(),
            core,
        };
        for (index, queue) in engine.core.queues().iter().enumerate() {
            let piece_bytes = engine.core.piece_bytes();
            let thread_count = config
                .threads
                .min(config.in_flight_bytes / piece_bytes)
                .max(1);
            for number in 0..thread_count {
                let reader = Reader {
                    table: Arc::clone(engine.core.table()),
                    queue: Arc::clone(queue),
                    bounce: bounce_buffer(piece_bytes)?,
                    #[cfg(any(test, feature = "testing"))]
                    faults: config.faults.clone(),
                };
                let thread = std::thread::Builder::new()
                    .name(format!("k3-read-{index}-{number}"))
                    .spawn(move || reader.run())
                    .map_err(|error| EngineError::Unavailable {
                        engine: "pread",
                        reason: format!("cannot start a thread: {error}"),
                    })?;
                engine
                    .threads
                    .get_mut()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(thread);
            }
            engine.caps.devices.push(DeviceCaps {
                threads: thread_count,
                in_flight_bytes: thread_count * piece_bytes,
                bounce_bytes: thread_count * piece_bytes,
                ..engine.core.device_caps(index)
            });
        }
        Ok(engine)
    }

    /// Records why a better engine is not in its place.
    pub(super) fn add_fallback(&mut self, reason: Option<String>) {
        self.caps.fallbacks.splice(0..0, reason);
    }
}

/// One slot of memory for pieces that cannot land directly; untouched until
/// one comes.
fn bounce_buffer(piece_bytes: usize) -> Result<WriteLease, EngineError> {
    let (arena, _) = HugeArena::reserve(piece_bytes, PagePolicy::Small)?;
    let slots = SlotArena::new(&arena, 0..piece_bytes, piece_bytes)?;
    Ok(slots.acquire_any().expect("a fresh slot"))
}

impl ReadEngine for PreadEngine {
    fn submit(&self, request: ReadRequest) {
        self.core.submit(request, |_| {});
    }

    fn promote(&self, tag: u64, class: ReadClass) {
        self.core.promote(tag, class);
    }

    fn cancel(&self, tag: u64) {
        self.core.cancel(tag);
    }

    fn caps(&self) -> EngineCaps {
        self.caps.clone()
    }

    fn counters(&self) -> EngineCounters {
        self.core.counters()
    }

    fn shutdown(&self) {
        self.core.close();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A reader that panicked has answered its requests by unwinding.
            let _ = thread.join();
        }
    }
}

impl Drop for PreadEngine {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// One reading thread.
struct Reader {
    table: Arc<FileTable>,
    queue: Arc<DeviceQueue>,
    bounce: WriteLease,
    #[cfg(any(test, feature = "testing"))]
    faults: Option<Arc<dyn super::fault::FaultHook>>,
}

impl Reader {
    fn run(mut self) {
        while let Some(piece) = self.queue.take() {
            self.read(piece);
            self.queue.finished();
        }
    }

    fn read(&mut self, piece: Piece) {
        let file = self.table.get(piece.plan.file);
        let stats = &self.queue.stats;
        let mut transfer = Transfer::new(&piece.plan);
        #[cfg(any(test, feature = "testing"))]
        let faults = self.faults.as_deref();
        let mut call = |step: Step, part: &mut [u8]| {
            #[cfg(any(test, feature = "testing"))]
            let answer = faulty_read(faults, file, step, part);
            #[cfg(not(any(test, feature = "testing")))]
            let answer = read_once(file, step, part);
            answer
        };
        let verdict = if piece.plan.bounce {
            let verdict = drive(&mut transfer, &mut self.bounce, stats, &mut call);
            if verdict == Verdict::Done {
                // SAFETY: the piece was taken from the queue by this thread and
                // belongs to this request's layout.
                unsafe {
                    let landing = piece.request.landing();
                    landing.copy_payload(&piece.plan, &self.bounce);
                }
            }
            verdict
        } else {
            // SAFETY: as above; the slice is gone before the piece is finished.
            let window = unsafe { piece.request.landing().window_slice(&piece.plan) };
            drive(&mut transfer, window, stats, &mut call)
        };
        finish_piece(piece, file, &transfer, verdict, stats);
    }
}

impl Drop for Reader {
    /// A reader that panics must not leave its queue to nobody.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.close();
        }
    }
}

/// Makes the calls of one piece until it is over.
fn drive(
    transfer: &mut Transfer,
    buffer: &mut [u8],
    stats: &DeviceStats,
    call: &mut impl FnMut(Step, &mut [u8]) -> Result<usize, i32>,
) -> Verdict {
    loop {
        let step = transfer.step();
        let answer = call(step, &mut buffer[step.at..step.at + step.bytes]);
        count_answer(answer, stats);
        match transfer.advance(answer) {
            Verdict::Continue => {
                stats.short_reads.fetch_add(1, Ordering::Relaxed);
            }
            Verdict::Retry { pause } => {
                stats.retries.fetch_add(1, Ordering::Relaxed);
                if pause {
                    std::thread::sleep(PAUSE);
                }
            }
            end => return end,
        }
    }
}

fn count_answer(answer: Result<usize, i32>, stats: &DeviceStats) {
    if let Ok(count) = answer {
        stats
            .device_bytes
            .fetch_add(crate::units::file(count), Ordering::Relaxed);
    }
}

fn read_once(file: &DirectFile, step: Step, part: &mut [u8]) -> Result<usize, i32> {
    let answer = file
        .handle(step.buffered)
        .read_at(part, step.offset)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
    if step.buffered || !file.is_direct() {
        file.drop_cache(step.offset, step.bytes);
    }
    answer
}

#[cfg(any(test, feature = "testing"))]
fn faulty_read(
    faults: Option<&dyn super::fault::FaultHook>,
    file: &DirectFile,
    step: Step,
    part: &mut [u8],
) -> Result<usize, i32> {
    use super::fault::{Fault, ReadCall, scribble};
    let fault = faults.map_or(Fault::None, |hook| {
        hook.before(ReadCall {
            path: file.path(),
            offset: step.offset,
            bytes: step.bytes,
            buffered: step.buffered,
        })
    });
    match fault {
        Fault::None => read_once(file, step, part),
        Fault::Short(limit) => {
            let count = read_once(file, step, part)?.min(limit);
            scribble(&mut part[count..]);
            Ok(count)
        }
        Fault::Errno(errno) => {
            scribble(part);
            Err(errno)
        }
        Fault::Delay(delay) => {
            std::thread::sleep(delay);
            read_once(file, step, part)
        }
    }
}
