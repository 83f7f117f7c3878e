//! One thread's share: read ahead in order, hash in order.

use std::collections::VecDeque;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::digest::Digest;
use super::{HashSettings, HashSink, Queue};
use crate::engine::{EngineError, ReadClass, ReadDone, ReadEngine, ReadRequest, Segment};
use crate::lease::{SlotArena, WriteLease};
use crate::units::file;

/// A thread that hashes.
pub(super) struct Worker<'a> {
    engine: &'a dyn ReadEngine,
    queue: &'a Queue,
    ranges: &'a [Segment],
    settings: &'a HashSettings,
    sink: &'a dyn HashSink,
    free: Vec<WriteLease>,
    reply: Sender<ReadDone>,
    answers: Receiver<ReadDone>,
    /// The range being asked for and how much of it is.
    asking: Option<(usize, u64)>,
    /// Pieces asked for, in the order of the ranges and of their bytes.
    pieces: VecDeque<Piece>,
    /// Tag of the first of `pieces`.
    first_tag: u64,
}

/// A piece of a range.
struct Piece {
    range: usize,
    is_last: bool,
    answer: Option<ReadDone>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        engine: &'a dyn ReadEngine,
        queue: &'a Queue,
        ranges: &'a [Segment],
        settings: &'a HashSettings,
        sink: &'a dyn HashSink,
        slots: &SlotArena,
    ) -> Self {
        let free: Vec<_> = (0..slots.slot_count())
            .filter_map(|slot| slots.acquire(slot))
            .collect();
        let (reply, answers) = bounded(free.len());
        Self {
            engine,
            queue,
            ranges,
            settings,
            sink,
            free,
            reply,
            answers,
            asking: None,
            pieces: VecDeque::new(),
            first_tag: 0,
        }
    }

    /// Hashes ranges until there are none; the bytes that were.
    ///
    /// # Errors
    ///
    /// The engine has stopped.
    pub(super) fn run(mut self) -> Result<u64, EngineError> {
        let mut hashed_bytes = 0;
        let mut digest = Digest::new(self.settings.kind);
        let mut failed: Option<EngineError> = None;
        loop {
            if !self.sink.go_on() {
                self.queue.stop();
            }
            self.ask();
            let Some(piece) = self.next()? else {
                return Ok(hashed_bytes);
            };
            let done = piece.answer.expect("taken when it has come");
            match done.result {
                Ok(()) if failed.is_none() => digest.update(&done.target[done.payload.clone()]),
                Ok(()) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
            let bytes = file(done.payload.len());
            self.free.push(done.target);
            if failed.is_none() {
                hashed_bytes += bytes;
                self.sink.bytes(bytes);
            }
            if piece.is_last {
                let whole = std::mem::replace(&mut digest, Digest::new(self.settings.kind));
                let result = failed.take().map_or_else(|| Ok(whole.finish()), Err);
                self.sink.range(piece.range, result);
            }
        }
    }

    /// Asks for as many pieces as there is memory for.
    fn ask(&mut self) {
        while let Some(target) = self.free.pop() {
            let next = match self.asking.take() {
                // Nobody waits for the rest of a range once all is stopped: it
                // has no last piece, so no hash is reported.
                Some(_) if self.queue.is_stopped() => None,
                Some(asking) => Some(asking),
                None => self.queue.take().map(|range| (range, 0)),
            };
            let Some((range, asked)) = next else {
                self.free.push(target);
                return;
            };
            let whole = self.ranges[range];
            let bytes = (whole.bytes - asked).min(file(self.settings.piece_bytes));
            let is_last = asked + bytes == whole.bytes;
            let segment = Segment {
                file: whole.file,
                offset: whole.offset + asked,
                bytes,
            };
            let tag = self.first_tag + file(self.pieces.len());
            self.pieces.push_back(Piece {
                range,
                is_last,
                answer: None,
            });
            self.asking = (!is_last).then_some((range, asked + bytes));
            let class = ReadClass::ReadAhead;
            let reply = self.reply.clone();
            self.engine
                .submit(ReadRequest::single(segment, target, class, tag, reply));
        }
    }

    /// The next piece in order, waited for; `None` when none is on its way.
    fn next(&mut self) -> Result<Option<Piece>, EngineError> {
        loop {
            match self.pieces.front() {
                None => return Ok(None),
                Some(piece) if piece.answer.is_some() => {
                    self.first_tag += 1;
                    return Ok(self.pieces.pop_front());
                }
                Some(_) => {}
            }
            let done = self.answers.recv().expect("this worker holds a sender");
            if matches!(done.result, Err(EngineError::Stopped)) {
                return Err(EngineError::Stopped);
            }
            let place = usize::try_from(done.tag - self.first_tag).expect("a piece under way");
            self.pieces[place].answer = Some(done);
        }
    }
}
