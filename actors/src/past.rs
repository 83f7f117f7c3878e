//! Pages of sequences that do not stay in memory: written away when they are
//! full, and read back for every sweep, one layer's parts at a time.
//!
//! A page lies at its place in the file as its parts lie in a page, each padded to
//! whole disk pages. Writing is a matter of milliseconds for every 64 positions,
//! so compute does it itself. Reading goes through the run's engine: the parts of
//! a sweep are asked for in the order attention needs them, layer after layer and
//! in each the pages in order, as far ahead as there are slots. The slots of a
//! layer are free again when its attention is done; attention needs every part
//! twice for each position and head, and reads it from memory each time.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use k3_config::PagePlan;
use k3_formats::trunk::checksum;
use k3_io::{
    FileId, ReadClass, ReadDone, ReadEngine, ReadLease, ReadRequest, Segment, SlotArena,
    SpillError, SpillFile, WriteLease,
};
use k3_models::{PageStore, PastPart, StoreError};
use parking_lot::Mutex;

use crate::tags::{Party, Tags};
use crate::units::memory;

/// Where the parts of pages lie in a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartLayout {
    /// Bytes of a part.
    part_bytes: u64,
    /// Bytes from one to the next.
    stride_bytes: u64,
    /// Parts of a page.
    part_count: usize,
}

impl PartLayout {
    pub(crate) fn new(pages: &PagePlan) -> Self {
        Self {
            part_bytes: pages.part_bytes,
            stride_bytes: pages.part_stride_bytes,
            part_count: memory(pages.part_count),
        }
    }

    /// Number of a part among all parts of the file.
    fn index(&self, place: u32, part: usize) -> usize {
        assert!(part < self.part_count, "a part of a page");
        place as usize * self.part_count + part
    }

    fn segment(&self, file: FileId, index: usize) -> Segment {
        Segment {
            file,
            offset: self.offset(index),
            bytes: self.part_bytes,
        }
    }

    fn offset(&self, index: usize) -> u64 {
        index as u64 * self.stride_bytes
    }
}

/// What has been moved so far, to look at from other threads.
#[derive(Debug, Default)]
pub struct SpillCounts {
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

impl SpillCounts {
    /// Payload bytes written away.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Payload bytes read back, for sweeps and for copies.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }
}

/// The file that pages lie in.
#[derive(Debug)]
pub(crate) struct PageFile {
    file: SpillFile,
    layout: PartLayout,
    /// Memory that may be written and read past the page cache.
    bounce: Mutex<WriteLease>,
    /// Of every part, as it was written.
    checksums: Vec<AtomicU64>,
    counts: Arc<SpillCounts>,
}

fn shared(error: SpillError) -> StoreError {
    StoreError(Arc::new(error))
}

impl PageFile {
    /// The pages of `file`, moved through `bounce`, which holds a part.
    pub(crate) fn new(file: SpillFile, layout: PartLayout, bounce: WriteLease) -> Self {
        assert!(
            bounce.len() as u64 >= layout.stride_bytes,
            "room for a part"
        );
        let count = file.len_bytes() / layout.stride_bytes;
        Self {
            file,
            layout,
            bounce: Mutex::new(bounce),
            checksums: (0..count).map(|_| AtomicU64::new(0)).collect(),
            counts: Arc::default(),
        }
    }

    /// What is counted, for whoever looks on.
    pub(crate) fn shared_counts(self: &Arc<Self>) -> Arc<SpillCounts> {
        Arc::clone(&self.counts)
    }

    fn sum(index: usize, bytes: &[u8]) -> u64 {
        let index = u32::try_from(index).expect("fewer than 2^32 parts");
        let [low, high] = bytemuck::cast::<u128, [u64; 2]>(checksum(index, bytes));
        low ^ high
    }

    /// Compares what was read of part `index` with what was written.
    fn check(&self, index: usize, bytes: &[u8]) -> Result<(), StoreError> {
        if Self::sum(index, bytes) == self.checksums[index].load(Ordering::Relaxed) {
            self.counts
                .read_bytes
                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
            return Ok(());
        }
        Err(shared(SpillError::Damaged {
            dir: self.file.dir().to_owned(),
            offset: self.layout.offset(index),
            bytes: bytes.len() as u64,
        }))
    }
}

impl PageStore for PageFile {
    fn write(&self, place: u32, part: usize, values: &[f32]) -> Result<(), StoreError> {
        let index = self.layout.index(place, part);
        let bytes: &[u8] = bytemuck::cast_slice(values);
        assert_eq!(bytes.len() as u64, self.layout.part_bytes, "a whole part");
        let mut bounce = self.bounce.lock();
        let room = &mut bounce[..memory(self.layout.stride_bytes)];
        room[..bytes.len()].copy_from_slice(bytes);
        self.file
            .write(room, self.layout.offset(index))
            .map_err(shared)?;
        self.checksums[index].store(Self::sum(index, bytes), Ordering::Relaxed);
        self.counts
            .written_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, place: u32, part: usize, values: &mut [f32]) -> Result<(), StoreError> {
        let index = self.layout.index(place, part);
        let mut bounce = self.bounce.lock();
        let room = &mut bounce[..memory(self.layout.stride_bytes)];
        self.file
            .read(room, self.layout.offset(index))
            .map_err(shared)?;
        let bytes = &room[..memory(self.layout.part_bytes)];
        self.check(index, bytes)?;
        bytemuck::cast_slice_mut(values).copy_from_slice(bytes);
        Ok(())
    }
}

/// A part in memory, as numbers.
struct Part(ReadLease);

impl Deref for Part {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Reads the parts of a sweep.
#[derive(Debug)]
pub(crate) struct PastReader {
    engine: Arc<dyn ReadEngine>,
    slots: SlotArena,
    file: FileId,
    pages: Arc<PageFile>,
    done: (Sender<ReadDone>, Receiver<ReadDone>),
    tags: Tags,
    /// Places of the sweep's pages.
    places: Vec<u32>,
    /// Tags of what was asked for and not handed out, in order.
    wanted: VecDeque<u64>,
    /// Parts asked for so far, layer after layer.
    asked: usize,
    /// Parts handed out.
    taken: usize,
    /// The slot that comes next: they are used in turn.
    slot: usize,
    /// Parts that came before their turn.
    arrived: HashMap<u64, ReadDone>,
    in_flight: usize,
    /// Payload bytes read for the sweep at hand.
    pub(crate) read_bytes: u64,
    /// Time compute waited for parts of the sweep at hand.
    pub(crate) wait_seconds: f64,
}

impl PastReader {
    /// Reads `file`, which `pages` writes, into `slots`: at least as many as the
    /// file has pages.
    pub(crate) fn new(
        engine: Arc<dyn ReadEngine>,
        slots: SlotArena,
        file: FileId,
        pages: Arc<PageFile>,
    ) -> Self {
        let done = bounded(slots.slot_count() + 1);
        Self {
            engine,
            slots,
            file,
            pages,
            done,
            tags: Tags::new(Party::Past),
            places: Vec::new(),
            wanted: VecDeque::new(),
            asked: 0,
            taken: 0,
            slot: 0,
            arrived: HashMap::new(),
            in_flight: 0,
            read_bytes: 0,
            wait_seconds: 0.0,
        }
    }

    /// The pages of the next sweep lie at `places`.
    ///
    /// # Panics
    ///
    /// If there are more than slots.
    pub(crate) fn begin(&mut self, places: &[u32]) {
        assert!(places.len() <= self.slots.slot_count(), "a slot for each");
        self.drain();
        self.places.clear();
        self.places.extend_from_slice(places);
        (self.asked, self.taken) = (0, 0);
        (self.read_bytes, self.wait_seconds) = (0, 0.0);
        self.ask();
    }

    /// Asks for what comes next, as far as slots are free.
    pub(crate) fn ask(&mut self) {
        let layout = self.pages.layout;
        while self.asked < self.places.len() * layout.part_count {
            let Some(target) = self.slots.acquire(self.slot) else {
                return;
            };
            let part = self.asked / self.places.len();
            let place = self.places[self.asked % self.places.len()];
            let segment = layout.segment(self.file, layout.index(place, part));
            let tag = self.tags.next();
            let (class, reply) = (ReadClass::ReadAhead, self.done.0.clone());
            let request = ReadRequest::single(segment, target, class, tag, reply);
            self.engine.submit(request);
            self.in_flight += 1;
            self.wanted.push_back(tag);
            self.asked += 1;
            self.slot = (self.slot + 1) % self.slots.slot_count();
        }
    }

    /// The parts of the next layer, in the order of the sweep's pages.
    ///
    /// # Panics
    ///
    /// If all layers have had theirs, or those of the last one still live.
    pub(crate) fn next(&mut self) -> Vec<Result<PastPart, StoreError>> {
        self.ask();
        let part = self.taken / self.places.len().max(1);
        let start = Instant::now();
        let count = self.places.len();
        let tags: Vec<u64> = self.wanted.drain(..count).collect();
        self.file_arrived();
        for tag in tags.iter().filter(|tag| !self.arrived.contains_key(tag)) {
            self.engine.promote(*tag, ReadClass::AwaitedBlock);
        }
        let mut has_waited = false;
        for tag in &tags {
            while !self.arrived.contains_key(tag) {
                has_waited = true;
                let done = self.receive();
                self.arrived.insert(done.tag, done);
            }
        }
        if has_waited {
            self.wait_seconds += start.elapsed().as_secs_f64();
        }
        self.taken += count;
        let mut parts = Vec::with_capacity(count);
        for (at, tag) in tags.iter().enumerate() {
            let done = self.arrived.remove(tag).expect("it has arrived");
            let index = self.pages.layout.index(self.places[at], part);
            parts.push(self.part(index, done));
        }
        parts
    }

    /// What was read of part `index`, once it is what was written.
    fn part(&mut self, index: usize, done: ReadDone) -> Result<PastPart, StoreError> {
        done.result.map_err(|error| StoreError(Arc::new(error)))?;
        let lease = done.target.freeze(done.payload);
        self.read_bytes += lease.len() as u64;
        self.pages.check(index, &lease)?;
        Ok(Box::new(Part(lease)))
    }

    /// Waits for everything in flight and forgets it.
    pub(crate) fn drain(&mut self) {
        for tag in &self.wanted {
            self.engine.cancel(*tag);
        }
        while self.in_flight > 0 {
            drop(self.receive());
        }
        self.arrived.clear();
        self.wanted.clear();
    }

    fn file_arrived(&mut self) {
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

impl Drop for PastReader {
    fn drop(&mut self) {
        self.drain();
    }
}
