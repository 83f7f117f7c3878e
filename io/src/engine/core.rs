//! What both engines share: files, queues, and the end of a piece.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::config::{DeviceCaps, EngineConfig};
use super::counters::{BusyClock, DeviceStats, EngineCounters};
use super::error::EngineError;
use super::pending::{Job, Pending, Piece};
use super::queue::DeviceQueue;
use super::request::{ReadClass, ReadRequest};
use super::transfer::{Transfer, Verdict};
use crate::direct::{DirectFile, FileTable};
use crate::units::{file, memory};

/// The files and one queue for each device.
#[derive(Debug)]
pub(crate) struct EngineCore {
    table: Arc<FileTable>,
    queues: Vec<Arc<DeviceQueue>>,
    clock: Arc<BusyClock>,
    piece_bytes: usize,
}

impl EngineCore {
    pub(crate) fn new(table: Arc<FileTable>, config: &EngineConfig) -> Self {
        let clock = Arc::new(BusyClock::default());
        Self {
            queues: (0..table.devices().len())
                .map(|_| Arc::new(DeviceQueue::new(Arc::clone(&clock))))
                .collect(),
            piece_bytes: config.piece_bytes_for(memory(table.alignment_bytes())),
            table,
            clock,
        }
    }

    pub(crate) fn table(&self) -> &Arc<FileTable> {
        &self.table
    }

    pub(crate) fn queues(&self) -> &[Arc<DeviceQueue>] {
        &self.queues
    }

    pub(crate) fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    /// Queues a request on the devices it touches; `wake` is called with each
    /// device whose ring thread sleeps.
    pub(crate) fn submit(&self, request: ReadRequest, mut wake: impl FnMut(usize)) {
        let Some(pending) = Pending::new(&self.table, request) else {
            return;
        };
        for (device, queue) in self.queues.iter().enumerate() {
            if let Some(job) = Job::new(&pending, device, self.piece_bytes)
                && queue.push(job)
            {
                wake(device);
            }
        }
    }

    pub(crate) fn promote(&self, tag: u64, class: ReadClass) {
        self.queues
            .iter()
            .for_each(|queue| queue.promote(tag, class));
    }

    pub(crate) fn cancel(&self, tag: u64) {
        self.queues.iter().for_each(|queue| queue.cancel(tag));
    }

    pub(crate) fn close(&self) {
        self.queues.iter().for_each(|queue| queue.close());
    }

    pub(crate) fn counters(&self) -> EngineCounters {
        let devices = self.queues.iter().zip(self.table.devices());
        EngineCounters {
            devices: devices
                .map(|(queue, &device)| queue.stats.snapshot(device))
                .collect(),
            busy_seconds: self.clock.seconds(),
        }
    }

    /// The caps of a device as far as the files decide them.
    pub(crate) fn device_caps(&self, index: usize) -> DeviceCaps {
        let device = self.table.devices()[index];
        let on_device = || {
            let files = self.table.files().iter();
            files.filter(move |file| file.device() == device)
        };
        DeviceCaps {
            device,
            file_count: on_device().count(),
            direct_file_count: on_device().filter(|file| file.is_direct()).count(),
            threads: 1,
            in_flight_bytes: 0,
            piece_bytes: self.piece_bytes,
            ring_flags: String::new(),
            fixed_bytes: 0,
            bounce_bytes: 0,
        }
    }
}

/// Records how a piece ended and lets go of it: the last piece of a request
/// answers it. A bounced payload has been copied by now.
pub(crate) fn finish_piece(
    piece: Piece,
    opened: &DirectFile,
    transfer: &Transfer,
    verdict: Verdict,
    stats: &DeviceStats,
) {
    let plan = &piece.plan;
    if plan.direct.is_some() && transfer.is_buffered() {
        stats.buffered_pieces.fetch_add(1, Ordering::Relaxed);
    }
    let wanted_offset = plan.offset + file(plan.payload_start);
    match verdict {
        Verdict::Done => {
            stats.add_payload(piece.request.class, file(plan.payload_bytes));
            if plan.bounce {
                stats
                    .bounced_bytes
                    .fetch_add(file(plan.payload_bytes), Ordering::Relaxed);
            }
            piece.request.landed(plan.payload_bytes);
        }
        Verdict::Truncated { at } => {
            let error = match opened.current_len_bytes() {
                Ok(found_bytes) => EngineError::Truncated {
                    path: opened.path().to_path_buf(),
                    offset: wanted_offset,
                    bytes: file(plan.payload_bytes),
                    stopped_at: at,
                    found_bytes,
                    opened_bytes: opened.len_bytes(),
                },
                Err(error) => error,
            };
            piece.request.fail(error);
        }
        Verdict::Failed { errno, tries } => piece.request.fail(EngineError::Read {
            path: opened.path().to_path_buf(),
            offset: plan.offset,
            bytes: file(plan.bytes),
            errno,
            tries,
        }),
        Verdict::Continue | Verdict::Retry { .. } => {
            unreachable!("a piece ends with a final verdict")
        }
    }
}
