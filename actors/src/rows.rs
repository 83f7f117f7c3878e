//! Embedding rows, read on demand.
//!
//! The table is never resident: a sweep needs one row of 14 KB for each of its
//! positions. All of them are asked for when the sweep starts, so that they
//! arrive together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use k3_formats::TensorRef;
use k3_io::{FileId, ReadClass, ReadDone, ReadEngine, ReadLease, ReadRequest, Segment, SlotArena};

use crate::error::ActorError;
use crate::tags::{Party, Tags};

/// Reads rows of the embedding table for one sweep at a time.
#[derive(Debug)]
pub(crate) struct RowReader {
    engine: Arc<dyn ReadEngine>,
    places: SlotArena,
    table: TensorRef,
    row_bytes: u64,
    done: (Sender<ReadDone>, Receiver<ReadDone>),
    tags: Tags,
    /// Tags of the sweep's rows, in order of position, last first.
    wanted: Vec<u64>,
    /// Rows that came before their turn.
    arrived: HashMap<u64, ReadDone>,
    in_flight: usize,
    /// Payload bytes read for the sweep at hand.
    pub(crate) read_bytes: u64,
    /// Time compute waited for rows of the sweep at hand that were being read.
    pub(crate) wait_seconds: f64,
}

impl RowReader {
    pub(crate) fn new(engine: Arc<dyn ReadEngine>, places: SlotArena, table: TensorRef) -> Self {
        let rows = table.shape.as_slice()[0];
        // Answers of two sweeps: one aborted, one begun.
        let done = bounded(2 * places.slot_count() + 1);
        Self {
            engine,
            row_bytes: table.bytes / rows,
            places,
            table,
            done,
            tags: Tags::new(Party::Rows),
            wanted: Vec::new(),
            arrived: HashMap::new(),
            in_flight: 0,
            read_bytes: 0,
            wait_seconds: 0.0,
        }
    }

    /// Asks for the rows of `tokens`, in order.
    ///
    /// # Panics
    ///
    /// If there are more tokens than places: sweeps are bounded by the plan.
    pub(crate) fn begin(&mut self, tokens: impl Iterator<Item = u32>) {
        self.drain();
        self.read_bytes = 0;
        self.wait_seconds = 0.0;
        for token in tokens {
            let target = self
                .places
                .acquire_any()
                .expect("a place for every position");
            let tag = self.tags.next();
            let place = Segment {
                file: FileId(u32::from(self.table.shard)),
                offset: self.table.offset + u64::from(token) * self.row_bytes,
                bytes: self.row_bytes,
            };
            let reply = self.done.0.clone();
            let class = ReadClass::AwaitedBlock;
            self.engine
                .submit(ReadRequest::single(place, target, class, tag, reply));
            self.in_flight += 1;
            self.wanted.push(tag);
        }
        self.wanted.reverse();
    }

    /// The next row asked for.
    ///
    /// # Errors
    ///
    /// A failed read.
    ///
    /// # Panics
    ///
    /// If no row is left.
    pub(crate) fn next(&mut self) -> Result<ReadLease, ActorError> {
        let tag = self.wanted.pop().expect("as many rows as positions");
        self.take_arrived();
        let start = Instant::now();
        let mut has_waited = false;
        let done = loop {
            if let Some(done) = self.arrived.remove(&tag) {
                break done;
            }
            has_waited = true;
            let done = self.receive();
            self.arrived.insert(done.tag, done);
        };
        if has_waited {
            self.wait_seconds += start.elapsed().as_secs_f64();
        }
        done.result?;
        self.read_bytes += self.row_bytes;
        Ok(done.target.freeze(done.payload))
    }

    /// Waits for every row in flight and forgets them.
    pub(crate) fn drain(&mut self) {
        while self.in_flight > 0 {
            drop(self.receive());
        }
        self.arrived.clear();
        self.wanted.clear();
    }

    /// Files the rows that are there already.
    fn take_arrived(&mut self) {
        while let Ok(done) = self.done.1.try_recv() {
            self.in_flight -= 1;
            self.arrived.insert(done.tag, done);
        }
    }

    fn receive(&mut self) -> ReadDone {
        let done = self.done.1.recv().expect("this reader holds a sender");
        self.in_flight -= 1;
        done
    }
}

impl Drop for RowReader {
    fn drop(&mut self) {
        self.drain();
    }
}
